package fib

import (
	"fmt"
	"iter"
	"net/netip"
)

// Swap gives t all that next has, by one store: every packet is answered by the old routes or by the new ones. next
// must be a table of the same slice and family that was never published; it is closed afterwards.
func (t *Table) Swap(next *Table) error {
	t.pool.mu.Lock()
	defer t.pool.mu.Unlock()
	switch {
	case t.closed:
		return t.errClosed()
	case next.closed:
		return next.errClosed()
	case next == t || next.index >= 0:
		return fmt.Errorf("table %d can't be swapped with table %d: only with one that was never published",
			t.index, next.index)
	case next.slice != t.slice || next.family != t.family:
		return fmt.Errorf("slice %s's %s table can't be swapped with slice %s's %s table",
			t.slice.name, t.family, next.slice.name, next.family)
	}
	t.content, next.content = next.content, t.content
	t.flip(t.cell.Load())
	next.seen = t.seen // what it has now is what readers may know
	next.empty()
	next.closed = true
	return nil
}

// Punt makes readers punt every packet of the table, by one store, and frees its nodes. That is always right, since the
// router's own stack forwards these packets, but slow. The table keeps its routes and goes on taking changes for
// Resume; only the quota of routes can refuse them.
func (t *Table) Punt() error {
	t.pool.mu.Lock()
	defer t.pool.mu.Unlock()
	if t.closed {
		return t.errClosed()
	}
	if t.punts {
		return nil
	}
	t.punts = true
	t.flip(t.cell.Load())
	t.freeBody(t.shape, t.root)
	t.shape, t.root = shapeNone, 0
	return nil
}

// Resume ends Punt, if there is memory for the table now.
func (t *Table) Resume() error {
	t.pool.mu.Lock()
	defer t.pool.mu.Unlock()
	if t.closed {
		return t.errClosed()
	}
	if !t.punts {
		return nil
	}
	t.punts = false
	if err := t.rebuild(); err != nil {
		t.punts = true
		return err
	}
	return nil
}

// Close takes the table away from readers, who punt from then on, and frees all it has.
func (t *Table) Close() {
	t.pool.mu.Lock()
	defer t.pool.mu.Unlock()
	if t.closed {
		return
	}
	if t.index >= 0 {
		t.flipTo(t.cell.Load(), 0, shapeNone, 0)
		t.pool.published[t.index] = false
	}
	t.empty()
	t.closed = true
}

// empty frees everything; no reader finds it any more.
func (t *Table) empty() {
	t.freeBody(t.shape, t.root)
	t.shape, t.root = shapeNone, 0
	t.rib.each(func(r route) bool {
		t.pool.unref(r.hop)
		t.slice.usage.Routes--
		return true
	})
	if t.defaultHop != 0 {
		t.pool.unref(t.defaultHop)
		t.slice.usage.Routes--
	}
	t.rib, t.defaultHop = newRIB(t.family), 0
	t.countCopy()
}

// Get tells which next hop exactly this prefix has, 0 if it has none.
func (t *Table) Get(p netip.Prefix) ID {
	t.pool.mu.Lock()
	defer t.pool.mu.Unlock()
	a, length, err := t.family.prefix(p)
	switch {
	case err != nil:
		return 0
	case length == 0:
		return t.defaultHop
	}
	return t.rib.get(a, length)
}

// Routes lists all routes, in no order. The pool is locked meanwhile: no method of it, its slices or tables but the
// look-ups may be called.
func (t *Table) Routes() iter.Seq2[netip.Prefix, ID] {
	return func(yield func(netip.Prefix, ID) bool) {
		t.pool.mu.Lock()
		defer t.pool.mu.Unlock()
		if t.defaultHop != 0 && !yield(netip.PrefixFrom(t.family.netip(address{}), 0), t.defaultHop) {
			return
		}
		t.rib.each(func(r route) bool {
			return yield(netip.PrefixFrom(t.family.netip(r.addr), r.length), r.hop)
		})
	}
}

// Usage tells what the table has.
func (t *Table) Usage() TableUsage {
	t.pool.mu.Lock()
	defer t.pool.mu.Unlock()
	u := TableUsage{Shape: ShapeRanges, Routes: t.rib.n, Bytes: t.units * unitBytes, Copy: t.copied}
	if t.defaultHop != 0 {
		u.Routes++
	}
	switch {
	case t.punts:
		u.Shape = ShapePunt
	case t.shape == shapeNone:
		u.Shape = ShapeEmpty
	case t.shape == shapeTrie:
		u.Shape = ShapeTrie
	}
	return u
}
