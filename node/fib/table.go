package fib

import (
	"fmt"
	"net/netip"
	"sync/atomic"
)

// The shapes in a table's word (doc.go). 3 to 9 are sorted ranges: 2^shape of them.
const (
	shapeNone = 0
	shapeTrie = 15
)

// Table is a router's routes of one family.
type Table struct {
	pool   *Pool
	slice  *Slice
	family Family
	cell   atomic.Pointer[uint64] // where the table's word is
	draft  uint64                 // that is here, until the table is published
	index  int                    // in Memory.Tables, when published
	seen   bool                   // readers may know the nodes
	closed bool

	generation uint8 // of the table's word
	content
}

// content is what Swap exchanges between two tables.
type content struct {
	rib        rib  // all routes but the default
	defaultHop ID   // 0 for none
	punts      bool // after Punt: readers punt, and only rib and defaultHop follow the changes
	shape      int
	root       uint32 // the trie's, or the block
	units      int    // of nodes and blocks
	copied     int    // bytes of the rib, as the slice's usage has it
}

// Change is one route of a batch: the next hop that its prefix has from now on, or 0 when the route is gone.
type Change struct {
	Prefix  netip.Prefix
	NextHop ID
}

// Shape is how a table is stored.
type Shape string

// The shapes.
const (
	ShapeEmpty  Shape = "empty"  // no routes but the default
	ShapeRanges Shape = "ranges" // sorted ranges
	ShapeTrie   Shape = "trie"
	ShapePunt   Shape = "punt" // after Punt
)

// TableUsage is what a table has.
type TableUsage struct {
	Shape  Shape
	Routes int // with the default route
	Bytes  int // of nodes and blocks, without the table's word
	Copy   int // bytes of the pool's own copy of the routes
}

// NewTable makes an empty table that no reader knows yet.
func (s *Slice) NewTable(f Family) *Table {
	t := &Table{pool: s.pool, slice: s, family: f, index: -1, content: content{rib: newRIB(f)}}
	t.cell.Store(&t.draft)
	return t
}

// Publish shows the table to readers as number index of Memory.Tables, by one store. It replaces what Adopt found
// there.
func (t *Table) Publish(index int) error {
	t.pool.mu.Lock()
	defer t.pool.mu.Unlock()
	switch {
	case t.closed:
		return t.errClosed()
	case t.index >= 0:
		return fmt.Errorf("table %d can't be published as number %d too", t.index, index)
	case index < 0 || index >= len(t.pool.tables):
		return fmt.Errorf("a table can't be published as number %d: 0 to %d are possible", index, len(t.pool.tables)-1)
	case t.pool.published[index]:
		return fmt.Errorf("a table can't be published as number %d: another one is", index)
	}
	t.pool.published[index] = true
	t.index, t.seen = index, true
	cell := &t.pool.tables[index]
	t.generation = uint8(atomic.LoadUint64(cell) >> 56)
	t.flip(cell)
	t.cell.Store(cell)
	if t.pool.found != nil && t.pool.found.tables[index] != nil {
		was := t.pool.found.tables[index]
		was.freeBody(was.shape, was.root)
		delete(t.pool.found.tables, index)
	}
	return nil
}

// Insert gives a prefix its next hop, whether or not it had one.
func (t *Table) Insert(p netip.Prefix, hop ID) error {
	if hop == 0 {
		return fmt.Errorf("route %s: next hop 0 is none", p)
	}
	_, err := t.Apply([]Change{{p, hop}})
	return err
}

// Delete removes a route. One that is not there is no error.
func (t *Table) Delete(p netip.Prefix) error {
	_, err := t.Apply([]Change{{Prefix: p}})
	return err
}

// Apply makes the changes in their order. Readers see each of them at one moment; while the table is small they see all
// of them at one moment. Apply returns how many were made. It looks at all changes before it makes the first. If one
// names a next hop that is not the slice's, or a prefix of the other family, none is made. If memory or the quota does
// not suffice (ErrFull), those from done on are not made, and the table answers as if they had never come: Punt it.
func (t *Table) Apply(changes []Change) (done int, err error) {
	p := t.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	defer t.countCopy()
	if t.closed {
		return 0, t.errClosed()
	}
	for _, c := range changes {
		if _, _, err := t.family.prefix(c.Prefix); err != nil {
			return 0, fmt.Errorf("table %d: %w", t.index, err)
		}
		if c.NextHop != 0 {
			if err := t.slice.owns(c.NextHop, false); err != nil {
				return 0, fmt.Errorf("route %s: %w", c.Prefix, err)
			}
		}
	}
	defer t.unrefGone()
	for done < len(changes) {
		var n int
		if t.shape == shapeTrie && !t.punts {
			n, err = t.applyTrie(changes[done:])
		} else {
			n, err = t.applySmall(changes[done:])
		}
		done += n
		if err != nil {
			return done, fmt.Errorf("route %s: %w", changes[done].Prefix, err)
		}
	}
	if t.shape == shapeTrie && t.rib.n <= demoteAt {
		_ = t.rebuild() // without memory a trie will do, and the next change tries again
	}
	return done, nil
}

// applyTrie makes the changes one by one.
func (t *Table) applyTrie(changes []Change) (done int, err error) {
	for i, c := range changes {
		r := t.route(c)
		switch {
		case r.length == 0:
			if err := t.hasRoom(r); err != nil {
				return i, err
			}
			t.remember(r)
			t.flip(t.cell.Load())
		case r.hop == 0:
			if old := t.remember(r); old.hop != 0 {
				t.trieDelete(r)
			}
		default:
			if err := t.hasRoom(r); err != nil {
				return i, err
			}
			if err := t.trieSet(r); err != nil {
				return i, err
			}
			t.remember(r)
		}
	}
	return len(changes), nil
}

// applySmall makes as many changes as one rebuild can show, and then all or none of these. It stops early when the
// routes become too many for sorted ranges: the rebuild then makes a trie, and applyTrie goes on.
func (t *Table) applySmall(changes []Change) (done int, err error) {
	undo := t.pool.undo[:0]
	for _, c := range changes {
		r := t.route(c)
		if err = t.hasRoom(r); err != nil {
			break
		}
		undo = append(undo, t.remember(r))
		if t.rib.n > maxSorted && !t.punts {
			break
		}
	}
	t.pool.undo = undo[:0]
	if len(undo) == 0 {
		return 0, err
	}
	if failed := t.rebuild(); failed != nil {
		for i := len(undo) - 1; i >= 0; i-- {
			t.remember(undo[i])
		}
		return 0, failed
	}
	return len(undo), err
}

// route is a change that was looked at already.
func (t *Table) route(c Change) route {
	a, length, _ := t.family.prefix(c.Prefix)
	return route{a, length, c.NextHop}
}

// remember writes a route into the table's own copy and answers what was there.
func (t *Table) remember(r route) (old route) {
	old = r
	if r.length == 0 {
		old.hop, t.defaultHop = t.defaultHop, r.hop
	} else {
		old.hop = t.rib.set(r)
	}
	if r.hop != 0 {
		t.pool.ref(r.hop)
		t.slice.usage.Routes++
	}
	if old.hop != 0 {
		t.pool.gone = append(t.pool.gone, old.hop)
		t.slice.usage.Routes--
	}
	return old
}

// unrefGone lets go of the next hops of routes that are gone. It runs last, when no word names them for these routes
// any more: a number that was put to rest earlier could be free again while a word still names it.
func (t *Table) unrefGone() {
	for _, id := range t.pool.gone {
		t.pool.unref(id)
	}
	t.pool.gone = t.pool.gone[:0]
}

// hasRoom says whether the slice may have the route.
func (t *Table) hasRoom(r route) error {
	q := t.slice.quota.Routes
	if q == 0 || t.slice.usage.Routes < q || r.hop == 0 {
		return nil
	}
	if r.length == 0 && t.defaultHop != 0 || r.length > 0 && t.rib.get(r.addr, r.length) != 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", lacking(LackRoutes, false, "slice %s: one route more would exceed its quota of %d",
		t.slice.name, q), ErrFull)
}

// rebuild makes the table anew from all its routes, in the shape that fits, and publishes it by one store. The order
// matters: fill, store the word, then free what it named before. If memory does not suffice the table stays as it is.
func (t *Table) rebuild() error {
	if t.punts {
		return nil
	}
	shape, root := shapeNone, uint32(0)
	var err error
	if t.rib.n > 0 {
		var list []span
		if t.rib.n <= maxSorted {
			list = spans(t.sorted())
		}
		if list != nil {
			root, shape, err = t.buildSmall(list, t.units)
		} else {
			shape = shapeTrie
			root, err = t.buildTrie()
		}
		if err != nil {
			return err
		}
	}
	wasShape, wasRoot := t.shape, t.root
	t.shape, t.root = shape, root
	t.flip(t.cell.Load())
	t.freeBody(wasShape, wasRoot)
	return nil
}

// sorted gathers the routes in scratch memory.
func (t *Table) sorted() []route {
	list := t.pool.routes[:0]
	t.rib.each(func(r route) bool {
		list = append(list, r)
		return true
	})
	t.pool.routes = list
	return list
}

// freeBody frees a trie or block that is no longer the table's.
func (t *Table) freeBody(shape int, root uint32) {
	switch shape {
	case shapeNone:
	case shapeTrie:
		t.freeTrie(root, 0, t.seen)
	default:
		t.free(root, smallUnits(t.family, shape), t.seen)
	}
}

func (t *Table) alloc(units, credit int) (uint32, error) {
	unit, err := t.pool.alloc(t.slice, units, credit)
	if err == nil {
		t.units += units
	}
	return unit, err
}

func (t *Table) free(unit uint32, units int, seen bool) {
	t.units -= units
	t.pool.free(t.slice, unit, units, seen)
}

// flip writes the table's word: by this one store readers change from the old content to the new.
func (t *Table) flip(cell *uint64) {
	if t.punts {
		t.flipTo(cell, PuntID, shapeNone, 0)
	} else {
		t.flipTo(cell, t.defaultHop, t.shape, t.root)
	}
}

func (t *Table) flipTo(cell *uint64, hop ID, shape int, root uint32) {
	t.generation++
	atomic.StoreUint64(cell, uint64(t.generation)<<56|uint64(root)<<28|uint64(shape)<<24|uint64(hop))
}

func (t *Table) countCopy() {
	now := 8 * len(t.rib.words)
	t.slice.usage.Copy += now - t.copied
	t.copied = now
}

func (t *Table) errClosed() error {
	return fmt.Errorf("the %s table is closed", t.family)
}
