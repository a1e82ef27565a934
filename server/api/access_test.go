package api_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api/client"
	"github.com/polyplane/polyplane/server/manager"
	"github.com/polyplane/polyplane/trust"
	"github.com/polyplane/polyplane/wire/tunnel"
)

// open is a manager that is reached over TLS; root is a client by its socket, server where it is.
type open struct {
	t      *testing.T
	root   *client.Client
	server string
	dirs   instance.Dirs
	stop   func() error
}

func openTo(t *testing.T, dirs instance.Dirs, substrate model.Substrate) *open {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- manager.Run(ctx, manager.Config{Dirs: dirs, Substrate: substrate, Listen: []string{"127.0.0.1:0"},
			Ready: func() { close(ready) }})
	}()
	select {
	case <-ready:
	case err := <-ended:
		cancel()
		t.Fatal(err)
	}
	o := &open{t: t, root: client.New(dirs), dirs: dirs}
	o.stop = sync.OnceValue(func() error {
		o.root.Close()
		cancel()
		return <-ended
	})
	t.Cleanup(func() {
		if err := o.stop(); err != nil {
			t.Error(err)
		}
	})
	o.server = o.token(model.TokenRequest{User: "first", Role: model.RoleViewer}).Servers[0]
	return o
}

func openDirs(t *testing.T) instance.Dirs {
	dir := t.TempDir()
	return instance.Dirs{Name: "test", Run: filepath.Join(dir, "run"), Data: filepath.Join(dir, "data")}
}

// ground is one real node, called base.
var ground = model.Substrate{Nodes: []model.SubstrateNode{{Name: "base", CPU: 4000, Memory: 8 << 30, MTU: 9000,
	Address: netip.MustParseAddr("192.0.2.1")}}}

func (o *open) token(r model.TokenRequest) model.TokenResult {
	o.t.Helper()
	result, err := o.root.CreateToken(o.t.Context(), r)
	if err != nil {
		o.t.Fatal(err)
	}
	return result
}

// user is a client with a token of its own.
func (o *open) user(name string, role model.Role) *client.Client {
	o.t.Helper()
	return o.with(o.token(model.TokenRequest{User: name, Role: role}).Text)
}

func (o *open) with(text string) *client.Client {
	o.t.Helper()
	token, err := trust.ParseToken(text)
	if err != nil {
		o.t.Fatal(err)
	}
	c := client.NewUser(o.server, token)
	o.t.Cleanup(c.Close)
	return c
}

var addresses atomic.Uint32

// host is a machine that may join.
func host(name string) model.Machine {
	n := addresses.Add(1)
	return model.Machine{Name: name, CPU: 2000, Memory: 4 << 30, MTU: 9000,
		Address: netip.AddrFrom4([4]byte{198, 51, 100, byte(n)})}
}

// join joins, and returns the node's client.
func (o *open) join(text string, machine model.Machine) (*client.Client, *trust.Identity, model.JoinResult, error) {
	o.t.Helper()
	token, err := trust.ParseToken(text)
	if err != nil {
		o.t.Fatal(err)
	}
	key, err := trust.NewKey()
	if err != nil {
		o.t.Fatal(err)
	}
	request, err := key.Request(machine.Name)
	if err != nil {
		o.t.Fatal(err)
	}
	c := client.NewHost(o.server, token.Pin)
	defer c.Close()
	result, err := c.Join(o.t.Context(), model.JoinRequest{Token: text, Request: request, Machine: machine})
	if err != nil {
		return nil, nil, result, err
	}
	identity, err := trust.SaveIdentity(o.t.TempDir(), key, result.Certificate)
	if err != nil {
		o.t.Fatal(err)
	}
	node, err := client.NewNode(o.server, identity)
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(node.Close)
	return node, identity, result, nil
}

// refusedWith checks that something was refused, with a status and words.
func refusedWith(t *testing.T, what string, err error, status int, words ...string) {
	t.Helper()
	var e *client.Error
	if !errors.As(err, &e) || e.Status != status {
		t.Errorf("%s: %v, want status %d", what, err, status)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %q says nothing of %q", what, err, w)
		}
	}
}

func TestHostsJoinOnce(t *testing.T) {
	o := openTo(t, openDirs(t), ground)
	token := o.token(model.TokenRequest{})
	var joined, late atomic.Int32
	var wg sync.WaitGroup
	for i := range 8 {
		machine := host(fmt.Sprintf("n%d", i))
		wg.Go(func() {
			switch _, _, _, err := o.join(token.Text, machine); {
			case err == nil:
				joined.Add(1)
			default:
				refusedWith(t, "one token, used by several", err, http.StatusUnauthorized, "used", "by node n")
				late.Add(1)
			}
		})
	}
	wg.Wait()
	if joined.Load() != 1 || late.Load() != 7 {
		t.Fatalf("%d joined with one token, %d were refused", joined.Load(), late.Load())
	}
	nodes, err := o.root.Nodes(t.Context())
	if err != nil || len(nodes) != 2 || !nodes[1].Joined || nodes[1].CPU != 2000 || nodes[1].Memory != 4<<30 {
		t.Fatalf("the nodes are %+v: %v", nodes, err)
	}
	name := nodes[1].Name

	// Refusals leave the token as it is.
	token = o.token(model.TokenRequest{})
	_, _, _, err = o.join(token.Text, host(name))
	refusedWith(t, "a name that is taken", err, http.StatusConflict, "token create --node "+name)
	taken := host("other")
	taken.Address = nodes[0].Address
	_, _, _, err = o.join(token.Text, taken)
	refusedWith(t, "an address that is taken", err, http.StatusConflict, "base", "--underlay")
	loop := host("other")
	loop.Address = netip.MustParseAddr("127.0.0.1")
	_, _, _, err = o.join(token.Text, loop)
	refusedWith(t, "a loopback address", err, http.StatusUnprocessableEntity, "127.0.0.1")
	if _, _, _, err = o.join(token.Text, host("other")); err != nil {
		t.Errorf("after refusals: %v", err)
	}
	// Who guesses learns nothing.
	guess, _ := trust.ParseToken(token.Text)
	for what, text := range map[string]string{"a wrong secret": trust.Token{ID: guess.ID,
		Secret: strings.Repeat("a", 26), Pin: guess.Pin}.String(),
		"an unknown token": trust.NewToken(guess.Pin).String()} {
		_, _, _, err := o.join(text, host("guess"))
		refusedWith(t, what, err, http.StatusUnauthorized, "does not know this token")
	}
	_, _, _, err = o.join(o.token(model.TokenRequest{User: "u", Role: model.RoleAdmin}).Text, host("guess"))
	refusedWith(t, "a user's token", err, http.StatusUnauthorized, "user u's")
	revoked := o.token(model.TokenRequest{})
	if _, err := o.root.RevokeToken(t.Context(), revoked.ID); err != nil {
		t.Fatal(err)
	}
	_, _, _, err = o.join(revoked.Text, host("guess"))
	refusedWith(t, "a revoked token", err, http.StatusUnauthorized, "was revoked")
	short := o.token(model.TokenRequest{TTL: time.Nanosecond})
	_, _, _, err = o.join(short.Text, host("guess"))
	refusedWith(t, "an expired token", err, http.StatusUnauthorized, "expired at")
	_, err = o.with(o.token(model.TokenRequest{}).Text).Whoami(t.Context())
	refusedWith(t, "a host's token used by a user", err, http.StatusUnauthorized, "for a host")
	for what, r := range map[string]model.TokenRequest{"no such role": {User: "u", Role: "king"},
		"a role without a user": {Role: model.RoleAdmin},
		"both":                  {User: "u", Role: model.RoleAdmin, Node: "n"}, "a bad name": {Node: "A B"},
		"for ever":   {TTL: -1},
		"for a year": {TTL: 8760 * time.Hour}} {
		if _, err := o.root.CreateToken(t.Context(), r); err == nil {
			t.Errorf("a token is made although %s", what)
		}
	}
	_, err = o.root.CreateToken(t.Context(), model.TokenRequest{Node: "base"})
	refusedWith(t, "a token for the manager's own node", err, http.StatusConflict, "manager's own machine")

	// It all outlives the manager; the address does not, since the test asks for any port.
	if err := o.stop(); err != nil {
		t.Fatal(err)
	}
	again := openTo(t, o.dirs, ground)
	_, _, _, err = again.join(token.Text, host("after"))
	refusedWith(t, "a used token after a restart", err, http.StatusUnauthorized, "used")
	if nodes, err := again.root.Nodes(t.Context()); err != nil || len(nodes) != 3 {
		t.Errorf("after a restart the nodes are %+v: %v", nodes, err)
	}
}

// agentOf runs what an agent does towards the manager, until end is called.
func agentOf(t *testing.T, c *client.Client, name string,
	handler http.Handler) (states <-chan model.NodeState, end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan model.NodeState, 100)
	var wg sync.WaitGroup
	if err := c.Register(ctx, name, model.Registration{Socket: "/run/secret.sock"}); err != nil {
		t.Fatal(err)
	}
	conn, err := c.Tunnel(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	wg.Go(func() { tunnel.Serve(ctx, conn, handler) }) //nolint:errcheck // ends with the test
	wg.Go(func() {
		defer close(told)
		c.WatchDesired(ctx, name, func(s model.NodeState) error { told <- s; return nil }) //nolint:errcheck // likewise
	})
	end = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(end)
	return told, end
}

func TestNodesActAsThemselvesOnly(t *testing.T) {
	o := openTo(t, openDirs(t), ground)
	ctx := t.Context()
	n1, identity, _, err := o.join(o.token(model.TokenRequest{}).Text, host("n1"))
	if err != nil {
		t.Fatal(err)
	}
	n2, _, _, err := o.join(o.token(model.TokenRequest{}).Text, host("n2"))
	if err != nil {
		t.Fatal(err)
	}
	refusedWith(t, "n2's state", n1.WatchDesired(ctx, "n2", func(model.NodeState) error { return nil }),
		http.StatusForbidden, "n1 may not act as node n2")
	refusedWith(t, "n2's report", n1.Report(ctx, model.Report{Node: "n2"}), http.StatusForbidden)
	refusedWith(t, "the manager's node's report", n1.Report(ctx, model.Report{Node: "base"}), http.StatusForbidden)
	_, err = n1.Networks(ctx)
	refusedWith(t, "the networks", err, http.StatusForbidden)
	_, err = n1.CreateToken(ctx, model.TokenRequest{User: "n1", Role: model.RoleAdmin})
	refusedWith(t, "a token", err, http.StatusForbidden)
	_, err = n1.Tunnel(ctx, "n2")
	refusedWith(t, "n2's tunnel", err, http.StatusForbidden)
	if s, err := n1.Node(ctx, "n1"); err != nil || s.Name != "n1" {
		t.Errorf("itself: %v", err)
	}

	states, end := agentOf(t, n1, "n1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("a user's token is passed on to a node")
		}
		fmt.Fprintf(w, "n1 was asked for %s", r.URL.Path)
	}))
	if s := <-states; len(s.Peers) != 2 || len(s.Links) != 2 {
		t.Errorf("n1 is told of %+v", s)
	}
	net := duo("lab")
	net.Elements[0].Node, net.Elements[1].Node = "n1", "n1"
	if _, err := o.root.Apply(ctx, net, model.ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	s := <-states
	if len(s.Networks) != 1 {
		t.Fatalf("n1 is told of %+v", s)
	}
	if err := n1.Report(ctx, model.Report{Node: "n1", Revision: s.Revision}); err != nil {
		t.Fatal(err)
	}
	// Through the tunnel, whatever socket the agent said it had.
	admin := o.user("boss", model.RoleAdmin)
	logs, err := admin.Logs(ctx, model.ID{Network: "lab", Element: "h1"}, false)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(logs)
	logs.Close()
	if string(b) != "n1 was asked for /v1/networks/lab/elements/h1/logs" {
		t.Errorf("the logs are %q", b)
	}
	// A node tells of what it has, and of nothing else.
	report := model.Report{Node: "n1", Revision: s.Revision, Events: []model.Event{{Object: "lab/h1", Reason: "Own"},
		{Object: "n1", Reason: "Own"},
		{Object: "manager", Reason: "Forged"}, {Object: "other/r1", Reason: "Forged"},
		{Object: "n2", Reason: "Forged"}}}
	if err := n1.Report(ctx, report); err != nil {
		t.Fatal(err)
	}
	own := 0
	o.root.Events(ctx, 0, false, func(e model.Event) error { //nolint:errcheck // counted below
		if e.Reason == "Forged" {
			t.Errorf("n1 tells of %s", e.Object)
		}
		if e.Reason == "Own" {
			own++
		}
		return nil
	})
	if own != 2 {
		t.Errorf("%d of its own events are told", own)
	}

	// Renewed, it is the same node.
	key, err := trust.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	request, err := key.Request("n2")
	if err != nil {
		t.Fatal(err)
	}
	renewed, err := n1.Renew(ctx, "n1", model.RenewRequest{Request: request})
	if err != nil {
		t.Fatal(err)
	}
	if err := identity.Replace(key, renewed.Certificate); err != nil {
		t.Fatal(err)
	}
	n1.Close()
	if is, _, err := identity.Node(); err != nil || is.Name != "n1" {
		t.Errorf("it asked for n2's name and got %v", is)
	}
	if _, err := n1.Node(ctx, "n1"); err != nil {
		t.Errorf("with the renewed certificate: %v", err)
	}

	// Removal: refused while it is there with elements, and the end of everything it had.
	refusedWith(t, "removing a node that is in use", o.root.RemoveNode(ctx, "n1"), http.StatusConflict, "lab")
	end()
	gone := func() bool {
		s, err := o.root.Node(ctx, "n1")
		return err == nil && s.Problem != ""
	}
	for !gone() {
		time.Sleep(10 * time.Millisecond)
	}
	if err := o.root.RemoveNode(ctx, "n1"); err != nil {
		t.Fatal(err)
	}
	_, err = n1.Node(ctx, "n1")
	refusedWith(t, "a removed node", err, http.StatusUnauthorized, "member no longer")
	refusedWith(t, "removing the manager's own", o.root.RemoveNode(ctx, "base"), http.StatusConflict, "did not join")

	// In n2's place another host: the first one's certificate is worth nothing, and what it has open ends.
	first, endFirst := agentOf(t, n2, "n2", http.NotFoundHandler())
	<-first
	other, _, result, err := o.join(o.token(model.TokenRequest{Node: "n2"}).Text, host("whatever"))
	if err != nil || result.Node != "n2" {
		t.Fatalf("joined as %q: %v", result.Node, err)
	}
	for range first { //nolint:revive // until its stream has ended
	}
	endFirst()
	_, err = n2.Node(ctx, "n2")
	refusedWith(t, "the host of before", err, http.StatusUnauthorized, "joined anew")
	if _, err := other.Node(ctx, "n2"); err != nil {
		t.Error(err)
	}
	// It may come back under its name, and what was placed on it is its again.
	back, _, _, err := o.join(o.token(model.TokenRequest{}).Text, host("n1"))
	if err != nil {
		t.Fatal(err)
	}
	states, _ = agentOf(t, back, "n1", http.NotFoundHandler())
	if s := <-states; len(s.Networks) != 1 {
		t.Errorf("come back, it is told of %+v", s)
	}
}
