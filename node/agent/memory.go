package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"

	"github.com/polyplane/polyplane/durable"
	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
)

// A node removes what it has been told to remove, and nothing else. So it remembers which store told it what to have,
// and up to which revision. A store that may have lost something – another one, an older one, one that does not know a
// network – is followed only once it is settled what becomes of what it does not know; until then the node goes on with
// what it was told before, whole: nothing of the new word may meet numbers of the old.

// memoryFile is beside the desired state.
func (a *Agent) memoryFile() string {
	return filepath.Join(filepath.Dir(a.Dirs.Desired()), "store.json")
}

// readMemory reads what is remembered; nothing where the file is not there.
func readMemory(path string) (m model.StoreMemory, err error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err != nil {
		return model.StoreMemory{}, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// remember writes what the node has been told, and returns when it is on the disk: before anything follows from it.
func (a *Agent) remember(m model.StoreMemory) error {
	if m == a.memory {
		return nil
	}
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := durable.Replace(a.memoryFile(), append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("remember what the node was told: %w", err)
	}
	a.memory = m
	return nil
}

// take makes a wish what the node follows, or holds what it would lose by it.
func (a *Agent) take(ctx context.Context, s *model.NodeState) {
	a.carryOver(s)
	if a.held = a.unknown(ctx, s); len(a.held) > 0 {
		a.Log.Warn("the node does not follow this store", "why", a.held[0].Why, "networks", len(a.held))
		a.complete = false
		if a.desired == nil { // what is there is left as it is
			a.desired = &model.NodeState{Node: a.Dirs.Node}
		}
		a.letGo(s)
		return
	}
	if err := a.remember(s.Memory()); err != nil {
		// The disk is full, it may be. What the node follows is right all the same.
		a.Log.Warn("the node follows its store, and may have to ask again after a restart", "error", err)
	}
	a.desired, a.complete, a.retry = s, true, 0
	if a.Drivers.Images != nil && len(s.Hold) == 0 {
		a.Drivers.Images.Told()
	}
	a.cut(s, true)
	a.standOn(s)
}

// carryOver has the node go on with, and remember, what it was told of networks whose records the store cannot read: it
// may be the only one who knows.
func (a *Agent) carryOver(s *model.NodeState) {
	if a.desired == nil || len(s.Hold) == 0 {
		return
	}
	is := map[string]bool{}
	for i := range s.Networks {
		is[s.Networks[i].Name] = true
	}
	all := slices.Clone(s.Networks) // the manager's word is told in changes to what s has
	for i := range a.desired.Networks {
		if n := &a.desired.Networks[i]; !is[n.Name] && slices.Contains(s.Hold, n.Name) {
			all = append(all, *n)
		}
	}
	s.Networks = all
}

// letGo has the node remove what somebody has deleted, while it holds other networks and goes on with what it was told
// of them.
func (a *Agent) letGo(s *model.NodeState) {
	a.deleted = map[string]bool{}
	for _, g := range s.Gone {
		if g.Deleted {
			a.deleted[g.Name] = true
		}
	}
	if len(a.deleted) == 0 {
		return
	}
	less := *a.desired
	less.Gone = s.Gone
	less.Networks = slices.DeleteFunc(slices.Clone(less.Networks),
		func(n model.NodeNetwork) bool { return a.deleted[n.Name] })
	dropped := len(less.Networks) < len(a.desired.Networks)
	a.desired = &less
	if !dropped {
		return
	}
	// A later life of the agent must not make it again.
	a.lastWrite = 0
	if err := a.saved.Write(a.desired); err != nil {
		a.Log.Warn("keep what the node goes on with", "error", err)
	}
}

// shallGo returns whether what is not desired of a network shall be removed. If the node does not follow its store,
// that is only what somebody has deleted.
func (a *Agent) shallGo(network string) bool {
	return !a.plan.held[network] && (a.complete || len(a.held) > 0 && a.deleted[network])
}

// unknown tells which networks the node has that a store does not know, or knows only a part of and may have lost the
// rest.
func (a *Agent) unknown(ctx context.Context, s *model.NodeState) []model.HeldNetwork {
	lacks := s.Store.Lacks(a.memory, s.Revision)
	if s.Store.ID == "" && lacks == "" || a.memory.ID == "" && s.Store.Early && a.desired != nil {
		return nil // whoever told this node what to have knew of no identities
	}
	own := a.ownNetworks(ctx, lacks != "" || !a.complete)
	known := each.Set(s.Hold)
	for _, g := range s.Gone {
		known[g.Name] = true
	}
	for i := range s.Networks {
		n := &s.Networks[i]
		if mine := own[n.Name]; mine == nil || lacks == "" || mine.within(n) {
			known[n.Name] = true
		}
	}
	var held []model.HeldNetwork
	for name, mine := range own {
		if known[name] {
			continue
		}
		h := mine.told
		h.Name, h.Elements, h.Why = name, len(mine.elements), lacks
		h.Cut = slices.Sorted(maps.Keys(mine.cut))
		h.Why = cmp.Or(h.Why, "the store does not know it, and has not told the node to remove it")
		held = append(held, h)
	}
	slices.SortFunc(held, func(x, y model.HeldNetwork) int {
		if x.Name < y.Name {
			return -1
		}
		return 1
	})
	return held
}

// ownNetwork is what the node has of a network.
type ownNetwork struct {
	told     model.HeldNetwork // by a store; nothing where it is not known
	elements map[string]bool
	// cut are the elements that an administrator has put into quarantine. They stay there when a store has lost that.
	cut map[string]bool
}

// within tells whether nothing of it is missing in what a store wants, and nothing is released.
func (o *ownNetwork) within(n *model.NodeNetwork) bool {
	if o.told.Index != 0 && o.told.Index != n.Index {
		return false
	}
	there := 0
	for i := range n.Elements {
		e := &n.Elements[i]
		if o.cut[e.Name] && !e.Quarantined {
			return false
		}
		if o.elements[e.Name] {
			there++
		}
	}
	return there == len(o.elements)
}

// ownNetworks are those that the node was told to have, and, if it is asked to look, those that there are elements of.
func (a *Agent) ownNetworks(ctx context.Context, look bool) map[string]*ownNetwork {
	own := map[string]*ownNetwork{}
	at := func(name string) *ownNetwork {
		if own[name] == nil {
			own[name] = &ownNetwork{elements: map[string]bool{}, cut: map[string]bool{}}
		}
		return own[name]
	}
	if a.desired != nil {
		for i := range a.desired.Networks {
			n := &a.desired.Networks[i]
			o := at(n.Name)
			o.told = n.Held()
			for k := range n.Elements {
				e := &n.Elements[k]
				o.elements[e.Name] = true
				if e.Quarantined && e.Override.Held {
					o.cut[e.Name] = true
				}
			}
		}
	}
	if !look {
		return own
	}
	for name, d := range a.Drivers.Controls {
		found, err := d.List(ctx)
		if err != nil {
			a.Log.Warn("look what elements there are", "control", name, "error", err)
		}
		for _, f := range found {
			at(f.ID.Network).elements[f.ID.Element] = true
		}
	}
	return own
}

// kept answers with what the node was last told to have by the store that it follows.
func (a *Agent) kept(w http.ResponseWriter, _ *http.Request) error {
	s, err := instance.NewDesired(a.Dirs).Read()
	if err != nil {
		return err
	}
	if s == nil {
		s = &model.NodeState{Node: a.Dirs.Node}
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(s)
}
