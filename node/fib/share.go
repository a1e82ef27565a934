package fib

import "fmt"

// Lacking says what a slice or the pool has run out of. Every error that wraps ErrFull wraps one.
type Lacking struct {
	What string // Bytes, NextHops or Routes
	Pool bool   // of the pool; else of the slice's quota
	text string
}

// The values of Lacking.What.
const (
	LackBytes    = "bytes"
	LackNextHops = "next hops"
	LackRoutes   = "routes"
)

func (l *Lacking) Error() string { return l.text }

func lacking(what string, pool bool, format string, a ...any) *Lacking {
	return &Lacking{what, pool, fmt.Sprintf(format, a...)}
}

// Shares says how slices share the pool, so that one network cannot take all of it. Where a field is zero, whoever
// comes first gets what there is.
type Shares struct {
	// Bytes and NextHops are what all slices may have together. What a slice with Quota.Owned may have is kept free for
	// it; the others compete for the rest.
	Bytes, NextHops int
	// SpareBytes and SpareNextHops are parts of that. Only slices with no more than LittleBytes and LittleNextHops get
	// them.
	SpareBytes, SpareNextHops   int
	LittleBytes, LittleNextHops int
}

// SetShares changes how slices share the pool. What they have they keep.
func (p *Pool) SetShares(s Shares) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shares = s
}

// hasShare tells whether the pool has this much more for slice s, which uses used already. Of all there is, what is in
// use is gone; what owners do not use yet is kept for them; and spare is kept for slices that have little.
func (p *Pool) hasShare(s *Slice, more, used, all, live, spare, little int, unused func(*Slice) int) bool {
	if all == 0 || s.quota.Owned || p.found != nil { // what was found is there twice until it is replaced
		return true
	}
	free := all - live
	for o := range p.owners {
		free -= max(0, unused(o))
	}
	if used+more > little {
		free -= spare
	}
	return more <= free
}

func (p *Pool) hasBytes(s *Slice, more int) bool {
	return p.hasShare(s, more, s.usage.Bytes, p.shares.Bytes, p.live*unitBytes, p.shares.SpareBytes,
		p.shares.LittleBytes, func(o *Slice) int { return o.quota.Bytes - o.usage.Bytes })
}

func (p *Pool) hasNextHop(s *Slice) bool {
	return p.hasShare(s, 1, s.usage.NextHops, p.shares.NextHops, len(p.hops)-int(builtins)-len(p.freeHops)-p.restHops,
		p.shares.SpareNextHops, p.shares.LittleNextHops,
		func(o *Slice) int { return o.quota.NextHops - o.usage.NextHops })
}
