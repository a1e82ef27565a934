package agent

import (
	"fmt"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/forward"
)

// tables are what the data path's tables are, of all routers that it forwards for.
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

// lacks tells of routers whose tables do not fit, when that begins and when it is over: both, or, where it began again just
// now, neither.
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

// lackWords says what is used up, what happens, and what would be right.
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
		return fmt.Sprintf("its routes do not all fit: what the slices that own nothing may have of the %s that a node has is used up; %s "+
			"(`polyplane set %s mode=strict %s=` with what it needs makes it own that)", what, meanwhile, network, key)
	}
	return fmt.Sprintf("its routes do not all fit: the %s that the slice has on this node are used up; %s (`polyplane set %s %s=` with more raises it)",
		what, meanwhile, network, key)
}
