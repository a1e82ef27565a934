package manager

import (
	"context"
	"fmt"
	"time"

	"github.com/polyplane/polyplane/model"
)

// ear measures the time in which this process could hear. If the manager was stopped, its machine slept, or it did not
// get a processor, it cannot blame a node for silence in that time. It counts its own ticks, and uses no clock that
// anybody sets.
type ear struct {
	time time.Duration
	last time.Time
}

// listenEvery is the time between two ticks. At each, the nodes are looked at. A tick that comes late counts as
// listenMost at most.
const (
	listenEvery = time.Second
	listenMost  = 2 * listenEvery
)

func (e *ear) tick(now time.Time) {
	if !e.last.IsZero() {
		e.time += min(now.Sub(e.last), listenMost)
	}
	e.last = now
}

// listen ends the leases of silent nodes, until the context ends.
func (m *Manager) listen(ctx context.Context) {
	tick := time.Tick(listenEvery)
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick:
			m.listened(now)
		}
	}
}

// listened looks at all nodes after a tick.
func (m *Manager) listened(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ear.tick(now)
	for _, n := range m.nodes {
		m.readiness(n)
	}
}

// Beat takes a sign of life from a node's agent.
func (m *Manager) Beat(b model.Beat) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.nodes.named(b.Node)
	if err != nil {
		return err
	}
	b.Step = model.Shorten(b.Step, maxToldText)
	n.beat = b
	n.hear()
	m.readiness(n)
	return nil
}

// hear notes that the node's agent has said something. The caller holds the lock.
func (n *node) hear() { n.heardAt, n.lastSeen = n.ear.time, time.Now() }

// silence is how long nothing has been heard of the node. The caller holds the lock.
func (n *node) silence() time.Duration { return n.ear.time - n.heardAt }

// condition is how the node is and, if it is not ready, why. The caller holds the lock.
func (n *node) condition() (is model.Condition, why string) {
	switch {
	case n.silence() > model.LeaseTime && n.watches == 0:
		return model.Unknown, fmt.Sprintf("its agent is away, and has not been heard of for %s", seconds(n.silence()))
	case n.silence() > model.LeaseTime:
		return model.Unknown, fmt.Sprintf("nothing has been heard of its agent for %s, although it is connected: it "+
			"hangs, or its machine does", seconds(n.silence()))
	case n.watches == 0:
		return model.NotReady, "its agent is away"
	case n.still() != "":
		return model.NotReady, n.still()
	case n.problem != "":
		return model.NotReady, n.problem
	case n.offers.Barren() != "":
		return model.NotReady, n.offers.Barren()
	case !n.heard:
		return model.NotReady, "its agent is starting"
	}
	return model.Ready, ""
}

// ready tells that the node's agent is there, that its loop goes round, and that it reports nothing wrong. The caller
// holds the lock.
func (n *node) ready() bool {
	is, _ := n.condition()
	return is == model.Ready
}

// still says why the agent's loop counts as hanging; empty if it goes round. The caller holds the lock.
func (n *node) still() string {
	if time.Duration(n.beat.Still) < model.StillTime {
		return ""
	}
	step := "waiting for something to do"
	if n.beat.Step != "" {
		step = fmt.Sprintf("%q", n.beat.Step)
	}
	return fmt.Sprintf("its agent's loop has been at %s for %s without any progress", step,
		seconds(time.Duration(n.beat.Still)))
}

// mute says why everything known of the node is only what it told last; empty if it is up to date. The caller holds the
// lock.
func (n *node) mute() string {
	switch _, why := n.condition(); {
	case n.watches == 0 && n.silence() <= model.LeaseTime:
		return fmt.Sprintf("the agent of node %s is away", n.Name)
	case n.watches == 0, n.silence() > model.LeaseTime, n.still() != "":
		return fmt.Sprintf("node %s: %s", n.Name, why)
	}
	return ""
}

// lost returns whether the node has been mute for so long that nobody should wait for it. The caller holds the lock.
func (n *node) lost() bool {
	return n.silence() > model.LeaseTime || n.watches > 0 && n.still() != ""
}

// toldBefore is how old the knowledge about a mute node is. The caller holds the lock.
func (n *node) toldBefore() model.Duration {
	if n.lastSeen.IsZero() {
		return 0
	}
	return model.Duration(max(time.Millisecond,
		(time.Since(n.lastSeen) + time.Duration(n.beat.Still)).Round(time.Millisecond)))
}

func seconds(d time.Duration) time.Duration { return d.Round(time.Second) }

// readiness tells of a node whose condition has changed since it was last told. The caller holds the lock.
func (k *known) readiness(n *node) {
	is, why := n.condition()
	was := n.said
	if is == was && (is == model.Ready || why == n.saidWhy || n.mute() != "") {
		return
	}
	n.said, n.saidWhy = is, why
	switch {
	case is == model.Ready:
		k.event(model.Info, n.Name, "NodeReady", "node "+n.Name+" is ready", n.Name)
	case is == model.Unknown && was != "":
		k.event(model.Error, n.Name, "NodeUnknown",
			fmt.Sprintf("node %s: %s; what runs there goes on running, and is shown as it was last told",
				n.Name, why), n.Name)
	case was == model.Ready && n.watches == 0:
		k.event(model.Warning, n.Name, "NodeAway", "the agent of node "+n.Name+
			" is away; what runs there goes on running", n.Name)
	case was == model.Ready || was == model.NotReady && n.problem != "", n.still() != "":
		k.event(model.Error, n.Name, "NodeProblem", "node "+n.Name+": "+why, n.Name)
	default:
		return
	}
	k.touch()
	k.poke()
}
