package system

import (
	"fmt"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/system/attack"
)

// twin is one of two networks that have everything in common: elements' names, addresses, MAC addresses, nodes. Each
// has a switch, a router behind it, and a link through the underlay.
const twin = `network: NAME
routers:
  r1: {software: static, node: n2, interfaces: {s1: {mac: 02:11:11:11:11:04}, h4: {mac: 02:11:11:11:11:05}}}
switches: {s1: {node: n1}}
hosts:
  h1: {node: n1, interfaces: {s1: {mac: 02:11:11:11:11:01}}}
  h2: {node: n2, interfaces: {s1: {mac: 02:11:11:11:11:02}}}
  h3: {node: n1, interfaces: {s1: {mac: 02:11:11:11:11:03}}}
  h4: {node: n1, interfaces: {r1: {mac: 02:11:11:11:11:06}}}
links:
  - h1 -- s1: [192.168.7.0/24, "fd00:7::/64"]
  - h2 -- s1
  - h3 -- s1
  - r1 -- s1
  - r1 -- h4: [192.168.8.0/24, "fd00:8::/64"]
`

// TestTwinsNeverMeet runs two networks in which everything that a frame can say is the same. Whoever answers is asked
// who it is, and frames of all kinds – to everybody, to groups, to MAC addresses that both have, with tags of any VLAN
// – are looked for in the other network.
func TestTwinsNeverMeet(t *testing.T) {
	attack.Tell(t, "two networks with the same names, addresses, MAC addresses, nodes and VLAN tags",
		"no frame of either is seen in the other")
	p := up(t, 2)
	p.run("apply", "-f", file(t, strings.ReplaceAll(twin, "NAME", "east")+"---\n"+
		strings.ReplaceAll(twin, "NAME", "west")))
	p.allWell("east", "west")

	east := p.elements("east")
	for name, v := range p.elements("west") {
		for k, i := range v.Element.Interfaces {
			twin := east[name].Element.Interfaces[k]
			if fmt.Sprint(twin.Addresses) != fmt.Sprint(i.Addresses) ||
				v.Element.Kind != model.Switch && twin.MAC != i.MAC {
				t.Errorf("%s:%s differs: %s %s in one, %s %s in the other", name, i.Name, twin.MAC,
					twin.Addresses, i.MAC, i.Addresses)
			}
		}
		if v.Node != east[name].Node {
			t.Errorf("%s is on %s and %s", name, east[name].Node, v.Node)
		}
	}

	var other []*sniffer
	var own *sniffer
	for _, e := range p.all() {
		switch {
		case e.ID.Network == "west":
			other = append(other, sniff(t, p, e))
		case e.ID.String() == "east/h2":
			own = sniff(t, p, e)
		}
	}
	const protocols, reached = 6, 4
	// IPv4, ARP, IPv6, VLANs, local experiments
	for _, protocol := range []uint16{0x0800, 0x0806, 0x86dd, 0x8100, 0x88a8, 0x88b5} {
		for _, to := range [][]byte{{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, {0x01, 0x00, 0x5e, 0, 0, 5},
			{0x02, 0x11, 0x11, 0x11, 0x11, 2},
			{0x02, 0x11, 0x11, 0x11, 0x11, 4}, {0x33, 0x33, 0, 0, 0, 1}} {
			inject(t, p, "east", "h1", to, protocol)
		}
	}
	p.await("the frames to arrive where they belong", func() bool { return own.count() >= protocols*reached },
		func() string { return fmt.Sprintf("%d came", own.count()) })
	p.allWell("west") // what was sent meanwhile has arrived by now
	for _, s := range other {
		if n := s.count(); n != 0 {
			t.Errorf("%s saw %d frames of its twin", s.element, n)
		}
		if s.frames() == 0 {
			t.Errorf("%s saw nothing at all, which proves nothing", s.element)
		}
	}
}
