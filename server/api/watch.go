package api

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/polyplane/polyplane/model"
)

// dumpPause is the least time between two lines of a watched dump: changes in quick succession come as one.
const dumpPause = 500 * time.Millisecond

// writeTimeout ends a stream whose reader takes nothing for so long.
const writeTimeout = time.Minute

type dumpInput struct {
	OfNetwork
	Watch bool `query:"watch" doc:"a stream of model DumpUpdate, one JSON value a line, whenever something has changed"`
}

type eventsInput struct {
	Since  int64 `query:"since" doc:"only events after this sequence number"`
	Follow bool  `query:"follow" doc:"go on with later ones"`
}

// everything is all that Dump can tell.
var everything = Parts{Networks: true, Nodes: true, Elements: true, Links: true}

func (s *Server) watchRoutes(api huma.API) {
	dump := streaming[model.DumpUpdate](api, operation("dump", http.MethodGet, "/dump",
		"Everything the manager knows, once or (watch) as a stream", "instance"))
	dump.Responses["200"].Content["application/json"] = &huma.MediaType{Schema: schemaOf[model.Dump](api)}
	huma.Register(api, dump,
		func(ctx context.Context, in *dumpInput) (*huma.StreamResponse, error) {
			if !in.Watch {
				d, err := s.dump(ctx, in.Network, everything)
				if err != nil {
					return nil, statusError(err)
				}
				told := s.told(ctx, d)
				return &huma.StreamResponse{Body: func(c huma.Context) {
					c.SetHeader("Content-Type", "application/json")
					_ = json.NewEncoder(c.BodyWriter()).Encode(told) // the reader may have gone
				}}, nil
			}
			if _, err := s.dump(ctx, in.Network, Parts{}); err != nil {
				return nil, statusError(err)
			}
			return stream(func(l *lines) { s.watchDump(in.Network, l) }), nil
		})
	huma.Register(api, streaming[model.EventUpdate](api, operation("events", http.MethodGet, "/events",
		"What has happened, as a stream", "instance")),
		func(_ context.Context, in *eventsInput) (*huma.StreamResponse, error) {
			return stream(func(l *lines) { s.watchEvents(in.Since, in.Follow, l) }), nil
		})
}

func (s *Server) watchDump(network string, l *lines) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	<-pause.C
	for {
		changed := s.views.Changed()
		d, err := s.dump(l.ctx, network, everything)
		if err != nil {
			return // the network has gone
		}
		if told, ok := s.told(l.ctx, d).(model.Dump); !ok || !l.value(model.DumpUpdate{Dump: &told}) ||
			!l.wait(changed) {
			return
		}
		pause.Reset(dumpPause)
		select {
		case <-pause.C:
		case <-l.ctx.Done():
			return
		}
	}
}

func (s *Server) watchEvents(since int64, follow bool, l *lines) {
	for {
		events, more := s.views.Events(since)
		sees, names := s.sees(l.ctx), s.namesOf(l.ctx)
		for i := range events {
			if since = events[i].Seq; !sees(&events[i]) {
				continue
			}
			told := tellEvent(names, &events[i])
			if !l.buffer(model.EventUpdate{Event: &told}) {
				return
			}
		}
		if !l.flush() || !follow || !l.wait(more) {
			return
		}
	}
}

// streaming documents an operation that answers with lines of JSON, each a T.
func streaming[T any](api huma.API, op huma.Operation) huma.Operation {
	op.Responses = map[string]*huma.Response{"200": {Description: "newline-delimited JSON; the schema is that of " +
		"each line", Content: map[string]*huma.MediaType{"application/x-ndjson": {Schema: schemaOf[T](api)}}}}
	return op
}

func schemaOf[T any](api huma.API) *huma.Schema {
	t := reflect.TypeFor[T]()
	return api.OpenAPI().Components.Schemas.Schema(t, true, t.Name())
}

// stream answers with what f writes.
func stream(f func(*lines)) *huma.StreamResponse {
	return &huma.StreamResponse{Body: func(c huma.Context) {
		c.SetHeader("Content-Type", "application/x-ndjson")
		c.SetHeader("Cache-Control", "no-store")
		w, ok := c.BodyWriter().(http.ResponseWriter)
		if !ok {
			return // humago's is one
		}
		l := &lines{ctx: c.Context(), w: w, rc: http.NewResponseController(w)}
		w.WriteHeader(http.StatusOK)
		if l.flush() {
			f(l)
		}
		if l.ctx.Err() != nil {
			// Cut off, so that the reader knows that this was not all.
			panic(http.ErrAbortHandler)
		}
	}}
}

// lines writes one JSON value a line. Its methods return false when the reader has gone or takes nothing.
type lines struct {
	ctx context.Context
	w   http.ResponseWriter
	rc  *http.ResponseController
}

// buffer writes a line that may stay here until flush.
func (l *lines) buffer(v any) bool {
	return l.rc.SetWriteDeadline(time.Now().Add(writeTimeout)) == nil && json.NewEncoder(l.w).Encode(v) == nil
}

func (l *lines) value(v any) bool { return l.buffer(v) && l.flush() }

// raw writes a line that is already encoded.
func (l *lines) raw(pieces [][]byte) bool {
	for _, p := range pieces {
		if l.rc.SetWriteDeadline(time.Now().Add(writeTimeout)) != nil {
			return false
		}
		if _, err := l.w.Write(p); err != nil {
			return false
		}
	}
	return l.flush()
}

func (l *lines) flush() bool {
	return l.rc.SetWriteDeadline(time.Now().Add(writeTimeout)) == nil && l.rc.Flush() == nil
}

// wait waits for the channel to be closed and keeps the stream alive meanwhile.
func (l *lines) wait(changed <-chan struct{}) bool {
	tick := time.Tick(model.KeepAlive)
	for {
		select {
		case <-changed:
			return true
		case <-l.ctx.Done():
			return false
		case <-tick:
			if !l.value(struct{}{}) {
				return false
			}
		}
	}
}
