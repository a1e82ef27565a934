package manager

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
	"github.com/polyplane/polyplane/server/store"
	"github.com/polyplane/polyplane/trust"
)

// tokensKept is how long a token is still listed after it has ended.
const tokensKept = 30 * 24 * time.Hour

// Outside says how other machines reach the manager.
type Outside struct {
	Authority *trust.Authority
	// Servers are its addresses, HOST:PORT, best first.
	Servers []string
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
func (m *Manager) User(token trust.Token) (api.Caller, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	k := m.keys[token.ID]
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
func (m *Manager) Host(token trust.Token) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return checkHost(m.keys[token.ID], token)
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
func (m *Manager) Member(node trust.Node) (api.Caller, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	switch is := m.members[node.Name]; {
	case is == nil:
		return api.Caller{}, api.Unauthorized("node %s is a member no longer; it may join again with a new token",
			node.Name)
	case is.Membership != node.Membership:
		return api.Caller{}, api.Unauthorized("node %s has joined anew since, with another certificate", node.Name)
	default:
		return api.Caller{Name: node.Name, Node: node, Alive: is.alive}, nil
	}
}

// Owned are an owner's networks, and when each was made.
func (m *Manager) Owned(owner string) map[string]time.Time {
	m.mu.RLock()
	defer m.mu.RUnlock()
	owned := map[string]time.Time{}
	for name, n := range m.networks {
		if n.damaged == nil && n.record.WhoseItIs() == owner {
			owned[name] = n.record.Created
		}
	}
	return owned
}

// Authority is the certificate authority's certificate.
func (m *Manager) Authority() []byte {
	if m.outside == nil {
		return nil
	}
	return m.outside.Authority.PEM()
}

// errInside says that nobody outside this machine could use a token.
func (m *Manager) errInside() error {
	return api.Conflict("polyplane '%s' is not reached from other machines, so tokens are of no use; give it an "+
		"address: polyplane up --listen :%d",
		m.dirs.Name, model.DefaultPort)
}

// ListTokens returns the tokens that are still listed, in the order in which they were made.
func (m *Manager) ListTokens() []model.Token {
	m.mu.RLock()
	defer m.mu.RUnlock()
	all := make([]model.Token, 0, len(m.keys))
	for _, k := range m.keys {
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

// CreateToken makes a token. Its text is in the result, and is kept nowhere else.
func (m *Manager) CreateToken(ctx context.Context, request model.TokenRequest) (model.TokenResult, error) {
	if m.outside == nil {
		return model.TokenResult{}, m.errInside()
	}
	now := time.Now().UTC()
	secret := trust.NewToken(m.outside.Authority.Pin())
	t := model.StoredToken{Token: model.Token{ID: secret.ID, User: request.User, Role: request.Role,
		Node: request.Node, Created: now},
		Hash: secret.Hash()}
	var err error
	if t.Expires, err = m.expiry(request, now); err == nil {
		err = m.checkToken(request)
	}
	if err != nil {
		return model.TokenResult{}, err
	}
	err = m.changeAccess(ctx, func(a *model.Access) error {
		a.Tokens = append(a.Tokens, t)
		return nil
	})
	if err != nil {
		return model.TokenResult{}, err
	}
	what := "for a host to join"
	if t.User != "" {
		what = fmt.Sprintf("for user %s, %s", t.User, t.Role)
	}
	m.tellEvent(model.Info, "token/"+t.ID, "TokenCreated", "was made "+what)
	return model.TokenResult{Token: t.Token, Text: secret.String(), Servers: m.outside.Servers}, nil
}

// expiry is when a token shall expire.
func (m *Manager) expiry(request model.TokenRequest, now time.Time) (time.Time, error) {
	ttl := request.TTL
	switch {
	case request.User != "" && ttl < 0:
		return time.Time{}, nil
	case request.User != "" && ttl == 0:
		ttl = model.DefaultUserTTL
	case ttl == 0:
		ttl = model.DefaultHostTTL
	case ttl < 0 || request.User == "" && ttl > model.MaxHostTTL:
		return time.Time{}, api.Invalid(fmt.Sprintf("a host's token is good for at most %d days",
			model.MaxHostTTL/(24*time.Hour)))
	}
	return now.Add(ttl), nil
}

// checkToken says what is wrong with a request for a token.
func (m *Manager) checkToken(request model.TokenRequest) error {
	if request.User != "" {
		switch {
		case request.Node != "":
			return api.Invalid("a token is for a user or for a node, not for both")
		case !slices.Contains(model.Roles, request.Role):
			return api.Invalid(fmt.Sprintf("%q is no role; admin, owner or viewer was expected", request.Role))
		}
		err := checkOwner(request.User)
		if request.User == model.EveryOwner {
			err = fmt.Errorf("%q stands for every owner (`polyplane quota`); choose another name", request.User)
		}
		if err != nil {
			return api.Invalid("the token is not made", err)
		}
		return nil
	}
	if request.Role != "" {
		return api.Invalid("a role is a user's; the token is for a host")
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if request.Node != "" {
		if err := model.CheckNodeName(request.Node); err != nil {
			return api.Invalid("the token is not made", err)
		}
		if n := m.nodes[request.Node]; n != nil && !n.Joined {
			return api.Conflict("node %s is on the manager's own machine and cannot join; choose another name",
				request.Node)
		}
	}
	return m.checkGround()
}

// checkGround says why no host can join: the existing nodes could not exchange a packet with it. The caller holds the
// lock.
func (m *Manager) checkGround() error {
	for _, n := range m.base.Nodes {
		if n.Simulated {
			return api.Conflict("the nodes of polyplane '%s' are simulated: other machines cannot reach them; hosts "+
				"join an instance whose node is "+
				"the machine itself (polyplane up --host)", m.dirs.Name)
		}
		if !n.Address.IsValid() {
			return api.Conflict("node %s has no address at which other nodes could reach it; give it one: polyplane "+
				"up --underlay ADDRESS", n.Name)
		}
	}
	return nil
}

// RevokeToken makes a token invalid. Connections that use it end.
func (m *Manager) RevokeToken(ctx context.Context, id string) (model.Token, error) {
	var revoked model.Token
	err := m.changeAccess(ctx, func(a *model.Access) error {
		for i := range a.Tokens {
			t := &a.Tokens[i]
			if t.ID != id {
				continue
			}
			if t.Revoked.IsZero() {
				t.Revoked = time.Now().UTC()
			}
			revoked = t.Token
			return nil
		}
		return api.NotFound("there is no token %s", id)
	})
	if err == nil {
		m.tellEvent(model.Info, "token/"+id, "TokenRevoked", "was revoked")
	}
	return revoked, err
}

// changeAccess changes who may come in. What f makes of it is stored, or nothing has changed.
func (m *Manager) changeAccess(ctx context.Context, f func(*model.Access) error) error {
	m.changing.Lock()
	defer m.changing.Unlock()
	// The stored state counts: an earlier write may have succeeded although its answer never came.
	ctx = context.WithoutCancel(ctx)
	access, version, err := m.store.Access(ctx)
	if err != nil {
		return storeProblem(err)
	}
	if err := f(&access); err != nil {
		return err
	}
	now := time.Now()
	access.Tokens = slices.DeleteFunc(access.Tokens, func(t model.StoredToken) bool {
		ended := t.Ended(now)
		return !ended.IsZero() && now.Sub(ended) > tokensKept
	})
	revision, err := m.store.PutAccess(ctx, access, version)
	switch {
	case errors.Is(err, store.ErrMoved):
		return &api.Problem{Status: http.StatusConflict, Detail: err.Error()}
	case err != nil:
		return storeProblem(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.takeAccess(access, revision)
}

// takeAccess takes over what is stored. The caller holds the locks, or nobody knows the manager yet.
func (m *Manager) takeAccess(access model.Access, revision int64) error {
	keys := map[string]*key{}
	for _, t := range access.Tokens {
		k := m.keys[t.ID]
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
	m.keys = keys
	return m.takeMembers(access.Members, revision)
}

// tellEvent records that something happened.
func (m *Manager) tellEvent(severity model.Severity, object, reason, message string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.event(severity, object, reason, message, "")
}

// closeAccess ends the connections that depend on tokens and members that are gone.
func (m *Manager) closeAccess() {
	defer m.closing.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	for k := range maps.Values(m.keys) {
		k.end()
	}
	for is := range maps.Values(m.members) {
		is.end()
	}
	for n := range maps.Values(m.nodes) {
		m.endTunnel(n)
	}
}

// unixDial connects to the socket of an agent on this machine.
func unixDial(socket string) api.Dial {
	return func(ctx context.Context) (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, "unix", socket) }
}
