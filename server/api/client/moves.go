package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"

	"github.com/polyplane/polyplane/model"
)

// Move begins a move of an element to another node, or tells what it would do.
func (c *Client) Move(ctx context.Context, id model.ID, request model.MoveRequest) (model.MoveResult, error) {
	return ask[model.MoveResult](ctx, c, http.MethodPost, element(id, "move"), nil, request)
}

// Moves lists the moves that are under way, and the latest that have ended, of one network or of all.
func (c *Client) Moves(ctx context.Context, network string) ([]model.MoveStatus, error) {
	return ask[[]model.MoveStatus](ctx, c, http.MethodGet, path("moves"), ofNetwork(network), nil)
}

// Departure opens the disk of an element that leaves an agent's node. Its end is an error where it is not whole.
func (c *Client) Departure(ctx context.Context, id model.ID, move string) (io.ReadCloser, error) {
	resp, err := c.send(ctx, http.MethodGet, element(id, "departure"), url.Values{"move": {move}}, nil, nil, 0)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Arrival sends the disk of an element that comes to an agent's node, and returns when the node keeps it.
func (c *Client) Arrival(ctx context.Context, id model.ID, move string, disk io.Reader) error {
	resp, err := c.send(ctx, http.MethodPut, element(id, "arrival"), url.Values{"move": {move}},
		http.Header{"Content-Type": {"application/octet-stream"}}, disk, -1)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// StaysRefused tells whether an agent's answer to Departure or Arrival is a no that stays one.
func StaysRefused(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && (e.Status == http.StatusConflict || e.Status == http.StatusNotImplemented)
}
