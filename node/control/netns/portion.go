package netns

import (
	"cmp"
	"context"
	"slices"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
)

// Apply and Remove make and remove namespaces and ports themselves, and hundreds of them take seconds. So that others
// need not wait for all of them, such a call ends after a portion: when something else is wanted of the caller, or may
// be soon; or when the small networks have all of their elements and a large one does not. The smallest networks come
// first. Watch then asks for the next call, for the rest.

// portionLeast is how many elements a portion has in any case. A network with no more than that to be done is a small
// one.
const portionLeast = 16

// removedAtOnce is how many elements are removed before the next look at who else is waiting. To release their ports
// the kernel waits for its readers (RCU), once for all of them.
const removedAtOnce = 256

// portion is the part of the elements to be made or removed that one call handles.
type portion struct {
	ctx      context.Context
	ids      []model.ID     // all of them, in the order in which they are handled
	left     map[string]int // how many elements of each network are left
	taken    int
	complete bool // some network has all of its own
	over     bool
	short    bool // something is to be told soon, or may be: other work is under way
	whole    bool // it is all: whoever calls waits for it
}

func (d *Driver) newPortion(ctx context.Context, ids []model.ID) *portion {
	starting, _ := d.starting()
	p := &portion{ctx: ctx, ids: slices.Clone(ids), left: map[string]int{}, short: d.news ||
		starting > 0 || len(d.shifts) > 0, whole: !d.hurried}
	for _, id := range ids {
		p.left[id.Network]++
	}
	slices.SortFunc(p.ids, func(a, b model.ID) int {
		return cmp.Or(p.left[a.Network]-p.left[b.Network], compareIDs(a, b))
	})
	return p
}

// networks are the networks of the elements, in their order.
func (p *portion) networks() (all []string) {
	for _, id := range p.ids {
		if len(all) == 0 || all[len(all)-1] != id.Network {
			all = append(all, id.Network)
		}
	}
	return all
}

// batch takes the next elements that are removed at once.
func (p *portion) batch() []model.ID {
	first, most := p.taken, removedAtOnce
	switch {
	case p.whole:
		most = len(p.ids)
	case p.short:
		most = portionLeast
	}
	for p.taken < min(first+most, len(p.ids)) && p.takes(p.ids[p.taken].Network) {
	}
	return p.ids[first:p.taken]
}

// ends returns whether the portion ends before the next elements, which are of this network.
func (p *portion) ends(network string) bool {
	p.over = p.over || !p.whole && p.taken >= portionLeast &&
		(p.short || control.Awaited(p.ctx) || p.complete && p.left[network] > portionLeast)
	return p.over
}

// takes returns whether the next element, which is of this network, belongs to the portion.
func (p *portion) takes(network string) bool {
	if p.ends(network) {
		return false
	}
	p.taken++
	p.left[network]--
	p.complete = p.complete || p.left[network] == 0
	return true
}
