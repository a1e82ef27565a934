package manager

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/polyplane/polyplane/model"
)

// A link whose path changes is turned from one to the other in steps (model.Turn). Each is a write of the network's
// record, which the nodes are told, and the next one comes when those have done it whom it takes. So nothing is lost
// when anybody dies in between, and a node that does not answer keeps the link on the path that it is on.

// turnRest is how long packets are taken from a path to which nobody sends any longer. None is under way for that long.
const turnRest = 2 * time.Second

// turning goes on with links that get another path.
type turning struct {
	*known
	commit func(ctx context.Context, changes ...*change) error
	since  map[linkID]time.Time // when both ends had left the path before; known to step alone
}

// step takes all steps that can be taken.
func (t *turning) step(ctx context.Context, now time.Time) {
	if len(t.due(now)) == 0 {
		return
	}
	t.changing.Lock()
	defer t.changing.Unlock()
	var changes []*change
	for name, links := range t.due(now) { // again, since what it follows from may have changed
		t.mu.RLock()
		n := t.networks[name]
		t.mu.RUnlock()
		next := n.record // still the same revision: nothing that its owner decides has changed
		next.Assigned.Turns = maps.Clone(next.Assigned.Turns)
		for _, link := range links {
			if turn := next.Assigned.Turns[link]; turn.Turned {
				delete(next.Assigned.Turns, link)
				delete(t.since, linkID{name, link})
			} else {
				turn.Turned = true
				next.Assigned.Turns[link] = turn
			}
		}
		if len(next.Assigned.Turns) == 0 {
			next.Assigned.Turns = nil
		}
		changes = append(changes, &change{record: next, resolved: n.resolved})
	}
	for _, c := range changes {
		if err := t.commit(ctx, c); err != nil {
			slog.Error("links cannot take their new paths yet", "network", c.record.Network.Name, "error", err)
		}
	}
}

// due are the links whose next step can be taken, by network.
func (t *turning) due(now time.Time) map[string][]string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.silent != "" {
		return nil
	}
	due := map[string][]string{}
	for name, n := range t.networks {
		if m := n.record.Moving; n.damaged != nil || n.record.Deleting || m != nil && m.Step == model.MoveCopying {
			continue
		}
		for link, turn := range n.record.Assigned.Turns {
			if t.told(n, link, turn) {
				if id := (linkID{name, link}); !turn.Turned {
					due[name] = append(due[name], link)
				} else if since, ok := t.since[id]; !ok {
					t.since[id] = now
				} else if now.Sub(since) >= turnRest {
					due[name] = append(due[name], link)
				}
			}
		}
	}
	for id := range t.since {
		if n := t.networks[id.network]; n == nil || !n.record.Assigned.Turns[id.link].Turned {
			delete(t.since, id)
		}
	}
	return due
}

// told tells whether those nodes have done a link's current step whom the next one takes: those on the new path, and
// then its ends. A node tells which revision it has also when something failed. So it must tell of no problem as well,
// those in between that they have the relay, and the ends that the link's ports run.
func (t *turning) told(n *network, link string, turn model.Turn) bool {
	path := n.record.Assigned.AllPaths(link)[0]
	last := len(path.Nodes) - 1
	for i, name := range path.Nodes {
		between := i > 0 && i < last
		if between && (turn.Turned || !n.parts[name].relays[path.VNI]) {
			continue // it has nothing to do
		}
		on := t.nodes[name]
		if on == nil || !on.back || on.mute() != "" || on.reported < n.parts[name].revision || on.problem != "" {
			return false
		}
		if _, relays := on.relays[relayID{linkID{n.record.Network.Name, link}, path.VNI}]; between && !relays {
			return false // it was told to, and could not
		}
	}
	return t.run(n, link)
}

// run tells whether the ports at both ends of a link run, as their nodes told last.
func (t *turning) run(n *network, link string) bool {
	i := slices.IndexFunc(n.resolved.Links, func(l model.Link) bool { return l.Name == link })
	if i < 0 {
		return false
	}
	for _, end := range n.resolved.Links[i].Ends {
		on := t.nodes[n.record.Assigned.Placement.Elements[end.Element]]
		id := model.ID{Network: n.record.Network.Name, Element: end.Element}
		if on == nil || on.elements[id].Phase == model.PhaseFailed ||
			!on.ports[model.PortID{ID: id, Interface: end.Interface}].Up {
			return false
		}
	}
	return true
}

// tellTurns emits an event for each link that begins to take another path, and that has taken it. The caller holds the
// lock.
func (k *known) tellTurns(old, next *model.Record) {
	for _, link := range slices.Sorted(maps.Keys(next.Assigned.Turns)) {
		was, now := old.Assigned.Turns[link], next.Assigned.Turns[link]
		from, to := now.Before[0].Nodes, next.Assigned.Placement.Links[link][0].Nodes
		object := next.Network.Name + "/" + link
		switch {
		case old.Assigned.Links[link].VNI != next.Assigned.Links[link].VNI:
			k.networkEvent(model.Info, object, "PathChanging", "gets the path "+strings.Join(to, "→")+
				", and stays on "+strings.Join(from, "→")+" until all nodes on the new one are ready", "")
		case now.Turned && !was.Turned:
			k.networkEvent(model.Info, object, "PathChanged", "takes the path "+strings.Join(to, "→")+
				" in place of "+strings.Join(from, "→"), "")
		}
	}
}
