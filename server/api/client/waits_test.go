package client

import (
	"net"
	"net/http"
	"testing"
	"time"
)

// TestWhatAChangeWaitsForIsTold: whoever changes something hears what that waits for, while it does.
func TestWhatAChangeWaitsForIsTold(t *testing.T) {
	d := dirs(t)
	l, err := net.Listen("unix", d.ManagerSocket())
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan string)
	answer := make(chan struct{})
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.Write([]byte(`{"instance":"x","waits":"the store"}`)) //nolint:errcheck // the client tells
			return
		}
		<-answer
	})}
	go server.Serve(l) //nolint:errcheck // it is closed
	defer server.Close()
	c := New(d).Telling(func(what string) { told <- what })
	defer c.Close()
	c.tellAfter = time.Millisecond
	failed := make(chan error)
	go func() { failed <- c.Delete(t.Context(), "lab", false) }()
	if what := <-told; what != "the store" {
		t.Errorf("told is %q", what)
	}
	close(answer)
	if err := <-failed; err != nil {
		t.Error(err)
	}
	if _, err := c.Ping(t.Context()); err != nil { // a question waits for nothing, and tells nothing
		t.Error(err)
	}
}
