package agent

import (
	"context"
	"sync"
	"time"

	"github.com/polyplane/polyplane/model"
)

// pulse shows whether the loop goes round. Only the loop, and what works on its behalf, notes progress. Whoever asks
// learns how many beats have passed without any. Beats are counted instead of time, so that an agent that was stopped,
// or whose machine slept, does not look hung.
type pulse struct {
	node string

	mu    sync.Mutex // guards all below. It is never held while anything is waited for, so a hung loop can be told of.
	turns uint64     // times that the loop came round
	step  string     // what it does; empty while it waits
	still int        // beats since the last progress
}

// at notes that the loop begins a step.
func (p *pulse) at(step string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.step, p.still = step, 0
}

// rest notes that the loop has come round and now waits.
func (p *pulse) rest() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turns++
	p.step, p.still = "", 0
}

// progress notes that a long step goes on.
func (p *pulse) progress() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.still = 0
}

// count is a beat's worth of time.
func (p *pulse) count() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.still++
}

func (p *pulse) beat() model.Beat {
	p.mu.Lock()
	defer p.mu.Unlock()
	return model.Beat{Node: p.node, Turns: p.turns, Step: p.step,
		Still: model.Duration(time.Duration(p.still) * model.BeatEvery)}
}

// tell sends every beat to the manager, until the context ends. If the manager does not answer, it gets the next beat.
func (p *pulse) tell(ctx context.Context, m Manager) error {
	tick := time.Tick(model.BeatEvery)
	busy := make(chan struct{}, 1)
	var last sync.WaitGroup
	defer last.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick:
		}
		p.count()
		select {
		case busy <- struct{}{}:
			last.Go(func() {
				defer func() { <-busy }()
				ctx, cancel := context.WithTimeout(ctx, model.LeaseTime)
				defer cancel()
				_ = m.Beat(ctx, p.beat()) // if the manager is away, it gets the next one
			})
		default: // it has not answered the last one yet
		}
	}
}
