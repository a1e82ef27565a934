package agent

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/polyplane/polyplane/model"
)

// follow keeps the agent registered and receives desired states, however often the manager goes away.
func (a *Agent) follow(ctx context.Context) error {
	const first, last = 100 * time.Millisecond, 2 * time.Second
	wait, told := first, false
	for {
		err := a.followOnce(ctx, func() { wait, told = first, false })
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && !told {
			a.Log.Info("the manager is away", "error", err)
			told = true
		}
		if !sleep(ctx, wait) {
			return nil
		}
		wait = min(2*wait, last)
	}
}

// followOnce tells the manager who this node is, and follows its desired state until the connection ends. It may be
// another manager than before, or one that lost what it was told, so the last report is sent again.
func (a *Agent) followOnce(ctx context.Context, heard func()) error {
	if err := a.register(ctx, true); err != nil {
		return err
	}
	a.reporter.again()
	a.discovery.Again()
	return a.Manager.WatchDesired(ctx, a.Dirs.Node, func(s model.NodeState) error {
		heard()
		s.Share(a.wanted.Load())
		a.cut(&s, false)
		// Only the latest wish counts.
		select {
		case <-a.wishes:
		default:
		}
		a.wishes <- s
		return nil
	})
}

// cut has the fabric cut off the elements in quarantine as soon as a desired state arrives, since the loop may be busy
// for long. It joins links again only once the loop follows that state: a store that lost its data says nothing about
// who is in quarantine.
func (a *Agent) cut(s *model.NodeState, followed bool) {
	a.cutting.Lock()
	defer a.cutting.Unlock()
	wanted := a.wanted.Load()
	if !followed || wanted == nil {
		wanted = s
		a.wanted.Store(s)
	}
	there, elements := elementsOf(s), map[model.ID]bool{}
	if followed {
		for _, n := range s.Networks {
			for _, e := range n.Elements {
				a.cuts.decided(model.ID{Network: n.Name, Element: e.Name}, e.Override)
			}
		}
		maps.Copy(there, elementsOf(wanted)) // which may be newer
		stays := func(id model.ID) bool { return there[id] || slices.Contains(s.Hold, id.Network) }
		a.cuts.keep(stays)
		a.forgetWatched(stays)
	} else {
		maps.Copy(elements, a.isCut)
	}
	for _, s := range []*model.NodeState{s, wanted} {
		for _, n := range s.Networks {
			for _, e := range n.Elements {
				if id := (model.ID{Network: n.Name, Element: e.Name}); e.Quarantined || a.cuts.is(id) {
					elements[id] = true
				}
			}
		}
	}
	a.isCut = elements
	if err := a.Drivers.Fabric.Cut(elements, s.Hold); err != nil {
		a.Log.Error("elements in quarantine are not cut off", "error", err)
	}
	a.newlyCut(s, elements)
}

// elementsOf are the elements that a state has.
func elementsOf(s *model.NodeState) map[model.ID]bool {
	all := map[model.ID]bool{}
	for _, n := range s.Networks {
		for i := range n.Elements {
			all[model.ID{Network: n.Name, Element: n.Elements[i].Name}] = true
		}
	}
	return all
}
