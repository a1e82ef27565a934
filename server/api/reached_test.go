package api

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
)

// An agent that is being killed still has connections taken for it, by the kernel, and resets them: whoever asks in
// that moment is answered by its next life. What an agent has begun is not asked for again.
func TestAKilledAgentsNextLifeAnswers(t *testing.T) {
	var asked atomic.Int32
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead {
			return
		}
		asked.Add(1)
		if r.URL.Query().Get("die") != "" {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				conn.Close()
			}
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	defer agent.Close()
	dying := filepath.Join(t.TempDir(), "dying")
	for _, c := range []struct {
		name   string
		before int32 // tries that meet the process that dies
		query  string
		status int
		asked  int32
	}{
		{"alive", 0, "", http.StatusNoContent, 1},
		{"dying for two tries", 2, "", http.StatusNoContent, 1},
		{"dies with the request", 0, "?die=1", http.StatusServiceUnavailable, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var tries atomic.Int32
			asked.Store(0)
			p := newProxy(oneAgent{dial: func(ctx context.Context) (net.Conn, error) {
				if tries.Add(1) > c.before {
					return (&net.Dialer{}).DialContext(ctx, "tcp", agent.Listener.Addr().String())
				}
				l, err := net.Listen("unix", dying)
				if err != nil {
					return nil, err
				}
				defer l.Close() // with the connection in its queue, which nobody has accepted
				return net.Dial("unix", dying)
			}})
			defer p.close()
			mux := http.NewServeMux()
			mux.HandleFunc("/v1/networks/{network}/elements/{element}/{kind}", p.ServeHTTP)
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost,
				"/v1/networks/lab/elements/r1/disk"+c.query, nil))
			if w.Code != c.status || asked.Load() != c.asked || tries.Load() != c.before+1 {
				t.Errorf("status %d, asked %d times after %d tries, want %d, %d and %d: %s", w.Code, asked.Load(),
					tries.Load(), c.status, c.asked, c.before+1, w.Body)
			}
		})
	}
}
