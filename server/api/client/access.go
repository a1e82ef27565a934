package client

import (
	"context"
	"io"
	"net/http"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/wire/tunnel"
)

// Whoami asks who the manager takes this client for.
func (c *Client) Whoami(ctx context.Context) (model.Whoami, error) {
	return ask[model.Whoami](ctx, c, http.MethodGet, path("whoami"), nil, nil)
}

// Tokens lists the tokens, without their secrets.
func (c *Client) Tokens(ctx context.Context) ([]model.Token, error) {
	return ask[[]model.Token](ctx, c, http.MethodGet, path("tokens"), nil, nil)
}

// CreateToken makes a token. Nobody can ask for its text again.
func (c *Client) CreateToken(ctx context.Context, request model.TokenRequest) (model.TokenResult, error) {
	return ask[model.TokenResult](ctx, c, http.MethodPost, path("tokens"), nil, request)
}

// RevokeToken makes a token useless.
func (c *Client) RevokeToken(ctx context.Context, id string) (model.Token, error) {
	return ask[model.Token](ctx, c, http.MethodDelete, path("tokens", id), nil, nil)
}

// Authority returns the certificate of the instance's certificate authority, in PEM.
func (c *Client) Authority(ctx context.Context) ([]byte, error) {
	resp, err := c.open(ctx, http.MethodGet, path("authority"), nil, nil, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return b, c.explain(err)
}

// Join makes this host a node.
func (c *Client) Join(ctx context.Context, request model.JoinRequest) (model.JoinResult, error) {
	return ask[model.JoinResult](ctx, c, http.MethodPost, path("join"), nil, request)
}

// Renew gets the node a new certificate.
func (c *Client) Renew(ctx context.Context, node string, request model.RenewRequest) (model.JoinResult, error) {
	return ask[model.JoinResult](ctx, c, http.MethodPost, path("nodes", node, "renew"), nil, request)
}

// RemoveNode ends a node's membership.
func (c *Client) RemoveNode(ctx context.Context, node string) error {
	return c.do(ctx, http.MethodDelete, path("nodes", node), nil, nil, nil)
}

// Tunnel opens the connection over which the manager reaches the node's agent.
func (c *Client) Tunnel(ctx context.Context, node string) (io.ReadWriteCloser, error) {
	return c.upgrade(ctx, path("nodes", node, "tunnel"), nil, tunnel.Protocol)
}
