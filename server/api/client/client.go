// Package client speaks to a running polyplane: over its Unix socket, or over TLS from another machine.
package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"strings"
	"syscall"
	"time"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/wire/decoding"
)

// Client speaks to the manager of one instance. It may be used by several goroutines at once.
type Client struct {
	http   *http.Client
	socket string
	name   string
	// remote is set where the manager is reached over TLS.
	remote *remote
	// lock is the instance's: who holds it starts a manager that has ended again. patience is how long that is waited
	// for.
	lock     string
	patience time.Duration
	// as is who root on the manager's machine says to be; names tells that networks are called as people call them.
	as    string
	names bool
	// most bounds answers that are no streams, in bytes, and what decoding them may take; zero bounds nothing.
	most int64
	// tell is told what changes wait for, when that takes so long.
	tell      func(what string)
	tellAfter time.Duration
}

// maxAgentAnswer is how long an agent's answer may be, in bytes: what a node was told to have may be as long.
const maxAgentAnswer = 64 << 20

// New returns a client of the instance. It connects when it is first used.
func New(dirs instance.Dirs) *Client {
	c := NewSocket(dirs.ManagerSocket(), dirs.Name)
	c.lock = dirs.Lock()
	return c
}

// Patient makes the client wait so long for a manager that is being started again, and returns it.
func (c *Client) Patient(patience time.Duration) *Client {
	c.patience = patience
	return c
}

// Naming makes the client call networks as people call them, by the title if they are their own, else OWNER/TITLE, and
// returns it. as is who root on the manager's machine is; others' tokens say that. Without this, answers have the
// networks' keys, but for owners.
func (c *Client) Naming(as string) *Client {
	c.as, c.names = as, true
	return c
}

// NewAgent returns a client of an agent, reached by dial; name is what errors call it.
func NewAgent(dial func(context.Context) (net.Conn, error), name string) *Client {
	c := NewSocket("", name)
	transport := c.http.Transport.(*http.Transport)
	transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }
	// It may be another program, on a machine of somebody else's.
	transport.MaxResponseHeaderBytes = 64 << 10
	c.most = maxAgentAnswer
	return c
}

// NewSocket returns a client of whatever serves the API on the socket; name is what errors call it.
func NewSocket(socket, name string) *Client {
	transport := &http.Transport{
		ExpectContinueTimeout: expectTimeout,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
		DisableCompression: true, // a Unix socket is faster than gzip
		IdleConnTimeout:    30 * time.Second,
	}
	return &Client{http: &http.Client{Transport: transport}, socket: socket, name: name}
}

// expectTimeout is how long a large body waits for a word of the manager that it wants it.
const expectTimeout = 10 * time.Second

// Close lets go of idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// NotRunningError tells that nobody serves the instance's API.
type NotRunningError struct {
	Instance string
	// Restarting tells that the instance's processes are kept running all the same.
	Restarting bool
	cause      error
}

func (e *NotRunningError) Error() string {
	if e.Restarting {
		return fmt.Sprintf("polyplane '%s' does not answer: its manager is starting, or being started again; try "+
			"again in a moment", e.Instance)
	}
	return fmt.Sprintf("polyplane '%s' is not running: start it with `%s`", e.Instance,
		instance.Command(e.Instance, "up"))
}

func (e *NotRunningError) Unwrap() error { return e.cause }

// brokenError tells that whoever served the instance's API ended before it had answered.
type brokenError struct {
	instance string
	cause    error
}

func (e *brokenError) Error() string {
	return fmt.Sprintf("the connection to polyplane '%s' broke off: %v", e.instance, e.cause)
}

func (e *brokenError) Unwrap() error { return e.cause }

// Error is a refusal by the manager or an agent: a problem detail (RFC 9457).
type Error struct {
	Status  int    // HTTP status
	Detail  string // what is wrong, in words
	Reasons []Reason
}

// Reason is one of a refusal's.
type Reason struct {
	Message string
	// Problems are what of which document is wrong, if it is about documents.
	Problems []model.Problem
}

func (e *Error) Error() string {
	switch len(e.Reasons) {
	case 0:
		return e.Detail
	case 1:
		return e.Detail + ": " + e.Reasons[0].Message
	}
	var b strings.Builder
	for _, r := range e.Reasons {
		b.WriteString("\n  " + r.Message)
	}
	return e.Detail + ":" + b.String()
}

// IsNotFound tells whether the error says that the object does not exist.
func IsNotFound(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Status == http.StatusNotFound
}

// Denied tells that whoever asks may not, or is not known.
func (e *Error) Denied() bool {
	return e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden
}

// IsDenied tells whether the error says that whoever asks may not.
func IsDenied(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Denied()
}

// problem is a problem detail as the API writes it.
type problem struct {
	Title  string `json:"title"`
	Detail string `json:"detail"`
	Errors []struct {
		Message  string          `json:"message"`
		Location string          `json:"location"`
		Problems []model.Problem `json:"problems"`
	} `json:"errors"`
}

// path joins escaped segments: path("networks", "a/b") is /v1/networks/a%2Fb.
func path(segments ...string) string {
	var b strings.Builder
	b.WriteString("/v1")
	for _, s := range segments {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(s))
	}
	return b.String()
}

// open sends a request and returns the answer once its head is there and says that all is well.
func (c *Client) open(ctx context.Context, method, path string, query url.Values, header http.Header,
	in any) (*http.Response, error) {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return nil, fmt.Errorf("%s %s: encode the request: %w", method, path, err)
		}
	}
	// A command inside an element, or a console, begins with GET and an upgrade: it must not be begun twice.
	question := method == http.MethodGet && header.Get("Upgrade") == ""
	deadline := time.Now().Add(c.patience)
	if c.tell != nil && method != http.MethodGet {
		defer c.tellWaits(ctx)()
	}
	for {
		resp, err := c.try(ctx, method, path, query, header, body)
		// Nothing was sent, or nothing that changes anything: the same request may be made again.
		var down *NotRunningError
		var broken *brokenError
		if !errors.As(err, &down) && !(question && errors.As(err, &broken)) || !c.kept() {
			return resp, err
		}
		if down != nil {
			down.Restarting = true
		}
		if !time.Now().Before(deadline) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// kept tells whether a process keeps the instance running, by its lock, which names it.
func (c *Client) kept() bool {
	b, err := os.ReadFile(c.lock)
	var holder struct {
		PID  int    `json:"pid"`
		What string `json:"what"`
	}
	if err != nil || json.Unmarshal(b, &holder) != nil || holder.What != "up" || holder.PID <= 0 {
		return false
	}
	err = syscall.Kill(holder.PID, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

// try is open once.
func (c *Client) try(ctx context.Context, method, path string, query url.Values, header http.Header,
	body []byte) (*http.Response, error) {
	if body != nil && header.Get("Content-Type") == "" {
		header = maps.Clone(header)
		if header == nil {
			header = http.Header{}
		}
		header.Set("Content-Type", "application/json")
	}
	return c.send(ctx, method, path, query, header, bytes.NewReader(body), int64(len(body)))
}

// send sends a request with a body of this size.
func (c *Client) send(ctx context.Context, method, path string, query url.Values, header http.Header,
	body io.Reader, size int64) (*http.Response, error) {
	target := "http://polyplane" + path
	if c.remote != nil {
		target = "https://" + c.remote.server + path
	}
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if req.ContentLength = size; size == 0 {
		req.Body = http.NoBody
	}
	if c.remote != nil && c.remote.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.remote.token)
	}
	if c.names {
		req.Header.Set(model.NamesHeader, c.as)
	}
	for k, v := range header {
		req.Header[k] = v
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.explain(err)
	}
	if resp.StatusCode >= 400 {
		defer resp.Body.Close()
		return nil, decodeProblem(resp)
	}
	return resp, nil
}

// do sends a request and decodes the answer into out, unless that is nil.
func (c *Client) do(ctx context.Context, method, path string, query url.Values, in, out any) error {
	return c.within(ctx, method, path, query, in, out, c.most)
}

// ask is do for an answer of a type.
func ask[T any](ctx context.Context, c *Client, method, path string, query url.Values, in any) (out T, err error) {
	err = c.do(ctx, method, path, query, in, &out)
	return out, err
}

// within is do, for an answer of so many bytes at most that may come from a program of somebody else's. Zero bounds
// nothing.
func (c *Client) within(ctx context.Context, method, path string, query url.Values, in, out any, most int64) error {
	resp, err := c.open(ctx, method, path, query, nil, in)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		return c.explain(err)
	}
	if most > 0 {
		err = decodeWithin(resp.Body, out, most)
	} else {
		err = json.NewDecoder(resp.Body).Decode(out)
	}
	if err != nil {
		return fmt.Errorf("%s %s: the answer: %w", method, path, c.explain(err))
	}
	return nil
}

// decodeWithin decodes an answer that is not longer, and does not become longer, than it can be.
func decodeWithin(from io.Reader, out any, most int64) error {
	b, err := io.ReadAll(io.LimitReader(from, most+1))
	switch {
	case err != nil:
		return err
	case int64(len(b)) > most:
		return fmt.Errorf("it has more than %d bytes", most)
	}
	if err := decoding.Check(b, reflect.TypeOf(out).Elem()); err != nil {
		return err
	}
	return json.Unmarshal(b, out)
}

// explain turns the errors of a missing or dead manager into words.
func (c *Client) explain(err error) error {
	var op *net.OpError
	switch {
	case err == nil:
		return nil
	case c.remote != nil:
		return c.explainRemote(err)
	case errors.As(err, &op) && op.Op == "dial" &&
		(errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)):
		return &NotRunningError{Instance: c.name, cause: err}
	case errors.As(err, &op) && op.Op == "dial" && errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("polyplane '%s' does not let this user in (%s): run the command as root", c.name, c.socket)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET),
		errors.Is(err, syscall.EPIPE):
		return &brokenError{c.name, err}
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err // "Get http://polyplane/v1/…" tells people nothing
	}
	return err
}

func decodeProblem(resp *http.Response) error {
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	var p problem
	if json.Unmarshal(b, &p) != nil || p.Detail == "" && p.Title == "" {
		text := strings.TrimSpace(string(b))
		if text == "" {
			text = http.StatusText(resp.StatusCode)
		}
		return &Error{Status: resp.StatusCode, Detail: text}
	}
	e := &Error{Status: resp.StatusCode, Detail: p.Detail}
	e.Detail = cmp.Or(e.Detail, p.Title)
	for _, d := range p.Errors {
		if d.Location != "" {
			d.Message = d.Location + ": " + d.Message
		}
		e.Reasons = append(e.Reasons, Reason{d.Message, d.Problems})
	}
	return e
}
