package model

import "cmp"

// Mirror makes an edge's end get copies of the frames that pass a link of the same network, in both directions. The
// end is an interface without addresses. What is sent from it goes nowhere.
type Mirror struct {
	Link string `json:"link"`
	// Bandwidth is what all copies together may take, DefaultMirrorBandwidth when zero. What is beyond it is not
	// copied.
	Bandwidth Bandwidth `json:"bandwidth,omitempty"`
}

// DefaultMirrorBandwidth counts where a mirror states none.
const DefaultMirrorBandwidth = Bandwidth(100e6)

// Limit is the mirror's bandwidth, stated or not.
func (m Mirror) Limit() Bandwidth {
	return cmp.Or(m.Bandwidth, DefaultMirrorBandwidth)
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

// copies tells where copies of what passes links go, by the first ends of these links. A mirror whose end is stopped
// gets none.
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

// placedMirror is the mirror as the node of its end has to know it.
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
