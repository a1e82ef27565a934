package cli

import (
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/spec"
)

// savable is the lab without what no file may say.
func savable() *fake {
	f := lab()
	record := f.records["lab"]
	record.Network.Expect = nil
	f.records["lab"] = record
	return f
}

// TestSaveRunning saves a network with what its elements are by now, and reads it back.
func TestSaveRunning(t *testing.T) {
	f := savable()
	const config = "hostname r1\n!\nip route 203.0.113.0/24 Null0\n!\nend\n"
	f.running = map[string]model.Running{
		"r1": {Config: map[string]string{"frr.conf": config}},
		"r2": {Config: map[string]string{"frr.conf": "hostname r2\n"}},
		"h1": {Files: []model.OwnFile{{Path: "/root/work", Size: 1500}, {Path: "/root/a\nhosts: [evil]", Size: 1}},
			More: true},
		"s1": {},
	}
	r := run(t, f, "save", "lab", "--running")
	if r.code != ExitOK || r.err != "" {
		t.Fatalf("status %d, %s", r.code, r.err)
	}
	networks, err := spec.Parse("saved", []byte(r.out), spec.Options{})
	if err != nil {
		t.Fatalf("what is saved cannot be read: %v\n%s", err, r.out)
	}
	read := networks[0]
	if len(read.Elements) != 4 || read.Elements[0].Name != "r1" || read.Elements[0].Config["frr.conf"] != config {
		t.Errorf("read back are %+v", read.Elements)
	}
	for _, e := range read.Elements {
		if e.Name == "r1" && (e.Routing.BGP == nil || len(e.Routes) != 2) {
			t.Errorf("what the file says beside the configuration was lost: %+v", e)
		}
	}
	for _, want := range []string{"#   h1:/root/work  1.4KiB\n", `#   h1:"/root/a\nhosts: [evil]"  1B`,
		"#   h1:  and more than are listed\n"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("%q is not in\n%s", want, r.out)
		}
	}
	if plain := run(t, f, "save", "lab"); strings.Contains(plain.out, "hostname") || strings.Contains(plain.out, "#") {
		t.Errorf("without --running there is\n%s", plain.out)
	}
}

// TestSaveRunningSaysWhatItLacks has a router that hangs, one that is stopped and was never started, and one whose node
// is away: the file is printed, what it lacks is told, and the command fails.
func TestSaveRunningSaysWhatItLacks(t *testing.T) {
	f := savable()
	f.running = map[string]model.Running{
		"r1": {Config: map[string]string{"frr.conf": "hostname written\n"}, Stale: "its routing software hangs"},
		"r2": {Stale: "it has never run"},
		"h1": {},
	}
	r := run(t, f, "save", "lab", "--running")
	if r.code != ExitFailed {
		t.Errorf("status %d", r.code)
	}
	if _, err := spec.Parse("saved", []byte(r.out), spec.Options{}); err != nil ||
		!strings.Contains(r.out, "hostname written") {
		t.Errorf("%v:\n%s", err, r.out)
	}
	for _, want := range []string{"lab/r1 has the configuration that it wrote last: its routing software hangs",
		"lab/r2 has the configuration that was applied: it has never run",
		"lab/s1 is as it was applied, since it cannot be asked: node n2 says nothing"} {
		if !strings.Contains(r.err, want) {
			t.Errorf("%q is not in\n%s", want, r.err)
		}
	}
	if r := run(t, lab(), "save", "nope", "--running"); r.code != ExitNotFound {
		t.Errorf("of a network that is not there: %d, %s", r.code, r.err)
	}
}
