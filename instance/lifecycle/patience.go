package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// readyWithin is how long the manager and all agents usually take to be there at most, once started. A busy or an
// emulated machine takes longer; who has typed `up` is told what it waits for meanwhile, and can end it, so they may
// take typed times as long. Where systemd waits nobody would decide what to do next: giving up would only begin again
// from the beginning, and a slow machine with many networks would never be up. There it is slowly times as long.
const (
	readyWithin = 60 * time.Second
	typed       = 4
	slowly      = 15
)

var errNotReady = errors.New("not ready in time")

// patience is one wait for daemons that have been started.
type patience struct {
	up      *Up
	systemd bool
	step    time.Duration // what readyWithin is
	within  time.Duration

	asked, said time.Time // when systemd was asked to wait, and when it was said for what
}

// patience begins a wait. The context ends with it.
func (u *Up) patience(ctx context.Context) (*patience, context.Context, context.CancelFunc) {
	p := &patience{up: u, systemd: os.Getenv("NOTIFY_SOCKET") != "",
		step: cmp.Or(u.within, readyWithin), said: time.Now()}
	p.within = typed * p.step
	if p.systemd {
		p.within = slowly * p.step
	}
	ctx, cancel := context.WithTimeoutCause(ctx, p.within, errNotReady)
	return p, ctx, cancel
}

// goesOn is called while a daemon is not there yet. It has systemd wait longer than TimeoutStartSec= (sd_notify(3)),
// and says now and then for what: in the journal, or to who has typed `up`. Daemons that hang are ended by those who
// ask them (watch), and counted.
func (p *patience) goesOn(daemon string) {
	now := time.Now()
	if !p.systemd {
		if now.Sub(p.said) >= p.step/4 {
			p.said = now
			lines := strings.Split(tail(filepath.Join(p.up.Dirs.Logs(), daemon+".log")), "\n")
			p.up.say("waiting for %s, which is not ready yet; its log ends with: %s", named(daemon),
				strings.TrimSpace(lines[len(lines)-1]))
		}
		return
	}
	if now.Sub(p.asked) >= p.step/6 {
		p.asked = now
		// It asks again by ending this process.
		_ = tellSystemd(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d\nSTATUS=waiting for %s",
			(2 * p.step).Microseconds(), named(daemon)))
	}
	if now.Sub(p.said) >= p.step {
		p.said = now
		p.up.say("%v", p.up.explain(daemon, "is not ready yet"))
	}
}

// over is the error of a wait whose context has ended; the context's own unless it took too long.
func (p *patience) over(ctx context.Context, daemon string) error {
	if context.Cause(ctx) == errNotReady {
		return p.up.explain(daemon, "is not ready after "+p.within.String())
	}
	return ctx.Err()
}

// named is a daemon in words.
func named(daemon string) string { return strings.Replace(daemon, "agent-", "the agent of node ", 1) }
