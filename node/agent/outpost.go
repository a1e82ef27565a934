package agent

import (
	"context"
	"io"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/trust"
	"github.com/polyplane/polyplane/wire/tunnel"
)

// Headquarters is what an agent on a joined machine needs of the manager, beside what all agents need; client.Client is
// one.
type Headquarters interface {
	Tunnel(ctx context.Context, node string) (io.ReadWriteCloser, error)
	Renew(ctx context.Context, node string, request model.RenewRequest) (model.JoinResult, error)
	// Close lets go of connections that are not in use.
	Close()
}

// Outpost is what an agent on a joined machine has. Nobody can reach it except through a connection that it opens
// itself, and its certificate expires.
type Outpost struct {
	Headquarters Headquarters
	Identity     *trust.Identity
	Machine      model.Machine
	// RenewAfter is the age at which a certificate is renewed; zero stands for two thirds of its life.
	RenewAfter time.Duration
}

// The waits of an outpost.
const (
	firstTunnel = 100 * time.Millisecond
	lastTunnel  = 5 * time.Second
	// renewLook is how often the clock is read: somebody may set it.
	renewLook  = time.Minute
	firstRenew = time.Second
)

// holdTunnel opens the tunnel again whenever it breaks or the manager was away.
func (a *Agent) holdTunnel(ctx context.Context) error {
	wait, told := firstTunnel, false
	for {
		began := time.Now()
		err := a.tunnelOnce(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(began) > lastTunnel {
			wait, told = firstTunnel, false
		}
		if !told {
			a.Log.Info("the tunnel to the manager has ended, or cannot be opened", "error", err)
			told = true
		}
		if !sleep(ctx, wait) {
			return nil
		}
		wait = min(2*wait, lastTunnel)
	}
}

func (a *Agent) tunnelOnce(ctx context.Context) error {
	conn, err := a.Outpost.Headquarters.Tunnel(ctx, a.Dirs.Node)
	if err != nil {
		return err
	}
	return tunnel.Serve(ctx, conn, a.handler())
}

// renew renews the certificate in time, again and again.
func (a *Agent) renew(ctx context.Context) error {
	wait := firstRenew
	for {
		began, at, end := a.Outpost.Identity.Times()
		if early := began.Add(a.Outpost.RenewAfter); early.After(began) {
			at = early
		}
		if left := time.Until(at); left > 0 {
			if !sleep(ctx, min(left, renewLook)) {
				return nil
			}
			continue
		}
		err := a.renewOnce(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			wait = firstRenew
			_, _, end = a.Outpost.Identity.Times()
			a.Log.Info("the node's certificate is renewed", "until", end)
			continue
		}
		if time.Now().After(end) {
			a.Log.Error("the node's certificate has expired: nobody at the manager knows this node any more; join "+
				"again with a token "+
				"for it (`polyplane token create --node "+a.Dirs.Node+"`)", "error", err)
		} else {
			a.Log.Warn("the node's certificate is not renewed yet", "until", end, "error", err)
		}
		if !sleep(ctx, wait) {
			return nil
		}
		wait = min(2*wait, time.Hour)
	}
}

// renewOnce has the manager certify a new key. The key never leaves this machine.
func (a *Agent) renewOnce(ctx context.Context) error {
	key, err := trust.NewKey()
	if err != nil {
		return err
	}
	request, err := key.Request(a.Dirs.Node)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	result, err := a.Outpost.Headquarters.Renew(ctx, a.Dirs.Node, model.RenewRequest{Request: request})
	if err != nil {
		return err
	}
	if err := a.Outpost.Identity.Replace(key, result.Certificate); err != nil {
		return err
	}
	a.Outpost.Headquarters.Close() // what is asked next shows the new one
	return nil
}
