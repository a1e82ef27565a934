package manager

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
	"github.com/polyplane/polyplane/server/api/client"
)

// agents asks the agents of all nodes at once. It holds no lock while it waits for them.
type agents struct {
	// reach tells how the agents are reached that are there, and why the others are not, by node.
	reach func() (dials map[string]api.Dial, silent map[string]string)
	// gets tells which element an item of the trash goes back to.
	gets  func(model.TrashItem) model.ID
	asked *oneEach
}

// oneEach lets one at a time ask a node: what a hostile node answers takes memory, however many ask at once.
type oneEach struct {
	mu    sync.Mutex               // guards nodes; it is not held while a node is waited for
	nodes map[string]chan struct{} // by name, a token in it while somebody asks
}

// enter waits for the turn to ask a node; leave gives it to the next.
func (o *oneEach) enter(ctx context.Context, node string) (leave func(), err error) {
	o.mu.Lock()
	busy := o.nodes[node]
	if busy == nil {
		busy = make(chan struct{}, 1)
		o.nodes[node] = busy
	}
	o.mu.Unlock()
	select {
	case busy <- struct{}{}:
		return func() { <-busy }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("it has not answered others who asked before: %w", ctx.Err())
	}
}

func newAgents(reach func() (map[string]api.Dial, map[string]string), gets func(model.TrashItem) model.ID) agents {
	return agents{reach, gets, &oneEach{nodes: map[string]chan struct{}{}}}
}

// keptWithin is how long a node may take to say what it was told to have.
const keptWithin = 10 * time.Second

// ask calls the agents that are there. Silent tells which could not be asked, and why.
func (a agents) ask(ctx context.Context, call func(ctx context.Context, node string,
	agent *client.Client) error) (silent map[string]string) {
	ctx, cancel := context.WithTimeout(ctx, keptWithin)
	defer cancel()
	dials, silent := a.reach()
	var mu sync.Mutex
	atOnce(dials, func(name string, dial api.Dial) {
		agent := client.NewAgent(dial, name)
		defer agent.Close()
		leave, err := a.asked.enter(ctx, name)
		if err == nil {
			err = call(ctx, name, agent)
			leave()
		}
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			silent[name] = reasonOf(err.Error()) // in it may be the agent's own words
		}
	})
	return silent
}

// kept asks all nodes what they were told to have. silent are those that did not answer, and why.
func (a agents) kept(ctx context.Context) (states map[string]model.NodeState, silent map[string]string) {
	states = map[string]model.NodeState{}
	var mu sync.Mutex
	silent = a.ask(ctx, func(ctx context.Context, node string, agent *client.Client) error {
		s, err := agent.Kept(ctx)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			states[node] = s
		}
		return err
	})
	return states, silent
}

// reach is what agents needs.
func (m *known) reach() (dials map[string]api.Dial, silent map[string]string) {
	dials, silent = map[string]api.Dial{}, map[string]string{}
	m.mu.RLock()
	defer m.mu.RUnlock()
	for name, n := range m.nodes {
		if n.watches == 0 {
			silent[name] = "its agent is away"
			continue
		}
		dials[name] = n.dial()
	}
	return dials, silent
}
