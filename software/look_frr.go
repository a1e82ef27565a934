package software

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/model"
)

// What FRR says as JSON, in the words of FRR 8.4 to 10.3. Where these differ, both are read: OSPF's "state" of 8.4 is
// "nbrState" in 10 (8.4 says both), its "address" is "ifaceAddress"; "converged" is the state alone in both.

func askFRR(look *model.Look) [][]string {
	ip, family := "ipv6", "ipv6"
	if look.Prefix.IsValid() && look.Prefix.Addr().Is4() {
		ip, family = "ip", "ipv4"
	}
	words, vrf := "", ""
	if look.VRF != "" {
		vrf = "vrf " + look.VRF + " "
	}
	switch {
	case look.What == model.KnownVirtual:
		words = "show vrrp json"
	case look.What == model.KnownRoute && look.Protocol == "bgp":
		words = fmt.Sprintf("show bgp %s unicast %s json", family, look.Prefix)
	case look.What == model.KnownRoute:
		words = fmt.Sprintf("show %s route %s%s json", ip, vrf, look.Prefix)
	case look.Protocol == "bgp":
		words = "show bgp summary json"
	case look.Protocol == "ospf":
		words = "show ip ospf " + vrf + "neighbor json"
	case look.Protocol == "ospf6":
		words = "show ipv6 ospf6 " + vrf + "neighbor json"
	case look.Protocol == "isis":
		words = "show isis neighbor json"
	}
	return [][]string{{"/usr/bin/vtysh", "-c", words}}
}

// unread is the error of an answer that is no JSON of FRR's.
func unread(text []byte) error {
	if words := model.Shorten(Trouble(text), mostSeenText/3); words != "" {
		return fmt.Errorf("what vtysh answers is not understood: %s", words)
	}
	return errors.New("vtysh answers nothing")
}

func answerFRR(look *model.Look, out []Output) ([]neighbour, []Route, error) {
	if out[0].Status != 0 {
		return nil, nil, fmt.Errorf("vtysh ended with status %d: %s", out[0].Status,
			model.Shorten(Trouble([]byte(out[0].Text)), mostSeenText))
	}
	text := []byte(out[0].Text)
	switch {
	case look.What == model.KnownRoute && look.Protocol == "bgp":
		r, err := frrBGPRoutes(text)
		return nil, r, err
	case look.What == model.KnownRoute:
		r, err := frrRoutes(text, look)
		return nil, r, err
	}
	read := map[string]func([]byte) ([]neighbour, error){"bgp": frrSessions, "ospf": frrOSPFNeighbours,
		"ospf6": frrOSPF6Neighbours, "isis": frrISISNeighbours}[look.Protocol]
	if look.VRF != "" {
		text = ofVRF(text, "neighbors")
	}
	n, err := read(text)
	return n, nil, err
}

// ofVRF is what FRR answers of one VRF: some versions say it below the VRF's name.
func ofVRF(text []byte, key string) []byte {
	var said map[string]json.RawMessage
	if json.Unmarshal(text, &said) != nil || said[key] != nil {
		return text
	}
	for _, inner := range said {
		var of map[string]json.RawMessage
		if json.Unmarshal(inner, &of) == nil && of[key] != nil {
			return inner
		}
	}
	return text
}

func frrOSPFNeighbours(text []byte) (all []neighbour, err error) {
	var said struct {
		Neighbors map[string][]struct {
			NbrState, State, Converged string
			IfaceAddress, Address      string
			IfaceName                  string // "r2:10.0.0.1", with the router's own address there
		}
	}
	if json.Unmarshal(text, &said) != nil {
		return nil, unread(text)
	}
	for _, id := range slices.Sorted(maps.Keys(said.Neighbors)) {
		for _, n := range said.Neighbors[id] {
			state, _, _ := strings.Cut(firstOf(n.NbrState, n.State), "/")
			device, _, _ := strings.Cut(n.IfaceName, ":")
			all = append(all, neighbour{routerID: id, address: firstOf(n.IfaceAddress, n.Address), device: device,
				state: firstOf(n.Converged, state)})
		}
	}
	return all, nil
}

func frrOSPF6Neighbours(text []byte) (all []neighbour, err error) {
	var said struct {
		Neighbors []struct{ NeighborID, State, InterfaceName string }
	}
	if json.Unmarshal(text, &said) != nil {
		return nil, unread(text)
	}
	for _, n := range said.Neighbors {
		if n.State == "Twoway" {
			n.State = "2-Way"
		}
		all = append(all, neighbour{routerID: n.NeighborID, device: n.InterfaceName, state: n.State})
	}
	return all, nil
}

func frrISISNeighbours(text []byte) (all []neighbour, err error) {
	var said struct {
		Areas []struct {
			Circuits []struct{ Adj, Interface, State string }
		}
	}
	if json.Unmarshal(text, &said) != nil {
		return nil, unread(text)
	}
	for _, a := range said.Areas {
		for _, c := range a.Circuits {
			if c.Adj != "" { // else it is an interface without a neighbour
				all = append(all, neighbour{name: c.Adj, device: c.Interface, state: c.State})
			}
		}
	}
	return all, nil
}

// frrSessions reads the sessions of BGP. One that carries both families is listed under each of them.
func frrSessions(text []byte) (all []neighbour, err error) {
	var families map[string]json.RawMessage
	if json.Unmarshal(text, &families) != nil {
		return nil, unread(text)
	}
	states := map[string]string{}
	for _, f := range families {
		var said struct {
			Peers map[string]struct{ State string }
		}
		if json.Unmarshal(f, &said) != nil {
			continue // a word about the family, not its peers
		}
		for name, p := range said.Peers {
			states[name] = p.State
		}
	}
	for _, name := range slices.Sorted(maps.Keys(states)) {
		n := neighbour{state: states[name]}
		if _, err := netip.ParseAddr(name); err == nil {
			n.address = name
		} else {
			n.device = name // the session is by whoever is at that interface
		}
		all = append(all, n)
	}
	return all, nil
}

// frrRoutes reads what zebra has been told of a prefix.
func frrRoutes(text []byte, look *model.Look) (all []Route, err error) {
	var said map[string][]struct {
		Prefix, Protocol string
		Nexthops         []struct {
			IP, InterfaceName string
		}
	}
	if json.Unmarshal(text, &said) != nil {
		return nil, unread(text)
	}
	protocol := look.Protocol
	if protocol == "rip" && look.Prefix.Addr().Is6() {
		protocol = "ripng"
	}
	for _, routes := range said {
		for _, r := range routes {
			if r.Prefix != look.Prefix.String() || r.Protocol != protocol {
				continue
			}
			var one Route
			for _, h := range r.Nexthops {
				if h.IP != "" || h.InterfaceName != "" {
					one.Hops = append(one.Hops, Hop{h.IP, h.InterfaceName})
				}
			}
			all = append(all, one)
		}
	}
	return all, nil
}

// frrBGPRoutes reads BGP's paths to a prefix, those that it uses.
func frrBGPRoutes(text []byte) (all []Route, err error) {
	var said struct {
		Paths []struct {
			Multipath bool
			Bestpath  struct{ Overall bool }
			Nexthops  []struct{ IP string }
			Peer      struct{ Interface string } // of a session that has no address of its own
		}
	}
	if json.Unmarshal(text, &said) != nil {
		return nil, unread(text)
	}
	for _, p := range said.Paths {
		if !p.Bestpath.Overall && !p.Multipath {
			continue
		}
		var one Route
		for _, h := range p.Nexthops {
			if h.IP != "::" { // BIRD has no global address on a link without one, and says so
				one.Hops = append(one.Hops, Hop{h.IP, p.Peer.Interface})
			}
		}
		all = append(all, one)
	}
	return all, nil
}
