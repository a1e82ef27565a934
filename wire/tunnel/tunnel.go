// Package tunnel turns one connection around: a node behind a firewall dials the manager, and over that one connection
// the manager opens as many to the node as it likes.
package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/hashicorp/yamux"
)

// Protocol is what the node asks to upgrade its connection to.
const Protocol = "polyplane-tunnel"

const (
	// keepAlive is how often each side asks whether the other is there. writeTimeout is how long the other may take to
	// answer, or to take anything at all.
	keepAlive    = 10 * time.Second
	writeTimeout = 10 * time.Second
	// window is how much of a stream may be on its way, in bytes: with less, a stream over a path of 50 ms would not
	// fill 100 Mbit/s.
	window = 1 << 20
)

func config() *yamux.Config {
	c := yamux.DefaultConfig()
	c.KeepAliveInterval, c.ConnectionWriteTimeout, c.MaxStreamWindowSize = keepAlive, writeTimeout, window
	c.LogOutput = io.Discard // what goes wrong comes back as an error of who uses it
	return c
}

// Session is the manager's end.
type Session struct{ mux *yamux.Session }

// Open makes the manager's end of an upgraded connection. It ends with the connection, which it owns.
func Open(conn io.ReadWriteCloser) (*Session, error) {
	mux, err := yamux.Client(conn, config())
	if err != nil {
		return nil, fmt.Errorf("open the tunnel: %w", err)
	}
	s := &Session{mux}
	go s.refuse()
	return s, nil
}

// refuse ends the tunnel when the node opens a connection through it. Only the manager does so; connections that nobody
// takes would pile up.
func (s *Session) refuse() {
	if _, err := s.mux.AcceptStream(); err == nil {
		s.mux.Close() //nolint:errcheck // it ends in any case
	}
}

// Dial opens a connection to the node. It waits while the node has not taken many earlier ones; the context ends that.
func (s *Session) Dial(ctx context.Context) (net.Conn, error) {
	type opened struct {
		stream *yamux.Stream
		err    error
	}
	done := make(chan opened)
	go func() { // yamux knows no contexts
		stream, err := s.mux.OpenStream()
		select {
		case done <- opened{stream, err}:
		case <-ctx.Done():
			if err == nil {
				stream.Close() //nolint:errcheck // nobody waits for it any more
			}
		}
	}()
	select {
	case o := <-done:
		if o.err != nil {
			return nil, fmt.Errorf("through the node's tunnel: %w", o.err)
		}
		return &conn{Stream: o.stream}, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("through the node's tunnel: %w", ctx.Err())
	}
}

// conn is a stream that says nothing more once it is closed. A stream of yamux would go on until the node has closed it
// too.
type conn struct {
	*yamux.Stream
	closed atomic.Bool
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Stream.Read(b)
	if c.closed.Load() {
		return 0, net.ErrClosed
	}
	return n, err
}

// Close ends the connection, also for who waits to read from it.
func (c *conn) Close() error {
	c.closed.Store(true)
	return errors.Join(c.SetReadDeadline(time.Unix(1, 0)), c.Stream.Close())
}

// Done is closed when the tunnel has ended.
func (s *Session) Done() <-chan struct{} { return s.mux.CloseChan() }

// Close ends the tunnel and all that goes through it.
func (s *Session) Close() error { return s.mux.Close() }

// Serve answers what comes through the node's end of an upgraded connection, until that ends or the context does.
func Serve(ctx context.Context, conn io.ReadWriteCloser, handler http.Handler) error {
	mux, err := yamux.Server(conn, config())
	if err != nil {
		conn.Close()
		return fmt.Errorf("open the tunnel: %w", err)
	}
	s := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	// What is under way ends with the tunnel: nobody is there any more who waits for it.
	defer s.Close()
	err = s.Serve(mux)
	if errors.Is(err, io.EOF) || errors.Is(err, yamux.ErrSessionShutdown) || errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return errors.Join(err, mux.Close())
}
