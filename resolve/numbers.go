package resolve

import (
	"fmt"

	"github.com/polyplane/polyplane/model"
)

// MaxVNI is the largest VXLAN network identifier (24 bits, RFC 7348). 0 is never used.
const MaxVNI = 1<<24 - 1

// Numbers gives out what must be unique among all networks of a substrate: the networks' indices and the links' VNIs.
// It is made from what is stored and used for a single calculation, so a calculation that is thrown away leaves no
// trace.
type Numbers struct {
	indices map[uint32]struct{}
	vnis    map[uint32]struct{}
	last    uint32 // VNI last given
}

// NewNumbers returns the numbers that none of these networks has. Pass all stored networks, including the one that is
// about to be resolved.
func NewNumbers(taken ...model.Assigned) *Numbers {
	n := &Numbers{indices: make(map[uint32]struct{}, len(taken)), vnis: map[uint32]struct{}{}}
	for _, as := range taken {
		if as.Index != 0 {
			n.indices[as.Index] = struct{}{}
		}
		for _, vni := range as.VNIs() {
			n.vnis[vni] = struct{}{}
			n.last = max(n.last, vni)
		}
	}
	return n
}

// Renumber gives a network that was resolved without them the numbers that it lacks. was is what it had before.
func (n *Numbers) Renumber(net *model.Resolved, as model.Assigned, was model.Assigned) (model.Assigned, error) {
	if as.Index = was.Index; as.Index == 0 {
		index, err := n.Index()
		if err != nil {
			return as, fmt.Errorf("network %s: %w", net.Name, err)
		}
		as.Index = index
	}
	links := make(map[string]model.AssignedLink, len(as.Links))
	names := make([]string, 0, len(as.Links))
	for i := range net.Links {
		names = append(names, net.Links[i].Name)
	}
	for i := range net.Edges {
		if net.Edges[i].Mirror != nil {
			names = append(names, model.MirrorKey(net.Edges[i].Name))
		}
	}
	for _, name := range names {
		given := as.Links[name]
		if given.VNI = was.Links[name].VNI; given.VNI == 0 {
			vni, err := n.VNI()
			if err != nil {
				return as, fmt.Errorf("network %s: %s: %w", net.Name, name, err)
			}
			given.VNI = vni
		}
		links[name] = given
	}
	as.Links = links
	return as, nil
}

// Index takes the lowest free network index (1…MaxNetworks).
func (n *Numbers) Index() (uint32, error) {
	for i := uint32(1); i <= model.MaxNetworks; i++ {
		if _, ok := n.indices[i]; !ok {
			n.indices[i] = struct{}{}
			return i, nil
		}
	}
	return 0, fmt.Errorf("all %d networks that one substrate can hold are taken; delete one", model.MaxNetworks)
}

// VNI takes a free VNI (1…MaxVNI): the one after the highest. So a number that was given up is not used again while
// packets that carry it may still be under way.
func (n *Numbers) VNI() (uint32, error) {
	if len(n.vnis) >= MaxVNI {
		return 0, fmt.Errorf("all %d tunnel numbers (VNI) are taken; delete a network", MaxVNI)
	}
	for {
		n.last++
		if n.last > MaxVNI {
			n.last = 1
		}
		if _, ok := n.vnis[n.last]; !ok {
			n.vnis[n.last] = struct{}{}
			return n.last, nil
		}
	}
}
