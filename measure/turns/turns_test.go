package turns

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/polyplane/polyplane/measure/netdev"
)

// A loop that fails, before or after it began, ends a round with its error, and so does whoever ends the whole.
func TestTurnsEnd(t *testing.T) {
	var ends [2]netdev.Ref
	for i, name := range []string{"src", "dst"} {
		ns, err := netdev.NewNamespace()
		if err != nil {
			t.Fatal(err)
		}
		defer ns.Close()
		ends[i] = netdev.Ref{Namespace: ns.Path(), Name: name}
	}
	if err := netdev.NewVeth(ends[0], ends[1], 1); err != nil {
		t.Fatal(err)
	}
	failed := errors.New("failed")
	never := func(ctx context.Context, thread func(int)) error {
		thread(os.Getpid())
		<-ctx.Done()
		return ctx.Err()
	}
	for name, c := range map[string]struct {
		second func(context.Context, func(int)) error
		want   error
	}{
		"before": {func(context.Context, func(int)) error { return failed }, failed},
		"after": {func(_ context.Context, thread func(int)) error {
			thread(os.Getpid())
			return failed
		}, failed},
		"without an error": {func(_ context.Context, thread func(int)) error {
			thread(os.Getpid())
			return nil
		}, ErrEnded},
		"the whole": {nil, context.Canceled},
	} {
		ctx, cancel := context.WithCancel(context.Background())
		if c.second == nil {
			c.second = func(ctx context.Context, thread func(int)) error {
				thread(os.Getpid())
				cancel()
				return nil
			}
		}
		if _, err := Take(ctx, []Loop{{ends[0], c.second}, {ends[0], never}},
			rand.New(rand.NewPCG(1, 1))); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		cancel()
	}
}
