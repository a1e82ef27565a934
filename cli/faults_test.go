package cli

import (
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

func TestFaults(t *testing.T) {
	f := lab()
	if r := run(t, f, "faults", "show", "lab"); r.out != "lab has no schedule of faults\n" {
		t.Errorf("%+v", r)
	}
	if r := run(t, f, "faults", "stop", "lab"); r.out != "lab: no faults are running\n" {
		t.Errorf("%+v", r)
	}
	record := f.records["lab"]
	record.Network.Faults = []model.Fault{{At: 60e9, Action: model.ActionSet, Object: "h1--r1",
		Values: []model.Assignment{{Key: "loss", Value: "0.05"}}}, {At: 30e9, Action: model.ActionStop, Object: "r1--r2"}}
	f.records["lab"] = record
	if r := run(t, f, "faults", "start", "lab"); r.out != "lab: faults started; the last of 2 is at 1m0s\n" {
		t.Errorf("%+v", r)
	}
	f.records["lab"].FaultRun.Done = []model.FaultDone{{At: 30.012e9}}
	r := run(t, f, "faults", "show", "lab")
	for _, want := range []string{"lab: faults started 0s ago, running", "30s   stop r1--r2            30.012s   made",
		"1m0s   set h1--r1 loss=0.05"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("show lacks %q:\n%s", want, r.out)
		}
	}
	if r := run(t, f, "faults", "show", "lab", "-o", "json"); !strings.Contains(r.out, `"object": "r1--r2"`) {
		t.Errorf("%+v", r)
	}
	if r := run(t, f, "faults", "stop", "lab"); !strings.Contains(r.out, "put back") ||
		f.records["lab"].FaultRun != nil {
		t.Errorf("%+v", r)
	}
	if r := run(t, f, "faults"); r.code != ExitUsage || !strings.Contains(r.err, "start, stop or show") {
		t.Errorf("%+v", r)
	}
}
