package api_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/polyplane/polyplane/image"
	"github.com/polyplane/polyplane/image/imagetest"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/trust"
)

// groups are words for several callers.
var groups = map[string][]string{
	"users": {"root", "admin", "viewer", "owner", "other"},
	"everybody": {"root", "nobody", "nonsense", "revoked", "expired", "host's token", "admin", "viewer", "owner", "other",
		"n1", "n2", "n1 as admin"},
}

// caller is somebody who asks.
type caller struct {
	name   string
	client *http.Client
	scheme string
	bearer string
	// strange tells that no request of it is even heard: the connection is refused.
	strange bool
}

func (c *caller) mayUse(who string) bool {
	for _, word := range strings.Fields(who) {
		if slices.Contains(groups[word], c.name) || word == c.name || word == "n1" && c.name == "n1 as admin" {
			return true
		}
	}
	return false
}

// everyone is a manager with all kinds of callers.
type everyone struct {
	*open
	callers []*caller
	asked   atomic.Int32 // requests that have reached the agent of n1
	image   string       // the ID of the owner's
}

// ownersNetwork is what the owner's network is called; it, and what begins so, nobody else learns of.
const ownersNetwork = "zebra"

// give has the owner give an image, and returns its ID.
func (e *everyone) give(t *testing.T, name string) string {
	t.Helper()
	layer := imagetest.Layer(t, imagetest.File{Name: "f", Content: name})
	saved := imagetest.Saved(t, "", imagetest.Config(t, model.ImageRun{Cmd: []string{"/f"}}, layer), layer)
	img, err := image.Open(imagetest.Write(t, "image", saved))
	if err != nil {
		t.Fatal(err)
	}
	defer img.Close()
	var content bytes.Buffer
	if err := img.Write(&content); err != nil {
		t.Fatal(err)
	}
	owner := e.user("owner", model.RoleOwner)
	if _, err := owner.PutImage(t.Context(), string(img.ID), name, int64(content.Len()), &content); err != nil {
		t.Fatal(err)
	}
	return string(img.ID)
}

// over returns a client that speaks TLS from an address of its own: too many wrong tokens are one address's.
func (e *everyone) over(t *testing.T, from byte, certificate *tls.Certificate) *http.Client {
	config := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}
	if certificate != nil {
		config.Certificates = []tls.Certificate{*certificate}
	}
	next := from
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: config,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			next++
			dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 7, from, next)}}
			return dialer.DialContext(ctx, network, address)
		}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func (e *everyone) add(c *caller) { e.callers = append(e.callers, c) }

// anotherAuthority is a certificate of n1's name, of an authority that is not the manager's.
func anotherAuthority(t *testing.T, membership string) *tls.Certificate {
	t.Helper()
	authority, err := trust.OpenAuthority(t.TempDir(), "test")
	if err != nil {
		t.Fatal(err)
	}
	key, err := trust.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	request, err := key.Request("n1")
	if err != nil {
		t.Fatal(err)
	}
	pem, err := authority.SignNode(request, trust.Node{Name: "n1", Membership: membership})
	if err != nil {
		t.Fatal(err)
	}
	identity, err := trust.SaveIdentity(t.TempDir(), key, pem)
	if err != nil {
		t.Fatal(err)
	}
	return certificateOf(t, identity)
}

func certificateOf(t *testing.T, identity *trust.Identity) *tls.Certificate {
	t.Helper()
	c, err := identity.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// letIn makes a manager with two owners' networks on node n1, and everybody who may ask.
func letIn(t *testing.T) *everyone {
	e := &everyone{open: openTo(t, openDirs(t), ground)}
	ctx := t.Context()
	node, identity, _, err := e.join(e.token(model.TokenRequest{}).Text, host("n1"))
	if err != nil {
		t.Fatal(err)
	}
	states, _ := agentOf(t, node, "n1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodHead && strings.Contains(r.URL.Path, "/elements/") {
			e.asked.Add(1)
		}
		w.WriteHeader(http.StatusNotImplemented)
	}))
	_, second, _, err := e.join(e.token(model.TokenRequest{}).Text, host("n2"))
	if err != nil {
		t.Fatal(err)
	}
	_, former, _, err := e.join(e.token(model.TokenRequest{}).Text, host("n3"))
	if err != nil {
		t.Fatal(err)
	}
	if err := e.root.RemoveNode(ctx, "n3"); err != nil {
		t.Fatal(err)
	}
	e.image = e.give(t, ownersNetwork+"-image")
	lab := duo(ownersNetwork)
	lab.Elements[0].Node, lab.Elements[1].Node, lab.Elements[0].Image = "n1", "n1", ownersNetwork+"-image"
	if _, err := e.root.Apply(ctx, lab, model.ApplyOptions{Owner: "owner"}); err != nil {
		t.Fatal(err)
	}
	var told model.NodeState
	for len(told.Networks) == 0 {
		told = <-states
	}
	if err := node.Report(ctx, model.Report{Node: "n1", Revision: told.Revision}); err != nil {
		t.Fatal(err)
	}
	beating, end := context.WithCancel(ctx)
	var beats sync.WaitGroup
	beats.Go(func() { // the test takes longer than a node may be silent
		for turns := uint64(1); beating.Err() == nil; turns++ {
			node.Beat(beating, model.Beat{Node: "n1", Turns: turns}) //nolint:errcheck // the next one may get there
			select {
			case <-beating.Done():
			case <-time.After(model.BeatEvery):
			}
		}
	})
	t.Cleanup(func() { end(); beats.Wait() })

	socket := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _,
		_ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", e.dirs.ManagerSocket())
	}}
	e.add(&caller{name: "root", scheme: "http", client: &http.Client{Transport: socket, Timeout: time.Minute}})
	from := byte(0)
	tell := func(name, bearer string, certificate *tls.Certificate) *caller {
		from++
		c := &caller{name: name, scheme: "https", bearer: bearer, client: e.over(t, from, certificate)}
		e.add(c)
		return c
	}
	text := func(user string, role model.Role) string {
		return e.token(model.TokenRequest{User: user, Role: role}).Text
	}
	admin := text("admin", model.RoleAdmin)
	tell("nobody", "", nil)
	tell("nonsense", "root", nil)
	revoked := e.token(model.TokenRequest{User: "former", Role: model.RoleAdmin})
	if _, err := e.root.RevokeToken(ctx, revoked.ID); err != nil {
		t.Fatal(err)
	}
	tell("revoked", revoked.Text, nil)
	tell("expired", e.token(model.TokenRequest{User: "late", Role: model.RoleAdmin, TTL: time.Nanosecond}).Text, nil)
	tell("host's token", e.token(model.TokenRequest{}).Text, nil)
	tell("viewer", text("viewer", model.RoleViewer), nil)
	tell("owner", text("owner", model.RoleOwner), nil)
	tell("other", text("other", model.RoleOwner), nil)
	tell("admin", admin, nil)
	tell("n1", "", certificateOf(t, identity))
	tell("n2", "", certificateOf(t, second))
	tell("n1 as admin", admin, certificateOf(t, identity)) // a node that has got hold of a token is a node
	tell("a removed node", "", certificateOf(t, former))
	is, _, err := identity.Node()
	if err != nil {
		t.Fatal(err)
	}
	tell("another authority's n1", "", anotherAuthority(t, is.Membership)).strange = true
	tell("another authority's n1 as admin", admin, anotherAuthority(t, is.Membership)).strange = true
	return e
}

// ask makes a request and returns the status and the beginning of the answer; zero when the connection was refused.
func (e *everyone) ask(t *testing.T, c *caller, method, path string, body []byte) (status int, words string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel() // ends what is a stream
	var content io.Reader
	if body != nil {
		content = bytes.NewReader(body)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.scheme+"://"+e.server+path, content)
	if err != nil {
		t.Fatal(err)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.bearer != "" {
		r.Header.Set("Authorization", "Bearer "+c.bearer)
	}
	resp, err := c.client.Do(r)
	if err != nil {
		if !c.strange {
			t.Errorf("%s %s by %s: %v", method, path, c.name, err)
		}
		return 0, err.Error()
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		answer, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		words = string(answer)
	}
	return resp.StatusCode, words
}
