package manager

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
	"github.com/polyplane/polyplane/trust"
)

// Outside says how other machines reach the manager.
type Outside struct {
	Authority *trust.Authority
	// Servers are its addresses, HOST:PORT, best first.
	Servers []string
}

// gate is who may come in from other machines. Every request from there asks it, so its lock is its own: it may be
// taken while the manager's is held, never the other way round. What is in it changes only with both locks of the
// manager held.
type gate struct {
	*known
	outside *Outside // nil if nobody outside this machine is served
	revoked *instance.Revoked

	door    sync.RWMutex           // guards the two below
	keys    map[string]*key        // by the token's ID
	members map[string]*membership // by the node's name
}

// key is a token, while it is told of.
type key struct {
	model.StoredToken
	alive context.Context
	end   context.CancelFunc
}

// membership is one node's that joined.
type membership struct {
	model.Member
	alive context.Context
	end   context.CancelFunc
}

// User tells whose token it is.
func (g *gate) User(token trust.Token) (api.Caller, error) {
	g.door.RLock()
	defer g.door.RUnlock()
	k := g.keys[token.ID]
	if err := checkSecret(k, token); err != nil {
		return api.Caller{}, err
	}
	if k.User == "" {
		return api.Caller{}, api.Unauthorized("token %s is for a host to join with (`polyplane join`), not for a user",
			token.ID)
	}
	return api.Caller{Name: k.User, Role: k.Role, Alive: k.alive}, nil
}

// Host says why no host can join with a token, as far as that is known without the store.
func (g *gate) Host(token trust.Token) error {
	g.door.RLock()
	defer g.door.RUnlock()
	return checkHost(g.keys[token.ID], token)
}

// checkHost says why no host can join with a token.
func checkHost(k *key, token trust.Token) error {
	if err := checkSecret(k, token); err != nil {
		return err
	}
	if k.User != "" {
		return api.Unauthorized("token %s is user %s's, not for a host to join with", k.ID, k.User)
	}
	return nil
}

// checkSecret says why a token is not valid. Only somebody who knows its secret learns what kind of token it is.
func checkSecret(k *key, token trust.Token) error {
	var hash string
	if k != nil {
		hash = k.Hash
	}
	if !token.Proves(hash) {
		return api.Unauthorized("the manager does not know this token")
	}
	if why := k.Unusable(time.Now()); why != "" {
		return api.Unauthorized("token %s %s", token.ID, why)
	}
	return nil
}

// Member returns the node that joined with this certificate.
func (g *gate) Member(node trust.Node) (api.Caller, error) {
	g.door.RLock()
	defer g.door.RUnlock()
	switch is := g.members[node.Name]; {
	case is == nil:
		return api.Caller{}, api.Unauthorized("node %s is a member no longer; it may join again with a new token",
			node.Name)
	case is.Membership != node.Membership:
		return api.Caller{}, api.Unauthorized("node %s has joined anew since, with another certificate", node.Name)
	default:
		return api.Caller{Name: node.Name, Node: node, Alive: is.alive}, nil
	}
}

// Authority is the certificate authority's certificate.
func (g *gate) Authority() []byte {
	if g.outside == nil {
		return nil
	}
	return g.outside.Authority.PEM()
}

// errInside says that nobody outside this machine could use a token.
func (g *gate) errInside() error {
	return api.Conflict("polyplane '%s' is not reached from other machines, so tokens are of no use; give it an "+
		"address: polyplane up --listen :%d", g.dirs.Name, model.DefaultPort)
}

// ListTokens returns the tokens that are still listed, in the order in which they were made.
func (g *gate) ListTokens() []model.Token {
	g.door.RLock()
	defer g.door.RUnlock()
	all := make([]model.Token, 0, len(g.keys))
	for _, k := range g.keys {
		all = append(all, k.Token)
	}
	slices.SortFunc(all, func(a, b model.Token) int {
		if c := a.Created.Compare(b.Created); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return all
}

// stored are the tokens that are told of, as they are stored.
func (g *gate) stored() (all []model.StoredToken) {
	g.door.RLock()
	defer g.door.RUnlock()
	for _, k := range g.keys {
		all = append(all, k.StoredToken)
	}
	return all
}

// takeTokens takes over the tokens that are stored. Those that were revoked end.
func (g *gate) takeTokens(tokens []model.StoredToken) {
	g.door.Lock()
	defer g.door.Unlock()
	keys := map[string]*key{}
	for _, t := range tokens {
		k := g.keys[t.ID]
		if k == nil {
			k = &key{}
			k.alive, k.end = context.WithCancel(context.Background())
			if !t.Expires.IsZero() {
				k.alive, k.end = context.WithDeadline(context.Background(), t.Expires)
			}
		}
		if keys[t.ID] = k; !t.Revoked.IsZero() {
			k.end()
		}
		k.StoredToken = t
	}
	g.keys = keys
}

// enter takes over the members that are stored. ended are the nodes whose membership has ended, also if they have
// a new one; same tells that nothing has changed.
func (g *gate) enter(members []model.Member) (ended []string, same bool) {
	g.door.Lock()
	defer g.door.Unlock()
	now := make(map[string]*membership, len(members))
	same = len(members) == len(g.members)
	for _, is := range members {
		was := g.members[is.Name]
		if was != nil && was.Membership == is.Membership {
			same = same && was.Member == is
			was.Member = is
			now[is.Name] = was
			continue
		}
		same = false
		next := &membership{Member: is}
		next.alive, next.end = context.WithCancel(context.Background())
		now[is.Name] = next
	}
	for name, was := range g.members {
		if now[name] != was {
			was.end()
			ended = append(ended, name)
		}
	}
	g.members = now
	return ended, same
}

// member is what a node of that name joined as; ok tells whether one did.
func (g *gate) member(name string) (is model.Member, ok bool) {
	g.door.RLock()
	defer g.door.RUnlock()
	if m := g.members[name]; m != nil {
		return m.Member, true
	}
	return model.Member{}, false
}

// owners are the users with a token as owners that can be used.
func (g *gate) owners() (users []string) {
	g.door.RLock()
	defer g.door.RUnlock()
	for _, k := range g.keys {
		if k.Role == model.RoleOwner && k.Unusable(time.Now()) == "" {
			users = append(users, k.User)
		}
	}
	return users
}

// close ends all connections that depend on tokens and memberships.
func (g *gate) close() {
	g.door.Lock()
	defer g.door.Unlock()
	for _, k := range g.keys {
		k.end()
	}
	for _, is := range g.members {
		is.end()
	}
}
