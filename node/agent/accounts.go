package agent

import (
	"fmt"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/forward"
)

// tables says how full the data path's tables are, summed over all routers that the node forwards for.
func (a *Agent) tables() map[model.ID]model.FastTables {
	all := map[model.ID]model.FastTables{}
	for _, p := range a.Drivers.Planes {
		if accountant, ok := p.(forward.Accountant); ok {
			for id, t := range accountant.Accounts() {
				all[id] = t
			}
		}
	}
	return all
}

// lacks emits an event when a router's tables no longer fit, and another when they fit again. Where the tables stop
// fitting again within limitEvery, it emits neither.
func (a *Agent) lacks(tables map[model.ID]model.FastTables, now time.Time) {
	u := &a.usage
	if u.lack == nil {
		u.lack, u.lackTold = map[model.ID]model.TableLack{}, map[model.ID]time.Time{}
	}
	for id, t := range tables {
		was, told := u.lack[id]
		switch {
		case t.Lack != nil && *t.Lack != was && now.Sub(u.lackTold[id]) >= limitEvery:
			u.lack[id], u.lackTold[id] = *t.Lack, now
			a.event(model.Warning, id.String(), "TablesFull", lackWords(id.Network, *t.Lack))
		case t.Lack == nil && told:
			delete(u.lack, id)
			a.event(model.Info, id.String(), "TablesFit", "all of its routes are in the node's forwarding tables again")
		}
	}
	for id := range u.lackTold {
		if _, there := tables[id]; !there {
			delete(u.lack, id)
			delete(u.lackTold, id)
		}
	}
}

// churnShare is the share of its time that the agent may spend on the route changes of one router without telling. It
// is looked at once in churnEvery.
const (
	churnShare = 0.5
	churnEvery = 10 * time.Second
)

// followed is how much time it had taken to follow a router's routes at the last look.
type followed struct {
	at   time.Time
	busy time.Duration
}

// churn tells of routers that change their routes so often that following them keeps the agent busy.
func (a *Agent) churn(tables map[model.ID]model.FastTables, now time.Time) {
	u := &a.usage
	if u.followed == nil {
		u.followed = map[model.ID]followed{}
	}
	for id, t := range tables {
		was, known := u.followed[id]
		span := now.Sub(was.at)
		if known && span < churnEvery && t.Busy >= was.busy {
			continue
		}
		u.followed[id] = followed{now, t.Busy}
		took := t.Busy - was.busy
		if !known || took.Seconds() < churnShare*span.Seconds() {
			took = 0
		}
		a.bitten(id, "RouteChurn", 0, took, now, span, func(b *bite) string {
			return fmt.Sprintf("it changes its routes so much that writing them into the node's tables took the "+
				"agent %s of the last %s (`polyplane set %s forwarding=guest` ends that)",
				b.held.Round(100*time.Millisecond), now.Sub(b.since).Round(time.Second), id)
		})
	}
	for id := range u.followed {
		if _, there := tables[id]; !there {
			delete(u.followed, id)
		}
	}
}

// lackWords says which table is full, what follows from that, and what to do about it.
func lackWords(network string, l model.TableLack) string {
	const meanwhile = "what does not fit the router itself forwards"
	what, key := fmt.Sprintf("%d next hops", l.Limit), "nexthops"
	switch l.Quota {
	case "tables":
		what, key = model.Bytes(l.Limit).String()+" of tables", "tables"
	case "routes":
		what, key = fmt.Sprintf("%d routes, one for each 32 bytes of tables,", l.Limit), "tables"
	}
	if l.Node {
		return fmt.Sprintf("its routes do not all fit: what the slices that own nothing may have of the %s that a "+
			"node has is used up; %s "+
			"(`polyplane set %s mode=strict %s=` with what it needs makes it own that)", what, meanwhile, network, key)
	}
	return fmt.Sprintf("its routes do not all fit: the %s that the slice has on this node are used up; %s (`polyplane "+
		"set %s %s=` with more raises it)", what, meanwhile, network, key)
}
