package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/polyplane/polyplane/model"
)

// bounds are what one caller may have of the manager at a time; zero bounds nothing.
type bounds struct {
	Requests int   // under way
	Streams  int   // open: exec, console, capture, logs, check, watches
	Body     int64 // bytes of a request
}

// bounds are what a caller may have: a user as much as the quota of the name says, but for what follows from the role.
func (g *guard) bounds(c Caller) bounds {
	q := g.gate.Allowed(c.Name)
	b := bounds{Requests: q.Requests, Streams: q.Streams}
	switch {
	case c.Node.Name != "":
		return bounds{Requests: nodeRequests, Streams: nodeStreams, Body: nodeBody}
	case c.Role == model.RoleAdmin:
		b.Requests, b.Streams, b.Body = adminTimes*b.Requests, adminTimes*b.Streams, maxBody
	case c.Role == model.RoleOwner:
		// Stored as JSON it is escaped, and contains more than one document.
		b.Body = min(maxBody, 2*int64(q.Stored)+1<<20)
	default:
		b.Body = 64 << 10
	}
	return b
}

const (
	// adminTimes is how many times as much as an owner an administrator on another machine may have under way.
	adminTimes = 4
	// A node has one watch of its desired state, and a request or two under way. A report of 20,000 elements has some
	// 24 MB.
	nodeRequests = 8
	nodeStreams  = 3
	nodeBody     = 32 << 20
)

const (
	// waitingTimes is how many requests may wait, as a multiple of those that may be under way.
	waitingTimes = 8
	// waitingMost is how long one waits at most.
	waitingMost = 30 * time.Second
	// One in changesOf requests under way may be one that changes something, since those are the ones that cost work.
	changesOf = 4
	// refusedWait delays the refusal of a caller that has too much under way: one that asks again at once costs work,
	// too.
	refusedWait = time.Second
	// A body of largeBody bytes or more counts as large. Each user may have one large body under way at a time, and all
	// users together largeAtOnce. That bounds the memory for bodies and for what is decoded of them.
	largeBody   = 1 << 20
	largeAtOnce = 3
	// maxStreams is how many streams all users together may have.
	maxStreams = 4096
	// A part of a body must come every bodyIdle. All of it must come within bodyStart, and the time that it takes at
	// bodyRate.
	bodyIdle  = 10 * time.Second
	bodyStart = 15 * time.Second
	bodyRate  = 256 << 10 // bytes a second
)

// places are what callers have under way. Root on this machine needs none.
type places struct {
	mu      sync.Mutex       // guards callers and streams
	callers map[string]*held // by the caller's name; a caller without anything under way has no entry
	streams int              // of all callers
	large   chan struct{}    // a token in it for each large body under way
}

// held is what one caller has.
type held struct {
	requests, changes, large room
	streams                  map[*stay]struct{} // those that are open
}

// stay is an open stream.
type stay struct{ kind, object string }

// room is for so many at a time; others wait in their order.
type room struct {
	in      int
	waiting []chan struct{}
}

func newPlaces() *places {
	return &places{callers: map[string]*held{}, large: make(chan struct{}, largeAtOnce)}
}

// who is a caller in words; empty for root on this machine, and for those who did not say.
func (c Caller) who() string {
	switch {
	case c.Node.Name != "":
		return "node " + c.Name
	case c.Name != "":
		return "user " + c.Name
	}
	return ""
}

// streamOf tells what kind of stream a request asks for; empty where it is answered and over.
func streamOf(pattern string, r *http.Request) string {
	switch {
	case pattern == "GET /v1/dump" && r.URL.Query().Get("watch") == "true":
		return "watch"
	case pattern == "GET /v1/events" && r.URL.Query().Get("follow") == "true":
		return "events"
	case pattern == "GET /v1/nodes/{node}/desired":
		return "desired"
	case pattern == putImage, pattern == "GET /v1/nodes/{node}/images/{image}", pattern == "GET /v1/trees/{tree}":
		return "image" // it takes long, and no memory
	}
	switch kind := pattern[strings.LastIndexByte(pattern, '/')+1:]; kind {
	case "exec", "console", "capture", "logs", "check":
		return kind
	}
	return ""
}

// enter takes a place for a request, waiting for one where that may come; leave gives it back.
func (p *places) enter(c Caller, b bounds, kind string, r *http.Request) (leave func(), err error) {
	who := c.who()
	if who == "" {
		return func() {}, nil
	}
	if kind != "" {
		return p.open(who, c, b, kind, objectOf(r))
	}
	ctx, cancel := context.WithTimeout(r.Context(), waitingMost)
	defer cancel()
	if err := p.wait(ctx, who, b.Requests, func(h *held) *room { return &h.requests }, "requests"); err != nil {
		return nil, err
	}
	leave = func() { p.leave(who, func(h *held) *room { return &h.requests }) }
	if r.Method != http.MethodGet && b.Requests > 0 {
		first := leave
		of := func(h *held) *room { return &h.changes }
		if err := p.wait(ctx, who, (b.Requests+changesOf-1)/changesOf, of,
			"requests that change something"); err != nil {
			first()
			return nil, err
		}
		leave = func() { p.leave(who, of); first() }
	}
	if r.ContentLength >= 0 && r.ContentLength <= largeBody {
		return leave, nil
	}
	if err := p.wait(ctx, who, 1, func(h *held) *room { return &h.large }, "large requests"); err != nil {
		leave()
		return nil, err
	}
	small := leave
	leave = func() { p.leave(who, func(h *held) *room { return &h.large }); small() }
	select {
	case p.large <- struct{}{}:
	case <-ctx.Done():
		leave()
		return nil, tooMany("the manager is at work on %d large requests of other users; try again in a moment",
			largeAtOnce)
	}
	both := leave
	return func() { <-p.large; both() }, nil
}

// tooMany says that a caller has too much under way.
func tooMany(format string, args ...any) *Problem {
	return &Problem{Kind: KindTooMany, Detail: fmt.Sprintf(format, args...)}
}

func (p *places) of(who string) *held {
	h := p.callers[who]
	if h == nil {
		h = &held{streams: map[*stay]struct{}{}}
		p.callers[who] = h
	}
	return h
}

// idle forgets a caller who has nothing. The lock is held.
func (p *places) idle(who string) {
	if h := p.callers[who]; h != nil && h.requests.in+h.changes.in+h.large.in+len(h.streams)+len(h.requests.waiting)+
		len(h.changes.waiting)+len(h.large.waiting) == 0 {
		delete(p.callers, who)
	}
}

// wait takes a place in a caller's room, or waits for one until ctx ends. Only so many may wait: each takes memory.
func (p *places) wait(ctx context.Context, who string, most int, of func(*held) *room, what string) error {
	p.mu.Lock()
	h := p.of(who)
	room := of(h)
	if most <= 0 || room.in < most {
		room.in++
		p.mu.Unlock()
		return nil
	}
	if len(room.waiting) >= waitingTimes*most {
		waiting := len(room.waiting)
		p.mu.Unlock()
		return tooMany("%s has %d %s under way, which is as many as it may have at a time, and %d more wait; wait "+
			"for some of them", who, most, what, waiting)
	}
	mine := make(chan struct{})
	room.waiting = append(room.waiting, mine)
	p.mu.Unlock()
	select {
	case <-mine:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-mine: // meanwhile
		p.pass(who, room)
	default:
		room.waiting = slices.DeleteFunc(room.waiting, func(c chan struct{}) bool { return c == mine })
		p.idle(who)
	}
	return tooMany("%s has %d %s under way, which is as many as it may have at a time, and none of them ended within "+
		"%v", who, most, what, waitingMost)
}

func (p *places) leave(who string, of func(*held) *room) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pass(who, of(p.of(who)))
}

// pass hands a place to the next who waits. The lock is held.
func (p *places) pass(who string, room *room) {
	if len(room.waiting) > 0 {
		close(room.waiting[0])
		room.waiting = room.waiting[1:]
		return
	}
	room.in--
	p.idle(who)
}

// open counts a stream, or refuses it and says which there are.
func (p *places) open(who string, c Caller, b bounds, kind, object string) (leave func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.of(who)
	if b.Streams > 0 && len(h.streams) >= b.Streams {
		hint := ""
		if c.Node.Name == "" {
			hint = fmt.Sprintf(", or have an administrator allow more: polyplane quota owner/%s streams=%d",
				c.Name, 2*b.Streams)
		}
		return nil, tooMany("%s has %d streams open, which is as many as it may have: %s; end one of them%s", who,
			len(h.streams), h.words(), hint)
	}
	if p.streams >= maxStreams {
		p.idle(who)
		return nil, &Problem{Kind: KindUnavailable,
			Detail: fmt.Sprintf("all users together have %d streams open, which is as many as there may be; try "+
				"again later", maxStreams)}
	}
	s := &stay{kind, object}
	h.streams[s] = struct{}{}
	p.streams++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(h.streams, s)
		p.streams--
		p.idle(who)
	}, nil
}

// words are a caller's streams, by their kinds.
func (h *held) words() string {
	kinds := map[string][]string{}
	for s := range h.streams {
		kinds[s.kind] = append(kinds[s.kind], s.object)
	}
	var all []string
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		objects := kinds[kind]
		slices.Sort(objects)
		objects = slices.DeleteFunc(slices.Compact(objects), func(o string) bool { return o == "" })
		words := fmt.Sprintf("%d %s", len(kinds[kind]), kind)
		switch n := len(objects); {
		case n > 4:
			words += fmt.Sprintf(" (%s and %d more)", strings.Join(objects[:4], ", "), n-4)
		case n > 0:
			words += " (" + strings.Join(objects, ", ") + ")"
		}
		all = append(all, words)
	}
	return strings.Join(all, ", ")
}

// objectOf is what a request is about.
func objectOf(r *http.Request) string {
	network, element := r.PathValue("network"), r.PathValue("element")
	if element != "" {
		return model.Shorten(network+"/"+element, 2*model.MaxName)
	}
	return model.Shorten(network, model.MaxName)
}

// pacedBody is a body that must go on coming.
type pacedBody struct {
	io.ReadCloser
	w   http.ResponseWriter
	rc  *http.ResponseController
	end time.Time
}

// paceBody bounds a request's body, and the time that it may take.
func paceBody(w http.ResponseWriter, r *http.Request, most int64) {
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	length := r.ContentLength
	if length < 0 {
		length = most
	}
	r.Body = http.MaxBytesReader(w, &pacedBody{r.Body, w, http.NewResponseController(w),
		time.Now().Add(bodyStart + time.Duration(length/bodyRate)*time.Second)}, most)
}

func (b *pacedBody) Read(p []byte) (int, error) {
	end := time.Now().Add(bodyIdle)
	if b.end.Before(end) {
		end = b.end
	}
	_ = b.rc.SetReadDeadline(end) // tests' recorders have none
	n, err := b.ReadCloser.Read(p)
	switch {
	case err == nil:
	case errors.Is(err, io.EOF): // what waits for the sender to go must not take it for that
		_ = b.rc.SetReadDeadline(time.Time{})
	default: // net/http would wait for the rest before it answers, and for ever
		b.w.Header().Set("Connection", "close")
		_ = b.rc.SetReadDeadline(time.Now().Add(refusedBody))
	}
	return n, err
}

// pacedWriter is an answer that must go on being taken.
type pacedWriter struct {
	http.ResponseWriter
	rc    *http.ResponseController
	taken bool // the connection was taken over
}

// writeAtOnce is how much is written under one deadline, in bytes: who takes that much in writeTimeout is there.
const writeAtOnce = 256 << 10

func paceWriter(w http.ResponseWriter) *pacedWriter {
	return &pacedWriter{ResponseWriter: w, rc: http.NewResponseController(w)}
}

// Unwrap lets http.ResponseController find the connection's own abilities.
func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// rearm gives the reader its time anew.
func (w *pacedWriter) rearm() {
	if !w.taken {
		_ = w.rc.SetWriteDeadline(time.Now().Add(writeTimeout)) // tests' recorders have none
	}
}

func (w *pacedWriter) WriteHeader(code int) {
	w.rearm()
	w.ResponseWriter.WriteHeader(code)
}

func (w *pacedWriter) Write(b []byte) (int, error) {
	n := 0
	for {
		w.rearm()
		k, err := w.ResponseWriter.Write(b[:min(len(b), writeAtOnce)])
		n += k
		if b = b[k:]; err != nil || len(b) == 0 {
			return n, err
		}
	}
}

// FlushError is http.ResponseController's.
func (w *pacedWriter) FlushError() error {
	w.rearm()
	return w.rc.Flush()
}

// Hijack is http.Hijacker's; from then on the connection is somebody else's.
func (w *pacedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, b, err := w.rc.Hijack()
	w.taken = w.taken || err == nil
	return conn, b, err
}
