package model

import "strings"

// Mirror is what an edge has whose end gets copies of what passes a link of the same network, both ways: frames as they are, on
// an interface without addresses, from which nothing goes anywhere.
type Mirror struct {
	Link string `json:"link"`
	// Bandwidth is what all copies together may take, DefaultMirrorBandwidth when zero. What is beyond it is not copied.
	Bandwidth Bandwidth `json:"bandwidth,omitempty"`
}

// DefaultMirrorBandwidth is a mirror's that states none.
const DefaultMirrorBandwidth = Bandwidth(100e6)

// Limit is the mirror's bandwidth, stated or not.
func (m Mirror) Limit() Bandwidth {
	if m.Bandwidth == 0 {
		return DefaultMirrorBandwidth
	}
	return m.Bandwidth
}

// Copy is where copies of what passes an interface's link go.
type Copy struct {
	Element   string    `json:"element"`
	Interface string    `json:"interface"`
	Node      string    `json:"node,omitempty"` // with VNI, where it is another node than this end's
	VNI       uint32    `json:"vni,omitempty"`
	Bandwidth Bandwidth `json:"bandwidth"`
}

// MirrorKey is the mirror's place in Assigned.Links, beside the links': no link has a name with a blank.
func MirrorKey(edge string) string { return "mirror " + edge }

func (ps *problems) checkMirror(i int, l *layout) {
	e := &ps.net.Edges[i]
	if e.Device != "" || e.VLAN != 0 || e.Trunk || e.Internet != nil || e.Node != "" {
		ps.edge(i, "mirror", "it is a mirror and leads out; it can be one of them")
	}
	if at, ok := l.elements[e.End.Element]; ok && ps.net.Elements[at].Kind != Host {
		ps.edge(i, "end", "%s is a %s; copies go to a host, which does nothing with them by itself", e.End.Element, ps.net.Elements[at].Kind)
	}
	if b := e.Mirror.Bandwidth; b != 0 && b < MinBandwidth {
		ps.edge(i, "bandwidth", "the bandwidth %s is less than the %s that a mirror needs", b, MinBandwidth)
	}
	var links []string
	for _, link := range ps.net.Links {
		if links = append(links, link.Name); link.Name == e.Mirror.Link {
			links = nil
			break
		}
	}
	switch {
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
		if o := &ps.net.Edges[k]; o.Mirror != nil && o.Mirror.Link == e.Mirror.Link {
			ps.edge(i, "link", "%s is copied to %s already; a link has one mirror", e.Mirror.Link, o.End.Element)
		}
	}
}

// mirrors gives the mirrors' ends what their links have, and each its VNI.
func (r *resolver) mirrors(numbers *Numbers) error {
	for _, edge := range r.out.Edges {
		if edge.Mirror == nil {
			continue
		}
		key := MirrorKey(edge.Name)
		given := AssignedLink{VNI: r.was.Links[key].VNI}
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

// copies are where copies of what passes links go, by the first ends of these. A mirror whose end is stopped gets none.
func (r ResolvedRecord) copies() map[End]*Copy {
	var all map[End]*Copy
	placed := r.Assigned.Placement.Elements
	for _, edge := range r.Network.Edges {
		if edge.Mirror == nil || placed[edge.End.Element] == "" || r.Overrides[edge.End.Element].offLine() {
			continue
		}
		for _, link := range r.Network.Links {
			from := link.Ends[0]
			if link.Name != edge.Mirror.Link || placed[from.Element] == "" {
				continue
			}
			c := &Copy{Element: edge.End.Element, Interface: edge.End.Interface, Bandwidth: edge.Mirror.Limit()}
			if most := r.Network.Slice.Bandwidth; most > 0 {
				c.Bandwidth = min(c.Bandwidth, most)
			}
			if node := placed[edge.End.Element]; node != placed[from.Element] {
				c.Node, c.VNI = node, r.Assigned.Links[MirrorKey(edge.Name)].VNI
			}
			if all == nil {
				all = map[End]*Copy{}
			}
			all[from] = c
		}
	}
	return all
}

// placedMirror is the mirror as the node of its end must know it.
func (r ResolvedRecord) placedMirror(edge *ResolvedEdge) *PlacedMirror {
	if edge.Mirror == nil {
		return nil
	}
	m := PlacedMirror{Mirror: *edge.Mirror}
	placed := r.Assigned.Placement.Elements
	for _, link := range r.Network.Links {
		if from := placed[link.Ends[0].Element]; link.Name == m.Link && from != "" && from != placed[edge.End.Element] {
			m.From, m.VNI = from, r.Assigned.Links[MirrorKey(edge.Name)].VNI
		}
	}
	return &m
}
