package resolve

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// TestClientsOfReflectors: all neighbours of the own system are clients but other reflectors, whether they follow from
// links or are stated.
func TestClientsOfReflectors(t *testing.T) {
	n := build("rr", "r2", "r3", "r4", "rr-r2=10.0.0.0/30", "rr-r3=10.0.1.0/30", "rr-r4=10.0.2.0/30")
	for i, as := range []uint32{65001, 65001, 65001, 65009} {
		n.Elements[i].Routing.BGP = &model.BGP{AS: as, Reflector: i == 0 || i == 2}
	}
	clients := func() (all []string) {
		t.Helper()
		read, problems := Read(n)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		r, _, err := read.Resolve(model.Assigned{}, NewNumbers())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range r.Elements {
			for _, x := range e.Routing.BGP.Neighbors {
				if x.Client {
					all = append(all, e.Name+" "+x.Address.String())
				}
			}
		}
		return all
	}
	if got := clients(); !slices.Equal(got, []string{"rr 10.0.0.2"}) {
		t.Errorf("clients are %v", got)
	}
	n.Elements[0].Routing.BGP.Neighbors = []model.BGPNeighbor{{Address: netip.MustParseAddr("10.0.0.2"), AS: 65001},
		{Address: netip.MustParseAddr("10.0.1.2"), AS: 65001}, {Address: netip.MustParseAddr("10.0.2.2"), AS: 65009}}
	n.Elements[1].Routing.BGP.Neighbors = []model.BGPNeighbor{{Address: netip.MustParseAddr("10.0.0.1"), AS: 65001,
		Client: true}}
	if got := clients(); !slices.Equal(got, []string{"rr 10.0.0.2", "r2 10.0.0.1"}) {
		t.Errorf("with neighbours that are stated, clients are %v", got)
	}
	if n.Elements[0].Routing.BGP.Neighbors[0].Client {
		t.Error("the document was changed")
	}
}
