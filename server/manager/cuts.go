package manager

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/polyplane/polyplane/embedding"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/resolve"
)

// When a link of the substrate is cut, the links of networks that are on it get other paths, where there are some. It
// counts as cut when both nodes at its ends tell, round after round, that the other one no longer answers. While the
// agent at an end is away, it stays what it was: such a node does not answer either, while its packets go on. Whoever
// has got another path stays there when the cut is mended.
//
// It is safer to leave a link where it is than to move it wrongly. So a network that was moved is left alone for a
// while, which grows with each time, and no step does more than a bounded part of what there is to do.

const (
	// cutRounds is in how many rounds in succession each end must have heard nothing of the other one.
	cutRounds = 2
	// shortestRest is how long a network is left alone that was moved, or has no other way. It is doubled each time, up
	// to longestRest, and is the shortest one again when nothing was done for calmAfter.
	shortestRest, longestRest, calmAfter = 5 * time.Second, 5 * time.Minute, 10 * time.Minute
	// mostAtOnce are how many links of a network are looked at in one step.
	mostAtOnce = 32
	// stepWork is how long a step goes on to further networks. After it there is a rest of three times what it took,
	// and of stepRest at least.
	stepWork, stepRest = 300 * time.Millisecond, time.Second
)

// cuts is what is done about cut links of the substrate. One goroutine calls its methods.
type cuts struct {
	*Manager
	is   map[[2]string]bool  // what is cut
	left map[string]*leaving // by network
	next time.Time           // when the next step may work
}

// leaving is what was done for a network whose links are on a cut, or were.
type leaving struct {
	moved, asked respite         // since some got another path, and since some had no other way
	moves        bool            // some have got another path, and not all have been looked at yet
	stuck        map[string]bool // links that have no other way, as far as is known
	told         map[string]bool // those of which this was told
	revision     int64           // as of which they have none
}

// respite is how long something is left alone.
type respite struct {
	began, until time.Time
	long         time.Duration
}

func (r *respite) take(now time.Time) {
	if now.Sub(r.until) > calmAfter {
		r.long = 0
	}
	r.long = min(max(2*r.long, shortestRest), longestRest)
	r.began, r.until = now, now.Add(r.long)
}

// look works out what is cut. The caller holds the lock.
func (c *cuts) look() {
	is := map[[2]string]bool{}
	for i := range c.substrate.Links {
		l := &c.substrate.Links[i]
		a, b, both := c.nodes[l.A], c.nodes[l.B], hop(l.A, l.B)
		switch {
		case a == nil || b == nil || !a.Simulated || !b.Simulated:
		case a.mute() != "" || b.mute() != "":
			if c.is[both] {
				is[both] = true
			}
		case a.unanswered[l.B] >= cutRounds && b.unanswered[l.A] >= cutRounds:
			is[both] = true
		}
	}
	if !maps.Equal(is, c.is) {
		for _, l := range c.left {
			l.stuck = nil // there may be another way now
		}
	}
	c.is = is
}

// over is the first cut link that a path leads over, as "a -- b"; empty if there is none.
func (c *cuts) over(path []string) string {
	for i := 1; i < len(path); i++ {
		if both := hop(path[i-1], path[i]); c.is[both] {
			return both[0] + " -- " + both[1]
		}
	}
	return ""
}

// due are the links that lead over what is cut and have to be looked at, by network. The caller holds the lock.
func (c *cuts) due(now time.Time) map[*network][]string {
	due := map[*network][]string{}
	for name := range c.left {
		if c.networks[name] == nil {
			delete(c.left, name)
		}
	}
	if len(c.is) == 0 && len(c.left) == 0 || c.silent != "" {
		return due
	}
	for name, n := range c.networks {
		if m := n.record.Moving; n.damaged != nil || n.record.Deleting || m != nil && m.Step == model.MoveCopying {
			continue
		}
		on := map[string]bool{}
		for i := range n.resolved.Links {
			link := n.resolved.Links[i].Name
			if paths := n.record.Assigned.Placement.Links[link]; len(paths) == 1 && c.over(paths[0].Nodes) != "" {
				on[link] = true
			}
		}
		l := c.left[name]
		if l != nil {
			maps.DeleteFunc(l.told, func(link string, _ bool) bool { return !on[link] })
			maps.DeleteFunc(l.stuck, func(link string, _ bool) bool { return !on[link] })
			switch again := now.Sub(l.asked.began) >= shortestRest && c.revision != l.revision; {
			case now.Before(l.moved.until):
				continue
			case len(on) == 0:
				if now.Sub(l.moved.until) > calmAfter && now.Sub(l.asked.until) > calmAfter {
					delete(c.left, name)
				}
				continue
			case again || !now.Before(l.asked.until):
				l.stuck = nil
			}
			maps.DeleteFunc(on, func(link string, _ bool) bool { return l.stuck[link] })
		}
		if len(on) > 0 {
			due[n] = slices.Sorted(maps.Keys(on))
		}
	}
	return due
}

// departure is what a step has come to for one network.
type departure struct {
	*network
	next         model.Record
	moved, stuck []string
	all          bool // of its links have been looked at
}

// step has links leave what is cut, as far as one step goes.
func (c *cuts) step(ctx context.Context, now time.Time) {
	c.mu.RLock()
	c.look()
	due := c.due(now)
	c.mu.RUnlock()
	if len(due) == 0 || now.Before(c.next) {
		return
	}
	began := time.Now()
	look := func() ([]*network, error) {
		c.mu.RLock()
		defer c.mu.RUnlock()
		all := make([]*network, 0, len(c.networks))
		for _, name := range slices.Sorted(maps.Keys(c.networks)) {
			all = append(all, c.networks[name])
		}
		return all, nil
	}
	var substrate model.Substrate
	var departures []*departure
	_, err := c.settle(ctx, look, func([]*network) (err error) {
		substrate, departures, err = c.draw(ctx, now)
		return err
	})
	pause := max(stepRest, 3*time.Since(began))
	if err != nil {
		pause = max(pause, loopEvery)
		slog.Error("links cannot leave what is cut yet", "error", err)
	} else {
		c.take(ctx, now, substrate, departures)
		c.changing.Unlock()
	}
	c.next = now.Add(pause)
	time.AfterFunc(pause, c.poke) // for what is left to do
}

// draw works out other paths.
func (c *cuts) draw(ctx context.Context, now time.Time) (model.Substrate, []*departure, error) {
	_, all, err := c.situations(nil)
	if err != nil {
		return model.Substrate{}, nil, err
	}
	s := c.situationOf(all, false)
	c.mu.RLock()
	due := c.due(now)
	c.mu.RUnlock()
	taken := make([]model.Assigned, 0, len(all))
	for i := range all {
		taken = append(taken, all[i].Assigned)
	}
	d := ways{cuts: c, whole: s.Substrate, Substrate: s.Substrate, offers: s.Offers,
		reserved: embedding.UsageOf(all).Links, number: resolve.NewNumbers(taken...).VNI}
	d.Substrate.Links = slices.DeleteFunc(slices.Clone(s.Substrate.Links),
		func(l model.SubstrateLink) bool { return c.is[hop(l.A, l.B)] })
	began := time.Now()
	var departures []*departure
	byName := func(a, b *network) int { return cmp.Compare(a.record.Network.Name, b.record.Network.Name) }
	for _, n := range slices.SortedFunc(maps.Keys(due), byName) {
		if err := ctx.Err(); err != nil {
			return model.Substrate{}, nil, err
		}
		if time.Since(began) > stepWork {
			break
		}
		links := due[n]
		is := &departure{network: n, next: n.record, all: len(links) <= mostAtOnce}
		if err := d.leave(ctx, is, links[:min(len(links), mostAtOnce)]); err != nil {
			return model.Substrate{}, nil, fmt.Errorf("network %s: %w", n.record.Network.Name, err)
		}
		departures = append(departures, is)
	}
	return s.Substrate, departures, nil
}

// ways is what is needed to find other paths: the substrate without what is cut, and what is reserved on it by all
// networks, as they are and as they will be.
type ways struct {
	*cuts
	model.Substrate
	whole    model.Substrate
	offers   map[string]model.Offers
	reserved map[embedding.Direction]model.Bandwidth
	number   func() (uint32, error)
}

// leave finds paths for a network's links: for all together, or else for as many as there is room for.
func (w *ways) leave(ctx context.Context, d *departure, links []string) error {
	d.next.Assigned.Links = maps.Clone(d.next.Assigned.Links)
	d.next.Assigned.Placement.Links = maps.Clone(d.next.Assigned.Placement.Links)
	var route func(links []string)
	route = func(links []string) {
		switch half := len(links) / 2; {
		case ctx.Err() != nil:
		case w.route(d, links):
			d.moved = append(d.moved, links...)
		case half == 0:
			d.stuck = append(d.stuck, links...)
		default:
			route(links[:half])
			route(links[half:])
		}
	}
	route(links)
	if err := ctx.Err(); err != nil || len(d.moved) == 0 {
		return err
	}
	return d.next.Assigned.Turn(&d.record.Assigned, w.whole, w.number)
}

// route gives some links of a network other paths, if there are some for all of them. What all other links reserve is
// not free, the network's own among them.
func (w *ways) route(d *departure, links []string) bool {
	if len(w.Links) == 0 {
		return false // to an embedding this would be a substrate of which nobody has said how it is connected
	}
	paths := d.next.Assigned.Placement.Links
	for _, l := range links {
		w.reserve(paths[l], false)
	}
	net := d.resolved
	net.Links = slices.DeleteFunc(slices.Clone(net.Links),
		func(l model.Link) bool { return !slices.Contains(links, l.Name) })
	// Elements stay where they are. So what nodes have room for does not count.
	p, err := embedding.Embed(w.Substrate, w.offers, embedding.Usage{Links: w.reserved}, net,
		embedding.Current{Placement: d.next.Assigned.Placement, Network: d.resolved})
	found := err == nil && maps.Equal(p.Elements, d.next.Assigned.Placement.Elements) &&
		!slices.ContainsFunc(links, func(l string) bool {
			return len(p.Links[l]) != 1 || w.over(p.Links[l][0].Nodes) != ""
		})
	for _, l := range links {
		if found {
			paths[l] = p.Links[l]
		}
		w.reserve(paths[l], true)
	}
	return found
}

// reserve enters what paths reserve, or takes it out again.
func (w *ways) reserve(paths []model.LinkPath, enter bool) {
	for _, p := range paths {
		for i := 1; i < len(p.Nodes); i++ {
			for _, d := range []embedding.Direction{{From: p.Nodes[i-1], To: p.Nodes[i]},
				{From: p.Nodes[i], To: p.Nodes[i-1]}} {
				if enter {
					w.reserved[d] += p.Bandwidth
				} else {
					w.reserved[d] -= min(p.Bandwidth, w.reserved[d])
				}
			}
		}
	}
}

// take writes what a step has come to. The caller holds changing.
func (c *cuts) take(ctx context.Context, now time.Time, substrate model.Substrate, departures []*departure) {
	c.mu.RLock()
	same := slices.Equal(substrate.Links, c.substrate.Links) && slices.EqualFunc(substrate.Nodes, c.substrate.Nodes,
		func(a, b model.SubstrateNode) bool { return a.Name == b.Name && a.Simulated == b.Simulated })
	c.mu.RUnlock()
	if !same {
		return // it is worked out anew in the next step
	}
	if c.left == nil {
		c.left = map[string]*leaving{}
	}
	for _, d := range departures {
		name := d.record.Network.Name
		l := c.left[name]
		if l == nil {
			l = &leaving{}
			c.left[name] = l
		}
		if len(d.moved) > 0 {
			if err := c.commit(ctx, &change{record: d.next, resolved: d.resolved}); err != nil {
				slog.Error("links cannot leave what is cut yet", "network", name, "error", err)
				l.moved.take(now)
				continue
			}
			l.moves = true
		}
		if l.stuck == nil {
			l.stuck = map[string]bool{}
		}
		for _, link := range d.stuck {
			l.stuck[link] = true
		}
		if !d.all {
			continue
		}
		if l.moves {
			l.moved.take(now)
			l.moves = false
		}
		if len(l.stuck) > 0 {
			l.asked.take(now)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range departures {
		name := d.record.Network.Name
		l := c.left[name]
		l.revision = c.revision
		if d.all {
			c.tell(name, l)
		}
	}
}

// tell emits an event if links of a network have no other way, and that was not told of all of them. The caller holds
// the lock.
func (c *cuts) tell(network string, l *leaving) {
	const most = 3
	var some []string
	news := false
	paths := c.networks[network].record.Assigned.Placement.Links
	for _, link := range slices.Sorted(maps.Keys(l.stuck)) {
		if l.told == nil {
			l.told = map[string]bool{}
		}
		news = news || !l.told[link]
		l.told[link] = true
		if len(some) < most && len(paths[link]) == 1 {
			path := paths[link][0].Nodes
			some = append(some, fmt.Sprintf("%s by %s, cut at %s", link, strings.Join(path, "→"), c.over(path)))
		}
	}
	if !news {
		return
	}
	text := fmt.Sprintf("no other way has room for links that lead over what is cut, %d in all: %s", len(l.stuck),
		strings.Join(some, "; "))
	if more := len(l.stuck) - len(some); more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	c.networkEvent(model.Warning, network, "PathCut", text, "")
}
