package manager

import (
	"testing"

	"github.com/polyplane/polyplane/model"
)

// A network that is being deleted is placed by nobody again. What it takes is taken until it is gone.
func TestWhatIfDoesNotPlaceWhatIsBeingDeleted(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(2))
	doc := line("lab", 2)
	for i := range doc.Elements {
		doc.Elements[i].CPU, doc.Elements[i].Node = 1000, "n1"
	}
	f.apply(t, doc, model.ApplyOptions{})
	for _, n := range []string{"n1", "n2"} {
		_, end := f.watch(t, n)
		defer end()
		f.obey(t, n, nil)
	}
	if err := f.Delete(t.Context(), "lab", false); err != nil {
		t.Fatal(err)
	}
	r, err := f.WhatIf(t.Context(), model.WhatIf{Down: []string{"n2"}, Add: []model.NodeToCome{{Name: "n2"}}})
	if err != nil || len(r.Networks)+len(r.Moves) > 0 || r.Nodes[0].CPULeft != 6000 {
		t.Errorf("while it is being deleted: %+v, %v", r, err)
	}
	if r, err = f.WhatIf(t.Context(), model.WhatIf{Down: []string{"n1"}}); err != nil || len(r.Networks) > 0 {
		t.Errorf("without its node: %+v, %v", r, err)
	}
}
