package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/polyplane/polyplane/node/control"
)

// terminal is this process's terminal in raw mode.
type terminal struct {
	fd      int
	resized chan control.Size
}

// interactive tells whether a person sits at both ends.
func (c *CLI) interactive() bool {
	_, in := terminalFD(c.In)
	_, out := terminalFD(c.Out)
	return in && out
}

// withTerminal runs f with the terminal in raw mode. However f ends, the terminal is then as it was before. If there is
// no terminal, f gets one of unknown size.
func (c *CLI) withTerminal(ctx context.Context, f func(*terminal) error) error {
	fd, ok := terminalFD(c.In)
	if !ok {
		return f(&terminal{fd: -1})
	}
	before, err := term.MakeRaw(fd)
	if err != nil {
		return fmt.Errorf("switch the terminal to raw mode: %w", err)
	}
	defer term.Restore(fd, before) //nolint:errcheck // nothing is left to be done about it
	t := &terminal{fd: fd, resized: make(chan control.Size, 1)}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGWINCH)
	over := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-over:
				return
			case <-ctx.Done():
				return
			case <-signals:
				select {
				case <-t.resized: // only the latest size matters
				default:
				}
				t.resized <- t.size()
			}
		}
	}()
	defer func() {
		signal.Stop(signals)
		close(over)
		<-done
	}()
	return f(t)
}

// size is the terminal's, or the traditional 80 × 24 where there is none.
func (t *terminal) size() control.Size {
	if t.fd >= 0 {
		if cols, rows, err := term.GetSize(t.fd); err == nil && cols > 0 && rows > 0 {
			return control.Size{Rows: uint16(rows), Cols: uint16(cols)}
		}
	}
	return control.Size{Rows: 24, Cols: 80}
}
