package agent

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/node/fabric"
)

const (
	// usageEvery is how often the control groups of the elements are read.
	usageEvery = 5 * time.Second
	// limitEvery is the least time between two events about the same limit of the same element.
	limitEvery = time.Minute
	// heldBack: an event tells of it if the CPU quota held processes back for at least this share of the time.
	heldBack = 0.1
)

// usages is what the loop remembers of the elements' usage.
type usages struct {
	at       time.Time
	last     map[model.ID]control.Usage
	beforeAt time.Time // the look before
	before   map[model.ID]control.Usage
	now      map[model.ID]*model.Usage
	bite     map[limitOf]*bite
	over     map[limitOf]uint64 // packets that networks lost to their limits
	strange  strange
	lack     map[model.ID]model.TableLack // of routers, as told
	lackTold map[model.ID]time.Time
	followed map[model.ID]followed
}

// limitOf is one limit of one element.
type limitOf struct {
	id    model.ID
	limit string
}

// bite is what a limit has done since the last event about it.
type bite struct {
	count int64
	held  time.Duration
	since time.Time // of held
	told  time.Time
}

// measure reads what the elements use, and emits events about limits that they ran into. It returns whether anything
// has changed.
func (a *Agent) measure(ctx context.Context) bool {
	now := time.Now()
	span := now.Sub(a.usage.at)
	if span < usageEvery {
		return false
	}
	read := map[model.ID]control.Usage{}
	for _, d := range a.Drivers.Controls {
		if m, ok := d.(control.Meter); ok {
			for id, u := range m.Usage(ctx) {
				read[id] = u
			}
		}
	}
	u := &a.usage
	changed := len(read) != len(u.now)
	next := make(map[model.ID]*model.Usage, len(read))
	for id, is := range read {
		was, known := u.last[id]
		if was.CPU > is.CPU { // its processes were started anew
			was = control.Usage{}
		}
		m := &model.Usage{Memory: rounded(is.Memory), Processes: is.Processes,
			Disk: rounded(is.Disk), Limits: is.Limits}
		over := span
		if !known {
			over = min(span, usageEvery)
		}
		switch {
		case known:
			m.CPU = math.Round((is.CPU-was.CPU).Seconds()/span.Seconds()*100) / 100
		case !is.Fresh: // nobody knows whether what it did before this agent began is news
			was = is
			was.DiskFull = false
		}
		a.limits(id, was, is, now, over)
		before := u.now[id]
		changed = changed || before == nil || *before != *m
		next[id] = m
	}
	for l, b := range u.bite {
		// this includes networks, and elements without processes
		if _, there := read[l.id]; !there && now.Sub(b.told) > limitEvery {
			delete(u.bite, l)
		}
	}
	u.beforeAt, u.before = u.at, u.last
	u.at, u.last, u.now = now, read, next
	return changed
}

// rounded leaves out digits that change every few seconds and that nobody needs.
func rounded(b model.Bytes) model.Bytes {
	const step = 256 << 10
	return (b + step/2) / step * step
}

// limits emits events about limits that an element ran into between two looks, for each at most once in limitEvery.
func (a *Agent) limits(id model.ID, was, is control.Usage, now time.Time, span time.Duration) {
	a.bitten(id, "MemoryLimit", is.Killed-was.Killed, 0, now, span, func(b *bite) string {
		return fmt.Sprintf("its memory limit of %s was reached: %s ended (`polyplane set %s memory=` with more raises "+
			"it)", is.Limits.Memory, counted(b.count, "process was", "processes were"), id)
	})
	a.bitten(id, "ProcessLimit", is.Refused-was.Refused, 0, now, span, func(b *bite) string {
		return fmt.Sprintf("its limit of %d processes and threads was reached: %s (`polyplane set %s processes=` with "+
			"more raises it)", is.Limits.Processes, counted(b.count, "more was refused", "more were refused"), id)
	})
	full := int64(0)
	if is.DiskFull && !was.DiskFull {
		full = 1
	}
	a.bitten(id, "DiskFull", full, 0, now, span, func(*bite) string {
		return fmt.Sprintf("its disk is full: %s are used of %s, or its files are too many (`polyplane set %s disk=` "+
			"with more lets it grow)", is.Disk.Rounded(), is.Limits.Disk, id)
	})
	held := is.Throttled - was.Throttled
	if held.Seconds() < heldBack*span.Seconds() {
		held = 0
	}
	a.bitten(id, "CPULimit", 0, held, now, span, func(b *bite) string {
		return fmt.Sprintf("its processes used up their %s cores and were held back for %s in the last %s "+
			"(`polyplane set %s cpu=` with more raises it)",
			is.Limits.CPU, b.held.Round(100*time.Millisecond), now.Sub(b.since).Round(time.Second), id)
	})
}

// bitten notes what a limit has done, and emits an event unless there was one recently.
func (a *Agent) bitten(id model.ID, limit string, count int64, held time.Duration, now time.Time, span time.Duration,
	words func(*bite) string) {
	key := limitOf{id, limit}
	b := a.usage.bite[key]
	if count <= 0 && held <= 0 && (b == nil || b.count == 0 && b.held == 0) {
		return
	}
	if b == nil {
		b = &bite{}
		if a.usage.bite == nil {
			a.usage.bite = map[limitOf]*bite{}
		}
		a.usage.bite[key] = b
	}
	if b.count == 0 && b.held == 0 {
		b.since = now.Add(-span)
	}
	b.count, b.held = b.count+max(0, count), b.held+max(0, held)
	if now.Sub(b.told) < limitEvery {
		return
	}
	a.event(model.Warning, id.String(), limit, words(b))
	*b = bite{told: now}
}

// overPackets tells of networks whose elements have sent more packets than the network may since the last call, or more
// of those that its routers answer themselves.
func (a *Agent) overPackets(counters map[model.PortID]fabric.Counters, span time.Duration) {
	total := map[limitOf]uint64{}
	for id, c := range counters {
		for reason, limit := range map[fabric.Drop]string{fabric.OverPackets: "PacketLimit",
			fabric.OverPunts: "PuntLimit"} {
			if n := c.Drops[reason]; n > 0 {
				total[limitOf{model.ID{Network: id.Network}, limit}] += n
			}
		}
	}
	for of, n := range total {
		was, known := a.usage.over[of]
		if !known && a.usage.over == nil || n < was { // from before this agent began, or the counter started anew
			was = n
		}
		network := of.id.Network
		a.bitten(of.id, of.limit, int64(n-was), 0, time.Now(), span, func(b *bite) string {
			if of.limit == "PuntLimit" {
				return fmt.Sprintf("the %d punts a second of its routers on node %s were used up: %s dropped that "+
					"they would have answered or dropped themselves (`polyplane describe` of a router tells of what "+
					"kind such packets are; `polyplane set %s punts=N` raises the limit)",
					a.plan.punts[network], a.Dirs.Node, counted(b.count, "packet was", "packets were"), network)
			}
			return fmt.Sprintf("its %d packets a second on node %s were used up: %s dropped (`polyplane set %s "+
				"packets=N` raises the limit)",
				a.plan.packets[network], a.Dirs.Node, counted(b.count, "was", "were"), network)
		})
	}
	a.usage.over = total
}

// strange remembers packets that came by the tunnels, but from no peer of the link that they name.
type strange struct {
	known       bool
	seen        uint64
	since, told time.Time
	count       uint64 // since then
}

// manyStrange is how many such packets in limitEvery are worth an event. A few are under way whenever a network goes or
// an element moves.
const manyStrange = 1000

// strangers tells of packets that came to the node's tunnels from someone who is not the link's far end, or for links
// that the node does not have.
func (a *Agent) strangers(counters map[model.PortID]fabric.Counters, now time.Time) {
	n := counters[model.PortID{}].Drops[fabric.NoPort]
	for _, c := range counters {
		n += c.Drops[fabric.NotThePeer]
	}
	s := &a.usage.strange
	if !s.known { // what came before this agent began is not news
		*s = strange{known: true, seen: n, since: now}
	}
	if s.count < manyStrange && now.Sub(s.since) >= limitEvery {
		s.since, s.count = now, 0
	}
	if n > s.seen { // the count is lower because ports have gone, with their counters
		s.count += n - s.seen
	}
	s.seen = n
	if s.count >= manyStrange && now.Sub(s.told) >= limitEvery {
		a.event(model.Warning, a.Dirs.Node, "StrangePackets",
			fmt.Sprintf("%d packets came to its tunnels in the last %s that none of its peers sent for a link that "+
				"ends here: they were dropped; somebody on the underlay forges them, or sends what was meant for "+
				"another node", s.count, max(now.Sub(s.since), time.Second).Round(time.Second)))
		s.told, s.since, s.count = now, now, 0
	}
}

// trim bounds what elements have in the kernel's tables, and tells of those that had too much.
func (a *Agent) trim(ctx context.Context) {
	trimmers := map[string]any{}
	for name, d := range a.Drivers.Controls {
		trimmers[string(name)] = d
	}
	for of, plane := range a.Drivers.Planes {
		trimmers["forwarding "+of.String()] = plane
	}
	for name, d := range trimmers {
		t, ok := d.(control.Trimmer)
		if !ok {
			continue
		}
		trimmed, err := t.Trim(ctx)
		if err != nil {
			a.Log.Warn("bound what is in the kernel's tables", "of", name, "error", err)
		}
		for _, x := range trimmed {
			a.watcher.trimmed(x, time.Now())
			switch x.Table {
			case control.Rings:
				a.bitten(x.ID, "RingLimit", int64(x.Had), 0, time.Now(), auditEvery, func(b *bite) string {
					return fmt.Sprintf("its packet sockets (tcpdump's, say) wanted more than %s for rings: %s "+
						"(`polyplane set %s memory=` with more allows half of it)",
						model.Bytes(x.Limit), counted(b.count, "request was refused", "requests were refused"), x.ID)
				})
			case control.Filters:
				a.bitten(x.ID, "FilterLimit", int64(x.Had), 0, time.Now(), auditEvery, func(b *bite) string {
					return fmt.Sprintf("its sockets wanted more than %d large packet filters, or such a filter on a "+
						"socket that is no packet socket: %s", x.Limit, counted(b.count, "was refused", "were refused"))
				})
			case control.Unbounded:
				a.event(model.Warning, x.ID.String(), "SocketsNotBounded",
					fmt.Sprintf("the rings of its packet sockets (tcpdump's, say), its large packet filters and "+
						"policies of IPsec for its sockets are bounded by nothing on this node, and each may use up "+
						"the machine's memory: %v", x.Why))
			case control.Neighbours:
				a.bitten(x.ID, "NeighbourLimit", int64(x.Had), 0, time.Now(), auditEvery, func(b *bite) string {
					return fmt.Sprintf("it had more than its %d neighbours: %s forgotten (`polyplane set %s "+
						"neighbours=N` raises the limit)", x.Limit, counted(b.count, "was", "were"), x.ID)
				})
			case control.Addresses:
				a.bitten(x.ID, "AddressLimit", 1, 0, time.Now(), auditEvery, func(b *bite) string {
					return fmt.Sprintf("it had learnt more than %d addresses: they were forgotten %s, and frames go "+
						"everywhere in it until their "+
						"addresses are learnt again", x.Limit, counted(b.count, "time", "times"))
				})
			case control.Connections:
				a.bitten(x.ID, "ConnectionLimit", int64(x.Had), 0, time.Now(), auditEvery, func(b *bite) string {
					return fmt.Sprintf("it tracked more than its %d connections: %s forgotten (`polyplane set %s "+
						"connections=N` raises the limit)", x.Limit, counted(b.count, "was", "were"), x.ID)
				})
			}
		}
	}
}

// counted reads "3 processes were", "1 process was".
func counted(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
