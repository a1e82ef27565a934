package fabric

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/fabric/pipeline"
	"github.com/polyplane/polyplane/system/attack"
)

// relayLab is three nodes, each joined to each by a device of its own (to1, to2, to3), and two links from n1 to n2:
// VNI 77 is direct, VNI 78 leads over n3, which relays it.
type relayLab struct {
	nodes [3]*node
	a, b  *element // behind eth0 they have the direct link, behind eth1 the other
}

func newRelayLab(t *testing.T) *relayLab {
	t.Helper()
	l := &relayLab{a: newElement(t, "a"), b: newElement(t, "b")}
	for i := range l.nodes {
		l.nodes[i] = newNode(t, fmt.Sprintf("192.0.2.%d", i+1))
		n := l.nodes[i]
		n.do(func() {
			lo, err := netlink.LinkByName("lo")
			n.check(err, "find lo")
			addr, _ := netlink.ParseAddr(n.under.String() + "/32")
			n.check(netlink.AddrAdd(lo, addr), "add the node's address")
		})
	}
	for i, from := range l.nodes {
		for j, to := range l.nodes[:i] {
			from.do(func() {
				link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprintf("to%d", j+1), MTU: 9000},
					PeerName: fmt.Sprintf("to%d", i+1), PeerMTU: 9000, PeerNamespace: netlink.NsFd(to.handle)}
				from.check(netlink.LinkAdd(link), "join nodes")
			})
			from.lead(to, fmt.Sprintf("to%d", j+1))
			to.lead(from, fmt.Sprintf("to%d", i+1))
		}
	}
	for i, n := range l.nodes {
		for j, o := range l.nodes {
			if i != j {
				n.state.Peers = append(n.state.Peers, model.Peer{Name: fmt.Sprintf("n%d", j+1), Address: o.under})
			}
		}
	}
	n1, n2, n3 := l.nodes[0], l.nodes[1], l.nodes[2]
	n1.plug(l.a, "eth0", "10.0.0.1/24", "fd00::1/64").Tunnel = &Tunnel{VNI: 77, Peer: n2.under}
	n2.plug(l.b, "eth0", "10.0.0.2/24", "fd00::2/64").Tunnel = &Tunnel{VNI: 77, Peer: n1.under}
	n1.plug(l.a, "eth1", "10.0.1.1/24", "fd01::1/64").Tunnel = &Tunnel{VNI: 78, Peer: n3.under}
	n2.plug(l.b, "eth1", "10.0.1.2/24", "fd01::2/64").Tunnel = &Tunnel{VNI: 78, Peer: n3.under}
	n3.state.Relays = []Relay{{Link: "net/a--b", VNI: 78, Nodes: [2]netip.Addr{n1.under, n2.under}, MTU: 1500}}
	for _, n := range l.nodes {
		n.apply()
	}
	return l
}

// lead has a node reach another by a device.
func (n *node) lead(to *node, device string) {
	n.do(func() {
		link, err := netlink.LinkByName(device)
		n.check(err, "find %s", device)
		n.check(netlink.LinkSetUp(link), "set %s up", device)
		n.check(netlink.RouteAdd(&netlink.Route{Dst: netlink.NewIPNet(to.under.AsSlice()), Src: n.under.AsSlice(),
			LinkIndex: link.Attrs().Index, Scope: unix.RT_SCOPE_LINK}), "route to %s", to.under)
	})
}

// sent is how many packets a device has sent.
func (n *node) sent(device string) (packets uint64) {
	n.do(func() {
		link, err := netlink.LinkByName(device)
		n.check(err, "find %s", device)
		packets = link.Attrs().Statistics.TxPackets
	})
	return packets
}

func (n *node) relayed(vni uint32) RelayCounters {
	n.t.Helper()
	all, err := n.fabric.Relayed(context.Background())
	if err != nil {
		n.t.Fatal(err)
	}
	return all[vni]
}

// TestRelayedLink has packets of a link take the path that it is on, at their full length, while another link between
// the same nodes takes its own.
func TestRelayedLink(t *testing.T) {
	l := newRelayLab(t)
	n1, n3 := l.nodes[0], l.nodes[2]
	for i, n := range l.nodes {
		if changed := n.apply(); len(changed) != 0 {
			t.Errorf("n%d: the second Apply changed something: %q", i+1, changed)
		}
	}
	direct, over := n1.sent("to2"), n1.sent("to3")
	l.a.must("ping", "-c", "100", "-i", "0.002", "-M", "do", "-s", "1472", "-W", "2", "10.0.1.2")
	if c := n3.relayed(78); c.Packets[0] < 100 || c.Packets[1] < 100 || c.Bytes[0] < 100*1514 ||
		c.Foreign+c.Lost+c.Over[0]+c.Over[1] != 0 {
		t.Errorf("n3 counted %+v", c)
	}
	if d, o := n1.sent("to2")-direct, n1.sent("to3")-over; d > 50 || o < 100 { // what neighbours say by themselves beside it
		t.Errorf("n1 sent %d packets directly and %d to n3", d, o)
	}
	l.b.ping(t, "fd01::1")
	direct, before := n1.sent("to2"), n3.relayed(78)
	l.a.must("ping", "-c", "100", "-i", "0.002", "-W", "2", "10.0.0.2")
	if d, c := n1.sent("to2")-direct, n3.relayed(78); d < 100 || c.Packets[0] > before.Packets[0]+50 {
		t.Errorf("of the direct link n1 sent %d packets, and n3 relayed %+v, before %+v", d, c, before)
	}
	// Packets that the kernel segments later stay whole on their way.
	relayed, straight := throughput(t, l.a, l.b, "10.0.1.2"), throughput(t, l.a, l.b, "10.0.0.2")
	t.Logf("TCP over a relay: %.2f Gbit/s; directly: %.2f Gbit/s", relayed/1e9, straight/1e9)
	if c := n3.relayed(78); c.Lost+c.Foreign != 0 {
		t.Errorf("n3 counted %+v", c)
	}
}

// TestRelaysAreRepaired spoils what a relay needs, and has the agent start anew, under traffic that loses nothing by it
// but what the spoilt entry loses.
func TestRelaysAreRepaired(t *testing.T) {
	l := newRelayLab(t)
	n3 := l.nodes[2]
	l.a.ping(t, "10.0.1.2")
	flow := startFlow(t, l.a, l.b, "10.0.1.2")
	flow.wait(100)
	for _, n := range l.nodes {
		n.restart()
		if changed := n.apply(); len(changed) != 0 {
			t.Errorf("after a restart: %q", changed)
		}
	}
	flow.wait(100)
	n3.state.Relays[0].Shape.Bandwidth = 1e9
	if changed := n3.apply(); !slices.Contains(changed, change.RelayChanged.Of("net/a--b")) {
		t.Errorf("another bandwidth: %q", changed)
	}
	flow.wait(100)
	if lost := flow.lost(); len(lost) > 0 {
		t.Errorf("lost while agents started anew and the bandwidth changed: %v", lost)
	}
	counted := n3.relayed(78)
	if counted.Packets[0] < 300 {
		t.Errorf("counted before: %+v", counted)
	}
	spoil := func(name string, what func(*pipeline.Relay)) {
		t.Helper()
		var r pipeline.Relay
		if err := n3.fabric.pipe.Relays.Lookup(uint32(78), &r); err != nil {
			t.Fatal(err)
		}
		what(&r)
		if err := n3.fabric.pipe.Relays.Put(uint32(78), r); err != nil {
			t.Fatal(err)
		}
		if changed := n3.apply(); !slices.Contains(changed, change.RelayRestored.Of("net/a--b")) {
			t.Errorf("%s: %q", name, changed)
		}
		l.a.ping(t, "10.0.1.2")
	}
	spoil("nodes", func(r *pipeline.Relay) { r.Nodes[1] = 77 })
	spoil("nodes the other way", func(r *pipeline.Relay) { r.Nodes[0], r.Nodes[1] = r.Nodes[1], r.Nodes[0] })
	spoil("bound", func(r *pipeline.Relay) { r.Ways[0].Meter.Rate = 1 })
	spoil("tokens", func(r *pipeline.Relay) { r.Ways[1].Meter.Tokens = 1 << 63 })
	spoil("clock", func(r *pipeline.Relay) { r.Ways[1].Meter.Last = 1 << 62 })
	if c := n3.relayed(78); c.Packets[0] < counted.Packets[0] || c.Bytes[0] < counted.Bytes[0] {
		t.Errorf("counted %+v, before %+v", c, counted)
	}
	if err := n3.fabric.pipe.Relays.Delete(uint32(78)); err != nil {
		t.Fatal(err)
	}
	if changed := n3.apply(); !slices.Contains(changed, change.RelayRestored.Of("net/a--b")) {
		t.Errorf("an entry that is gone: %q", changed)
	}
	n3.must("tc", "filter", "del", "dev", "to1", "ingress")
	if changed := n3.apply(); !slices.Contains(changed, change.UnderlayFilterSet.Of("to1")) {
		t.Errorf("a filter that is gone: %q", changed)
	}
	l.a.ping(t, "10.0.1.2")

	// What is not wanted stays while it is not certain that it is not, and then goes with all that was made for it.
	relays := n3.state.Relays
	n3.state.Relays, n3.state.Incomplete = nil, true
	n3.apply()
	l.a.ping(t, "10.0.1.2")
	n3.state.Incomplete = false
	if changed := n3.apply(); !slices.Contains(changed, change.RelaysRemoved.Of(1)) {
		t.Errorf("removed: %q", changed)
	}
	if out := n3.must("tc", "qdisc", "show", "dev", "to1"); strings.Contains(out, "clsact") {
		t.Errorf("left behind:\n%s", out)
	}
	if out, err := l.a.run("ping", "-c", "2", "-i", "0.01", "-W", "1", "10.0.1.2"); err == nil {
		t.Errorf("a link that is not relayed any longer answers:\n%s", out)
	}
	n3.state.Relays = relays
	n3.apply()
	l.a.ping(t, "10.0.1.2")
}

// TestRelayedLinksAreClosed sends on a relayed link from nodes that are not the next ones on its path, to the relay and
// to the link's ends: nothing arrives, and all is counted.
func TestRelayedLinksAreClosed(t *testing.T) {
	attack.Tell(t, "a node sends on a relayed link to the relay and to the other end, though it is not next on the path",
		"none arrives")
	l := newRelayLab(t)
	n1, n2, n3 := l.nodes[0], l.nodes[1], l.nodes[2]
	l.a.ping(t, "10.0.1.2")
	// n2 sends past the relay.
	n2.port("b:eth1").Tunnel.Peer = n1.under
	n2.apply()
	before := n1.counters()[portID("net/a:eth1")]
	if out, err := l.b.run("ping", "-c", "3", "-i", "0.01", "-W", "1", "10.0.1.1"); err == nil {
		t.Errorf("what came past the relay is answered:\n%s", out)
	}
	if c := n1.counters()[portID("net/a:eth1")]; c.Drops[NotThePeer] < before.Drops[NotThePeer]+3 {
		t.Errorf("n1 counted %v, before %v", c.Drops, before.Drops)
	}
	n2.port("b:eth1").Tunnel.Peer = n3.under
	n2.apply()
	l.a.ping(t, "10.0.1.2")
	// n2 has another address than that of the path's next node.
	n2.fabric.pipe.Peers[0] = pipeline.NewPeer(netip.MustParseAddr("192.0.2.66"))
	n2.must("ip", "address", "add", "192.0.2.66/32", "dev", "lo")
	arrived := n1.counters()[portID("net/a:eth1")].TxPackets
	if out, err := l.b.run("ping", "-c", "3", "-i", "0.01", "-W", "1", "10.0.1.1"); err == nil {
		t.Errorf("what came from another address is answered:\n%s", out)
	}
	if c := n3.relayed(78); c.Foreign < 3 {
		t.Errorf("n3 counted %+v", c)
	}
	if now := n1.counters()[portID("net/a:eth1")].TxPackets; now != arrived {
		t.Errorf("%d packets arrived", now-arrived)
	}
	n2.apply()
	// A number that nobody relays is dropped where it is nobody's.
	unknown := n3.counters()[model.PortID{}].Drops[NoPort]
	n1.port("a:eth1").Tunnel.VNI = 79
	n1.apply()
	if out, err := l.a.run("ping", "-c", "3", "-i", "0.01", "-W", "1", "10.0.1.2"); err == nil {
		t.Errorf("a number that nobody relays is answered:\n%s", out)
	}
	if n := n3.counters()[model.PortID{}].Drops[NoPort] - unknown; n < 3 {
		t.Errorf("n3 told of %d packets of nobody's", n)
	}
}

// TestWrongRelays: each fails alone and with its reason, and the others work.
func TestWrongRelays(t *testing.T) {
	l := newRelayLab(t)
	n1, n2, n3 := l.nodes[0], l.nodes[1], l.nodes[2]
	right := n3.state.Relays[0]
	for what, change := range map[string]func(*Relay){
		"VNI 0 is not between":         func(r *Relay) { r.VNI = 0 },
		"VNI 16777216 is not between":  func(r *Relay) { r.VNI = 1 << 24 },
		"VNI 78 is another link's too": func(r *Relay) {},
		"from 192.0.2.1 to 192.0.2.1":  func(r *Relay) { r.VNI, r.Nodes[1] = 5, n1.under },
		"from 192.0.2.3 to 192.0.2.2":  func(r *Relay) { r.VNI, r.Nodes[0] = 5, n3.under },
		"from 192.0.2.9 to 192.0.2.2":  func(r *Relay) { r.VNI, r.Nodes[0] = 5, netip.MustParseAddr("192.0.2.9") },
	} {
		wrong := right
		wrong.Link = "net/wrong"
		change(&wrong)
		n3.state.Relays = []Relay{right, wrong}
		r := n3.fabric.Apply(context.Background(), n3.state)
		if r.Problem == nil || !strings.Contains(r.Problem.Error(), "relay link net/wrong: ") ||
			!strings.Contains(r.Problem.Error(), what) {
			t.Errorf("%s: %v", what, r.Problem)
		}
		l.a.ping(t, "10.0.1.2")
	}
	n2.state.Relays = []Relay{{Link: "net/own", VNI: 77, Nodes: [2]netip.Addr{n1.under, n3.under}}}
	if r := n2.fabric.Apply(context.Background(), n2.state); r.Problem == nil ||
		!strings.Contains(r.Problem.Error(), "VNI 77 belongs to port net/b:eth0") {
		t.Errorf("a number of its own: %v", r.Problem)
	}
	l.a.ping(t, "10.0.0.2")
}

// TestRelayBecomesALinksEnd has a node hold what it relayed, as it does while another network is kept from change, when a
// link with that number comes to end at the node: its packets come to its port.
func TestRelayBecomesALinksEnd(t *testing.T) {
	l := newRelayLab(t)
	n1, n3 := l.nodes[0], l.nodes[2]
	l.a.ping(t, "10.0.1.2")
	c := newElement(t, "c")
	n3.plug(c, "eth0", "10.0.1.3/24").Tunnel = &Tunnel{VNI: 78, Peer: n1.under}
	n3.state.Relays, n3.state.Incomplete = nil, true
	if changed := n3.apply(); !slices.Contains(changed, change.RelaysRemoved.Of(1)) {
		t.Errorf("changed: %q", changed)
	}
	l.a.ping(t, "10.0.1.3")
}

// TestRelayOutlivesADevice has one of the devices that lead to other nodes refuse the relays' program: what comes by the
// others is relayed, and it is told.
func TestRelayOutlivesADevice(t *testing.T) {
	l := newRelayLab(t)
	n3 := l.nodes[2]
	n3.state.Relays = nil
	n3.apply()
	n3.must("ip", "link", "add", "first", "type", "veth", "peer", "name", "other")
	n3.must("ip", "link", "set", "other", "up")
	n3.must("ip", "link", "set", "first", "up")
	n3.must("ip", "route", "add", "192.0.2.4/32", "dev", "first")
	n3.must("tc", "qdisc", "add", "dev", "first", "root", "handle", "ffff:", "pfifo") // the number that ours would have
	n3.state.Peers = append(n3.state.Peers, model.Peer{Name: "n4", Address: netip.MustParseAddr("192.0.2.4")})
	n3.state.Relays = []Relay{{Link: "net/a--b", VNI: 78, Nodes: [2]netip.Addr{l.nodes[0].under, l.nodes[1].under},
		MTU: 1500}}
	r := n3.fabric.Apply(context.Background(), n3.state)
	if r.Problem == nil || !strings.Contains(r.Problem.Error(), "relay what comes by first: ") {
		t.Errorf("told: %v", r.Problem)
	}
	l.a.ping(t, "10.0.1.2")
	n3.must("tc", "qdisc", "del", "dev", "first", "root")
	if changed := n3.apply(); !slices.Contains(changed, change.UnderlayFilterSet.Of("first")) {
		t.Errorf("once the device takes it: %q", changed)
	}
}
