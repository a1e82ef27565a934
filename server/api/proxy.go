package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/polyplane/polyplane/model"
)

// streamRoutes hands streams into an element to the agent of the element's node, with the same path.
func (s *Server) streamRoutes(api huma.API) {
	for _, d := range []struct{ name, summary, media string }{
		{"exec", `Run a command in an element: upgrade to "polyplane-stream"`, ""},
		{"console", `Open an element's console: upgrade to "polyplane-stream"`, ""},
		{"logs", "What an element's processes printed", "text/plain"},
		{"capture", "What passes an interface, both ways, as pcapng", "application/x-pcapng"},
		{"disk", "Give an element a new disk when it is started next; the one that it has goes to the trash", ""},
		{"running", "What an element is by now: its software's configuration, files that were changed inside", ""},
		{"files", "The files of an element's own that were made or changed inside, as a tar of regular files",
			"application/x-tar"},
		{"put-files", "Write the files of such a tar into an element", ""},
		{"fib", "What the fast path knows of a router that it forwards for", ""},
		{"tree", "What a switch knows of its spanning tree", ""},
		{"trace", "What the fast path would do with a packet at a router", ""},
	} {
		method := http.MethodGet
		if d.name == "fib" || d.name == "trace" || d.name == "disk" {
			method = http.MethodPost
		}
		name := d.name
		if name == "put-files" {
			method, name = http.MethodPut, "files"
		}
		op := operation(d.name, method, "/networks/{network}/elements/{element}/"+name, d.summary, "elements")
		op.Parameters = []*huma.Param{
			{Name: "network", In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString}},
			{Name: "element", In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString}},
		}
		switch d.name {
		case "exec", "console":
			op.Parameters = append(op.Parameters, &huma.Param{Name: "command", In: "query",
				Schema:      &huma.Schema{Type: huma.TypeString},
				Description: `the command in JSON: {"args", "env", "tty", "size": {"rows", "cols"}}`})
			op.Responses = map[string]*huma.Response{"101": {Description: "frames both ways: one byte of type, four " +
				"bytes of length, the payload"}}
		case "running":
			answers[model.Running](api, &op)
		case "tree":
			answers[model.Tree](api, &op)
		case "put-files":
			op.RequestBody = &huma.RequestBody{Required: true,
				Content: map[string]*huma.MediaType{"application/x-tar": {}}}
			op.Responses = map[string]*huma.Response{"204": {Description: "No Content"}}
		case "disk":
			op.Responses = map[string]*huma.Response{"204": {Description: "No Content"}}
		case "fib":
			describe[model.FIBRequest, model.FIB](api, &op)
		case "trace":
			describe[model.TraceRequest, model.Trace](api, &op)
		case "logs":
			op.Parameters = append(op.Parameters, &huma.Param{Name: "follow", In: "query",
				Schema: &huma.Schema{Type: huma.TypeBoolean}})
		case "capture":
			op.Parameters = append(op.Parameters, &huma.Param{Name: "interface", In: "query", Required: true,
				Schema: &huma.Schema{Type: huma.TypeString}},
				&huma.Param{Name: "kept", In: "query", Schema: &huma.Schema{Type: huma.TypeBoolean},
					Description: "instead, what is kept of an element in quarantine: its last packets before, its " +
						"first after"},
				&huma.Param{Name: "snaplen", In: "query", Schema: &huma.Schema{Type: huma.TypeInteger},
					Description: "bytes of each frame; all when absent"})
		}
		if d.media != "" {
			op.Responses = map[string]*huma.Response{"200": {Description: "a stream",
				Content: map[string]*huma.MediaType{d.media: {}}}}
		}
		op.Responses["default"] = &huma.Response{Description: "Error", Content: map[string]*huma.MediaType{
			"application/problem+json": {Schema: schemaOf[ProblemDetail](api)}}}
		api.OpenAPI().AddOperation(&op)
		s.guard.HandleFunc(op.Method+" "+op.Path, s.proxy.ServeHTTP)
	}
}

// describe says what an operation takes and answers, both JSON.
func describe[In, Out any](api huma.API, op *huma.Operation) {
	op.RequestBody = &huma.RequestBody{Required: true,
		Content: map[string]*huma.MediaType{"application/json": {Schema: schemaOf[In](api)}}}
	answers[Out](api, op)
}

// answers says what an operation answers in JSON.
func answers[Out any](api huma.API, op *huma.Operation) {
	op.Responses = map[string]*huma.Response{"200": {Description: "OK",
		Content: map[string]*huma.MediaType{"application/json": {Schema: schemaOf[Out](api)}}}}
}

// reachedKey carries the connection to an agent to the transport.
type reachedKey struct{}

// proxy forwards requests, upgraded ones too, to agents.
type proxy struct {
	agents    Agents
	transport *http.Transport
	reverse   *httputil.ReverseProxy
}

// newProxy makes what passes requests on to agents. An agent is taken for a stranger's program: its answers are
// bounded.
func newProxy(agents Agents) *proxy {
	p := &proxy{agents: agents}
	p.transport = &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			to, _ := ctx.Value(reachedKey{}).(*reached)
			return to.take()
		},
		// An agent that was started anew listens on a new socket: no connection outlives its request.
		DisableKeepAlives:  true,
		DisableCompression: true,
		// Streams begin at once. An agent that hangs takes connections, since the kernel does.
		ResponseHeaderTimeout: 2 * model.LeaseTime,
		// An agent may be another program, on a machine of somebody else's.
		MaxResponseHeaderBytes: 64 << 10,
	}
	p.reverse = &httputil.ReverseProxy{
		Transport:     p.transport,
		FlushInterval: -1, // streams are for people who wait
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: "agent"})
			r.Out.Header.Del("Authorization") // a user's token is no node's business
		},
		ErrorLog: log.New(slogWriter{}, "", 0),
	}
	return p
}

func (p *proxy) close() { p.transport.CloseIdleConnections() }

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := model.ID{Network: r.PathValue("network"), Element: r.PathValue("element")}
	to, err := reachAgent(r.Context(), p.agents, id)
	if err != nil {
		writeProblem(w, inWords(r.Context(), err))
		return
	}
	defer to.leave()
	reverse := *p.reverse
	reverse.ModifyResponse = func(answer *http.Response) error {
		return plain(answer, path.Base(r.URL.Path), wordsOf(r.Context()))
	}
	reverse.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) {
		if errors.Is(err, context.Canceled) {
			return // the asker has gone
		}
		if strange, ok := errors.AsType[*strangeAnswer](err); ok {
			writeProblem(w, inWords(r.Context(), &Problem{Kind: kindStrange,
				Detail: fmt.Sprintf("%s: the agent of node %s gives %s", id, to.Node, strange.what)}))
			return
		}
		writeProblem(w, inWords(r.Context(), to.silent(id, err)))
	}
	ctx := context.WithValue(r.Context(), reachedKey{}, to)
	if Only(ctx) != "" {
		var end func()
		ctx, end = join(ctx, to.Alive)
		defer end()
	}
	reverse.ServeHTTP(w, r.WithContext(ctx))
}

// strangeAnswer is an answer that no agent of ours gives.
type strangeAnswer struct{ what string }

func (s *strangeAnswer) Error() string { return "it gives " + s.what }

// maxAgentAnswer bounds an agent's answer that is no stream, in bytes; maxAgentProblem its words where it refuses.
const (
	maxAgentAnswer  = 32 << 20
	maxAgentProblem = 64 << 10
)

// media are what agents answer with, by what is asked for.
var media = map[string]string{"logs": "text/plain; charset=utf-8", "capture": "application/x-pcapng",
	"fib": "application/json", "trace": "application/json", "running": "application/json",
	"tree":  "application/json",
	"files": "application/x-tar"}

// plain removes from an agent's answer what an agent has no business to send: cookies, redirections, other media types.
// The client's program would take them for the manager's.
func plain(answer *http.Response, kind string, said func(string) string) error {
	header := http.Header{"X-Content-Type-Options": {"nosniff"}, "Cache-Control": {"no-store"}}
	answer.Trailer = nil
	switch status := answer.StatusCode; {
	case status == http.StatusSwitchingProtocols && (kind == "exec" || kind == "console"):
		header = http.Header{"Connection": {"Upgrade"}, "Upgrade": answer.Header["Upgrade"]}
	case status == http.StatusOK && media[kind] != "":
		header.Set("Content-Type", media[kind])
		if answer.ContentLength >= 0 {
			header.Set("Content-Length", strconv.FormatInt(answer.ContentLength, 10))
		}
		switch media[kind] {
		case "application/json":
			answer.Body = &boundedBody{answer.Body, maxAgentAnswer}
		case "application/x-tar":
			answer.Body = &boundedBody{answer.Body, maxBody}
		}
	case status == http.StatusNoContent && (kind == "disk" || kind == "files"):
	case status >= 400 && status < 600 && status != http.StatusUnauthorized && status != http.StatusForbidden:
		words, err := io.ReadAll(io.LimitReader(answer.Body, maxAgentProblem))
		answer.Body.Close()
		var problem ProblemDetail
		if err != nil || json.Unmarshal(words, &problem) != nil {
			problem = ProblemDetail{Detail: model.Shorten(strings.ToValidUTF8(strings.TrimSpace(string(words)), ""),
				1000)}
		}
		problem.Detail = said(problem.Detail)
		problem.Status, problem.Title = status, http.StatusText(status)
		if words, err = json.Marshal(&problem); err != nil {
			return err
		}
		header.Set("Content-Type", "application/problem+json")
		header.Set("Content-Length", strconv.Itoa(len(words)))
		answer.Body, answer.ContentLength = io.NopCloser(bytes.NewReader(words)), int64(len(words))
	default:
		return &strangeAnswer{fmt.Sprintf("an answer that no agent gives (HTTP status %d)", status)}
	}
	answer.Header = header
	return nil
}

// boundedBody breaks off an answer that is too long.
type boundedBody struct {
	io.ReadCloser
	left int64
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, errors.New("the agent's answer is too long")
	}
	return n, err
}

// slogWriter makes the reverse proxy's complaints debug messages: a user who ends a stream is nothing to report.
type slogWriter struct{}

func (slogWriter) Write(b []byte) (int, error) {
	slog.Debug("proxy: " + string(b))
	return len(b), nil
}
