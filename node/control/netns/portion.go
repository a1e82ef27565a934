package netns

import (
	"cmp"
	"context"
	"slices"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
)

// Namespaces and ports are made, and taken away, by whoever calls Apply and Remove, and hundreds of them take seconds.
// So that others need not wait for all of them, such a call comes to an end with a portion: when something else is
// wanted of the caller meanwhile or may be soon, or when the small networks have got all of their own and a large one
// has not. The smallest come first. Watch has the call made again for what is left.

// portionLeast is how many elements a portion has in any case. A network with no more to be done than that is a small
// one.
const portionLeast = 16

// removedAtOnce is how many elements are taken away between two looks at who else waits. To let go of their ports the
// kernel waits for its readers, once for all of them.
const removedAtOnce = 96

// portion is what one call does of all that it is asked to make, or to take away.
type portion struct {
	ctx      context.Context
	ids      []model.ID     // all, in the order in which they are to be taken
	left     map[string]int // elements of each network that have not been taken
	taken    int
	complete bool // some network has all of its own
	over     bool
	short    bool // there is something to tell soon, or there may be: others' work is under way
	whole    bool // it is all: whoever calls waits for it
}

func (d *Driver) newPortion(ctx context.Context, ids []model.ID) *portion {
	starting, _ := d.starting()
	p := &portion{ctx: ctx, ids: slices.Clone(ids), left: map[string]int{}, short: d.news ||
		starting > 0 || len(d.shifts) > 0,
		whole: d.patience == 0}
	for _, id := range ids {
		p.left[id.Network]++
	}
	slices.SortFunc(p.ids, func(a, b model.ID) int {
		return cmp.Or(p.left[a.Network]-p.left[b.Network], compareIDs(a, b))
	})
	return p
}

// networks are those that the elements are of, in their order.
func (p *portion) networks() (all []string) {
	for _, id := range p.ids {
		if len(all) == 0 || all[len(all)-1] != id.Network {
			all = append(all, id.Network)
		}
	}
	return all
}

// batch takes the next elements that are taken away at once.
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

// ends tells whether the portion has come to its end when elements of this network are the next.
func (p *portion) ends(network string) bool {
	p.over = p.over || !p.whole && p.taken >= portionLeast &&
		(p.short || control.Awaited(p.ctx) || p.complete && p.left[network] > portionLeast)
	return p.over
}

// takes tells whether the next element, which is of this network, belongs to the portion.
func (p *portion) takes(network string) bool {
	if p.ends(network) {
		return false
	}
	p.taken++
	p.left[network]--
	p.complete = p.complete || p.left[network] == 0
	return true
}
