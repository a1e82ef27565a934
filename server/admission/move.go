package admission

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/polyplane/polyplane/model"
)

// DrawMove is Draw for a network that stays as it is, but for the node that one of its elements is on.
func DrawMove(old *Network, element, to string, now time.Time) (*Draft, error) {
	doc := old.Record.Network
	doc.Elements = slices.Clone(doc.Elements)
	i := slices.IndexFunc(doc.Elements, func(e model.Element) bool { return e.Name == element })
	if i < 0 {
		return nil, wrong(doc.Name, "has no element "+element)
	}
	doc.Elements[i].Node = to
	blank := *old
	blank.Record.Set = model.Settings{} // all of it is what is wanted
	d, err := Draw(doc, &blank, "", now)
	if err != nil {
		return nil, err
	}
	d.next.Set = old.Record.Set
	return d, nil
}

// Move decides about a draft of DrawMove: whether the element has room there, with its links. An element that is pinned
// to a node is pinned to the new one then; one that is not pinned is not.
func (s *Situation) Move(d *Draft, element string) (Network, error) {
	network, from := d.next.Network.Name, d.old.on(element)
	allowed := *s
	allowed.LoseFiles = true // of others, which is refused below with better words
	n, err := allowed.Admit(d)
	if err != nil {
		return Network{}, err
	}
	placed := n.Record.Assigned.Placement.Elements
	for _, other := range slices.Sorted(maps.Keys(placed)) {
		if was := d.old.on(other); other != element && was != placed[other] {
			return Network{}, wrong(network, fmt.Sprintf("is not changed: with %s on node %s, %s could not stay on "+
				"node %s; move that first", element, placed[element], other, was))
		}
	}
	for _, l := range MovedLinks(&d.old.Record, &n.Record) {
		if !ofElement(&n.Record.Network, l.Link, element) {
			return Network{}, wrong(network, fmt.Sprintf("is not changed: with %s on node %s, link %s would have to "+
				"take another path; there is no room for both as they are", element, placed[element], l.Link))
		}
	}
	for i := range d.old.Record.Network.Elements {
		if was := &d.old.Record.Network.Elements[i]; was.Name != element || was.Node == from {
			continue
		}
		n.Record.Network.Elements = slices.Clone(n.Record.Network.Elements)
		n.Resolved.Elements = slices.Clone(n.Resolved.Elements)
		unpin(n.Record.Network.Elements, element)
		unpin(n.Resolved.Elements, element)
	}
	return n, nil
}

// ofElement tells whether a link ends at an element.
func ofElement(net *model.Network, link, element string) bool {
	return slices.ContainsFunc(net.Links, func(l model.Link) bool {
		return l.Name == link && (l.Ends[0].Element == element || l.Ends[1].Element == element)
	})
}

func unpin[I any](elements []model.ElementOf[I], name string) {
	for i := range elements {
		if elements[i].Name == name {
			elements[i].Node = ""
		}
	}
}

// MovedLinks are the links of which a move changes the path, by their names.
func MovedLinks(old, next *model.Record) (moved []model.MovedLink) {
	equal := func(a, b model.LinkPath) bool { return slices.Equal(a.Nodes, b.Nodes) }
	for i := range next.Network.Links {
		name := next.Network.Links[i].Name
		before, after := old.Assigned.Placement.Links[name], next.Assigned.Placement.Links[name]
		if !slices.EqualFunc(before, after, equal) {
			moved = append(moved, model.MovedLink{Link: name, Before: before, After: after})
		}
	}
	slices.SortFunc(moved, func(a, b model.MovedLink) int {
		if a.Link < b.Link {
			return -1
		}
		return 1
	})
	return moved
}
