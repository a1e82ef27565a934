package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/wire"
	"github.com/polyplane/polyplane/wire/socket"
)

// elements holds which elements the node has and which driver made each of them, for the API.
type elements struct {
	mu    sync.RWMutex // guards known: the API must not wait for the loop
	known map[model.ID]model.Control
}

func (e *elements) set(outcomes map[model.ID]*outcome) {
	known := make(map[model.ID]model.Control, len(outcomes))
	for id, o := range outcomes {
		if known[id] = o.job.Element.Control; known[id] == "" {
			known[id] = model.ControlNetns
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.known = known
}

// driver returns the control driver of an element, as T.
func driver[T any](a *Agent, id model.ID, ability string) (T, error) {
	var none T
	a.elements.mu.RLock()
	name, ok := a.elements.known[id]
	a.elements.mu.RUnlock()
	if !ok {
		return none, &httpError{http.StatusNotFound, fmt.Sprintf("there is no element %s on node %s", id, a.Dirs.Node)}
	}
	d, ok := a.Drivers.Controls[name].(T)
	if !ok {
		return none, &httpError{http.StatusNotImplemented,
			fmt.Sprintf("element %s: control %q cannot %s", id, name, ability)}
	}
	return d, nil
}

func (a *Agent) enter(id model.ID, f func() error) error {
	d, err := driver[control.Enterer](a, id, "open sockets inside elements")
	if err != nil {
		return err
	}
	return d.Enter(id, f)
}

// httpError is an error with its HTTP status.
type httpError struct {
	status int
	detail string
}

func (e *httpError) Error() string { return e.detail }

// refuse answers with a problem detail (RFC 9457).
func refuse(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	if h, ok := errors.AsType[*httpError](err); ok {
		status = h.status
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(struct { //nolint:errcheck // whoever has gone does not read it
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{http.StatusText(status), status, err.Error()})
}

// serve answers on the agent's socket until the context ends.
func (a *Agent) serve(ctx context.Context) error {
	path := a.Dirs.AgentSocket()
	// A node has one agent, and whoever starts it makes sure of that. So a socket that is there was left by an earlier
	// life.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	l, err := socket.Listen(ctx, path)
	if err != nil {
		return fmt.Errorf("node %s: serve the agent's API: %w", a.Dirs.Node, err)
	}
	s := &http.Server{Handler: a.handler(), ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("node %s: serve the agent's API: %w", a.Dirs.Node, err)
	}
	return nil
}

// handler is the agent's API: the manager's paths for what happens inside elements, and the probes.
func (a *Agent) handler() http.Handler {
	m := http.NewServeMux()
	const element = "/v1/networks/{network}/elements/{element}"
	handle := func(pattern string, h func(w http.ResponseWriter, r *http.Request) error) {
		m.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := h(w, r); err != nil {
				refuse(w, err)
			}
		})
	}
	handle("GET "+element+"/exec", a.exec)
	handle("GET "+element+"/console", a.console)
	handle("GET "+element+"/logs", a.logs)
	handle("GET "+element+"/capture", a.capture)
	handle("GET "+element+"/running", a.running)
	handle("GET "+element+"/files", a.packFiles)
	handle("PUT "+element+"/files", a.unpackFiles)
	handle("GET /v1/watch", a.lookedAt)
	handle("GET "+element+"/tree", a.tree)
	handle("POST "+element+"/fib", a.fib)
	handle("POST "+element+"/trace", a.trace)
	handle("GET /v1/pulse", a.tellPulse)
	handle("POST /v1/responders", a.openResponders)
	handle("POST /v1/probes", a.runProbes)
	handle("POST /v1/looks", a.lookInside)
	handle("GET /v1/kept", a.kept)
	handle("POST "+element+"/disk", a.renewDisk)
	handle("GET "+element+"/departure", a.departure)
	handle("PUT "+element+"/arrival", a.arrival)
	handle("GET /v1/trash", a.listTrash)
	handle("POST /v1/trash/restore", a.restoreTrash)
	handle("POST /v1/trash/empty", a.emptyTrash)
	return m
}

func idOf(r *http.Request) model.ID {
	return model.ID{Network: r.PathValue("network"), Element: r.PathValue("element")}
}

func (a *Agent) exec(w http.ResponseWriter, r *http.Request) error {
	command, err := wire.CommandOf(r.URL.Query())
	if err == nil && len(command.Args) == 0 {
		err = errors.New("there is no command to run")
	}
	if err != nil {
		return &httpError{http.StatusBadRequest, err.Error()}
	}
	d, err := driver[control.Executor](a, idOf(r), "run commands")
	if err != nil {
		return err
	}
	a.attach(w, r, d, command)
	return nil
}

func (a *Agent) console(w http.ResponseWriter, r *http.Request) error {
	command, err := wire.CommandOf(r.URL.Query())
	if err != nil {
		return &httpError{http.StatusBadRequest, err.Error()}
	}
	d, err := driver[control.Executor](a, idOf(r), "open consoles")
	if err != nil {
		return err
	}
	if command.Args, err = d.Console(idOf(r)); err != nil {
		return err
	}
	command.TTY = true
	a.attach(w, r, d, command)
	return nil
}

// attach runs the command behind the request's upgraded connection.
func (a *Agent) attach(w http.ResponseWriter, r *http.Request, d control.Executor, command control.Command) {
	c, err := wire.Accept(w, r)
	if err != nil {
		return // answered
	}
	// Once the connection has been taken over, the context of the request ends only with the server.
	wire.Serve(r.Context(), c, command.TTY, func(ctx context.Context, stdio control.Stdio) (int, error) {
		return d.Exec(ctx, idOf(r), command, stdio)
	})
}

// flushing passes everything on at once.
type flushing struct {
	w http.ResponseWriter
	c *http.ResponseController
	// begun tells whether the head of the answer has been sent. After that an error can no longer be told.
	begun bool
}

func (f *flushing) Write(p []byte) (int, error) {
	f.begun = true
	n, err := f.w.Write(p)
	if err == nil {
		err = f.c.Flush()
	}
	return n, err
}

func (a *Agent) logs(w http.ResponseWriter, r *http.Request) error {
	d, err := driver[control.Executor](a, idOf(r), "keep logs")
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	f := &flushing{w: w, c: http.NewResponseController(w)}
	follow := r.URL.Query().Get("follow") == "true"
	if follow {
		f.c.Flush() //nolint:errcheck // the first write tells
	}
	if err := d.Logs(r.Context(), idOf(r), follow, f); err != nil && !f.begun && !follow {
		return err
	}
	return nil
}

func (a *Agent) capture(w http.ResponseWriter, r *http.Request) error {
	id := idOf(r)
	if _, err := driver[control.Driver](a, id, ""); err != nil {
		return err
	}
	if r.URL.Query().Get("kept") == "true" {
		return a.evidence(w, r)
	}
	port := model.PortID{ID: id, Interface: r.URL.Query().Get("interface")}
	snaplen := 0 // all of each frame
	if text := r.URL.Query().Get("snaplen"); text != "" {
		var err error
		if snaplen, err = strconv.Atoi(text); err != nil {
			return &httpError{http.StatusBadRequest, fmt.Sprintf("snaplen %q is not a number of bytes", text)}
		}
	}
	stream, err := a.Drivers.Fabric.Capture(r.Context(), port, snaplen)
	if err != nil {
		return err
	}
	defer stream.Close()
	w.Header().Set("Content-Type", "application/x-pcapng")
	f := &flushing{w: w, c: http.NewResponseController(w)}
	f.c.Flush()        //nolint:errcheck // the first write tells
	io.Copy(f, stream) //nolint:errcheck // ends with the reader or the capture
	return nil
}

// running tells what an element is by now. It works beside the loop, which does not wait for it.
func (a *Agent) running(w http.ResponseWriter, r *http.Request) error {
	d, err := driver[control.Teller](a, idOf(r), "tell what was written inside elements")
	if err != nil {
		return err
	}
	running, err := d.Running(r.Context(), idOf(r))
	if err != nil {
		return err
	}
	return answer(w, running)
}

// packedWithin bounds how long an element's files are sent. While they are, nothing else is done with an element that
// does not run.
const packedWithin = 5 * time.Minute

// packFiles sends an element's own files. What breaks off in the middle lacks the end of a tree.
func (a *Agent) packFiles(w http.ResponseWriter, r *http.Request) error {
	d, err := driver[control.Carrier](a, idOf(r), "take files along")
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/x-tar")
	f := &flushing{w: w, c: http.NewResponseController(w)}
	if err := f.c.SetWriteDeadline(time.Now().Add(packedWithin)); err != nil {
		return err
	}
	if err := d.Pack(r.Context(), idOf(r), f); err != nil {
		if f.begun {
			panic(http.ErrAbortHandler) // the reader must not take it for the whole
		}
		return err
	}
	return nil
}

// unpackFiles writes files into an element.
func (a *Agent) unpackFiles(w http.ResponseWriter, r *http.Request) error {
	d, err := driver[control.Carrier](a, idOf(r), "take files along")
	if err != nil {
		return err
	}
	if err := d.Unpack(r.Context(), idOf(r), r.Body); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// maxRequest is the largest request body, in bytes. Ten thousand probes take a fifth of it.
const maxRequest = 16 << 20

func decode(r *http.Request, v any) error {
	d := json.NewDecoder(io.LimitReader(r.Body, maxRequest))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return &httpError{http.StatusBadRequest, "the request's body: " + err.Error()}
	}
	return nil
}

func answer(w http.ResponseWriter, v any) error {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v) //nolint:errcheck // whoever has gone does not read it
	return nil
}

// tellPulse answers whoever keeps this process running: is the loop still going round?
func (a *Agent) tellPulse(w http.ResponseWriter, _ *http.Request) error {
	return answer(w, a.pulse.beat())
}

func (a *Agent) openResponders(w http.ResponseWriter, r *http.Request) error {
	var request model.RespondersRequest
	if err := decode(r, &request); err != nil {
		return err
	}
	return answer(w, a.probes.open(request))
}

func (a *Agent) runProbes(w http.ResponseWriter, r *http.Request) error {
	var request model.ProbesRequest
	if err := decode(r, &request); err != nil {
		return err
	}
	return answer(w, runProbes(r.Context(), request, a.enter))
}

// lookInside answers what the routing of elements, or the spanning tree of switches, knows.
func (a *Agent) lookInside(w http.ResponseWriter, r *http.Request) error {
	var request model.LooksRequest
	if err := decode(r, &request); err != nil {
		return err
	}
	result := model.LooksResult{Answers: make([]model.LookAnswer, len(request.Looks))}
	of := map[control.Looker][]int{}
	for i := range request.Looks {
		if look := &request.Looks[i]; look.OfSwitch() {
			tree, err := a.treeOf(look.Element)
			if err != nil {
				result.Answers[i].Error = err.Error()
				continue
			}
			result.Answers[i] = tree.Answer(look)
			continue
		}
		d, err := driver[control.Looker](a, request.Looks[i].Element, "be asked about their routing")
		if err != nil {
			result.Answers[i].Error = err.Error()
			continue
		}
		of[d] = append(of[d], i)
	}
	for d, which := range of {
		looks := each.Of(which, func(i int) model.Look { return request.Looks[i] })
		for k, x := range d.Look(r.Context(), looks) {
			result.Answers[which[k]] = x
		}
	}
	return answer(w, result)
}
