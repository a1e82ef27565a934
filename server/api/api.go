// Package api serves polyplane's HTTP API: JSON, described by OpenAPI 3.1 at /openapi.json, errors as problem details
// (RFC 9457), streams as newline-delimited JSON.
package api

//go:generate sh -c "go run ../../scripts/openapi | python3 ../../python/tools/generate.py ../../python/polyplane/_types.py"

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/polyplane/polyplane/wire/decoding"
)

// maxBody bounds a request's body, in bytes: the largest network, with all the configuration that it may have.
const maxBody = 64 << 20

// maxBodyOfSeveral bounds that of networks that root on this machine applies together.
const maxBodyOfSeveral = 4 * maxBody

// Server answers the API's requests out of what it is given.
type Server struct {
	networks Networks
	moves    Moves
	views    Views
	agents   Agents
	settings Settings
	gate     Gate
	tokens   Tokens
	members  Members
	data     Data
	images   Images
	proxy    *proxy
	guard    *guard
	handler  http.Handler
}

var setErrors sync.Once

// New returns a server of the API.
func New(services Services) *Server {
	setErrors.Do(func() { huma.NewError = newError })
	s := &Server{networks: services.Networks, moves: services.Moves, views: services.Views, agents: services.Agents,
		settings: services.Settings,
		gate:     services.Gate, tokens: services.Tokens, members: services.Members, data: services.Data,
		images: services.Images,
		proxy:  newProxy(services.Agents)}
	s.guard = newGuard(services.Gate)
	c := config()
	c.Transformers = append(c.Transformers, s.tell)
	api := humago.New(s.guard, c)
	s.userRoutes(api)
	s.settingRoutes(api)
	s.moveRoutes(api)
	s.watchRoutes(api)
	s.agentRoutes(api)
	s.streamRoutes(api)
	s.tokenRoutes(api)
	s.memberRoutes(api)
	s.dataRoutes(api)
	s.imageRoutes(api)
	if services.Metrics != nil {
		s.guard.HandleFunc("GET /metrics", services.Metrics.ServeHTTP)
	}
	s.guard.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeProblem(w, NotFound("there is no %s; /openapi.json describes what there is", r.URL.Path))
	})
	s.handler = s.guard
	return s
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Close lets go of the connections to agents.
func (s *Server) Close() { s.proxy.close() }

// Version is the API's, in the OpenAPI document and the paths.
const Version = "v1"

func config() huma.Config {
	c := huma.DefaultConfig("polyplane", Version)
	c.Info.Description = "Many virtual networks on one substrate. Requests of root go over the instance's Unix " +
		"socket, all others over TLS with a token or a node's certificate."
	c.DocsPath = ""     // the document is served, a viewer from somewhere else's servers is not
	c.SchemasPath = ""  // the schemas are in the document
	c.CreateHooks = nil // no "$schema" in every answer
	c.OpenAPIPath = "/openapi"
	format := huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: decodeStrictly}
	c.Formats = map[string]huma.Format{"application/json": format, "json": format}
	c.RejectUnknownQueryParameters = true
	return c
}

// decodeStrictly refuses fields that are not known: what a request says and we would not do must not pass silently.
func decodeStrictly(data []byte, v any) error {
	if err := decoding.Check(data, reflect.TypeOf(v).Elem()); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return decodeWords(err)
	}
	return nil
}

// operation describes a route. Bodies are checked by the strict decoder and by the model's own validation, which has
// better words than a schema; the schema would cost a second decoding.
func operation(id, method, path, summary string, tags ...string) huma.Operation {
	return huma.Operation{OperationID: id, Method: method, Path: "/" + Version + path, Summary: summary, Tags: tags,
		SkipValidateBody: true, MaxBodyBytes: maxBody, BodyReadTimeout: -1}
}

// body wraps an answer.
type body[T any] struct{ Body T }

// reply registers an operation that answers with what f makes of a request.
func reply[In, Out any](api huma.API, op huma.Operation, f func(context.Context, *In) (Out, error)) {
	huma.Register(api, op, func(ctx context.Context, in *In) (*body[Out], error) {
		out, err := f(ctx, in)
		return &body[Out]{out}, statusError(err)
	})
}

// obey registers an operation that answers with nothing but that it was done.
func obey[In any](api huma.API, op huma.Operation, f func(context.Context, *In) error) {
	huma.Register(api, op, func(ctx context.Context, in *In) (*struct{}, error) { return nil, statusError(f(ctx, in)) })
}
