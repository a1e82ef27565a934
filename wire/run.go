package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/polyplane/polyplane/node/control"
)

// lookEvery is how often Serve sees whether the far side is still there.
const lookEvery = 2 * time.Second

// Serve runs a command behind the stream: run gets its standard streams and returns its exit status. Its context ends
// when the far side goes away. Serve sends the exit frame and closes the connection.
func Serve(ctx context.Context, c *Conn, tty bool, run func(context.Context, control.Stdio) (int, error)) Exit {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer c.Close()
	in, feed := io.Pipe()
	resize := make(chan control.Size, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := pump(c, feed, resize)
		feed.CloseWithError(err)
		cancel(fmt.Errorf("the far side went away: %w", err))
	}()
	// A command that does not read its input blocks the pump, which then does not see the connection's end. A write
	// does see it.
	over := make(chan struct{})
	var looking sync.WaitGroup
	looking.Go(func() {
		tick := time.Tick(lookEvery)
		for {
			select {
			case <-over:
				return
			case <-tick:
				if err := c.Write(Stdout, nil); err != nil {
					cancel(fmt.Errorf("the far side went away: %w", err))
					return
				}
			}
		}
	})
	stdio := control.Stdio{In: in, Out: c.Stream(Stdout), Resize: resize}
	if !tty {
		stdio.Err = c.Stream(Stderr)
	}
	code, err := run(ctx, stdio)
	close(over)
	e := Exit{Code: code}
	if err != nil {
		e.Error = err.Error()
	}
	c.SendExit(e) //nolint:errcheck // whoever has gone does not read it
	in.CloseWithError(io.ErrClosedPipe)
	c.Close()
	<-done
	looking.Wait()
	return e
}

// pump delivers the far side's frames until the connection ends.
func pump(c *Conn, feed *io.PipeWriter, resize chan control.Size) error {
	closed := false
	for {
		f, err := c.Next()
		if err != nil {
			return err
		}
		switch f.Type {
		case Stdin:
			if closed {
				return errors.New("stream: standard input after its end")
			}
			// A command that has closed its input is no reason to stop listening: later input is dropped.
			if _, err := feed.Write(f.Payload); err != nil && !errors.Is(err, io.ErrClosedPipe) {
				return err
			}
		case StdinClosed:
			closed = true
			feed.Close()
		case Resize:
			s, err := f.Size()
			if err != nil {
				return err
			}
			// Only the latest size matters.
			select {
			case <-resize:
			default:
			}
			resize <- s
		default:
			return fmt.Errorf("stream: unexpected %s frame from the client", f.Type)
		}
	}
}

// Attach connects local standard streams with a command behind the stream and returns when it has ended. In may be nil:
// the command then reads the end of file at once. What blocks in a read of In is left behind.
func Attach(ctx context.Context, c *Conn, stdio control.Stdio) (Exit, error) {
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	over := make(chan struct{})
	defer close(over)
	go func() {
		if stdio.In != nil {
			// An error of the connection shows at the reader below, one of In means that nothing more will come.
			io.Copy(onlyWriter{c.Stream(Stdin)}, stdio.In) //nolint:errcheck
		}
		c.Write(StdinClosed, nil) //nolint:errcheck
	}()
	if stdio.Resize != nil {
		go func() {
			for {
				select {
				case <-over:
					return
				case s, ok := <-stdio.Resize:
					if !ok || c.SendSize(s) != nil {
						return
					}
				}
			}
		}()
	}
	for {
		f, err := c.Next()
		if err != nil {
			if ctx.Err() != nil {
				return Exit{}, context.Cause(ctx)
			}
			return Exit{}, fmt.Errorf("the connection broke before the command ended, as when an agent or the "+
				"manager is restarted, which does not touch the element: %w", err)
		}
		switch f.Type {
		case Stdout:
			_, err = stdio.Out.Write(f.Payload)
		case Stderr:
			if stdio.Err != nil {
				_, err = stdio.Err.Write(f.Payload)
			}
		case ExitFrame:
			return f.Exit()
		default:
			err = fmt.Errorf("stream: unexpected %s frame from the server", f.Type)
		}
		if err != nil {
			return Exit{}, err
		}
	}
}

// onlyWriter hides every method but Write, so that io.Copy takes its own small buffer.
type onlyWriter struct{ io.Writer }
