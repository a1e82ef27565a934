package model

import "slices"

// Complete returns the network with everything filled in that follows from the document alone: every interface that a
// link or an edge implies, each element's control, forwarding and software. Doing it again changes nothing. The
// argument is not changed.
func Complete(net Network) Network {
	net.Elements = slices.Clone(net.Elements)
	index := make(map[string]int, len(net.Elements))
	for i := range net.Elements {
		e := &net.Elements[i]
		fillDefaults(e)
		e.Interfaces = slices.Clone(e.Interfaces)
		index[e.Name] = i
	}
	known := make(map[End]struct{}, 2*len(net.Links))
	for i := range net.Elements {
		for _, f := range net.Elements[i].Interfaces {
			known[End{net.Elements[i].Name, f.Name}] = struct{}{}
		}
	}
	imply := func(end End) {
		i, ok := index[end.Element]
		if _, there := known[end]; !ok || there {
			return
		}
		known[end] = struct{}{}
		net.Elements[i].Interfaces = append(net.Elements[i].Interfaces, Interface{Name: end.Interface})
	}
	for _, l := range net.Links {
		imply(l.Ends[0])
		imply(l.Ends[1])
	}
	for _, e := range net.Edges {
		imply(e.End)
	}
	return net
}

func fillDefaults(e *Element) {
	if e.Control == "" {
		e.Control = ControlNetns
	}
	if e.Forwarding == "" {
		e.Forwarding = DefaultForwarding(e.Kind)
	}
	if e.Software == "" {
		e.Software = DefaultSoftware(*e)
	}
}

// DefaultForwarding is what an element forwards with unless it says otherwise.
func DefaultForwarding(k Kind) Forwarding {
	if k == Switch {
		return ForwardBridge
	}
	return ForwardGuest
}

// DefaultSoftware is what a router runs unless it says otherwise: the software that its configuration is for, FRR where
// there is an intent, else static. Hosts and switches have none.
func DefaultSoftware(e Element) Software {
	switch {
	case e.Kind != Router:
		return ""
	case e.Config["bird.conf"] != "":
		return SoftwareBIRD
	case len(e.Config) > 0 || e.Routing.Any():
		return SoftwareFRR
	default:
		return SoftwareStatic
	}
}

// Any tells whether there is any intent.
func (r Routing) Any() bool {
	return r.OSPF != nil || r.OSPF6 != nil || r.ISIS != nil || r.BGP != nil || r.RIP != nil
}
