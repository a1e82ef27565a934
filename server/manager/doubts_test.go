package manager

import (
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// TestDoubtsAreNoted: an apply of what can never work, and its plan, say so.
func TestDoubtsAreNoted(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	net := line("lab", 2)
	net.Elements[0].Routing.OSPF, net.Elements[1].Routing.OSPF = &model.OSPF{}, &model.OSPF{Area: "0.0.0.1"}
	net.Elements[0].Software, net.Elements[1].Software = model.SoftwareFRR, model.SoftwareFRR
	for _, dry := range []bool{true, false} {
		r, err := f.Apply(t.Context(), net, model.ApplyOptions{DryRun: dry})
		if err != nil || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "they will not be neighbours there") {
			t.Errorf("dry run %v: %v, notes %q", dry, err, r.Notes)
		}
	}
}
