package api

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/polyplane/polyplane/wire/socket"
)

// Listen opens a Unix socket that only this user (root) may connect to, and that is made again when somebody removes
// it.
func Listen(ctx context.Context, path string) (net.Listener, error) { return socket.Listen(ctx, path) }

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
		// handshakes that fail are everyday life on a network
		ErrorLog: log.New(slogWriter{}, "", 0),
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
