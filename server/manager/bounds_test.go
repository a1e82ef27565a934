package manager

import (
	"fmt"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// What one node is told of all networks is bounded, whoever they are of: its agent has to have it in memory. What is
// there can be made smaller, and then there is room for others.
func TestWhatANodeIsToldIsBounded(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(2))
	heavy := func(name string, megabytes int) model.Network {
		net := model.Network{Name: name}
		for i := range megabytes {
			net.Elements = append(net.Elements, model.Element{Name: fmt.Sprintf("r%d", i), Kind: model.Router,
				Software: model.SoftwareBIRD, Node: "n1",
				Amounts: model.Amounts{Memory: 16 << 20},
				Config:  map[string]string{"bird.conf": "#" + strings.Repeat("x", 1<<20-2)}})
		}
		return net
	}
	for i := range 4 {
		f.apply(t, heavy(fmt.Sprintf("lab%d", i), 15), model.ApplyOptions{})
	}
	_, err := f.Apply(t.Context(), heavy("more", 5), model.ApplyOptions{})
	if err == nil || !strings.Contains(err.Error(), "what node n1 is told of its networks is 65") ||
		!strings.Contains(err.Error(), "64MiB are allowed") {
		t.Fatalf("more than a node may be told: %v", err)
	}
	elsewhere := heavy("more", 5)
	for i := range elsewhere.Elements {
		elsewhere.Elements[i].Node = "n2"
	}
	f.apply(t, elsewhere, model.ApplyOptions{})
	f.apply(t, heavy("lab0", 9), model.ApplyOptions{})
	f.apply(t, heavy("again", 5), model.ApplyOptions{})
}
