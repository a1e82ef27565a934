package manager

import (
	"strings"
	"time"

	"github.com/polyplane/polyplane/model"
)

// keptEvents is how many events are kept in memory.
const keptEvents = 8192

// events is a ring of the latest events. The Manager's lock guards it.
type events struct {
	ring []model.Event // event number seq is at ring[(seq-1) % keptEvents]
	last int64         // sequence number of the latest
	more chan struct{} // closed with the next event
	// count says how often each kind of event happened. Reasons are constants of the code, so there are only so many.
	count map[eventKind]uint64
}

type eventKind struct {
	severity model.Severity
	reason   string
}

func newEvents() events { return events{more: make(chan struct{}), count: map[eventKind]uint64{}} }

func (e *events) add(ev model.Event) {
	e.last++
	kind := eventKind{ev.Severity, ev.Reason}
	if _, known := e.count[kind]; !known && len(e.count) >= maxEventKinds {
		kind.reason = "Other"
	}
	e.count[kind]++
	ev.Seq = e.last
	if ev.Time.IsZero() {
		ev.Time = time.Now()
	}
	if len(e.ring) < keptEvents {
		e.ring = append(e.ring, ev)
	} else {
		e.ring[(e.last-1)%keptEvents] = ev
	}
	close(e.more)
	e.more = make(chan struct{})
}

// after returns the kept events after since. If since is in the future, it comes from another life of the manager, and
// all kept events are new to the caller.
func (e *events) after(since int64) []model.Event {
	if since > e.last {
		since = 0
	}
	first := max(since, e.last-int64(len(e.ring))) + 1
	out := make([]model.Event, 0, e.last-first+1)
	for seq := first; seq <= e.last; seq++ {
		out = append(out, e.ring[(seq-1)%keptEvents])
	}
	return out
}

// Events returns what is kept of the events after since, and a channel that is closed when there are more.
func (m *Manager) Events(since int64) ([]model.Event, <-chan struct{}) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.events.after(since), m.events.more
}

// event records something about the platform itself: the manager, a node, a token. The caller holds the lock.
func (m *Manager) event(severity model.Severity, object, reason, message, node string) {
	m.events.add(model.Event{Severity: severity, Object: object, Reason: reason, Message: message, Node: node})
	m.touch()
}

// networkEvent records something about a network or a part of it. Its owner sees that. The caller holds the lock.
func (m *Manager) networkEvent(severity model.Severity, object, reason, message, node string) {
	m.events.add(model.Event{Severity: severity, Object: object, Network: networkOf(object), Reason: reason,
		Message: message, Node: node})
	m.touch()
}

// networkOf is the network that an event's object is, or belongs to. A network's name contains neither of the
// characters that may follow it.
func networkOf(object string) string {
	if end := strings.IndexAny(object, "/ "); end >= 0 {
		return object[:end]
	}
	return object
}
