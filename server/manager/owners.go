package manager

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
)

// checkOwner says why a name cannot be an owner's. Whoever applies a network owns it, and directories give users names
// that networks cannot have (alice@example.org).
func checkOwner(name string) error {
	if name == "" || !utf8.ValidString(name) ||
		strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsGraphic(r) || unicode.IsSpace(r) }) {
		return fmt.Errorf("%q is no user's name; one without spaces was expected", name)
	}
	return nil
}

// checkOnly refuses networks to an owner that are not, or would not be, the owner's.
func checkOnly(owner string, documents []model.Document, situations []*network) error {
	for i := range documents {
		net, old := &documents[i].Network, situations[i]
		if old != nil && old.record.WhoseItIs() != owner {
			return api.Forbidden("network %s is not user %s's; choose another name", net.Name, owner)
		}
		if net.Owner != "" && net.Owner != owner {
			return api.Forbidden("network %s: user %s is an owner and may make networks in the own name only, not in "+
				"%s's (owner:)", net.Name, owner, net.Owner)
		}
		if old != nil && old.record.Owner != owner {
			net.Owner = owner // an administrator made it for this owner, and it stays the owner's
		}
	}
	return nil
}

// checkMine refuses a network to everybody but its owner, with the same words as if there were none.
func checkMine(ctx context.Context, n *network) error {
	if only := api.Only(ctx); only != "" && (n.damaged != nil || n.record.WhoseItIs() != only) {
		return api.NotFound("user %s has no network %s", only, n.record.Network.Name)
	}
	return nil
}

// mine finds a network that is not damaged, and that whoever asks may know. The caller holds the lock.
func (k *known) mine(ctx context.Context, name string) (*network, error) {
	n, err := k.usable(name)
	if err != nil {
		return nil, err
	}
	return n, checkMine(ctx, n)
}

// living is mine of a network that is not being deleted. The caller holds the lock.
func (k *known) living(ctx context.Context, name string) (*network, error) {
	n, err := k.mine(ctx, name)
	if err == nil && n.record.Deleting {
		err = api.Conflict("network %s is being deleted", name)
	}
	return n, err
}

// alive is living for who does not hold the lock.
func (k *known) alive(ctx context.Context, name string) (*network, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.living(ctx, name)
}

// Owned are an owner's networks, and when each was made.
func (k *known) Owned(owner string) map[string]time.Time {
	k.mu.RLock()
	defer k.mu.RUnlock()
	owned := map[string]time.Time{}
	for name, n := range k.networks {
		if n.damaged == nil && n.record.WhoseItIs() == owner {
			owned[name] = n.record.Created
		}
	}
	return owned
}

// CutOff tells whether an administrator, or an administrator's policy, has put an element into quarantine.
func (k *known) CutOff(id model.ID) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	n := k.networks[id.Network]
	if n == nil || n.damaged != nil {
		return false
	}
	o := n.record.Overrides[id.Element]
	return o.Quarantined && o.Held
}
