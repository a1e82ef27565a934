package fabric

import (
	"context"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/fabric/pipeline"
	"github.com/polyplane/polyplane/system/attack"
)

// turn has the relay lab's second link take another path, step by step: what leads there is made first, at the relay
// and at both ends, then one end after the other sends there, and then the path before goes.
func (l *relayLab) turn(from, to uint32, over bool) {
	n1, n2, n3 := l.nodes[0], l.nodes[1], l.nodes[2]
	ends := []struct {
		*node
		port       string
		far, relay netip.Addr
	}{{n1, "a:eth1", n2.under, n3.under}, {n2, "b:eth1", n1.under, n3.under}}
	if over {
		n3.state.Relays = append(n3.state.Relays, Relay{Link: "net/a--b", VNI: to,
			Nodes: [2]netip.Addr{n1.under, n2.under}, MTU: 1500})
		n3.apply()
	}
	for _, e := range ends {
		t := Tunnel{VNI: to, Peer: e.far}
		if over {
			t.Peer = e.relay
		}
		e.node.port(e.port).Also = []Tunnel{t}
		e.apply()
	}
	for _, e := range ends {
		p := e.node.port(e.port)
		*p.Tunnel, p.Also[0] = p.Also[0], *p.Tunnel
		e.apply()
	}
	for _, e := range ends {
		e.node.port(e.port).Also = nil
		e.apply()
	}
	n3.state.Relays = slices.DeleteFunc(n3.state.Relays, func(r Relay) bool { return r.VNI == from })
	n3.apply()
}

// TestTurnsLoseNothing has a link leave its path and come back 20 times, under a flow in each direction: nothing is
// lost, and nothing comes twice.
func TestTurnsLoseNothing(t *testing.T) {
	l := newRelayLab(t)
	n1, n3 := l.nodes[0], l.nodes[2]
	l.a.ping(t, "10.0.1.2")
	there, back := startFlow(t, l.a, l.b, "10.0.1.2"), startFlow(t, l.b, l.a, "fd01::1")
	there.wait(100)
	vni := uint32(78)
	for i := range 40 {
		direct, relayed := n1.sent("to2"), n1.sent("to3")
		l.turn(vni, vni+1, i%2 == 1)
		there.wait(20)
		vni++
		direct, relayed = n1.sent("to2")-direct, n1.sent("to3")-relayed
		if on := map[bool]uint64{true: relayed, false: direct}[i%2 == 1]; on < 20 {
			t.Errorf("turn %d: %d packets went directly, %d over n3", i, direct, relayed)
		}
	}
	for name, f := range map[string]*flow{"there": there, "back": back} {
		if lost := f.lost(); len(lost) > 0 || f.twice.Load() > 0 {
			t.Errorf("%s: of %d packets %d were lost (%v), %d came twice", name, f.sent.Load(), len(lost), lost,
				f.twice.Load())
		}
	}
	t.Logf("%d and %d packets over 40 changes of the path", there.sent.Load(), back.sent.Load())
	if n3.relayed(vni).Foreign+n3.relayed(vni).Lost != 0 {
		t.Errorf("n3 counted %+v", n3.relayed(vni))
	}
}

// TestTunnelsBeside has a port take a second tunnel: from its node and no other, until it is no longer told to, also
// while nothing else may be removed. What is altered in the table is put right.
func TestTunnelsBeside(t *testing.T) {
	attack.Tell(t, "a node sends by the tunnel of a path that a link left, and by one that another node sends by",
		"neither is taken")
	l := newRelayLab(t)
	n1, n2, n3 := l.nodes[0], l.nodes[1], l.nodes[2]
	end := n1.port("a:eth1")
	end.Also = []Tunnel{{VNI: 80, Peer: n2.under}}
	if changed := n1.apply(); len(changed) != 0 {
		t.Errorf("told: %q", changed)
	}
	if s, err := n1.fabric.Observe(context.Background()); err != nil ||
		!slices.ContainsFunc(s.Ports, func(p Port) bool { return reflect.DeepEqual(p.Also, end.Also) }) {
		t.Errorf("observed %+v, %v", s.Ports, err)
	}
	sender := n2.port("b:eth1")
	arrive := func(what string, tunnel Tunnel, want bool) {
		t.Helper()
		*sender.Tunnel = tunnel
		n2.apply()
		before := n1.counters()[end.ID].TxPackets
		l.b.run("ping", "-c", "5", "-i", "0.01", "-W", "1", "10.0.1.1") //nolint:errcheck // its answers go elsewhere
		if got := n1.counters()[end.ID].TxPackets - before; (got >= 5) != want || !want && got > 0 {
			t.Errorf("%s: %d packets arrived", what, got)
		}
	}
	arrive("by the tunnel that it sends by", Tunnel{78, n3.under}, true)
	arrive("by the other", Tunnel{80, n1.under}, true)
	arrive("past the relay", Tunnel{78, n1.under}, false)
	n1.restart()
	if changed := n1.apply(); len(changed) != 0 {
		t.Errorf("after a restart: %q", changed)
	}
	arrive("after a restart", Tunnel{80, n1.under}, true)
	for name, spoil := range map[string]func() error{
		"removed": func() error { return n1.fabric.pipe.Tunnels.Delete(uint32(80)) },
		"altered": func() error {
			return n1.fabric.pipe.Tunnels.Put(uint32(80), pipeline.TunnelEnd{Slot: 1, Peer: 77})
		}} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if changed := n1.apply(); !slices.Contains(changed, change.TunnelRestored.Of(end.ID, uint32(80))) {
			t.Errorf("%s: %q", name, changed)
		}
		arrive(name, Tunnel{80, n1.under}, true)
	}
	end.Also, n1.state.Incomplete = nil, true
	n1.apply()
	arrive("once the path is left", Tunnel{80, n1.under}, false)
	arrive("by the tunnel that it sends by, at the end", Tunnel{78, n3.under}, true)
}

// TestWrongTunnelsBeside: each fails with its reason, and the port goes on.
func TestWrongTunnelsBeside(t *testing.T) {
	l := newRelayLab(t)
	n1, n2 := l.nodes[0], l.nodes[1]
	for what, also := range map[string][]Tunnel{
		"VNI 0 is not between":                 {{0, n2.under}},
		"VNI 77 already belongs to net/a:eth0": {{77, n2.under}},
		"192.0.2.66, the tunnel's far end":     {{80, netip.MustParseAddr("192.0.2.66")}},
		"9 tunnels beside its own":             make([]Tunnel, MostTunnels+1),
	} {
		n1.port("a:eth1").Also = also
		r := n1.fabric.Apply(context.Background(), n1.state)
		if err := r.Failed[portID("net/a:eth1")]; err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
		l.a.ping(t, "10.0.1.2")
	}
}
