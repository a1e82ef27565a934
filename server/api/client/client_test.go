package client

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
)

// holds writes who keeps an instance running, as `up` does.
func holds(t *testing.T, d instance.Dirs, pid int, what string) {
	t.Helper()
	b, err := json.Marshal(map[string]any{"pid": pid, "what": what})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.Lock(), b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func dirs(t *testing.T) instance.Dirs {
	d := instance.Dirs{Name: "x", Run: filepath.Join(t.TempDir(), "x")}
	if err := os.MkdirAll(d.Run, 0o700); err != nil {
		t.Fatal(err)
	}
	return d
}

// A manager that has just ended and is being started again is waited for.
func TestRestartingManagerIsWaitedFor(t *testing.T) {
	d := dirs(t)
	holds(t, d, os.Getpid(), "up")
	c := New(d).Patient(time.Hour)
	defer c.Close()
	served := make(chan error, 1)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		w.Write([]byte(`{"instance":"x"}`))
	})}
	answer := make(chan error, 1)
	go func() {
		pong, err := c.Ping(t.Context())
		if err == nil && pong.Instance != "x" {
			err = errors.New("another instance answered")
		}
		answer <- err
	}()
	l, err := net.Listen("unix", d.ManagerSocket())
	if err != nil {
		t.Fatal(err)
	}
	go func() { served <- server.Serve(l) }()
	if err := <-answer; err != nil {
		t.Error(err)
	}
	server.Close()
	<-served
}

// A manager may be killed while it holds a question that it has not answered. What changes nothing is asked again; of
// what may have changed something the caller is told.
func TestQuestionsSurviveAKilledManager(t *testing.T) {
	d := dirs(t)
	holds(t, d, os.Getpid(), "up")
	c := New(d).Patient(time.Hour)
	defer c.Close()
	l, err := net.Listen("unix", d.ManagerSocket())
	if err != nil {
		t.Fatal(err)
	}
	var dying atomic.Bool
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if dying.Swap(false) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			conn.Close()
			return
		}
		w.Write([]byte(`{"instance":"x"}`)) //nolint:errcheck // the client tells
	})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	defer func() {
		server.Close()
		<-served
	}()
	dying.Store(true)
	if _, err := c.Ping(t.Context()); err != nil {
		t.Errorf("a question: %v", err)
	}
	dying.Store(true)
	if err := c.Delete(t.Context(), "lab", false); err == nil || !strings.Contains(err.Error(), "broke off") {
		t.Errorf("a change: %v, want to hear that the connection broke off", err)
	}
	dying.Store(true)
	command := control.Command{Args: []string{"touch", "/once"}}
	_, err = c.Exec(t.Context(), model.ID{Network: "lab", Element: "r1"}, command, control.Stdio{})
	if err == nil || !strings.Contains(err.Error(), "broke off") {
		t.Errorf("a command in an element: %v, want to hear that the connection broke off", err)
	}
}

// One that stays away is told as what it is; an instance that nobody keeps running is not waited for.
func TestNotRunningIsToldAtOnce(t *testing.T) {
	d := dirs(t)
	c := New(d).Patient(time.Hour)
	defer c.Close()
	check := func(restarting bool, words string) {
		t.Helper()
		_, err := c.Ping(t.Context())
		var down *NotRunningError
		if !errors.As(err, &down) || down.Restarting != restarting || !strings.Contains(err.Error(), words) {
			t.Errorf("%v", err)
		}
	}
	check(false, "is not running")
	holds(t, d, os.Getpid(), "down")
	check(false, "is not running")
	holds(t, d, 1<<30, "up")
	check(false, "is not running")
	holds(t, d, os.Getpid(), "up")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Ping(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	c.Patient(0)
	check(true, "being started again")
}
