package model

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// How large a network may be. Files and requests are held to the same numbers, whoever writes them: they are what keeps
// the work, and the memory, that one document takes of the manager and of a node bounded.
const (
	MaxElements     = 20_000
	MaxLinks        = 60_000
	MaxEdges        = 1_000
	MaxExpectations = 20_000
	MaxPools        = 64
	MaxInterfaces   = 10_000 // of an element
	MaxAddresses    = 64     // of an interface, a loopback, a link, a switch; and gateways
	MaxRoutes       = 20_000 // static ones of an element, and the networks that it announces
	MaxAllRoutes    = 200_000
	MaxNextHops     = 64    // of a route
	MaxNeighborsBGP = 4_096 // of a router
	MaxWords        = 32    // of a list like redistribute
	MaxForwards     = 64    // of an edge
	MaxAllForwards  = 1_024
	MaxAllAddresses = 200_000 // that interfaces and loopbacks state
	// MaxSessions is how many BGP sessions a network may have that follow from its links: those of a switch with so many
	// routers grow with their square.
	MaxSessions    = 200_000
	MaxConfigFiles = 16 // of an element
	// MaxConfigSize is how large one configuration file may be, in bytes, MaxConfigBytes all of a network together.
	MaxConfigSize  = 1 << 20
	MaxConfigBytes = 16 << 20
	// MaxNodeBytes is how large all that one node is told of its networks may be, in bytes.
	MaxNodeBytes = 64 << 20
	// maxResolved is how large a network may become by what follows from its document, in bytes.
	maxResolved = 2 * MaxNodeBytes
)

// MaxProblems is how many problems with a network are told one by one; of the rest only how many there are.
const MaxProblems = 100

// maxMessage bounds what is told of one problem, in bytes: what is wrong is quoted in it.
const maxMessage = 1000

// all are the problems, with how many there are beyond those that are told.
func (ps *problems) all() []Problem {
	if ps.more == 0 {
		return ps.list
	}
	return append(ps.list, Problem{About: AboutNetwork, Name: Shorten(ps.net.Name, maxMessage/4),
		Message: "… and " + thousands(ps.more) + " more problems"})
}

// thousands writes a number as people read it: 3,412.
func thousands(n int) string {
	s := fmt.Sprint(n)
	for at := len(s) - 3; at > 0; at -= 3 {
		s = s[:at] + "," + s[at:]
	}
	return s
}

// Shorten cuts a text to at most so many bytes; the sign of that comes on top.
func Shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// CheckBounds tells what of the network is larger than any network may be. It takes time in proportion to the network, and
// nothing else should look at one before: much else takes more.
func (n *Network) CheckBounds() []Problem {
	ps := &problems{net: n}
	what := func(report func(field, format string, args ...any), field, words string, is, most int) {
		if is > most {
			report(field, "%s", fmt.Sprintf("it has %s %s; %s are allowed", thousands(is), words, thousands(most)))
		}
	}
	if len(n.Name) > MaxName {
		ps.network("network", "its name has %s characters; %d are allowed", thousands(len(n.Name)), MaxName)
	}
	whole := func(field, words string, is, most int) { what(ps.network, field, words, is, most) }
	whole("elements", "elements", len(n.Elements), MaxElements)
	whole("links", "links", len(n.Links), MaxLinks)
	whole("edges", "edges", len(n.Edges), MaxEdges)
	whole("expect", "expectations", len(n.Expect), MaxExpectations)
	whole("pools", "pools", len(n.Pools), MaxPools)
	if len(ps.list) > 0 { // what follows looks at each of them
		return ps.all()
	}
	interfaces, addresses, routes, forwards, config := 0, 0, 0, 0, 0
	for i := range n.Elements {
		e := &n.Elements[i]
		of := func(field, words string, is, most int) {
			what(func(field, format string, args ...any) { ps.element(i, field, format, args...) }, field, words, is, most)
		}
		of("interfaces", "interfaces", len(e.Interfaces), MaxInterfaces)
		for k := range e.Interfaces {
			of("interfaces/"+Shorten(e.Interfaces[k].Name, MaxName), "addresses on one interface", len(e.Interfaces[k].Addresses), MaxAddresses)
			addresses += len(e.Interfaces[k].Addresses)
		}
		of("loopback", "addresses on its loopback", len(e.Loopback), MaxAddresses)
		of("gateways", "gateways", len(e.Gateways), MaxAddresses)
		of("prefixes", "prefixes", len(e.Prefixes), MaxAddresses)
		of("routes", "routes", len(e.Routes), MaxRoutes)
		for k := range e.Routes {
			of("routes", "next hops in one route", len(e.Routes[k].Via), MaxNextHops)
		}
		for _, o := range []*OSPF{e.Routing.OSPF, e.Routing.OSPF6} {
			if o != nil {
				of("routing", "words under redistribute", len(o.Redistribute), MaxWords)
			}
		}
		if g := e.Routing.BGP; g != nil {
			of("routing/bgp", "networks to announce", len(g.Networks), MaxRoutes)
			of("routing/bgp", "BGP neighbors", len(g.Neighbors), MaxNeighborsBGP)
			routes += len(g.Networks)
		}
		if r := e.Routing.RIP; r != nil {
			of("routing/rip", "words under redistribute", len(r.Redistribute), MaxWords)
		}
		of("config", "configuration files", len(e.Config), MaxConfigFiles)
		for name, text := range e.Config {
			of("config", "bytes in the configuration file "+Shorten(name, MaxName), len(text), MaxConfigSize)
			config += len(text)
		}
		interfaces += len(e.Interfaces)
		addresses += len(e.Loopback)
		routes += len(e.Routes)
	}
	for i := range n.Links {
		what(func(field, format string, args ...any) { ps.link(i, field, format, args...) }, "prefixes", "prefixes", len(n.Links[i].Prefixes), MaxAddresses)
	}
	for i := range n.Edges {
		if internet := n.Edges[i].Internet; internet != nil {
			what(func(field, format string, args ...any) { ps.edge(i, field, format, args...) }, "internet", "forwards", len(internet.Forwards), MaxForwards)
			forwards += len(internet.Forwards)
		}
	}
	whole("elements", "interfaces", interfaces, 2*MaxLinks+MaxEdges)
	whole("elements", "addresses", addresses, MaxAllAddresses)
	whole("edges", "forwards", forwards, MaxAllForwards)
	whole("elements", "static and announced routes", routes, MaxAllRoutes)
	whole("elements", "bytes of configuration files", config, MaxConfigBytes)
	return ps.all()
}

// Size is about how many bytes the network's description takes, its configuration files included: what a quota of stored
// bytes counts.
func (n *Network) Size() Bytes {
	size := sizeOfOther + sizeOfLink*len(n.Links) + sizeOfOther*(len(n.Edges)+len(n.Expect)+len(n.Pools))
	for i := range n.Elements {
		size += sizeOf(&n.Elements[i])
	}
	return Bytes(size)
}

// What parts of a network take, about as JSON has them.
const sizeOfElement, sizeOfInterface, sizeOfLink, sizeOfOther = 160, 60, 140, 60

// sizeOf is about how many bytes an element takes.
func sizeOf[I any](e *ElementOf[I]) int {
	size := sizeOfElement + sizeOfInterface*len(e.Interfaces) +
		sizeOfOther*(len(e.Routes)+len(e.Loopback)+len(e.Gateways)+len(e.Prefixes))
	for k := range e.Routes {
		size += sizeOfOther / 2 * len(e.Routes[k].Via)
	}
	if g := e.Routing.BGP; g != nil {
		size += sizeOfOther * (len(g.Networks) + len(g.Neighbors))
	}
	for name, text := range e.Config {
		size += len(name) + len(text)
	}
	return size
}

// checkResolved tells what follows from the document in more places than anybody can be told of.
func (n *Resolved) checkBounds() *Problem {
	const iface, peer, address = 200, 50, 20 // as JSON has them
	size := sizeOfOther + sizeOfLink*len(n.Links) + sizeOfOther*len(n.Edges)
	for i := range n.Elements {
		e := &n.Elements[i]
		size += sizeOf(e)
		for k := range e.Interfaces {
			f := &e.Interfaces[k]
			size += iface
			if f.Far == nil {
				continue
			}
			for p := range f.Far.Peers {
				size += peer + address*len(f.Far.Peers[p].Addresses)
			}
		}
		if size > maxResolved {
			p := ProblemOf(AboutNetwork, n.Name, "elements", "what its nodes would have to know of each interface's neighbours is more than the %s that "+
				"one network may take; make its segments smaller, or give their interfaces fewer addresses", Bytes(maxResolved))
			return &p
		}
	}
	return nil
}

// prefixSet holds subnets and tells quickly whether one of them has an address in it.
type prefixSet struct {
	known map[netip.Prefix]struct{}
	bits  []int          // the lengths that there are
	list  []netip.Prefix // in their order
}

func (s *prefixSet) add(p netip.Prefix) {
	p = p.Masked()
	if _, there := s.known[p]; there || !p.IsValid() {
		return
	}
	if s.known == nil {
		s.known = map[netip.Prefix]struct{}{}
	}
	s.known[p] = struct{}{}
	s.list = append(s.list, p)
	if !slices.Contains(s.bits, p.Bits()) {
		s.bits = append(s.bits, p.Bits())
	}
}

func (s *prefixSet) contains(a netip.Addr) bool {
	for _, bits := range s.bits {
		if p, err := a.Prefix(bits); err == nil {
			if _, there := s.known[p]; there {
				return true
			}
		}
	}
	return false
}

// words names the subnets, not all of them where there are many.
func (s *prefixSet) words() string {
	words := make([]string, 0, mostNamed)
	for _, p := range s.list {
		if len(words) == mostNamed {
			return strings.Join(words, ", ") + " and others"
		}
		words = append(words, p.String())
	}
	if len(words) == 0 {
		return "it has none"
	}
	return strings.Join(words, ", ")
}

// mostNamed is how many objects one problem names.
const mostNamed = 12
