// Package socket serves a Unix socket that only its owner may connect to, and that is made again when somebody removes
// it.
package socket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// maxPath is what fits into a socket's address (unix(7): 108 bytes with the final zero).
const maxPath = 107

// look is how often a listener checks that its socket is still there: soon enough for a `get` one second later.
const look = 500 * time.Millisecond

// Listen opens a Unix socket that only this user (root) may connect to. A socket that a dead process left behind is
// replaced; one that is served is not. One that somebody removes, or puts something else in the place of, is made
// again.
func Listen(ctx context.Context, path string) (net.Listener, error) {
	l, err := open(ctx, path)
	if err != nil {
		return nil, err
	}
	k := &kept{path: path, accepted: make(chan result), done: make(chan struct{})}
	if err := k.take(l); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	k.wg.Go(func() { k.watch() })
	return k, nil
}

func open(ctx context.Context, path string) (*net.UnixListener, error) {
	// Under another name first: nobody can connect before the mode is right, and the stale socket is replaced at once.
	fresh := fmt.Sprintf("%s.%d", path, os.Getpid())
	if len(fresh) > maxPath {
		return nil, fmt.Errorf("listen on %s: the path is too long for a socket (at most %d bytes); use a shorter "+
			"instance name", path, maxPath-len(fresh)+len(path))
	}
	conn, err := (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		conn.Close()
		return nil, fmt.Errorf("listen on %s: another process serves it; `polyplane down` ends that", path)
	case !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", fresh)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	unix := l.(*net.UnixListener)
	unix.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(fresh, 0o600), os.Rename(fresh, path)); err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", path, err), l.Close(), os.Remove(fresh))
	}
	return unix, nil
}

// kept is a listener that comes back.
type kept struct {
	path     string
	accepted chan result
	done     chan struct{}
	once     sync.Once
	wg       sync.WaitGroup

	mu      sync.Mutex // guards current and is, which watch replaces
	current *net.UnixListener
	is      os.FileInfo // of the socket
}

type result struct {
	conn net.Conn
	err  error
}

// take starts to accept what comes to a listener, and closes the listener before it.
func (k *kept) take(l *net.UnixListener) error {
	is, err := os.Lstat(k.path)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", k.path, err)
	}
	k.mu.Lock()
	before := k.current
	k.current, k.is = l, is
	k.mu.Unlock()
	if before != nil {
		before.Close()
	}
	k.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			select {
			case k.accepted <- result{conn, err}:
			case <-k.done:
				if conn != nil {
					conn.Close()
				}
				return
			}
		}
	})
	return nil
}

// watch looks for the socket, and makes it again.
func (k *kept) watch() {
	tick := time.Tick(look)
	told := ""
	for {
		select {
		case <-k.done:
			return
		case <-tick:
		}
		k.mu.Lock()
		was := k.is
		k.mu.Unlock()
		is, err := os.Lstat(k.path)
		if err == nil && os.SameFile(is, was) {
			if told = ""; is.Mode().Perm() != 0o600 {
				slog.Warn("the socket's mode was changed; it is set again", "socket", k.path, "mode",
					is.Mode().Perm().String())
				_ = os.Chmod(k.path, 0o600) // looked at again
			}
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		l, err := open(ctx, k.path)
		cancel()
		if err == nil {
			if err = k.take(l); err != nil {
				l.Close()
			}
		}
		switch {
		case err == nil:
			slog.Warn("the socket was removed; it is made again", "socket", k.path)
		case told != err.Error():
			told = err.Error()
			slog.Error("the socket was removed and cannot be made again yet", "socket", k.path, "error", err)
		}
	}
}

// Accept waits for a connection.
func (k *kept) Accept() (net.Conn, error) {
	select {
	case r := <-k.accepted:
		return r.conn, r.err
	case <-k.done:
		return nil, net.ErrClosed
	}
}

// Close ends the listener. The socket stays, as what nobody serves.
func (k *kept) Close() error {
	k.once.Do(func() { close(k.done) })
	k.mu.Lock()
	l := k.current
	k.mu.Unlock()
	err := l.Close()
	k.wg.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current != l { // made again in the last moment
		err = k.current.Close()
	}
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Addr is the socket's.
func (k *kept) Addr() net.Addr { return &net.UnixAddr{Name: k.path, Net: "unix"} }
