package resolve

import (
	"strings"

	"github.com/polyplane/polyplane/model"
)

// checkMirror looks at an edge that gets copies of a link's packets. They go to a host only: a router or a switch would
// forward them, and each packet would be in the network twice.
func (ps *problems) checkMirror(i int, l *layout) {
	e := &ps.net.Edges[i]
	if e.Device != "" || e.VLAN != 0 || e.Trunk || e.Internet != nil || e.Node != "" {
		ps.edge(i, "mirror", "it is a mirror and leads out; it can be one of them")
	}
	if at, ok := l.elements[e.End.Element]; ok && ps.net.Elements[at].Kind != model.Host {
		ps.edge(i, "end", "%s is a %s; copies go to a host, which does nothing with them by itself", e.End.Element,
			ps.net.Elements[at].Kind)
	}
	if b := e.Mirror.Bandwidth; b != 0 && b < model.MinBandwidth {
		ps.edge(i, "bandwidth", "the bandwidth %s is less than the %s that a mirror needs", b, model.MinBandwidth)
	}
	var links []string
	for _, link := range ps.net.Links {
		if links = append(links, link.Name); link.Name == e.Mirror.Link {
			links = nil
			break
		}
	}
	switch {
	case e.Mirror.Link == "" && ps.ofEdge(i, "link"), len(links) > 0 && ps.mayBeLink(e.Mirror.Link),
		len(ps.net.Links) == 0 && ps.mayBeLink(e.Mirror.Link):
	case e.Mirror.Link == "":
		ps.edge(i, "link", "it needs link:, the name of a link whose packets are copied")
	case len(ps.net.Links) == 0:
		ps.edge(i, "link", "there is no link %s; the network has no links", e.Mirror.Link)
	case len(links) > 8:
		ps.edge(i, "link", "there is no link %s in the network", e.Mirror.Link)
	case len(links) > 0:
		ps.edge(i, "link", "there is no link %s; there are %s", e.Mirror.Link, strings.Join(links, ", "))
	}
	for k := range ps.net.Edges[:i] {
		if o := &ps.net.Edges[k]; o.Mirror != nil && e.Mirror.Link != "" && o.Mirror.Link == e.Mirror.Link {
			ps.edge(i, "link", "%s is copied to %s already; a link has one mirror", e.Mirror.Link, o.End.Element)
		}
	}
}

// mirrors gives the ends of mirrors what their links have, and each mirror its VNI.
func (r *resolver) mirrors(numbers *Numbers) error {
	for _, edge := range r.out.Edges {
		if edge.Mirror == nil {
			continue
		}
		key := model.MirrorKey(edge.Name)
		given := model.AssignedLink{VNI: r.was.Links[key].VNI}
		if given.VNI == 0 {
			var err error
			if given.VNI, err = numbers.VNI(); err != nil {
				return err
			}
		}
		r.now.Links[key] = given
		for _, link := range r.out.Links {
			if i, ok := r.elements[edge.End.Element]; ok && link.Name == edge.Mirror.Link && link.MTU != 0 {
				r.out.Elements[i].Interfaces[r.interfaces[edge.End]].MTU = link.MTU
			}
		}
	}
	return nil
}
