package software

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
)

func askBIRD(look *model.Look) (commands [][]string) {
	ask := func(format string, args ...any) {
		commands = append(commands, []string{"/usr/sbin/birdc", "-r", fmt.Sprintf(format, args...)})
	}
	switch {
	case look.What == model.KnownRoute && look.Protocol == "bgp":
		// Of several paths that BGP uses together only what goes to the kernel tells all. A configuration of
		// somebody's own may have another name for that, or BGP's route may not be the one that is chosen: then what
		// BGP has counts.
		n := 6
		if look.Prefix.Addr().Is4() {
			n = 4
		}
		ask("show route %s all export kernel%d where source = RTS_BGP", look.Prefix, n)
		ask("show route %s all where source = RTS_BGP", look.Prefix)
	case look.What == model.KnownRoute:
		ask("show route %s where source ~ [%s]", look.Prefix, strings.Join(birdSources[look.Protocol], ", "))
	case look.Protocol == "bgp":
		ask("show protocols all")
	default:
		ask("show ospf neighbors")
	}
	return commands
}

func answerBIRD(look *model.Look, out []Output) ([]neighbour, []Route, error) {
	for i, o := range out {
		if o.Status != 0 && !strings.Contains(o.Text, "Network not found") {
			if i < len(out)-1 {
				continue // the next command asks otherwise
			}
			words := Trouble([]byte(o.Text))
			_, after, found := strings.Cut(words, "Access restricted ")
			if found {
				words = after
			}
			return nil, nil, fmt.Errorf("birdc ended with status %d: %s", o.Status, model.Shorten(words, mostSeenText))
		}
		if look.What == model.KnownRoute {
			if routes := birdRoutes(o.Text); len(routes) > 0 || i == len(out)-1 {
				return nil, routes, nil
			}
			continue
		}
		if look.Protocol == "bgp" {
			return birdSessions(o.Text), nil, nil
		}
		return birdOSPFNeighbours(o.Text, look.Protocol == "ospf"), nil, nil
	}
	return nil, nil, nil
}

// birdOSPFNeighbours reads a table of all neighbours of all instances: router ID, priority, state/role, time until it
// is dead, interface, address. OSPFv3's addresses are link-local ones of IPv6.
func birdOSPFNeighbours(text string, v2 bool) (all []neighbour) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 6 {
			continue
		}
		id, err := netip.ParseAddr(f[0])
		at, wrong := netip.ParseAddr(f[5])
		if err != nil || wrong != nil || !id.Is4() || at.Is4() != v2 {
			continue
		}
		state, _, _ := strings.Cut(f[2], "/")
		all = append(all, neighbour{routerID: f[0], state: state, device: f[4], address: f[5]})
	}
	return all
}

// birdSessions reads what BIRD says of its protocols: a line without indent begins one, those after it are its own.
func birdSessions(text string) (all []neighbour) {
	bgp := false
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, " ") {
			f := strings.Fields(line)
			if bgp = len(f) > 1 && f[1] == "BGP"; bgp {
				all = append(all, neighbour{})
			}
			continue
		}
		key, value, found := strings.Cut(strings.TrimSpace(line), ":")
		if !bgp || !found {
			continue
		}
		n := &all[len(all)-1]
		switch value = strings.TrimSpace(value); key {
		case "BGP state":
			n.state = value
		case "Neighbor address":
			n.address, n.device, _ = strings.Cut(value, "%")
		}
	}
	return all
}

// birdRoutes reads a table's entries: a line that begins one tells its protocol in brackets, those with a tab after it
// are its next hops and what else is known of it. Of a route of BGP whose next hop is on no link, the next hops are
// those by which that is reached: then BGP's own is the one that counts.
func birdRoutes(text string) (all []Route) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case len(f) == 0:
		case line[0] == '\t' && len(all) > 0:
			r := &all[len(all)-1]
			switch {
			case f[0] == "via" && len(f) > 3 && f[2] == "on":
				r.Hops = append(r.Hops, Hop{f[1], f[3]})
			case f[0] == "dev" && len(f) > 1:
				r.Hops = append(r.Hops, Hop{"", f[1]})
			case f[0] == "BGP.next_hop:" && len(f) > 1:
				own := f[1:]
				if !slices.ContainsFunc(r.Hops, func(h Hop) bool { return slices.Contains(own, h.Address) }) {
					r.Hops = nil
					r.Hops = append(r.Hops, each.Of(own, func(a string) Hop { return Hop{Address: a} })...)
				}
			}
		case line[0] != '\t' && strings.Contains(line, " ["):
			all = append(all, Route{})
		}
	}
	return all
}
