package manager

import (
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
)

// TestProvisionalNetworksGoUnlessKept makes networks that nobody says are whole: they go in their time, also after a
// restart, and whatever was set on them meanwhile. Those that are kept stay, and so does everything that was there.
func TestProvisionalNetworksGoUnlessKept(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	f.apply(t, line("there", 1), model.ApplyOptions{})
	imported := model.ApplyOptions{Provisional: true, Base: model.BaseNew}
	f.apply(t, line("kept", 1), imported)
	f.apply(t, line("lab", 1), imported)
	_, err := f.Apply(t.Context(), line("there", 2), model.ApplyOptions{Provisional: true})
	if p := problem(t, err); p.Kind != api.KindConflict {
		t.Errorf("a network that is there becomes provisional: %v", p)
	}
	if _, err := f.set(t, "r1", "memory=512MiB"); err != nil { // of lab
		t.Fatal(err)
	}
	f.apply(t, line("lab", 2), model.ApplyOptions{})
	if s := status(t, f.Manager, "lab"); s.Provisional.IsZero() {
		t.Error("what was changed of a provisional network made it stay")
	}
	for range 2 { // a second time changes nothing
		if err := f.Keep(t.Context(), "kept"); err != nil {
			t.Fatal(err)
		}
	}
	if p := problem(t, f.Keep(t.Context(), "nothing")); p.Kind != api.KindNotFound {
		t.Errorf("what is not there is kept: %v", p)
	}
	f.removeProvisional(t.Context(), time.Now().Add(model.ProvisionalTime-time.Minute))
	if s := status(t, f.Manager, "lab"); s.Deleting {
		t.Error("it goes before its time")
	}
	f.stop()
	f = start(t, f.dir, model.Substrate{})
	f.removeProvisional(t.Context(), time.Now().Add(model.ProvisionalTime+time.Minute))
	for name, deleting := range map[string]bool{"lab": true, "kept": false, "there": false} {
		if s := status(t, f.Manager, name); s.Deleting != deleting {
			t.Errorf("%s is being deleted: %v, want %v", name, s.Deleting, deleting)
		}
	}
	if p := problem(t, f.Keep(t.Context(), "lab")); p.Kind != api.KindConflict {
		t.Errorf("what is being deleted is kept: %v", p)
	}
}
