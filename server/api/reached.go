package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/polyplane/polyplane/model"
)

// How long whoever asks waits for an agent that is being started again, and how often it is tried.
const (
	agentPatience = 4 * time.Second
	agentRetry    = 50 * time.Millisecond
	agentDial     = 5 * time.Second
)

// reached is an agent that has answered, with the connection on which it did.
type reached struct {
	Reach

	mu   sync.Mutex // guards conn
	conn net.Conn   // nil once somebody has taken it
}

// reachAgent connects to the agent of an element's node, and waits until it says that it is there. The kernel accepts
// connections for a process that is stopped or about to die. What is sent on such a connection may arrive or be lost,
// and a command must not be sent twice on a guess. An agent that has said nothing has begun nothing, so a connection
// may be tried again. That is needed, since for a moment the manager takes an agent that was killed for one that runs.
func reachAgent(ctx context.Context, agents Agents, id model.ID) (*reached, error) {
	until := time.Now().Add(agentPatience)
	for {
		reach, err := agents.Agent(ctx, id)
		if err != nil {
			return nil, err
		}
		to := &reached{Reach: reach}
		if to.conn, err = greet(ctx, reach.Dial); err == nil {
			return to, nil
		}
		// One that was stopped is not tried again: whoever asks has waited long enough.
		if errors.Is(err, os.ErrDeadlineExceeded) || time.Now().After(until) {
			return nil, to.silent(id, err)
		}
		select {
		case <-time.After(agentRetry):
		case <-ctx.Done():
			return nil, to.silent(id, ctx.Err())
		}
	}
}

// greet connects to an agent and waits for its first answer. The connection then serves for what is really asked.
func greet(ctx context.Context, dial Dial) (net.Conn, error) {
	within, cancel := context.WithTimeout(ctx, agentDial)
	defer cancel()
	conn, err := dial(within)
	if err != nil {
		return nil, err
	}
	unhook := context.AfterFunc(ctx, func() { conn.Close() })
	defer unhook()
	if err := hello(conn); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// hello asks an agent for its pulse, without the answer's body: nothing is simpler for it.
func hello(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(2 * model.LeaseTime)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "HEAD /v1/pulse HTTP/1.1\r\nHost: agent\r\n\r\n"); err != nil {
		return err
	}
	// It may be another program, on a machine of somebody else's: its answer is bounded, and whatever it is will do.
	answer, err := http.ReadResponse(bufio.NewReader(io.LimitReader(conn, maxAgentProblem)),
		&http.Request{Method: http.MethodHead})
	if err != nil {
		return err
	}
	answer.Body.Close() //nolint:errcheck // there is none
	return conn.SetDeadline(time.Time{})
}

// take gives the connection away, once.
func (r *reached) take() (net.Conn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn == nil {
		return nil, errors.New("the connection to the agent was used before")
	}
	conn := r.conn
	r.conn = nil
	return conn, nil
}

// leave closes a connection that nobody has taken.
func (r *reached) leave() {
	if conn, err := r.take(); err == nil {
		conn.Close()
	}
}

// silent says that the agent does not answer, and why.
func (r *reached) silent(id model.ID, err error) *Problem {
	return Unavailable(fmt.Errorf("%s: the agent of node %s does not answer: %w", id, r.Node, err))
}
