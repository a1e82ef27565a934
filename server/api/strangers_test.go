package api_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api/client"
	"github.com/polyplane/polyplane/server/manager"
	"github.com/polyplane/polyplane/system/attack"
	"github.com/polyplane/polyplane/trust"
)

// Who is nobody yet: without TLS, with wrong tokens, slow, or with a token for something else.

// Nothing is said to who does not speak TLS 1.3.
func TestNoPlaintext(t *testing.T) {
	o := openTo(t, openDirs(t), ground)
	for what, words := range map[string]string{"HTTP": "GET /v1/ping HTTP/1.1\r\nHost: x\r\n\r\n",
		"HTTP/2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "noise": "\x00\x01\x02hello\n"} {
		c, err := net.Dial("tcp", o.server)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(c, words)
		answer, _ := io.ReadAll(c)
		c.Close()
		if len(answer) > 0 {
			t.Errorf("%s is answered with %q", what, answer)
		}
	}
	if c, err := tls.Dial("tcp", o.server,
		&tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}); err == nil {
		c.Close()
		t.Error("TLS 1.2 is spoken")
	}
	// The certificate's names are good for those who check them with the authority's certificate alone.
	pem, err := o.root.Authority(t.Context())
	if err != nil || !strings.HasPrefix(string(pem), "-----BEGIN CERTIFICATE") {
		t.Errorf("the authority's certificate: %v", err)
	}
}

// Who tries tokens is made to wait, however they are tried.
func TestGuessingIsSlow(t *testing.T) {
	attack.Tell(t, "somebody guesses tokens",
		"requests of others are answered")
	o := openTo(t, openDirs(t), ground)
	good := o.token(model.TokenRequest{User: "u", Role: model.RoleViewer})
	pin, err := trust.ParseToken(good.Text)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		_, _, _, err := o.join(trust.NewToken(pin.Pin).String(), host("guess"))
		refusedWith(t, fmt.Sprintf("guess %d", i), err, http.StatusUnauthorized)
	}
	_, _, _, err = o.join(trust.NewToken(pin.Pin).String(), host("guess"))
	refusedWith(t, "one guess more", err, http.StatusTooManyRequests, "127.0.0.1")
	_, err = o.with(good.Text).Whoami(t.Context())
	refusedWith(t, "a user of the same host", err, http.StatusTooManyRequests, "127.0.0.1")
	if _, err := o.root.Ping(t.Context()); err != nil {
		t.Errorf("root waits, too: %v", err)
	}
}

// Who has no token cannot have the manager wait for what is never sent.
func TestNobodyWaitsForStrangers(t *testing.T) {
	attack.Tell(t, "connections of strangers that say nothing",
		"users do not wait")
	o := openTo(t, openDirs(t), ground)
	var wg sync.WaitGroup
	for _, line := range []string{"PUT /v1/networks", "GET /v1/authority", "GET /openapi.json", "GET /nonsense"} {
		wg.Go(func() {
			c, err := tls.Dial("tcp", o.server, &tls.Config{InsecureSkipVerify: true})
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n", line)
			answer, err := io.ReadAll(c) // until the manager lets go of the connection
			if !strings.HasPrefix(string(answer), "HTTP/1.1 ") ||
				!strings.Contains(string(answer), "Connection: close") {
				t.Errorf("%s: %.200q, %v", line, answer, err)
			}
		})
	}
	wg.Wait()
	// Who sends what will be refused learns why, however much it is.
	viewer := o.user("vic", model.RoleViewer)
	for _, elements := range []int{1000, 2000, 4000, 20000} {
		big := model.Network{Name: "big"}
		for i := range elements {
			big.Elements = append(big.Elements, model.Element{Name: fmt.Sprintf("h%d", i),
				Kind: model.Host, Node: "base"})
		}
		_, err := viewer.Apply(t.Context(), big, model.ApplyOptions{})
		refusedWith(t, fmt.Sprintf("%d elements", elements), err, http.StatusForbidden, "a viewer")
	}
}

// Who has a token cannot have the manager wait either: a request whose body stands still ends after bodyIdle, and until
// then it is in the way of its own user only.
func TestStalledRequestsEnd(t *testing.T) {
	t.Parallel() // it waits
	attack.Tell(t, "a user begins sixteen requests and never sends the rest of them",
		"other users are answered meanwhile, and the requests end by themselves")
	o := openTo(t, openDirs(t), ground)
	stalling := o.token(model.TokenRequest{User: "mallory", Role: model.RoleOwner}).Text
	alice, vic := o.user("alice", model.RoleOwner), o.user("vic", model.RoleViewer)
	var wg sync.WaitGroup
	for range 16 {
		c, err := tls.Dial("tcp", o.server, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "PUT /v1/networks/lab HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: "+
			"application/json\r\nContent-Length: 1000\r\n\r\n{", stalling)
		wg.Go(func() {
			c.SetReadDeadline(time.Now().Add(2 * time.Minute)) //nolint:errcheck // it has deadlines
			answer, err := io.ReadAll(c)                       // until the manager lets go of the connection
			if !strings.HasPrefix(string(answer), "HTTP/1.1 4") && !strings.HasPrefix(string(answer), "HTTP/1.1 503") {
				t.Errorf("a request that stands still: %.200q, %v", answer, err)
			}
		})
	}
	time.Sleep(300 * time.Millisecond) // they have come
	for _, who := range []*client.Client{alice, vic} {
		for range 20 {
			began := time.Now()
			if _, err := who.Networks(t.Context()); err != nil || time.Since(began) > 5*time.Second {
				t.Errorf("somebody else is answered after %s: %v", time.Since(began), err)
			}
		}
	}
	wg.Wait()
}

// Other machines cannot reach simulated nodes; users can be let in all the same.
func TestNobodyJoinsSimulatedNodes(t *testing.T) {
	simulated := model.Substrate{Nodes: []model.SubstrateNode{{Name: "n1", CPU: 4000, Memory: 8 << 30,
		MTU: 9000, Simulated: true,
		Address: netip.MustParseAddr("100.64.0.1")}}}
	dirs := openDirs(t)
	o := openTo(t, dirs, simulated)
	_, err := o.root.CreateToken(t.Context(), model.TokenRequest{})
	refusedWith(t, "a host's token", err, http.StatusConflict, "simulated", "--host")
	if who, err := o.user("vic", model.RoleViewer).Whoami(t.Context()); err != nil || who.User != "vic" ||
		who.Role != model.RoleViewer {
		t.Errorf("a user is %+v: %v", who, err)
	}
	if err := o.stop(); err != nil {
		t.Fatal(err)
	}
	// Nor can a substrate become simulated that hosts have joined.
	o = openTo(t, dirs, ground)
	if _, _, _, err := o.join(o.token(model.TokenRequest{}).Text, host("far")); err != nil {
		t.Fatal(err)
	}
	if err := o.stop(); err != nil {
		t.Fatal(err)
	}
	err = manager.Run(t.Context(), manager.Config{Dirs: dirs, Substrate: simulated})
	if err == nil || !strings.Contains(err.Error(), "far") || !strings.Contains(err.Error(), "simulated") {
		t.Errorf("a manager of simulated nodes with a member: %v", err)
	}
}

// What only serves its own machine makes no tokens.
func TestTokensNeedSomebodyOutside(t *testing.T) {
	c, _, _ := run(t, 1)
	_, err := c.CreateToken(t.Context(), model.TokenRequest{})
	refusedWith(t, "a token", err, http.StatusConflict, "up --listen :7455")
	if _, err := c.Authority(t.Context()); !client.IsNotFound(err) {
		t.Errorf("an authority: %v", err)
	}
}
