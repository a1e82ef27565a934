package software

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/resolve"
)

// TestRouteReflector: two clients that have no session with each other have each other's networks by the router between
// them, with their own next hops, in which OSPF leads.
func TestRouteReflector(t *testing.T) {
	for _, c := range [][3]model.Software{{"frr", "frr", "bird"}, {"bird", "bird", "frr"}} {
		t.Run(fmt.Sprintf("%s with %s and %s", c[0], c[1], c[2]), func(t *testing.T) {
			t.Parallel()
			net := model.Network{Name: "lab", Pools: []netip.Prefix{prefix("10.0.0.0/16"), prefix("2001:db8::/48")}}
			for i, name := range []string{"rr", "c1", "c2"} {
				net.Elements = append(net.Elements, model.Element{Name: name, Kind: model.Router, Software: c[i],
					Routing: model.Routing{OSPF: &model.OSPF{}, OSPF6: &model.OSPF{},
						BGP: &model.BGP{AS: 65001, Reflector: i == 0}}})
			}
			net.Elements[1].Routing.BGP = &model.BGP{AS: 65001, Networks: []netip.Prefix{prefix("198.51.100.0/24"),
				prefix("2001:db8:77::/48")}}
			for _, name := range []string{"c1", "c2"} {
				net.Links = append(net.Links, model.Link{Name: "rr--" + name, Ends: [2]model.End{{Element: "rr", Interface: name},
					{Element: name, Interface: "rr"}}})
			}
			document, problems := resolve.Read(net)
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			resolved, _, err := document.Resolve(model.Assigned{}, resolve.NewNumbers())
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range resolved.Elements[0].Routing.BGP.Neighbors {
				if !n.Client {
					t.Fatalf("%s is no client of the reflector", n.Name)
				}
			}
			all := connected(t, &resolved)
			for _, r := range all {
				r.configure(t)
			}
			protocol := netlink.RouteProtocol(protoBGP)
			if c[2] == model.SoftwareBIRD {
				protocol = protoBIRD
			}
			all["c2"].awaitRoute(t, prefix("198.51.100.0/24"), protocol, 1)
			all["c2"].awaitRoute(t, prefix("2001:db8:77::/48"), protocol, 1)
		})
	}
}
