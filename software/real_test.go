package software

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/resolve"
)

// patience is how long the slowest machine may take; nothing is measured.
const patience = 3 * time.Minute

// pair is r1 and r2, joined by two links; each has a loopback and a host's subnet. change alters the resolved network.
func pair(t *testing.T, first, second model.Software, routing func(i int) model.Routing,
	change func(*model.Resolved)) [2]*running {
	t.Helper()
	rs := joined(t, first, second, routing, change)
	rs[0].configure(t)
	rs[1].configure(t)
	return rs
}

// joined is a pair in which nothing runs yet.
func joined(t *testing.T, first, second model.Software, routing func(i int) model.Routing,
	change func(*model.Resolved)) [2]*running {
	t.Helper()
	net := model.Network{Name: "lab", Pools: []netip.Prefix{prefix("10.0.0.0/16"), prefix("2001:db8::/48")}}
	for i, s := range []model.Software{first, second} {
		net.Elements = append(net.Elements, model.Element{Name: fmt.Sprintf("r%d", i+1),
			Kind: model.Router, Software: s,
			Routing: routing(i)})
	}
	net.Elements = append(net.Elements, model.Element{Name: "h1", Kind: model.Host},
		model.Element{Name: "h2", Kind: model.Host})
	for _, l := range [][4]string{{"r1", "r2", "r2", "r1"}, {"r1", "ge-0/0/1", "r2", "ge-0/0/2"},
		{"h1", "r1", "r1", "h1"},
		{"h2", "r2", "r2", "h2"}} {
		net.Links = append(net.Links,
			model.Link{Name: l[0] + "--" + l[1], Ends: [2]model.End{{Element: l[0], Interface: l[1]},
				{Element: l[2], Interface: l[3]}}})
	}
	document, _ := resolve.Read(net)
	resolved, _, err := document.Resolve(model.Assigned{}, resolve.NewNumbers())
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&resolved)
	}
	all := connected(t, &resolved)
	return [2]*running{all["r1"], all["r2"]}
}

// connected are the elements of a network with their links. Nothing runs in them yet.
func connected(t *testing.T, resolved *model.Resolved) map[string]*running {
	t.Helper()
	all := map[string]*running{}
	for i := range resolved.Elements {
		el := resolved.Elements[i]
		all[el.Name] = newRunning(t, el)
	}
	for _, l := range resolved.Links {
		var device [2]string
		for k, end := range l.Ends {
			el := all[end.Element].el
			i := slices.IndexFunc(el.Interfaces,
				func(i model.ResolvedInterface) bool { return i.Name == end.Interface })
			device[k] = el.Interfaces[i].LinuxName()
		}
		attrs := netlink.NewLinkAttrs()
		attrs.Name = device[0]
		veth := &netlink.Veth{LinkAttrs: attrs, PeerName: device[1],
			PeerNamespace: netlink.NsFd(int(all[l.Ends[1].Element].ns))}
		if err := all[l.Ends[0].Element].link.LinkAdd(veth); err != nil {
			t.Fatalf("joining %v: %v", l.Ends, err)
		}
		for k, end := range l.Ends { // up, so that the far end has its carrier
			h := all[end.Element].link
			dev, err := h.LinkByName(device[k])
			if err != nil {
				t.Fatal(err)
			}
			el := all[l.Ends[k].Element].el
			i := slices.IndexFunc(el.Interfaces, func(i model.ResolvedInterface) bool { return i.Name == l.Ends[k].Interface })
			if mac, err := net.ParseMAC(el.Interfaces[i].MAC); err != nil {
				t.Fatal(err)
			} else if err := h.LinkSetHardwareAddr(dev, mac); err != nil {
				t.Fatal(err)
			}
			if err := h.LinkSetUp(dev); err != nil {
				t.Fatal(err)
			}
		}
	}
	return all
}

// awaitRoute waits until the kernel has a route to the prefix that this protocol made, with so many next hops. The
// kernel's own notifications tell when to look.
func (r *running) awaitRoute(t *testing.T, to netip.Prefix, protocol netlink.RouteProtocol, hops int) {
	t.Helper()
	updates := make(chan netlink.RouteUpdate, 1000)
	done := make(chan struct{})
	defer close(done)
	if err := netlink.RouteSubscribeWithOptions(updates, done,
		netlink.RouteSubscribeOptions{Namespace: &r.ns}); err != nil {
		t.Fatal(err)
	}
	family := netlink.FAMILY_V6
	if to.Addr().Is4() {
		family = netlink.FAMILY_V4
	}
	timeout := time.After(patience)
	for {
		routes, err := r.link.RouteList(nil, family)
		if err != nil {
			t.Fatal(err)
		}
		for _, route := range routes {
			if route.Dst == nil || route.Dst.String() != to.String() || route.Protocol != protocol {
				continue
			}
			if n := max(len(route.MultiPath), 1); n == hops {
				return
			}
		}
		select {
		case _, ok := <-updates:
			if !ok {
				t.Fatalf("%s: the kernel's notifications ended", r.el.Name)
			}
		case line, ok := <-r.output:
			if !ok {
				t.Fatalf("%s: the software ended", r.el.Name)
			}
			t.Logf("%s: %s", r.el.Name, line)
		case <-timeout:
			t.Fatalf("%s has no route of protocol %d to %s with %d next hops; it has\n%v", r.el.Name,
				protocol, to, hops, routes)
		}
	}
}

// The kernel's numbers of routing daemons (linux/rtnetlink.h).
const (
	protoBIRD   = 12
	protoBGP    = 186
	protoISIS   = 187
	protoOSPF   = 188
	protoRIP    = 189
	protoRIPng  = 190
	protoStatic = 196
)

func TestProtocolsExchangeRoutes(t *testing.T) {
	type intent struct {
		name    string
		routing func(i int) model.Routing
		v4, v6  netlink.RouteProtocol // FRR's
	}
	intents := []intent{
		{"ospf", func(int) model.Routing { return model.Routing{OSPF: &model.OSPF{}, OSPF6: &model.OSPF{}} },
			protoOSPF, protoOSPF},
		{"ebgp", func(i int) model.Routing { return model.Routing{BGP: &model.BGP{AS: 65001 + uint32(i)}} },
			protoBGP, protoBGP},
		{"ibgp", func(int) model.Routing { return model.Routing{BGP: &model.BGP{AS: 65001}} }, protoBGP, protoBGP},
		{"unnumbered ebgp", func(i int) model.Routing {
			return model.Routing{BGP: &model.BGP{AS: 65001 + uint32(i), Unnumbered: true}}
		}, protoBGP, protoBGP},
		{"unnumbered ibgp", func(int) model.Routing { return model.Routing{BGP: &model.BGP{AS: 65001, Unnumbered: true}} },
			protoBGP, protoBGP},
		{"rip", func(int) model.Routing { return model.Routing{RIP: &model.RIP{}} }, protoRIP, protoRIPng},
	}
	isis := func(level int) intent {
		return intent{fmt.Sprintf("isis level %d", level), func(int) model.Routing {
			return model.Routing{ISIS: &model.ISIS{Level: level}}
		}, protoISIS, protoISIS}
	}
	for _, softwares := range [][2]model.Software{{model.SoftwareFRR, model.SoftwareFRR},
		{model.SoftwareBIRD, model.SoftwareBIRD},
		{model.SoftwareFRR, model.SoftwareBIRD}} {
		all := intents
		if softwares[0] == softwares[1] && softwares[0] == model.SoftwareFRR {
			all = append(slices.Clone(intents), isis(0), isis(2))
		}
		for _, in := range all {
			t.Run(fmt.Sprintf("%s/%s and %s", in.name, softwares[0], softwares[1]), func(t *testing.T) {
				t.Parallel() // they wait for timers, most of the time
				rs := pair(t, softwares[0], softwares[1], in.routing, nil)
				for i, r := range rs {
					far := rs[1-i].el
					v4, v6 := in.v4, in.v6
					if r.el.Software == model.SoftwareBIRD {
						v4, v6 = protoBIRD, protoBIRD
					}
					expect := slices.Clone(far.Loopback)
					for _, ifc := range far.Interfaces {
						if ifc.Far.Kind == model.Host {
							expect = append(expect, ifc.Addresses...)
						}
					}
					if len(expect) != 4 {
						t.Fatalf("%s has %v to announce, want loopback and host subnet of both families", far.Name,
							expect)
					}
					for _, to := range expect {
						protocol := v6
						if to.Addr().Is4() {
							protocol = v4
						}
						r.awaitRoute(t, to.Masked(), protocol, 2) // over both links
					}
					r.awaitKnown(t, far, expect)
				}
			})
		}
	}
}

func TestStaticRoutes(t *testing.T) {
	for _, s := range []model.Software{model.SoftwareFRR, model.SoftwareBIRD} {
		t.Run(string(s), func(t *testing.T) {
			protocol := netlink.RouteProtocol(protoStatic)
			if s == model.SoftwareBIRD {
				protocol = protoBIRD
			}
			rs := pair(t, s, s, func(int) model.Routing { return model.Routing{} }, func(net *model.Resolved) {
				r1, r2 := &net.Elements[0], net.Elements[1]
				for _, ifc := range r2.Interfaces {
					for _, a := range ifc.Addresses {
						if ifc.Far.Kind == model.Router {
							r1.Gateways = append(r1.Gateways, a.Addr())
						}
					}
				}
				r1.Routes = []model.Route{{To: prefix("198.51.100.0/24"), Type: model.RouteBlackhole, Metric: 5}}
			})
			rs[0].awaitRoute(t, prefix("198.51.100.0/24"), protocol, 1)
			rs[0].awaitRoute(t, prefix("0.0.0.0/0"), protocol, 2)
			rs[0].awaitRoute(t, prefix("::/0"), protocol, 2)
		})
	}
}
