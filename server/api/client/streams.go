package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/wire"
)

// Exec runs a command inside an element and returns its exit status. The streams of stdio are carried both ways;
// cancelling the context ends the command.
//
// The request is GET /v1/networks/NET/elements/EL/exec with the upgrade of package wire.
func (c *Client) Exec(ctx context.Context, id model.ID, command control.Command, stdio control.Stdio) (int, error) {
	return c.attach(ctx, element(id, "exec"), command, stdio)
}

// Console opens the element's console (vtysh, birdc or a shell) on a terminal of the given size and returns its exit
// status. The request is like Exec's, GET …/console, its command has only TTY and Size.
func (c *Client) Console(ctx context.Context, id model.ID, size control.Size, stdio control.Stdio) (int, error) {
	return c.attach(ctx, element(id, "console"), control.Command{TTY: true, Size: size}, stdio)
}

// Logs returns what the element's processes printed, as text; with follow it goes on until closed.
// GET …/logs?follow=true
func (c *Client) Logs(ctx context.Context, id model.ID, follow bool) (io.ReadCloser, error) {
	q := url.Values{}
	if follow {
		q.Set("follow", "true")
	}
	resp, err := c.open(ctx, http.MethodGet, element(id, "logs"), q, nil, nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Capture returns what passes the interface, both directions, as a pcapng stream (draft-ietf-opsawg-pcapng), until
// closed. GET …/capture?interface=NAME
func (c *Client) Capture(ctx context.Context, port model.PortID) (io.ReadCloser, error) {
	resp, err := c.open(ctx, http.MethodGet, element(port.ID, "capture"),
		url.Values{"interface": {port.Interface}}, nil, nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Evidence reads the capture that is kept of an element in quarantine.
func (c *Client) Evidence(ctx context.Context, id model.ID) (io.ReadCloser, error) {
	resp, err := c.open(ctx, http.MethodGet, element(id, "capture"),
		url.Values{"interface": {""}, "kept": {"true"}}, nil, nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// FIB reads what the fast path knows of a router.
func (c *Client) FIB(ctx context.Context, id model.ID, request model.FIBRequest) (answer model.FIB, err error) {
	err = c.within(ctx, http.MethodPost, element(id, "fib"), nil, request, &answer, maxAgentAnswer)
	return answer, err
}

// Tree asks what a switch knows of its spanning tree.
func (c *Client) Tree(ctx context.Context, id model.ID) (answer model.Tree, err error) {
	err = c.do(ctx, http.MethodGet, element(id, "tree"), nil, nil, &answer)
	return answer, err
}

// Running asks what an element is by now.
func (c *Client) Running(ctx context.Context, id model.ID) (answer model.Running, err error) {
	err = c.within(ctx, http.MethodGet, element(id, "running"), nil, nil, &answer, maxAgentAnswer)
	return answer, err
}

// Pack returns the files of an element's own, as an archive's tree.
func (c *Client) Pack(ctx context.Context, id model.ID) (io.ReadCloser, error) {
	resp, err := c.open(ctx, http.MethodGet, element(id, "files"), nil, nil, nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Unpack writes the files of a tree into an element.
func (c *Client) Unpack(ctx context.Context, id model.ID, tree []byte) error {
	resp, err := c.try(ctx, http.MethodPut, element(id, "files"), nil,
		http.Header{"Content-Type": {"application/x-tar"}}, tree)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// Trace asks what the fast path would do with a packet at a router.
func (c *Client) Trace(ctx context.Context, id model.ID, request model.TraceRequest) (answer model.Trace, err error) {
	err = c.within(ctx, http.MethodPost, element(id, "trace"), nil, request, &answer, maxAgentAnswer)
	return answer, err
}

// answerTo is how long an agent's answer to so many questions may be, in bytes.
func answerTo(questions int) int64 { return min(maxAgentAnswer, 64<<10+int64(questions)*4096) }

// OpenResponders asks an agent (a client of its socket) to open responders.
func (c *Client) OpenResponders(ctx context.Context, request model.RespondersRequest) (model.RespondersResult, error) {
	var out model.RespondersResult
	most := answerTo(len(request.Responders))
	return out, c.within(ctx, http.MethodPost, path("responders"), nil, request, &out, most)
}

// Probe asks an agent (a client of its socket) to run probes.
func (c *Client) Probe(ctx context.Context, request model.ProbesRequest) (model.ProbesResult, error) {
	var out model.ProbesResult
	return out, c.within(ctx, http.MethodPost, path("probes"), nil, request, &out, answerTo(len(request.Probes)))
}

// Look asks an agent (a client of its socket) what the routing of elements knows.
func (c *Client) Look(ctx context.Context, request model.LooksRequest) (model.LooksResult, error) {
	var out model.LooksResult
	return out, c.within(ctx, http.MethodPost, path("looks"), nil, request, &out, answerTo(len(request.Looks)))
}

func element(id model.ID, what string) string {
	return path("networks", id.Network, "elements", id.Element, what)
}

// upgrade asks for a connection that goes on with another protocol than HTTP.
func (c *Client) upgrade(ctx context.Context, path string, q url.Values, protocol string) (io.ReadWriteCloser, error) {
	header := http.Header{"Connection": {"Upgrade"}, "Upgrade": {protocol}}
	resp, err := c.open(ctx, http.MethodGet, path, q, header, nil)
	if err != nil {
		return nil, err
	}
	conn, ok := resp.Body.(io.ReadWriteCloser)
	if resp.StatusCode != http.StatusSwitchingProtocols || !ok {
		resp.Body.Close()
		return nil, fmt.Errorf("%s: the other side does not speak %s (HTTP status %d)", path, protocol, resp.StatusCode)
	}
	return conn, nil
}

// attach upgrades to package wire's framing and carries stdio until the command's exit.
func (c *Client) attach(ctx context.Context, path string, command control.Command, stdio control.Stdio) (int, error) {
	q := url.Values{}
	if err := wire.SetCommand(q, command); err != nil {
		return 0, err
	}
	conn, err := c.upgrade(ctx, path, q, wire.Protocol)
	if err != nil {
		return 0, err
	}
	exit, err := wire.Attach(ctx, wire.NewConn(conn, nil), stdio)
	if err == nil && exit.Error != "" {
		err = errors.New(exit.Error)
	}
	return exit.Code, err
}
