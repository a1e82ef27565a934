package client

import (
	"context"
	"io"
	"net/http"

	"github.com/polyplane/polyplane/model"
)

// Recover puts networks together again from what nodes were told to have.
func (c *Client) Recover(ctx context.Context, request model.RecoverRequest) (model.RecoverResult, error) {
	var out model.RecoverResult
	return out, c.do(ctx, http.MethodPost, path("recover"), nil, request, &out)
}

// Backup copies a backup of everything that the instance cannot do without.
func (c *Client) Backup(ctx context.Context, w io.Writer) error {
	resp, err := c.open(ctx, http.MethodGet, path("backup"), nil, nil, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(w, resp.Body)
	return c.explain(err)
}

// Kept asks an agent what its node was told to have, as it is kept there.
func (c *Client) Kept(ctx context.Context) (model.NodeState, error) {
	var out model.NodeState
	return out, c.do(ctx, http.MethodGet, path("kept"), nil, nil, &out)
}
