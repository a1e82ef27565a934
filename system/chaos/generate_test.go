package chaos

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/resolve"
	"github.com/polyplane/polyplane/spec"
)

// A thousand operations in a row are such that the program takes them, and every kind comes.
func TestGeneratedOperationsAreValid(t *testing.T) {
	w := newWorld(2)
	seen := map[string]int{}
	for step := range 1000 {
		g := &generator{rand.New(rand.NewPCG(1, uint64(step))), w}
		o := g.operation()
		seen[o.kind]++
		if o.input != "" {
			networks, err := spec.Parse("file", []byte(o.input), spec.Options{})
			if err != nil || len(networks) != len(o.next) {
				t.Fatalf("step %d: %d networks, %v\n%s", step, len(networks), err, o.input)
			}
			for _, n := range networks {
				// What apply makes of it is what is wanted; stopped elements stay so.
				want := o.next[n.Name].clone()
				overrides := map[string]model.Override{}
				placed := map[string]string{}
				for _, e := range want.elements {
					overrides[e.name] = model.Override{Stopped: e.stopped, Suspended: e.suspended}
					placed[e.name] = e.node
				}
				document, _ := resolve.Read(n)
				r := model.Record{Network: document.Network(), Overrides: overrides,
					Assigned: model.Assigned{Placement: model.Placement{Elements: placed}}}
				if got := printOf(r); got != want.print() {
					t.Fatalf("step %d: the file says\n%s\nand is meant to say\n%s", step, got, want.print())
				}
			}
		}
		w.take(o.next)
		if len(w.networks) > mostNetworks {
			t.Fatal(fmt.Sprint(w.networks))
		}
		if step%20 == 0 {
			w.reuse()
		}
	}
	for _, k := range kinds {
		if seen[k.name] == 0 {
			t.Errorf("%s never comes", k.name)
		}
	}
	t.Log(seen)
}

// The same seed chooses the same.
func TestOperationsRepeat(t *testing.T) {
	run := func() (all string) {
		w := newWorld(2)
		for step := range 50 {
			o := (&generator{rand.New(rand.NewPCG(7, uint64(step))), w}).operation()
			all += o.String() + o.input
			w.take(o.next)
		}
		return all
	}
	if run() != run() {
		t.Error("they differ")
	}
}
