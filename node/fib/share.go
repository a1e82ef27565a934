package fib

import "fmt"

// Lacking is what a slice or the pool has no more of. Every error that wraps ErrFull wraps one.
type Lacking struct {
	What string // Bytes, NextHops or Routes
	Pool bool   // of the pool; else of the slice's quota
	text string
}

// What can be lacking.
const (
	LackBytes    = "bytes"
	LackNextHops = "next hops"
	LackRoutes   = "routes"
)

func (l *Lacking) Error() string { return l.text }

func lacking(what string, pool bool, format string, a ...any) *Lacking {
	return &Lacking{what, pool, fmt.Sprintf(format, a...)}
}

// Shares says how slices share the pool. Where it is zero, whoever comes first gets what there is.
type Shares struct {
	// Bytes and NextHops are what all slices have together. Slices that own their quotas (Quota.Owned) find it there; the
	// others compete for what these leave.
	Bytes, NextHops int
	// Of that, SpareBytes and SpareNextHops only slices get that have no more than LittleBytes and LittleNextHops.
	SpareBytes, SpareNextHops   int
	LittleBytes, LittleNextHops int
}

// SetShares changes how slices share the pool. What they have they keep.
func (p *Pool) SetShares(s Shares) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shares = s
}

// hasShare tells whether the pool has this much more for a slice, which has had used of it: of all, less spare for those that
// have little, and what others own of it and do not use.
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
	return p.hasShare(s, more, s.usage.Bytes, p.shares.Bytes, p.live*unitBytes, p.shares.SpareBytes, p.shares.LittleBytes,
		func(o *Slice) int { return o.quota.Bytes - o.usage.Bytes })
}

func (p *Pool) hasNextHop(s *Slice) bool {
	return p.hasShare(s, 1, s.usage.NextHops, p.shares.NextHops, len(p.hops)-int(builtins)-len(p.freeHops)-p.restHops,
		p.shares.SpareNextHops, p.shares.LittleNextHops, func(o *Slice) int { return o.quota.NextHops - o.usage.NextHops })
}
