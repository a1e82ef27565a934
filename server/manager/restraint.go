package manager

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
	"github.com/polyplane/polyplane/server/store"
)

// What an administrator has decided about an element – that it is cut off, or what is done when it attacks – must not
// be undone by its owner. So when the owner deletes the element or its network, the decision is kept by owner, network
// and element. It counts again when the owner makes the element anew, until an administrator ends it. If an
// administrator deletes the element, that ends it too.

const (
	// maxRestraints bounds how many decisions are kept about one owner's elements: attacking with ever new names must
	// not fill the store.
	maxRestraints = 128
	// maxKeptReason bounds each reason that is kept in this way, in bytes.
	maxKeptReason = 256
)

// restraints are what is kept, in order. Who changes them holds the manager's changing.
type restraints struct {
	store *store.Store
	mu    sync.RWMutex      // guards list; it is not held while the store is written
	list  []model.Restraint // never changed in place
}

// all are those that are kept now.
func (k *restraints) all() []model.Restraint {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.list
}

// restraintsOf are what administrators have decided about elements of a record, or about its network, that a document
// no longer has. A nil document means that the network goes.
func restraintsOf(r *model.Record, doc *model.Network) (all []model.Restraint) {
	stays := map[string]bool{"": doc != nil}
	if doc != nil {
		for i := range doc.Elements {
			stays[doc.Elements[i].Name] = true
		}
	}
	of := map[string]model.Restraint{}
	for name, o := range r.Overrides {
		if o.Quarantined && o.Held && !stays[name] {
			x := of[name]
			x.Quarantined, x.Reason = true, o.Reason
			if len(x.Reason) > maxKeptReason {
				x.Reason = strings.ToValidUTF8(x.Reason[:maxKeptReason], "") + "…"
			}
			of[name] = x
		}
	}
	for name, p := range r.Policies {
		if !stays[name] {
			x := of[name]
			x.Attack = p
			of[name] = x
		}
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		x := of[name]
		x.Owner, x.ID = r.WhoseItIs(), model.ID{Network: r.Network.Name, Element: name}
		all = append(all, x)
	}
	return all
}

func byElement(a, b model.Restraint) int {
	return cmp.Or(cmp.Compare(a.ID.Network, b.ID.Network), cmp.Compare(a.ID.Element, b.ID.Element),
		cmp.Compare(a.Owner, b.Owner))
}

// keep stores what must be kept when an owner removes something.
func (k *restraints) keep(ctx context.Context, lost []model.Restraint) error {
	if len(lost) == 0 {
		return nil
	}
	next := slices.Clone(k.list)
	for _, r := range lost {
		i := slices.IndexFunc(next, func(is model.Restraint) bool { return is.Owner == r.Owner && is.ID == r.ID })
		if i < 0 {
			next = append(next, r)
		} else {
			next[i] = r
		}
	}
	owner, n := lost[0].Owner, 0
	for _, r := range next {
		if r.Owner == owner {
			n++
		}
	}
	if n > maxRestraints && len(next) > len(k.list) {
		return api.Forbidden("administrators' quarantines and policies of %d deleted elements of user %s would be "+
			"kept, %d at most are: an administrator releases some first (`polyplane quarantine list` shows them), or "+
			"does this", n, owner, maxRestraints)
	}
	return k.put(ctx, next)
}

// put stores what is kept.
func (k *restraints) put(ctx context.Context, next []model.Restraint) error {
	slices.SortFunc(next, byElement)
	if slices.Equal(next, k.list) {
		return nil
	}
	if err := k.store.PutRestraints(context.WithoutCancel(ctx), next); err != nil {
		return storeProblem(err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.list = next
	return nil
}

// forgive ends some of what is kept, and returns whether there was anything.
func (k *restraints) forgive(ctx context.Context, end func(*model.Restraint)) (bool, error) {
	next := slices.Clone(k.list)
	for i := range next {
		end(&next[i])
	}
	next = slices.DeleteFunc(next, func(r model.Restraint) bool { return !r.Quarantined && r.Attack == "" })
	ended := !slices.Equal(next, k.list)
	return ended, k.put(ctx, next)
}

// releaseKept ends the kept quarantine of an element that its owner has deleted.
func (m *Manager) releaseKept(ctx context.Context, id model.ID) (bool, error) {
	if err := m.changing.LockFor(ctx, api.User(ctx)); err != nil {
		return false, api.Unavailable(err)
	}
	defer m.changing.Unlock()
	return m.restraints.forgive(ctx, func(r *model.Restraint) {
		if m.isKeptOf(r, id) {
			r.Quarantined, r.Reason = false, ""
		}
	})
}

// isKeptOf tells whether something is kept of an element, also if that was before owners had names of their own: then
// its network's title was its key.
func (k *known) isKeptOf(r *model.Restraint, id model.ID) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	n := k.networks[id.Network]
	return r.ID == id || r.ID.Element == id.Element && k.networks[r.ID.Network] == nil && n != nil &&
		n.damaged == nil && n.record.WhoseItIs() == r.Owner && n.record.Network.Called() == r.ID.Network
}

// keptViews show what is kept about elements that do not exist. owner is who asks; empty for somebody who may see
// everything. The caller holds the lock.
func (m *Manager) keptViews(network, owner string) (all []model.PolicyView) {
	for _, r := range m.restraints.all() {
		if network != "" && r.ID.Network != network || owner != "" && r.Owner != owner {
			continue
		}
		if n := m.networks[r.ID.Network]; n != nil && (n.damaged != nil || n.record.WhoseItIs() == r.Owner) {
			if _, there := n.index[r.ID.Element]; there || r.ID.Element == "" || n.damaged != nil {
				continue
			}
		}
		v := model.PolicyView{ID: r.ID, Owner: r.Owner, Title: m.nameOf(r.ID.Network).Title,
			Attack: cmp.Or(r.Attack, model.AttackTell), Administrator: r.Attack != "", Quarantined: r.Quarantined}
		if r.Quarantined {
			v.Reason = r.Reason + " (kept: user " + r.Owner + " has deleted it)"
		}
		all = append(all, v)
	}
	return all
}
