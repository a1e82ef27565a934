package api

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/trust"
)

// Caller is who asks.
type Caller struct {
	// Name is the user's or the node's; empty for root on this machine and for those who did not say.
	Name string
	// As is who root on this machine says to be; empty where it says nothing. Names tells that networks are to be
	// called by their owners and titles, as people do, and not by their keys. An owner is never told keys.
	As    string
	Names bool
	// Role is a user's; root of this machine is an admin.
	Role model.Role
	// Node is the node's that asks with its certificate; zero for users.
	Node trust.Node
	// Alive ends when the caller's token or membership does, and what was asked for with it; nil never ends.
	Alive context.Context
}

// owner tells whether the caller sees its own networks only.
func (c Caller) owner() bool { return c.Role == model.RoleOwner }

// need is what a route asks of its caller.
type need int

const (
	nothing     need = iota // anybody may, also who is not known
	anyUser                 // any user; what an owner sees is narrowed to the own networks
	allSeeing               // users who see everything: admins, viewers
	seeNetwork              // users who see everything, and the owner of {network}
	useNetwork              // admins, and the owner of {network}
	takeFiles               // likewise, but the owner not those of an element that an administrator has cut off
	makeNetwork             // admins and owners; the manager looks at whose the networks, and the files, are
	admin                   // admins
	localNode               // the node {node} itself: by its certificate, or on this machine
	joinedNode              // the node {node} itself, by its certificate
	nodeOrUser              // the node {node} itself, or any user
)

// needs says for every route what it asks of its caller: this is the one place where that is decided. A route that is
// not here answers nobody.
var needs = map[string]need{
	"GET /openapi.json": nothing, "GET /openapi.yaml": nothing, "GET /openapi-3.0.json": nothing,
	"GET /openapi-3.0.yaml": nothing,
	"GET /v1/authority":     nothing, // a certificate is public
	"POST /v1/join":         nothing, // the token in it is looked at
	"/":                     nothing, // there is no such thing

	"GET /v1/ping":            anyUser,
	"GET /v1/whoami":          anyUser,
	"GET /v1/substrate":       anyUser,
	"GET /v1/substrate/links": anyUser,
	"GET /v1/nodes":           anyUser,
	"POST /v1/what-if":        anyUser, // it changes nothing
	"GET /v1/networks":        anyUser,
	"GET /v1/names":           anyUser,
	"GET /v1/elements":        anyUser,
	"GET /v1/links":           anyUser,
	"GET /v1/dump":            anyUser,
	"GET /v1/events":          anyUser,
	"GET /v1/quotas":          anyUser,
	"GET /v1/policies":        anyUser,
	"GET /v1/images":          anyUser,
	"GET /v1/moves":           anyUser,
	"GET /v1/trees/{tree}":    anyUser, // the manager looks at whose they are
	"GET /metrics":            allSeeing,

	"GET /v1/networks/{network}":                             seeNetwork,
	"GET /v1/networks/{network}/elements/{element}/logs":     seeNetwork,
	"GET /v1/networks/{network}/elements/{element}/running":  seeNetwork,
	"GET /v1/networks/{network}/elements/{element}/tree":     seeNetwork,
	"GET /v1/networks/{network}/elements/{element}/files":    takeFiles,
	"PUT /v1/networks/{network}/elements/{element}/files":    useNetwork,
	"POST /v1/networks/{network}/keep":                       useNetwork,
	"POST /v1/networks/{network}/elements/{element}/fib":     seeNetwork,
	"POST /v1/networks/{network}/elements/{element}/trace":   seeNetwork,
	"POST /v1/networks/{network}/elements/{element}/disk":    useNetwork,
	"PATCH /v1/networks/{network}":                           useNetwork,
	"DELETE /v1/networks/{network}":                          useNetwork,
	"POST /v1/networks/{network}/check":                      useNetwork,
	"POST /v1/networks/{network}/faults":                     useNetwork,
	"POST /v1/networks/{network}/elements/{element}/actions": useNetwork,
	"POST /v1/networks/{network}/elements/{element}/move":    useNetwork,
	"GET /v1/networks/{network}/elements/{element}/exec":     useNetwork,
	"GET /v1/networks/{network}/elements/{element}/console":  useNetwork,
	"GET /v1/networks/{network}/elements/{element}/capture":  useNetwork,
	putNetwork:                  makeNetwork,
	"PUT /v1/networks":          makeNetwork,
	putImage:                    makeNetwork,
	"DELETE /v1/images/{image}": makeNetwork, // the manager looks at whose they are

	"POST /v1/networks/{network}/forget":  admin,
	"PATCH /v1/networks/{network}/policy": admin,
	"POST /v1/recover":                    admin,

	"GET /v1/backup":                 admin,
	"GET /v1/trash":                  anyUser,
	"POST /v1/trash/restore":         makeNetwork,
	"POST /v1/trash/empty":           admin,
	"PATCH /v1/quotas/{kind}/{name}": admin,
	"GET /v1/tokens":                 admin,
	"POST /v1/tokens":                admin,
	"DELETE /v1/tokens/{id}":         admin,
	"DELETE /v1/nodes/{node}":        admin,

	"POST /v1/nodes/{node}/register":  localNode,
	"GET /v1/nodes/{node}/desired":    localNode,
	"POST /v1/nodes/{node}/report":    localNode,
	"POST /v1/nodes/{node}/measures":  localNode,
	"POST /v1/nodes/{node}/beat":      localNode,
	"POST /v1/nodes/{node}/discovery": localNode,
	"POST /v1/nodes/{node}/renew":     joinedNode,

	"GET /v1/nodes/{node}/images/{image}": localNode,
	"GET /v1/nodes/{node}/tunnel":         joinedNode,
	"GET /v1/nodes/{node}":                nodeOrUser,
}

// guard is a router that lets nobody through who may not.
type guard struct {
	mux      *http.ServeMux
	gate     Gate
	failures *failures
	places   *places
	patterns []string // of all routes
}

func newGuard(gate Gate) *guard {
	return &guard{mux: http.NewServeMux(), gate: gate, failures: newFailures(time.Now), places: newPlaces()}
}

// HandleFunc adds a route.
func (g *guard) HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request)) {
	g.patterns = append(g.patterns, pattern)
	asked, known := needs[pattern]
	g.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if !known {
			writeProblem(w, Forbidden("%s is nobody's to ask for", pattern))
			return
		}
		caller, err := g.caller(r, asked == nothing)
		if err == nil && caller.Role != "" {
			var as string
			if as, caller.Names = naming(r); r.TLS == nil {
				caller.As = as
			}
			r = r.Clone(r.Context()) // its path and its query get keys
			err = g.resolve(caller, pattern, r)
		}
		if err == nil {
			err = g.permit(asked, caller, r)
		}
		ctx := context.WithValue(r.Context(), callerKey{}, caller)
		ctx = context.WithValue(ctx, wordsKey{}, func(text string) string { return g.names(caller).Told(text) })
		if err != nil {
			noBody(w, r)
			writeProblem(w, inWords(ctx, err))
			return
		}
		switch {
		case asked != nothing:
			if w, err = g.admit(w, r, caller, pattern); err != nil {
				noBody(w, r)
				writeProblem(w, err)
				return
			}
		case r.Method != http.MethodPost: // of what anybody may ask for only joining takes a body
			noBody(w, r)
		}
		if asked != nothing {
			var leave func()
			if leave, err = g.places.enter(caller, g.bounds(caller), streamOf(pattern, r), r); err != nil {
				select {
				case <-time.After(refusedWait):
				case <-r.Context().Done():
				}
				noBody(w, r)
				writeProblem(w, inWords(ctx, err))
				return
			}
			defer leave()
		}
		if caller.Alive != nil {
			var end func()
			ctx, end = join(ctx, caller.Alive)
			defer end()
		}
		if paced, ok := w.(*pacedWriter); ok {
			defer paced.rearm() // what is still to be sent
		}
		handler(w, r.WithContext(ctx))
	})
}

// admit bounds a known caller's request: how much it brings, how long that takes, and how long the answer may wait to
// be taken. Root on this machine is only bounded by the routes themselves.
func (g *guard) admit(w http.ResponseWriter, r *http.Request, c Caller, pattern string) (http.ResponseWriter, error) {
	untilThen(w, r, time.Time{})
	if r.TLS == nil {
		return w, nil
	}
	paced := paceWriter(w)
	if r.Body == nil || r.Body == http.NoBody {
		return paced, nil
	}
	most := g.bounds(c).Body
	if pattern == putImage {
		most = maxImage
	}
	switch {
	case r.ContentLength < 0:
		return paced, &Problem{Kind: kindNoLength,
			Detail: "the request does not say how long its body is (Content-Length)"}
	case r.ContentLength > most:
		return paced, &Problem{Kind: kindTooLarge,
			Detail: fmt.Sprintf("the request has %d bytes; %s may send %d at a time", r.ContentLength, c.who(), most)}
	}
	paceBody(paced, r, most)
	return paced, nil
}

// join has a context end with another one, too. Whoever calls it calls end when the context is no longer needed.
func join(ctx, other context.Context) (joined context.Context, end func()) {
	joined, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(other, cancel)
	return joined, func() { stop(); cancel() }
}

// ServeHTTP answers one request.
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	untilThen(w, r, time.Now().Add(strangersBody))
	g.mux.ServeHTTP(w, r)
}

const (
	// strangersBody is how long a request's body may take while it is not known whether its sender may make the
	// request.
	strangersBody = 30 * time.Second
	// refusedBody is how long a body that nobody reads may still come after the answer. If the connection were closed
	// at once, the sender would see a reset, and not the answer.
	refusedBody = 2 * time.Second
)

// untilThen is how long the rest of a request may take to come; zero is for ever. Root's may always.
func untilThen(w http.ResponseWriter, r *http.Request, then time.Time) {
	if r.TLS != nil && r.Body != http.NoBody {
		_ = http.NewResponseController(w).SetReadDeadline(then) // tests' recorders have none
	}
}

// noBody is for requests whose body nobody will read: net/http would wait for it, for ever, before it answers and
// before it lets go of the connection. Nor does the answer wait for ever to be taken.
func noBody(w http.ResponseWriter, r *http.Request) {
	if r.TLS == nil {
		return
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)) // likewise
	if r.Body != http.NoBody {
		w.Header().Set("Connection", "close")
		untilThen(w, r, time.Now().Add(refusedBody))
	}
}

type callerKey struct{}

// callerOf is who made a request that was let through.
func callerOf(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}

// unixKey marks connections by the Unix socket, which only root can open.
type unixKey struct{}

// markUnix is for http.Server.ConnContext.
func markUnix(ctx context.Context, c net.Conn) context.Context {
	if _, ok := c.(*net.UnixConn); ok {
		return context.WithValue(ctx, unixKey{}, true)
	}
	return ctx
}

// caller finds out who asks. anybody tells that it does not matter.
func (g *guard) caller(r *http.Request, anybody bool) (Caller, error) {
	if r.TLS == nil {
		if r.Context().Value(unixKey{}) == true {
			return Caller{Role: model.RoleAdmin}, nil
		}
		return Caller{}, Unauthorized("this connection is neither the instance's socket nor TLS")
	}
	if len(r.TLS.VerifiedChains) > 0 {
		certificate := r.TLS.VerifiedChains[0][0]
		node, ok := trust.NodeOf(certificate)
		switch {
		case !ok:
			return Caller{}, Unauthorized("the certificate is no node's")
		case time.Now().After(certificate.NotAfter): // the connection is older than that
			return Caller{}, Unauthorized("the certificate of node %s has expired", node.Name)
		}
		return g.gate.Member(node)
	}
	if anybody {
		return Caller{}, nil
	}
	text, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return Caller{}, Unauthorized("who are you? A user's token is needed (`polyplane login`), or a node's " +
			"certificate")
	}
	var caller Caller
	err := g.failures.try(hostOf(r.RemoteAddr), func() error {
		token, err := trust.ParseToken(text)
		if err != nil {
			return Unauthorized("%v", err)
		}
		caller, err = g.gate.User(token)
		return err
	})
	return caller, err
}

// permit tells why a caller may not do what a route does.
func (g *guard) permit(asked need, c Caller, r *http.Request) error {
	node := r.PathValue("node")
	local := c.Role == model.RoleAdmin && r.TLS == nil
	switch asked {
	case nothing:
		return nil
	case localNode, joinedNode, nodeOrUser:
		switch {
		case c.Node.Name != "" && c.Node.Name == node, asked == localNode && local, asked == nodeOrUser && c.Role != "":
			return nil
		case c.Node.Name != "":
			return Forbidden("node %s may not act as node %s", c.Name, node)
		}
		return Forbidden("this is for the agent of node %s", node)
	}
	if c.Role == "" {
		return Forbidden("nodes may not ask for this: it is for users")
	}
	if asked == anyUser || c.Role == model.RoleAdmin {
		return nil
	}
	if sees := asked == allSeeing || asked == seeNetwork; c.Role == model.RoleViewer && sees {
		return nil
	}
	if c.owner() {
		switch asked {
		case makeNetwork:
			return nil
		case seeNetwork, useNetwork:
			return g.owns(c, r.PathValue("network"))
		case takeFiles:
			id := model.ID{Network: r.PathValue("network"), Element: r.PathValue("element")}
			if err := g.owns(c, id.Network); err != nil {
				return err
			}
			if g.gate.CutOff(id) {
				return Forbidden("an administrator has put %s into quarantine: its files stay in it until an "+
					"administrator releases it", id)
			}
			return nil
		}
	}
	return Forbidden("user %s is %s and may not do this", c.Name, article(c.Role))
}

// article is the role with its article.
func article(r model.Role) string {
	if slices.Contains([]byte("aeiou"), r[0]) {
		return "an " + string(r)
	}
	return "a " + string(r)
}

// owns tells why a network is not the caller's. Of others' networks an owner does not learn that there are any.
func (g *guard) owns(c Caller, network string) error {
	if _, ok := g.gate.Owned(c.Name)[network]; !ok {
		return NotFound("user %s has no network %s", c.Name, network)
	}
	return nil
}

// hostOf is an address without its port.
func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}
