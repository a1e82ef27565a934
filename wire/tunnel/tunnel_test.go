package tunnel

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair is a connection as both sides have it.
func pair(t *testing.T) (net.Conn, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return near, far
}

func TestRequestsGoBackwards(t *testing.T) {
	near, far := pair(t)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.Write(b) //nolint:errcheck // the asker compares
	})
	ended := make(chan error, 1)
	go func() { ended <- Serve(t.Context(), near, handler) }()
	s, err := Open(far)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn,
		error) {
		return s.Dial(ctx)
	}}
	// More than a window each, many at once: none holds up another.
	body := make([]byte, 3*window)
	rand.Read(body)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			resp, err := (&http.Client{Transport: transport}).Post("http://node/", "", bytes.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if got, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(got, body) {
				t.Errorf("%d bytes came back: %v", len(got), err)
			}
		})
	}
	wg.Wait()
	transport.CloseIdleConnections()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	// What is on its way when the manager's end closes is answered by a reset, what comes after by a broken pipe.
	if err := <-ended; err != nil && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("the node's end: %v", err)
	}
	if _, err := s.Dial(t.Context()); err == nil {
		t.Error("a closed tunnel is dialled through")
	}
}

// A node that takes no connections keeps nobody waiting for longer than asked, and one that keeps a connection open
// that was closed is not listened to.
func TestASilentNode(t *testing.T) {
	near, far := pair(t)
	defer near.Close()
	go io.Copy(io.Discard, near) //nolint:errcheck // ends with the connection
	s, err := Open(far)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c, err := s.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	reading := make(chan error, 1)
	go func() {
		_, err := c.Read(make([]byte, 1))
		reading <- err
	}()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := <-reading; !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed connection: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	dialled := make(chan error)
	go func() {
		for {
			_, err := s.Dial(ctx)
			if dialled <- err; err != nil {
				return
			}
		}
	}()
	for range config().AcceptBacklog - 1 { // as many may be on their way
		if err := <-dialled; err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	for err := range dialled {
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			break
		}
	}
}

// Whoever ends first, the other learns it, and what is under way ends.
func TestEnds(t *testing.T) {
	for name, end := range map[string]func(cancel func(), s *Session, near net.Conn){
		"the node":       func(cancel func(), _ *Session, _ net.Conn) { cancel() },
		"the manager":    func(_ func(), s *Session, _ net.Conn) { s.Close() },
		"the connection": func(_ func(), _ *Session, near net.Conn) { near.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			near, far := pair(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			asked, over := make(chan struct{}), make(chan struct{})
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				Serve(ctx, near, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { //nolint:errcheck // any error will do
					close(asked)
					<-r.Context().Done()
					close(over)
				}))
			}()
			s, err := Open(far)
			if err != nil {
				t.Fatal(err)
			}
			transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn,
				error) {
				return s.Dial(ctx)
			}}
			answered := make(chan error, 1)
			go func() {
				resp, err := (&http.Client{Transport: transport}).Get("http://node/")
				if err == nil {
					resp.Body.Close()
				}
				answered <- err
			}()
			<-asked
			end(cancel, s, near)
			<-over
			<-ended
			<-s.Done()
			<-answered // an empty answer or an error
			transport.CloseIdleConnections()
			s.Close()
		})
	}
}
