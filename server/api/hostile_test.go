package api

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/system/attack"
)

// oneAgent is what answers for every element.
type oneAgent struct {
	Agents
	dial Dial
}

func (a oneAgent) Agent(context.Context, model.ID) (Reach, error) {
	return Reach{Node: "evil", Dial: a.dial, Alive: context.Background()}, nil
}

// What a node's agent answers reaches whoever asked without anything that speaks in the manager's name, and not without
// end.
func TestAHostileAgentsAnswers(t *testing.T) {
	attack.Tell(t, "an agent answers requests with headers, redirections and bodies without end",
		"nothing of it reaches the user")
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Set-Cookie", "a=b")
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Location", "https://evil.example/")
		switch r.URL.Query().Get("do") {
		case "nothing":
			w.WriteHeader(http.StatusNoContent)
		case "moved":
			w.WriteHeader(http.StatusFound)
		case "who":
			w.WriteHeader(http.StatusUnauthorized)
		case "switch":
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: else\r\n\r\n") //nolint:errcheck // hostile
				conn.Close()
			}
		case "long refusal":
			w.WriteHeader(http.StatusConflict)
			io.Copy(w, endless{}) //nolint:errcheck // ends with the reader
		case "long head":
			w.Header().Set("X-Long", strings.Repeat("x", 1<<20))
		case "endless":
			io.Copy(w, endless{}) //nolint:errcheck // ends with the reader
		default:
			io.WriteString(w, "<script>") //nolint:errcheck // the reader compares
		}
	}))
	defer agent.Close()
	p := newProxy(oneAgent{dial: func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", agent.Listener.Addr().String())
	}})
	defer p.close()
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/networks/{network}/elements/{element}/{kind}", p.ServeHTTP)
	manager := httptest.NewServer(mux)
	defer manager.Close()
	for _, c := range []struct {
		kind, do string
		status   int
		media    string
		body     string
	}{
		{"logs", "", 200, "text/plain; charset=utf-8", "<script>"},
		{"capture", "", 200, "application/x-pcapng", "<script>"},
		{"disk", "nothing", 204, "", ""},
		{"disk", "", 502, "application/problem+json", "HTTP status 200"},
		{"logs", "nothing", 502, "application/problem+json", "HTTP status 204"},
		{"logs", "moved", 502, "application/problem+json",
			"lab/r1: the agent of node evil gives an answer that no agent gives (HTTP status 302)"},
		{"logs", "who", 502, "application/problem+json", "HTTP status 401"},
		{"exec", "", 502, "application/problem+json", "HTTP status 200"},
		{"logs", "switch", 502, "application/problem+json", "HTTP status 101"},
		{"logs", "long refusal", 409, "application/problem+json", `"detail":"xxxx`},
		{"logs", "long head", 503, "application/problem+json", "the agent of node evil does not answer"},
		{"fib", "endless", 200, "application/json", "xxxx"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, manager.URL+"/v1/networks/lab/elements/r1/"+c.kind+
			"?do="+strings.ReplaceAll(c.do, " ", "+"), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Transport{}).RoundTrip(r)
		if err != nil {
			t.Errorf("%s %s: %v", c.kind, c.do, err)
			cancel()
			continue
		}
		var head strings.Builder
		n, _ := io.Copy(&head, io.LimitReader(resp.Body, 4096))
		rest, _ := io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		cancel()
		for _, name := range []string{"Set-Cookie", "Location", "X-Long", "Www-Authenticate"} {
			if resp.Header.Get(name) != "" {
				t.Errorf("%s %s: %s came through", c.kind, c.do, name)
			}
		}
		if n += rest; resp.StatusCode != c.status || resp.Header.Get("Content-Type") != c.media ||
			!strings.Contains(head.String(), c.body) || n > maxAgentAnswer {
			t.Errorf("%s %s: %d %s, %d bytes: %.200s", c.kind, c.do, resp.StatusCode,
				resp.Header.Get("Content-Type"), n, head.String())
		}
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// A user who has as many streams open as there may be is told which, and nobody else is held up.
func TestPlacesAreOfUsers(t *testing.T) {
	attack.Tell(t, "a user opens all streams that there are",
		"others have places of their own")
	p := newPlaces()
	alice, bob := Caller{Name: "alice", Role: model.RoleOwner}, Caller{Name: "bob", Role: model.RoleViewer}
	b := bounds{Requests: 2, Streams: 3}
	request := func(element string) *http.Request {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.SetPathValue("network", "lab")
		r.SetPathValue("element", element)
		return r
	}
	var leave []func()
	for i, kind := range []string{"exec", "exec", "logs"} {
		l, err := p.enter(alice, b, kind, request(fmt.Sprintf("r%d", i)))
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, l)
	}
	_, err := p.enter(alice, b, "capture", request("r9"))
	want := "user alice has 3 streams open, which is as many as it may have: 2 exec (lab/r0, lab/r1), 1 logs " +
		"(lab/r2); end one of them, " +
		"or have an administrator allow more: polyplane quota owner/alice streams=6"
	if err == nil || err.Error() != want {
		t.Errorf("refused with: %v", err)
	}
	l, err := p.enter(bob, b, "exec", request("r1"))
	if err != nil {
		t.Errorf("bob: %v", err)
	}
	leave = append(leave, l)
	// Requests wait for each other, those of others do not.
	for range 2 {
		l, err := p.enter(alice, b, "", request(""))
		if err != nil {
			t.Fatal(err)
		}
		defer l()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := p.enter(alice, b, "", request("").WithContext(ctx)); err == nil ||
		!strings.Contains(err.Error(), "user alice has 2 requests under way") {
		t.Errorf("a third request: %v", err)
	}
	if l, err := p.enter(bob, b, "", request("")); err != nil {
		t.Errorf("bob: %v", err)
	} else {
		l()
	}
	// Root needs no place.
	if _, err := p.enter(Caller{Role: model.RoleAdmin}, b, "exec", request("r1")); err != nil {
		t.Error(err)
	}
	for _, l := range leave {
		l()
	}
	if _, err := p.enter(alice, b, "capture", request("r9")); err != nil {
		t.Errorf("when the streams have ended: %v", err)
	}
}
