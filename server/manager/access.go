package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
	"github.com/polyplane/polyplane/server/store"
	"github.com/polyplane/polyplane/trust"
)

// tokensKept is how long a token is still listed after it has ended.
const tokensKept = 30 * 24 * time.Hour

// CreateToken makes a token. Its text is in the result, and is kept nowhere else.
func (g *gate) CreateToken(ctx context.Context, request model.TokenRequest) (model.TokenResult, error) {
	if g.outside == nil {
		return model.TokenResult{}, g.errInside()
	}
	now := time.Now().UTC()
	secret := trust.NewToken(g.outside.Authority.Pin())
	t := model.StoredToken{Token: model.Token{ID: secret.ID, User: request.User, Role: request.Role,
		Node: request.Node, Created: now}, Hash: secret.Hash()}
	var err error
	if t.Expires, err = expiry(request, now); err == nil {
		err = g.checkToken(request)
	}
	if err != nil {
		return model.TokenResult{}, err
	}
	err = g.changeAccess(ctx, func(a *model.Access) error {
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
	g.event(model.Info, "token/"+t.ID, "TokenCreated", "was made "+what, "")
	return model.TokenResult{Token: t.Token, Text: secret.String(), Servers: g.outside.Servers}, nil
}

// expiry is when a token shall expire.
func expiry(request model.TokenRequest, now time.Time) (time.Time, error) {
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
func (g *gate) checkToken(request model.TokenRequest) error {
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
		if strings.ContainsAny(request.User, "/:") {
			err = fmt.Errorf("the name %q has / or : in it, and users' networks are called OWNER/NETWORK; choose "+
				"another name", request.User)
		}
		if err != nil {
			return api.Invalid("the token is not made", err)
		}
		return nil
	}
	if request.Role != "" {
		return api.Invalid("a role is a user's; the token is for a host")
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	if request.Node != "" {
		if err := model.CheckNodeName(request.Node); err != nil {
			return api.Invalid("the token is not made", err)
		}
		if n := g.nodes[request.Node]; n != nil && !n.Joined {
			return api.Conflict("node %s is on the manager's own machine and cannot join; choose another name",
				request.Node)
		}
	}
	return g.checkGround()
}

// checkGround says why no host can join: the existing nodes could not exchange a packet with it. The caller holds the
// lock.
func (g *gate) checkGround() error {
	for _, n := range g.base.Nodes {
		if n.Simulated {
			return api.Conflict("the nodes of polyplane '%s' are simulated: other machines cannot reach them; hosts "+
				"join an instance whose node is the machine itself (polyplane up --host)", g.dirs.Name)
		}
		if !n.Address.IsValid() {
			return api.Conflict("node %s has no address at which other nodes could reach it; give it one: polyplane "+
				"up --underlay ADDRESS", n.Name)
		}
	}
	return nil
}

// RevokeToken makes a token invalid. Connections that use it end.
func (g *gate) RevokeToken(ctx context.Context, id string) (model.Token, error) {
	var revoked model.Token
	revoke := func(a *model.Access) error {
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
	}
	err := g.changeAccessOr(ctx, revoke, func(err error) error {
		if g.store.TakesNothing(err) {
			return g.revokeHere(revoke, &revoked)
		}
		return storeProblem(err)
	})
	if err != nil {
		return revoked, err
	}
	g.event(model.Info, "token/"+id, "TokenRevoked", "was revoked", "")
	// The store has made room for this on a full disk.
	if err := g.revoked.Keep([]model.StoredToken{{Token: revoked}}); err != nil {
		return revoked, api.Unavailable(fmt.Errorf("token %s is revoked, but would be good again after a `restore` of "+
			"an earlier backup; revoke it once more when this is mended: %w", id, err))
	}
	return revoked, nil
}

// revokeHere makes a token invalid while an external store takes nothing. The list of revoked tokens, which is written
// next, counts whatever the store says; the store has it with the next change of tokens. The caller holds changing.
func (g *gate) revokeHere(revoke func(*model.Access) error, revoked *model.Token) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	access := model.Access{Tokens: g.stored()}
	if err := revoke(&access); err != nil {
		return err
	}
	if err := g.revoked.Keep([]model.StoredToken{{Token: *revoked}}); err != nil {
		return api.Unavailable(err)
	}
	g.takeTokens(access.Tokens)
	return nil
}

// changeAccess changes who may come in. What f makes of it is stored, or nothing has changed.
func (g *gate) changeAccess(ctx context.Context, f func(*model.Access) error) error {
	return g.changeAccessOr(ctx, f, storeProblem)
}

// changeAccessOr is changeAccess with something else to do where the store refuses.
func (g *gate) changeAccessOr(ctx context.Context, f func(*model.Access) error, refuse func(error) error) error {
	g.changing.Lock()
	defer g.changing.Unlock()
	// The stored state counts: an earlier write may have succeeded although its answer never came. Administrators
	// keep somebody out, or let in who makes room, on a full disk too.
	ctx = store.Urgent(context.WithoutCancel(ctx), true)
	access, version, err := g.store.Access(ctx)
	if err != nil {
		return refuse(err)
	}
	g.revoked.Apply(access.Tokens)
	if err := f(&access); err != nil {
		return err
	}
	now := time.Now()
	access.Tokens = slices.DeleteFunc(access.Tokens, func(t model.StoredToken) bool {
		ended := t.Ended(now)
		return !ended.IsZero() && now.Sub(ended) > tokensKept
	})
	revision, err := g.store.PutAccess(ctx, access, version)
	switch {
	case errors.Is(err, store.ErrMoved):
		return api.Conflict("%v", err)
	case err != nil:
		return refuse(err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.takeAccess(access, revision)
}

// loadAccess takes over what is stored as the manager starts. Tokens that were revoked are so whatever the store says:
// it may be an earlier one that was put back.
func (g *gate) loadAccess(ctx context.Context) (err error) {
	if g.revoked, err = instance.ReadRevoked(g.dirs); err != nil {
		return err
	}
	access, _, err := g.store.Access(ctx)
	if err != nil {
		return err
	}
	kept := g.revoked.Apply(access.Tokens)
	for i := range kept {
		g.event(model.Info, "token/"+kept[i].ID, "TokenStaysRevoked",
			"was revoked after the time that the store is of, and stays so", "")
	}
	// Earlier versions kept no list; and a power cut may have come before it was written.
	if err := g.revoked.Keep(access.Tokens); err != nil {
		slog.Warn("revoked tokens would be good again after a restore of an earlier backup", "error", err)
	}
	return g.takeAccess(access, 0)
}

// takeAccess takes over what is stored. The caller holds the locks, or nobody knows the manager yet.
func (g *gate) takeAccess(access model.Access, revision int64) error {
	g.takeTokens(access.Tokens)
	return g.takeMembers(access.Members, revision)
}

// closeAccess ends the connections that depend on tokens and members that are gone.
func (g *gate) closeAccess() {
	defer g.closing.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.close()
	for n := range maps.Values(g.nodes) {
		g.endTunnel(n)
	}
}

// unixDial connects to the socket of an agent on this machine.
func unixDial(socket string) api.Dial {
	return func(ctx context.Context) (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, "unix", socket) }
}
