package lifecycle

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/polyplane/polyplane/node/substrate"
)

// tendEvery is how often the simulated substrate is looked at.
const tendEvery = 5 * time.Second

// tend keeps the simulated nodes' namespaces and links as they must be, until the context ends. No agent could do it:
// an agent may die with its node's only link.
func (u *Up) tend(ctx context.Context, s settings, log io.Writer) {
	tick := time.Tick(tendEvery)
	said := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
		changed, err := substrate.Tend(u.Dirs, s.Substrate)
		if len(changed) > 0 {
			note(log, "put right in the simulated substrate: %s", strings.Join(changed, ", "))
		}
		switch {
		case err == nil:
			said = ""
		case err.Error() != said:
			said = err.Error()
			note(log, "the simulated substrate is not as it must be: %s", said)
		}
	}
}
