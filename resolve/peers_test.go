package resolve

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// peersOf reads "r2:r1 10.0.0.2 …" for every peer that an interface knows.
func peersOf(t *testing.T, n model.Resolved, element, ifc string) []string {
	t.Helper()
	owner := map[string]string{} // by MAC
	for _, e := range n.Elements {
		for _, f := range e.Interfaces {
			owner[f.MAC] = e.Name + ":" + f.Name
		}
	}
	var all []string
	for _, e := range n.Elements {
		for _, f := range e.Interfaces {
			if e.Name != element || f.Name != ifc {
				continue
			}
			for _, p := range f.Far.Peers {
				text := owner[p.MAC]
				for _, a := range p.Addresses {
					text += " " + a.String()
				}
				all = append(all, text)
			}
		}
	}
	return all
}

func TestPeers(t *testing.T) {
	n := build("r1", "r2", "h1", "h2", "s1", "s2", "r1-r2=10.0.0.0/30,fd00::/64", "r1-s1", "s1-s2", "h1-s1", "h2-s2")
	n.Elements[0].Interfaces = []model.Interface{{Name: "r2", MAC: "02:00:5e:10:00:01"}}
	r, _ := resolve(t, n, model.Assigned{})
	for _, c := range []struct {
		element, ifc string
		want         []string
	}{
		{"r2", "r1", []string{"r1:r2 10.0.0.1 fd00::1 fe80::5eff:fe10:1"}},
		{"h1", "s1", []string{"r1:s1", "h2:s2"}},
		{"r1", "s1", []string{"h1:s1", "h2:s2"}},
		{"s1", "r1", nil},
	} {
		got := peersOf(t, r, c.element, c.ifc)
		for i := range got {
			if c.element != "r2" { // where addresses are assigned, only whose they are is judged here
				got[i], _, _ = strings.Cut(got[i], " ")
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:%s knows %q, want %q", c.element, c.ifc, got, c.want)
		}
	}
}

// On a segment with many members, what is known grows with them and not with their square; everybody knows the routers.
func TestPeersOfManyMembers(t *testing.T) {
	words := []string{"s1", "r1", "s1-r1"}
	const hosts = 200
	for i := range hosts {
		words = append(words, fmt.Sprintf("h%d", i), fmt.Sprintf("h%d-s1", i))
	}
	r, _ := resolve(t, build(words...), model.Assigned{})
	if got := peersOf(t, r, "h7", "s1"); len(got) != 1 || got[0][:6] != "r1:s1 " {
		t.Errorf("a host knows %q: want the router", got)
	}
	if got := peersOf(t, r, "r1", "s1"); len(got) != model.MaxPeers {
		t.Errorf("the router knows %d: want %d", len(got), model.MaxPeers)
	}
}
