package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// maxSocketPath is what fits into a socket's address (unix(7): 108 bytes with the final zero).
const maxSocketPath = 107

// Listen opens a Unix socket that only this user (root) may connect to. A socket that a dead process left behind is
// replaced; one that is served is not.
func Listen(ctx context.Context, socket string) (net.Listener, error) {
	// Under another name first: nobody can connect before the mode is right, and the stale socket is replaced at once.
	fresh := fmt.Sprintf("%s.%d", socket, os.Getpid())
	if len(fresh) > maxSocketPath {
		return nil, fmt.Errorf("listen on %s: the path is too long for a socket (at most %d bytes); use a shorter instance name",
			socket, maxSocketPath-len(fresh)+len(socket))
	}
	conn, err := (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, "unix", socket)
	switch {
	case err == nil:
		conn.Close()
		return nil, fmt.Errorf("listen on %s: another process serves it; `polyplane down` ends that", socket)
	case !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("listen on %s: %w", socket, err)
	}
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", socket, err)
	}
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listen on %s: %w", socket, err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", fresh)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", socket, err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(fresh, 0o600), os.Rename(fresh, socket)); err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", socket, err), l.Close(), os.Remove(fresh))
	}
	return l, nil
}

// Serve answers on the listeners until the context ends, then ends all streams and returns nil when they have ended.
// Whoever comes by a Unix socket is root of this machine; all others must be TLS connections.
func Serve(ctx context.Context, handler http.Handler, listeners ...net.Listener) error {
	base, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	server := &http.Server{
		Handler:           handler,
		BaseContext:       func(net.Listener) context.Context { return base },
		ConnContext:       markUnix,
		ReadHeaderTimeout: 30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		// Whoever asks for "OPTIONS *" is answered by the handler as well, which does not wait for what is not sent.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     log.New(slogWriter{}, "", 0), // handshakes that fail are everyday life on a network
	}
	failed := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() {
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("serve %s: %w", l.Addr(), err)
				return
			}
			failed <- nil
		}()
	}
	var err error
	waiting := len(listeners)
	select {
	case err = <-failed:
		waiting--
	case <-ctx.Done():
	}
	end()
	grace, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if server.Shutdown(grace) != nil {
		server.Close() // whoever still holds on after that is cut off
	}
	for range waiting {
		<-failed
	}
	return err
}
