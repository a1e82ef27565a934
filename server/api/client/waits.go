package client

import (
	"context"
	"time"
)

// tellAfter is how long a change may go without an answer before it is asked what it waits for; tellAgain is how often
// it is told then.
const (
	tellAfter = 2 * time.Second
	tellAgain = 15 * time.Second
)

// Telling has the client tell what changes wait for, in words, when an answer takes longer than usual and the manager
// knows why. It returns the client.
func (c *Client) Telling(tell func(what string)) *Client {
	c.tell, c.tellAfter = tell, tellAfter
	return c
}

// tellWaits tells what a change waits for, until end is called.
func (c *Client) tellWaits(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for after := c.tellAfter; ; {
			select {
			case <-ctx.Done():
				return
			case <-time.After(after):
			}
			pong, err := c.Ping(ctx)
			if after = c.tellAfter; err == nil && pong.Waits != "" {
				c.tell(pong.Waits)
				after = tellAgain
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}
