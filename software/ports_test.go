package software

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/polyplane/polyplane/model"
)

// ported says of each interface of router() what OSPF does there.
func ported(el model.ResolvedElement) model.ResolvedElement {
	const s = model.Duration(time.Second)
	port := func(p model.OSPFPort) *model.OSPFPort { return &p }
	el.Interfaces[0].OSPF = port(model.OSPFPort{Area: "0.0.0.7", OSPFPortKeys: model.OSPFPortKeys{Cost: 100,
		Network: model.Broadcast, OSPFTimers: model.OSPFTimers{Hello: 5 * s}}})
	el.Interfaces[0].OSPF6 = port(model.OSPFPort{OSPFPortKeys: model.OSPFPortKeys{
		OSPFTimers: model.OSPFTimers{Dead: 90 * s}}})
	el.Interfaces[1].OSPF = port(model.OSPFPort{OSPFPortKeys: model.OSPFPortKeys{Network: model.PointToPoint}})
	el.Interfaces[1].OSPF6 = port(model.OSPFPort{Area: "0.0.0.7", Passive: model.Yes})
	el.Interfaces[3].OSPF, el.Interfaces[3].OSPF6 = port(model.OSPFPort{Off: true}), port(model.OSPFPort{Off: true})
	el.Interfaces[2].OSPF = port(model.OSPFPort{Passive: model.No, OSPFPortKeys: model.OSPFPortKeys{Cost: 3}})
	return el
}

// TestOSPFByInterface: routers of each software become neighbours over two links that differ in area, timers and
// network type, for both versions; and the way within the area is taken, which costs more.
func TestOSPFByInterface(t *testing.T) {
	const s = model.Duration(time.Second)
	for _, c := range [][2]model.Software{{"frr", "frr"}, {"bird", "bird"}, {"frr", "bird"}} {
		t.Run(fmt.Sprintf("%s and %s", c[0], c[1]), func(t *testing.T) {
			t.Parallel()
			rs := pair(t, c[0], c[1], func(int) model.Routing {
				return model.Routing{OSPF: &model.OSPF{}, OSPF6: &model.OSPF{}}
			}, func(net *model.Resolved) {
				for i := range 2 {
					el := &net.Elements[i]
					for k := range el.Interfaces {
						f := &el.Interfaces[k]
						p := &model.OSPFPort{Area: "0.0.0.1", OSPFPortKeys: model.OSPFPortKeys{
							OSPFTimers: model.OSPFTimers{Hello: 2 * s, Dead: 9 * s}}}
						if f.Name == "ge-0/0/1" || f.Name == "ge-0/0/2" {
							p = &model.OSPFPort{OSPFPortKeys: model.OSPFPortKeys{Cost: 500, Network: model.Broadcast,
								OSPFTimers: model.OSPFTimers{Dead: 4 * s}}}
						}
						if f.Far.Kind == model.Router {
							f.OSPF, f.OSPF6 = p, p
						}
					}
				}
			})
			for i, r := range rs {
				far := rs[1-i].el
				for _, p := range far.Loopback {
					protocol := netlink.RouteProtocol(protoOSPF)
					if r.el.Software == model.SoftwareBIRD {
						protocol = protoBIRD
					}
					r.awaitRoute(t, p.Masked(), protocol, 1)
				}
				to := slices.Clone(far.Loopback)
				for _, f := range far.Interfaces {
					if f.Far.Kind == model.Host {
						to = append(to, f.Addresses...)
					}
				}
				r.awaitKnown(t, far, to)
				// awaitKnown sees all neighbours that are listed; that each link has one is to be seen by itself.
				for _, protocol := range []string{"ospf", "ospf6"} {
					for _, f := range r.el.Interfaces {
						if f.Far.Kind == model.Router {
							r.awaitKnownBy(t, model.Look{Peer: &model.LookedFor{Devices: []string{f.LinuxName()}},
								Known: model.Known{What: model.KnownNeighbour, Protocol: protocol, State: "full"}})
						}
					}
				}
				by := &model.LookedFor{Addresses: []netip.Addr{}}
				for _, f := range r.el.Interfaces {
					if f.Name == "ge-0/0/1" || f.Name == "ge-0/0/2" {
						by.Devices = append(by.Devices, f.LinuxName())
					}
				}
				r.awaitKnownBy(t, model.Look{Peer: by, Known: model.Known{What: model.KnownRoute, Protocol: "ospf",
					Prefix: far.Loopback[0].Masked()}})
			}
		})
	}
}
