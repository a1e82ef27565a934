package api

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/trust"
	"github.com/polyplane/polyplane/wire/tunnel"
)

// maxSmallBody bounds requests of a few fields, in bytes: also of those who are not known yet.
const maxSmallBody = 64 << 10

type tokenInput struct{ Body model.TokenRequest }

type tokenPath struct {
	ID string `path:"id" doc:"the token's ID, the second part of it"`
}

func (s *Server) tokenRoutes(api huma.API) {
	reply(api, operation("whoami", http.MethodGet, "/whoami", "Who am I, to the manager?", "access"),
		func(ctx context.Context, _ *struct{}) (model.Whoami, error) {
			c := callerOf(ctx)
			return model.Whoami{Instance: s.views.Ping().Instance, User: c.Name, Role: c.Role}, nil
		})
	reply(api, operation("tokens", http.MethodGet, "/tokens", "The tokens, without their secrets", "access"),
		func(context.Context, *struct{}) ([]model.Token, error) { return list(s.tokens.ListTokens()), nil })
	create := operation("create-token", http.MethodPost, "/tokens",
		"Make a token, for a host that is to join or for a user", "access")
	create.MaxBodyBytes = maxSmallBody
	reply(api, create, func(ctx context.Context, in *tokenInput) (model.TokenResult, error) {
		return s.tokens.CreateToken(ctx, in.Body)
	})
	reply(api, operation("revoke-token", http.MethodDelete, "/tokens/{id}", "Make a token useless", "access"),
		func(ctx context.Context, in *tokenPath) (model.Token, error) { return s.tokens.RevokeToken(ctx, in.ID) })
}

type joinInput struct {
	host string
	Body model.JoinRequest
}

// Resolve notes who asks.
func (in *joinInput) Resolve(c huma.Context) []error {
	in.host = c.RemoteAddr()
	return nil
}

type renewInput struct {
	NodePath
	Body model.RenewRequest
}

type authorityOutput struct {
	ContentType string `header:"Content-Type"`
	Body        []byte
}

// memberRoutes are what hosts ask for that join or have joined. Joining needs no more than the token in the request, so
// it is bounded before anybody is known: in bytes, in time, and in wrong tokens from one place.
func (s *Server) memberRoutes(api huma.API) {
	huma.Register(api, operation("authority", http.MethodGet, "/authority",
		"The certificate authority's certificate, in PEM", "access"),
		func(context.Context, *struct{}) (*authorityOutput, error) {
			pem := s.members.Authority()
			if pem == nil {
				return nil, statusError(NotFound("the instance has no certificate authority: it serves nobody " +
					"outside its machine"))
			}
			return &authorityOutput{"application/x-pem-file", pem}, nil
		})
	join := operation("join", http.MethodPost, "/join",
		"A host becomes a node, with a token that is good for that once", "access")
	join.MaxBodyBytes = maxSmallBody
	join.BodyReadTimeout = 30 * time.Second
	reply(api, join, func(ctx context.Context, in *joinInput) (model.JoinResult, error) {
		var token trust.Token
		// The token comes before anything else: the manager does the work of a join only for those who have one.
		err := s.guard.failures.try(hostOf(in.host), func() (err error) {
			if token, err = trust.ParseToken(in.Body.Token); err != nil {
				return Unauthorized("%v", err)
			}
			return s.gate.Host(token)
		})
		if err != nil {
			return model.JoinResult{}, err
		}
		return s.members.Join(ctx, token, in.Body)
	})
	renew := operation("renew", http.MethodPost, "/nodes/{node}/renew",
		"A node gets a new certificate in time", "agents")
	renew.MaxBodyBytes = maxSmallBody
	reply(api, renew, func(ctx context.Context, in *renewInput) (model.JoinResult, error) {
		return s.members.Renew(callerOf(ctx).Node, in.Body)
	})
	reply(api, operation("node", http.MethodGet, "/nodes/{node}", "One node at a glance", "nodes"),
		func(ctx context.Context, in *NodePath) (model.NodeStatus, error) {
			d, err := s.dump(ctx, "", Parts{Nodes: true})
			for _, n := range d.Nodes {
				if n.Name == in.Node {
					return n, nil
				}
			}
			if err == nil {
				err = NotFound("there is no node %s", in.Node)
			}
			return model.NodeStatus{}, err
		})
	obey(api, operation("remove-node", http.MethodDelete, "/nodes/{node}",
		"A node that joined is one no longer; nothing may be placed on it", "nodes"),
		func(ctx context.Context, in *NodePath) error { return s.members.RemoveNode(ctx, in.Node) })
	op := operation("tunnel", http.MethodGet, "/nodes/{node}/tunnel",
		fmt.Sprintf("A node that joined holds this open, for the manager to reach its agent: upgrade to %q",
			tunnel.Protocol), "agents")
	op.Parameters = []*huma.Param{{Name: "node", In: "path", Required: true,
		Schema: &huma.Schema{Type: huma.TypeString}}}
	op.Responses = map[string]*huma.Response{"101": {Description: "connections from the manager to the agent, " +
		"multiplexed"}}
	api.OpenAPI().AddOperation(&op)
	s.guard.HandleFunc(op.Method+" "+op.Path, s.tunnel)
}

// tunnel hands a node's upgraded connection over.
func (s *Server) tunnel(w http.ResponseWriter, r *http.Request) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), tunnel.Protocol) {
		w.Header().Set("Upgrade", tunnel.Protocol)
		writeProblem(w, &Problem{Kind: kindNoUpgrade, Detail: "this is a tunnel: ask with \"Upgrade: " +
			tunnel.Protocol + "\""})
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		writeProblem(w, fmt.Errorf("take over the connection: %w", err))
		return
	}
	const answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + tunnel.Protocol + "\r\n\r\n"
	err = conn.SetDeadline(time.Time{})
	if err == nil && buffered.Reader.Buffered() > 0 {
		err = fmt.Errorf("the node spoke before it was answered")
	}
	if err == nil {
		_, err = conn.Write([]byte(answer))
	}
	if err == nil {
		err = s.members.Tunnel(callerOf(r.Context()).Node, conn)
	}
	if err != nil {
		slog.Warn("a node's tunnel", "node", r.PathValue("node"), "error", err)
		conn.Close()
	}
}
