package resolve

import (
	"cmp"
	"slices"

	"github.com/polyplane/polyplane/model"
)

// complete fills in what follows from the document alone: every interface that a link or an edge implies, and each
// element's control, forwarding and software. Doing it twice changes nothing. It does not change its argument.
func complete(net model.Network) model.Network {
	net = WithInterfaces(net)
	net.Zeros = model.Settings{} // what is complete says all
	virtual := withVRRP(&net)
	for i := range net.Elements {
		e := &net.Elements[i]
		if virtual[i] && e.Software == "" && DefaultSoftware(*e) == model.SoftwareStatic {
			e.Software = model.SoftwareFRR // nobody else speaks it
		}
		fillDefaults(e)
	}
	return net
}

// WithInterfaces is the document with every interface that a link or an edge implies: its ends, and at the ends of
// trunks one for each VLAN. It does not change its argument.
func WithInterfaces(net model.Network) model.Network {
	net.Elements = slices.Clone(net.Elements)
	index := make(map[string]int, len(net.Elements))
	for i := range net.Elements {
		e := &net.Elements[i]
		e.Interfaces = slices.Clone(e.Interfaces)
		index[e.Name] = i
	}
	known := make(map[model.End]struct{}, 2*len(net.Links))
	for i := range net.Elements {
		for _, f := range net.Elements[i].Interfaces {
			known[model.End{Element: net.Elements[i].Name, Interface: f.Name}] = struct{}{}
		}
	}
	imply := func(end model.End) {
		i, ok := index[end.Element]
		if _, there := known[end]; !ok || there {
			return
		}
		known[end] = struct{}{}
		net.Elements[i].Interfaces = append(net.Elements[i].Interfaces, model.Interface{Name: end.Interface})
	}
	for _, l := range net.Links {
		imply(l.Ends[0])
		imply(l.Ends[1])
	}
	for _, e := range net.Edges {
		imply(e.End)
	}
	withVLANs(&net, index, known)
	return net
}

// withVLANs implies the interfaces of VLANs, and takes those away that a link no longer implies.
func withVLANs(net *model.Network, index map[string]int, known map[model.End]struct{}) {
	v := vlansOf(net)
	ends, carried := map[int]map[string]bool{}, map[int]map[string]bool{}
	note := func(of map[int]map[string]bool, i int, name string) {
		if of[i] == nil {
			of[i] = map[string]bool{}
		}
		of[i][name] = true
	}
	for k, l := range net.Links {
		for _, end := range l.Ends {
			i, ok := index[end.Element]
			if !ok || net.Elements[i].Kind == model.Switch {
				continue
			}
			note(ends, i, end.Interface)
			for _, name := range v.links[k].impliedBy(end) {
				note(carried, i, name)
				this := model.End{Element: end.Element, Interface: name}
				if _, there := known[this]; !there {
					known[this] = struct{}{}
					net.Elements[i].Interfaces = append(net.Elements[i].Interfaces, model.Interface{Name: name})
				}
			}
		}
	}
	for i := range net.Elements {
		e := &net.Elements[i]
		if len(ends[i]) > 0 {
			e.Interfaces = slices.DeleteFunc(e.Interfaces,
				func(f model.Interface) bool { return gone(&f, ends[i], carried[i]) })
		}
	}
}

func fillDefaults(e *model.Element) {
	e.Control = cmp.Or(e.Control, model.ControlNetns)
	if e.Forwarding == "" {
		e.Forwarding = DefaultForwarding(e.Kind)
	}
	if e.Software == "" {
		e.Software = DefaultSoftware(*e)
	}
}

// DefaultForwarding is where an element's packets are forwarded unless it says otherwise.
func DefaultForwarding(k model.Kind) model.Forwarding {
	if k == model.Switch {
		return model.ForwardBridge
	}
	return model.ForwardGuest
}

// DefaultSoftware is what a router runs unless it says otherwise: the software for which it has a configuration, FRR
// if it names a routing protocol, and static otherwise. Hosts and switches have none. Routers that take part in VRRP,
// which their switch says, run FRR.
func DefaultSoftware(e model.Element) model.Software {
	switch {
	case e.Kind != model.Router:
		return ""
	case e.Config["bird.conf"] != "":
		return model.SoftwareBIRD
	case len(e.Config) > 0 || len(e.Spoken()) > 0:
		return model.SoftwareFRR
	default:
		return model.SoftwareStatic
	}
}
