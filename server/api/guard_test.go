package api

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/trust"
)

// Every route of the API has its line in the table, and every line its route.
func TestEveryRouteHasARule(t *testing.T) {
	s := New(Services{Metrics: http.NotFoundHandler()})
	defer s.Close()
	for _, pattern := range s.guard.patterns {
		if _, ok := needs[pattern]; !ok {
			t.Errorf("%s has no rule, and so answers nobody: say in the table who may ask for it", pattern)
		}
	}
	for pattern := range needs {
		if !slices.Contains(s.guard.patterns, pattern) {
			t.Errorf("there is a rule for %s, and no such route", pattern)
		}
	}
	w := httptest.NewRecorder()
	stray := newGuard(gate{})
	stray.HandleFunc("GET /v1/stray",
		func(http.ResponseWriter, *http.Request) { t.Error("a route without a rule answers") })
	stray.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/stray",
		nil).WithContext(context.WithValue(t.Context(), unixKey{}, true)))
	if w.Code != http.StatusForbidden {
		t.Errorf("root gets %d of a route without a rule", w.Code)
	}
}

// gate knows a user of each role, whose secret is their role's name, and the node n1.
type gate struct{}

func (gate) Allowed(string) model.Quota { return model.Quota{Requests: 16, Streams: 16} }

func (gate) User(token trust.Token) (Caller, error) {
	for _, r := range model.Roles {
		if strings.HasPrefix(token.Secret, string(r)) {
			return Caller{Name: "user", Role: r}, nil
		}
	}
	return Caller{}, Unauthorized("unknown")
}

func (gate) Host(trust.Token) error { return Unauthorized("unknown") }

func (gate) Member(node trust.Node) (Caller, error) {
	if node.Membership != "current" {
		return Caller{}, Unauthorized("no member")
	}
	return Caller{Name: node.Name, Node: node}, nil
}

func (gate) CutOff(id model.ID) bool { return id.Element == "cut" }

func (gate) Names(owner string) (all []model.NetworkName) {
	for _, is := range []model.NetworkName{{Key: "own", Owner: "user", Title: "own"}, {Key: "theirs", Owner: "other",
		Title: "theirs"}} {
		if owner == "" || is.Owner == owner {
			all = append(all, is)
		}
	}
	return all
}

func (gate) Left(string) []model.NetworkName { return nil }

func (gate) Owned(owner string) map[string]time.Time {
	if owner != "user" {
		return nil
	}
	return map[string]time.Time{"own": {}}
}

// as makes a request that of a caller.
func as(r *http.Request, caller string) *http.Request {
	r.RemoteAddr = "192.0.2.7:1234"
	r.TLS = &tls.ConnectionState{}
	bearer := func(secret string) {
		token := trust.NewToken(trust.Pin{})
		token.Secret = secret + strings.Repeat("a", len(token.Secret)-len(secret))
		r.Header.Set("Authorization", "Bearer "+token.String())
	}
	certified := func(name, unit, membership string, until time.Time) {
		c := &x509.Certificate{Subject: pkix.Name{CommonName: name, OrganizationalUnit: []string{unit},
			SerialNumber: membership}, NotAfter: until}
		r.TLS.PeerCertificates, r.TLS.VerifiedChains = []*x509.Certificate{c}, [][]*x509.Certificate{{c}}
	}
	later := time.Now().Add(time.Hour)
	switch caller {
	case "root":
		r.TLS = nil
		return r.WithContext(context.WithValue(r.Context(), unixKey{}, true))
	case "plaintext":
		r.TLS = nil
		bearer("admin")
	case "nobody":
	case "stranger":
		bearer("stranger")
	case "admin", "owner", "viewer":
		bearer(caller)
	case "n1", "n2":
		certified(caller, "polyplane node", "current", later)
	case "n1 of before":
		certified("n1", "polyplane node", "former", later)
	case "n1 expired":
		certified("n1", "polyplane node", "current", time.Now().Add(-time.Second))
	case "n1 as admin": // a node that has got hold of a token is a node
		certified("n1", "polyplane node", "current", later)
		bearer("admin")
	case "manager's certificate":
		certified("n1", "", "current", later)
	}
	return r
}

// who may ask for what, written down a second time: {network} is the owner's own, "other" means that of somebody else;
// {node} is n1.
const whoMay = `
GET /openapi.json                                          everybody
GET /openapi.yaml                                          everybody
GET /openapi-3.0.json                                      everybody
GET /openapi-3.0.yaml                                      everybody
GET /v1/authority                                          everybody
POST /v1/join                                              everybody
/                                                          everybody
GET /v1/ping                                               root admin owner viewer
GET /v1/whoami                                             root admin owner viewer
GET /v1/substrate                                          root admin owner viewer
GET /v1/substrate/links                                    root admin owner viewer
GET /v1/nodes                                              root admin owner viewer
GET /v1/networks                                           root admin owner viewer
GET /v1/names                                              root admin owner viewer
GET /v1/elements                                           root admin owner viewer
GET /v1/links                                              root admin owner viewer
GET /v1/dump                                               root admin owner viewer
GET /v1/events                                             root admin owner viewer
GET /v1/quotas                                             root admin owner viewer
GET /metrics                                               root admin viewer
GET /v1/networks/{network}                                 root admin owner viewer
GET /v1/networks/other                                     root admin viewer
GET /v1/networks/{network}/elements/{element}/logs         root admin owner viewer
GET /v1/networks/{network}/elements/{element}/running      root admin owner viewer
GET /v1/networks/{network}/elements/{element}/tree         root admin owner viewer
GET /v1/networks/{network}/elements/{element}/files        root admin owner
GET /v1/networks/{network}/elements/cut/files              root admin
PUT /v1/networks/{network}/elements/{element}/files        root admin owner
POST /v1/networks/{network}/keep                           root admin owner
POST /v1/networks/{network}/elements/{element}/fib         root admin owner viewer
POST /v1/networks/{network}/elements/{element}/trace       root admin owner viewer
POST /v1/networks/{network}/elements/{element}/disk        root admin owner
GET /v1/trash                                              root admin owner viewer
POST /v1/trash/restore                                     root admin owner
POST /v1/trash/empty                                       root admin
GET /v1/networks/other/elements/{element}/logs             root admin viewer
PATCH /v1/networks/{network}                               root admin owner
PATCH /v1/networks/other                                   root admin
DELETE /v1/networks/{network}                              root admin owner
DELETE /v1/networks/other                                  root admin
POST /v1/networks/{network}/check                          root admin owner
POST /v1/networks/other/check                              root admin
POST /v1/networks/{network}/faults                         root admin owner
POST /v1/networks/other/faults                             root admin
POST /v1/networks/{network}/elements/{element}/move        root admin owner
POST /v1/networks/other/elements/{element}/move            root admin
POST /v1/networks/{network}/elements/{element}/actions     root admin owner
POST /v1/networks/other/elements/{element}/actions         root admin
GET /v1/networks/{network}/elements/{element}/exec         root admin owner
GET /v1/networks/other/elements/{element}/exec             root admin
GET /v1/networks/other%2Felements/elements/x/exec          root admin
GET /v1/networks/{network}/elements/{element}/console      root admin owner
GET /v1/networks/other/elements/{element}/console          root admin
GET /v1/networks/{network}/elements/{element}/capture      root admin owner
GET /v1/networks/other/elements/{element}/capture          root admin
PUT /v1/networks/{network}                                 root admin owner
PUT /v1/networks                                           root admin owner
POST /v1/networks/{network}/forget                          root admin
POST /v1/recover                                           root admin
POST /v1/what-if                                           root admin owner viewer
GET /v1/backup                                             root admin
PATCH /v1/quotas/{kind}/{name}                             root admin
PATCH /v1/networks/{network}/policy                        root admin
GET /v1/moves                                              root admin owner viewer
GET /v1/policies                                           root admin owner viewer
GET /v1/tokens                                             root admin
POST /v1/tokens                                            root admin
DELETE /v1/tokens/{id}                                     root admin
DELETE /v1/nodes/{node}                                    root admin
POST /v1/nodes/{node}/register                             root n1
GET /v1/nodes/{node}/desired                               root n1
POST /v1/nodes/{node}/report                               root n1
POST /v1/nodes/{node}/measures                             root n1
POST /v1/nodes/{node}/beat                                 root n1
POST /v1/nodes/{node}/discovery                            root n1
POST /v1/nodes/{node}/renew                                n1
GET /v1/nodes/{node}/tunnel                                n1
GET /v1/nodes/{node}                                       root admin owner viewer n1
GET /v1/images                                             root admin owner viewer
GET /v1/trees/{tree}                                       root admin owner viewer
PUT /v1/images/{image}                                     root admin owner
DELETE /v1/images/{image}                                  root admin owner
GET /v1/nodes/{node}/images/{image}                        root n1
`

func TestWhoMay(t *testing.T) {
	g := newGuard(gate{})
	g.failures = newFailures(func() time.Time { return time.Time{} })
	for pattern := range needs {
		g.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(299) })
	}
	callers := []string{"root", "plaintext", "nobody", "stranger", "admin", "owner", "viewer", "n1", "n2",
		"n1 of before", "n1 expired",
		"n1 as admin", "manager's certificate"}
	asked := map[string]bool{}
	for line := range strings.Lines(strings.TrimSpace(whoMay)) {
		words := strings.Fields(line)
		method, path := http.MethodGet, words[0]
		if words[0] != "/" {
			method, path, words = words[0], words[1], words[1:]
			asked[method+" "+path] = true
		} else {
			asked[path], path = true, "/nonsense"
		}
		path = strings.NewReplacer("{network}", "own", "{element}", "r1", "{node}", "n1", "{kind}", "owner", "{name}",
			"x", "{id}", "y").Replace(path)
		for _, caller := range callers {
			clear(g.failures.hosts)
			w := httptest.NewRecorder()
			g.ServeHTTP(w, as(httptest.NewRequest(method, path, nil), caller))
			want := slices.Contains(words[1:], caller) || caller == "n1 as admin" && slices.Contains(words[1:], "n1")
			if words[1] == "everybody" {
				want = !slices.Contains([]string{"plaintext", "n1 of before", "n1 expired", "manager's certificate"},
					caller)
			}
			if got := w.Code == 299; got != want {
				t.Errorf("%s %s by %s: let through %v, want %v (%d %s)", method, path, caller, got,
					want, w.Code, w.Body)
			}
		}
	}
	for pattern := range maps.Keys(needs) {
		if !asked[pattern] {
			t.Errorf("%s is not in this test's list", pattern)
		}
	}
}

// What has been asked for ends with the token that it was asked with.
func TestRequestsEndWithTheirToken(t *testing.T) {
	alive, end := context.WithCancel(t.Context())
	g := newGuard(mortal{alive: alive})
	begun, over := make(chan struct{}), make(chan struct{})
	g.HandleFunc("GET /v1/events", func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
		close(over)
	})
	served := make(chan struct{})
	go func() {
		defer close(served)
		g.ServeHTTP(httptest.NewRecorder(), as(httptest.NewRequest(http.MethodGet, "/v1/events", nil), "admin"))
	}()
	<-begun
	end()
	<-over
	<-served
}

// mortal is a gate whose users' tokens end.
type mortal struct {
	gate
	alive context.Context
}

func (m mortal) User(trust.Token) (Caller, error) {
	return Caller{Name: "user", Role: model.RoleAdmin, Alive: m.alive}, nil
}

func TestWrongTokensAreCounted(t *testing.T) {
	now := time.Unix(1e9, 0)
	g := newGuard(gate{})
	g.failures = newFailures(func() time.Time { return now })
	g.HandleFunc("GET /v1/ping", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(299) })
	ask := func(caller, from string) int {
		w := httptest.NewRecorder()
		r := as(httptest.NewRequest(http.MethodGet, "/v1/ping", nil), caller)
		r.RemoteAddr = from
		g.ServeHTTP(w, r)
		return w.Code
	}
	for i := range maxFailures {
		if code := ask("stranger", fmt.Sprintf("[2001:db8::%x]:9", i)); code != http.StatusUnauthorized {
			t.Fatalf("wrong token %d: %d", i, code)
		}
	}
	if code := ask("admin", "[2001:db8::ffff]:9"); code != http.StatusTooManyRequests {
		t.Errorf("after %d wrong tokens from the same subnet: %d", maxFailures, code)
	}
	for _, other := range []string{"[2001:db8:0:1::1]:9", "192.0.2.1:9"} {
		if code := ask("admin", other); code != 299 {
			t.Errorf("another host pays for it: %d", code)
		}
	}
	now = now.Add(failuresWithin)
	if code := ask("admin", "[2001:db8::ffff]:9"); code != 299 {
		t.Errorf("a minute later: %d", code)
	}
	var looked atomic.Int32
	var wg sync.WaitGroup
	for range 10 * maxFailures { // all at once
		wg.Go(func() {
			g.failures.try("192.0.2.2", func() error { //nolint:errcheck // it is
				looked.Add(1)
				runtime.Gosched()
				return errors.New("wrong")
			})
		})
	}
	if wg.Wait(); looked.Load() != maxFailures {
		t.Errorf("of many wrong tokens at once %d are looked at", looked.Load())
	}
	for i := range 2 * maxFailing {
		g.failures.try(fmt.Sprintf("10.%d.%d.1", i>>8, i&255), func() error { return errors.New("wrong") }) //nolint:errcheck // it is
	}
	if n := len(g.failures.hosts); n > maxFailing {
		t.Errorf("%d hosts are remembered", n)
	}
}
