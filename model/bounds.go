package model

// How large a network may be. Files and requests are held to the same numbers, whoever writes them. These numbers bound
// the work and the memory that one document can take of the manager and of a node.
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
	MaxPolicies     = 256   // of a router's BGP, and prefix lists
	MaxRules        = 1_024 // in them
	MaxWords        = 32    // of a list like redistribute
	MaxForwards     = 64    // of an edge
	MaxAllForwards  = 1_024
	MaxAllAddresses = 200_000 // that interfaces and loopbacks state
	// MaxSessions is how many BGP sessions a network may have that follow from its links. Those between routers on one
	// switch grow with the square of their number.
	MaxSessions    = 200_000
	MaxConfigFiles = 16 // of an element
	// MaxConfigSize is how large one configuration file may be, in bytes, and MaxConfigBytes how large all of a network
	// may be together.
	MaxConfigSize  = 1 << 20
	MaxConfigBytes = 16 << 20
	// MaxNodeBytes is how large all that one node is told of its networks may be, in bytes.
	MaxNodeBytes = 64 << 20
)

// Limits of what a network may ask for.
const (
	MinMTU     = 68   // RFC 791
	MinMTU6    = 1280 // RFC 8200
	MaxMTU     = 9000
	MaxLatency = Duration(60e9) // of a link's delay and jitter
	// MinBandwidth is the least that a link can be limited to, in bit/s: a full packet a second and a half.
	MinBandwidth = Bandwidth(8000)
)

// MaxProblems is how many problems with a network are told one by one. Of the others only the number is told.
const MaxProblems = 100

// MaxMessage bounds, in bytes, what is told of one problem: its message quotes what is wrong.
const MaxMessage = 1000

// Size is about how many bytes the network's description takes, its configuration files included: what a quota of
// stored bytes counts.
func (n *Network) Size() Bytes {
	size := sizeOfOther + sizeOfLink*len(n.Links) + sizeOfOther*(len(n.Edges)+len(n.Expect)+len(n.Pools))
	for i := range n.Elements {
		size += sizeOf(&n.Elements[i])
	}
	return Bytes(size)
}

// Size is about how many bytes the resolved network takes, in all that its nodes are told.
func (n *Resolved) Size() Bytes {
	size := sizeOfOther + sizeOfLink*len(n.Links) + sizeOfOther*len(n.Edges)
	for i := range n.Elements {
		e := &n.Elements[i]
		size += sizeOf(e)
		for k := range e.Interfaces {
			size += sizeOfResolved
			if far := e.Interfaces[k].Far; far != nil {
				for p := range far.Peers {
					size += sizeOfPeer + sizeOfAddress*len(far.Peers[p].Addresses)
				}
			}
		}
	}
	return Bytes(size)
}

// What parts of a network take, about as they stand in JSON.
const (
	sizeOfElement, sizeOfInterface, sizeOfLink, sizeOfOther = 160, 60, 140, 60
	sizeOfResolved, sizeOfPeer, sizeOfAddress               = 200, 50, 20 // of a resolved interface
)

// sizeOf is about how many bytes an element takes.
func sizeOf[I any](e *ElementOf[I]) int {
	size := sizeOfElement + sizeOfInterface*len(e.Interfaces) +
		sizeOfOther*(len(e.Routes)+len(e.Loopback)+len(e.Gateways)+len(e.Prefixes))
	for k := range e.Routes {
		size += sizeOfOther / 2 * len(e.Routes[k].Via)
	}
	for k := range e.MPLS {
		size += sizeOfOther + sizeOfAddress + len(e.MPLS[k].Via) + len(e.MPLS[k].Interface)
	}
	if g := e.Routing.BGP; g != nil {
		size += sizeOfOther * (len(g.Networks) + len(g.Neighbors) + len(g.Toward))
		for name, ranges := range g.PrefixLists {
			size += len(name) + sizeOfAddress*len(ranges)
		}
		for name, rules := range g.Policies {
			size += len(name)
			for k := range rules {
				size += sizeOfOther + len(rules[k].String())
			}
		}
	}
	for name, v := range e.VRFs {
		size += sizeOfOther + len(name) + sizeOfOther*(len(v.Routes)+len(v.Gateways))
		for _, f := range v.Interfaces {
			size += len(f)
		}
		for k := range v.Routes {
			size += sizeOfOther / 2 * len(v.Routes[k].Via)
		}
	}
	for name, text := range e.Config {
		size += len(name) + len(text)
	}
	return size + e.Service.Size()
}

// MostNamed is how many objects one problem names.
const MostNamed = 12
