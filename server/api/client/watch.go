package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/polyplane/polyplane/model"
)

// errSilent ends a watch whose other side has gone quiet.
var errSilent = errors.New("the manager has gone quiet")

// WatchDump calls f with everything the manager knows of the network (of all when network is empty), at once and then
// whenever something of it has changed; changes in quick succession come as one. It returns f's error, the context's,
// or that the connection broke.
func (c *Client) WatchDump(ctx context.Context, network string, f func(model.Dump) error) error {
	q := url.Values{"watch": {"true"}}
	if network != "" {
		q.Set("network", network)
	}
	return stream(ctx, c, path("dump"), q, func(u model.DumpUpdate) error {
		if u.Dump == nil {
			return nil
		}
		return f(*u.Dump)
	})
}

// Events calls f with every event after since (a sequence number; zero means from the oldest that is kept) and, with
// follow, with every later one until the context ends.
func (c *Client) Events(ctx context.Context, since int64, follow bool, f func(model.Event) error) error {
	q := url.Values{"since": {strconv.FormatInt(since, 10)}}
	if follow {
		q.Set("follow", "true")
	}
	return stream(ctx, c, path("events"), q, func(u model.EventUpdate) error {
		if u.Event == nil {
			return nil
		}
		return f(*u.Event)
	})
}

// Register makes a node's agent known to the manager.
func (c *Client) Register(ctx context.Context, node string, r model.Registration) error {
	return c.do(ctx, http.MethodPost, path("nodes", node, "register"), nil, r, nil)
}

// WatchDesired calls f with everything the node shall have, at once and after every change of it. The manager tells
// only what has changed; what f is given shares the rest with what it was given before, and nobody may change it. While
// f works, changes pile up into one. The open watch is also what makes the node count as alive. It returns f's error,
// the context's, that the connection broke, or that what was told does not fit together; the caller registers again and
// tries anew, and is told everything.
func (c *Client) WatchDesired(ctx context.Context, node string, f func(model.NodeState) error) error {
	var all model.Assembly
	q := url.Values{"changes": {"true"}}
	return stream(ctx, c, path("nodes", node, "desired"), q, func(u model.Update) error {
		s, err := all.Add(u)
		if err != nil || s == nil {
			return err
		}
		return f(*s)
	})
}

// Report tells the manager how a node is.
func (c *Client) Report(ctx context.Context, report model.Report) error {
	return c.do(ctx, http.MethodPost, path("nodes", report.Node, "report"), nil, report, nil)
}

// Measure tells the manager what a node's agent has measured.
func (c *Client) Measure(ctx context.Context, measures model.Measures) error {
	return c.do(ctx, http.MethodPost, path("nodes", measures.Node, "measures"), nil, measures, nil)
}

// Discover tells the manager what a node's agent has found, and returns the keys of other nodes that it asks for.
func (c *Client) Discover(ctx context.Context, found model.Discovery) (model.DiscoveryAnswer, error) {
	var a model.DiscoveryAnswer
	return a, c.do(ctx, http.MethodPost, path("nodes", found.Node, "discovery"), nil, found, &a)
}

// Beat is a sign of life of a node's agent.
func (c *Client) Beat(ctx context.Context, beat model.Beat) error {
	return c.do(ctx, http.MethodPost, path("nodes", beat.Node, "beat"), nil, beat, nil)
}

// longLine is when a line of a stream is so long that its room is given back.
const longLine = 1 << 20

// stream reads a stream of JSON values (NDJSON) and calls f with each. A finished stream is no error.
func stream[T any](ctx context.Context, c *Client, path string, query url.Values, f func(T) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	resp, err := c.open(ctx, http.MethodGet, path, query, nil, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	silence := time.AfterFunc(3*model.KeepAlive, func() { cancel(errSilent) })
	defer silence.Stop()
	var body io.Reader = resp.Body
	decoder, from := json.NewDecoder(body), int64(0)
	for {
		var v T
		if decoder.InputOffset()-from > longLine {
			// A decoder keeps room for the longest value that it has read.
			body = io.MultiReader(decoder.Buffered(), body)
			decoder = json.NewDecoder(body)
		}
		from = decoder.InputOffset()
		err := decoder.Decode(&v)
		silence.Stop()
		switch {
		case errors.Is(err, io.EOF) && ctx.Err() == nil:
			return nil
		case err != nil && ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return fmt.Errorf("%s: %w", path, c.explain(err))
		}
		if err := f(v); err != nil {
			return err
		}
		silence.Reset(3 * model.KeepAlive)
	}
}
