package manager

import (
	"strings"
	"sync"
	"time"

	"github.com/polyplane/polyplane/model"
)

// keptEvents is how many events are kept in memory.
const keptEvents = 8192

// news is what has happened, and tells watchers that something that they see has changed. Its lock is its own: it may
// be taken while the manager's is held, never the other way round.
type news struct {
	mu      sync.Mutex    // guards all below
	ring    []model.Event // event number seq is at ring[(seq-1) % keptEvents]
	last    int64         // sequence number of the latest
	more    chan struct{} // closed with the next event
	changed chan struct{} // closed when something changes that users see
	// count says how often each kind of event happened. Reasons are constants of the code, so there are only so many.
	count map[eventKind]uint64
}

// eventKind is what /metrics counts events by.
type eventKind struct {
	severity model.Severity
	reason   string
}

func newNews() *news {
	return &news{more: make(chan struct{}), changed: make(chan struct{}), count: map[eventKind]uint64{}}
}

// add records an event, which does not by itself count as a change that users see.
func (e *news) add(ev model.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
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

// Events returns what is kept of the events after since, and a channel that is closed when there are more. If since is
// in the future, it comes from another life of the manager, and all kept events are new to the caller.
func (e *news) Events(since int64) ([]model.Event, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if since > e.last {
		since = 0
	}
	first := max(since, e.last-int64(len(e.ring))) + 1
	out := make([]model.Event, 0, e.last-first+1)
	for seq := first; seq <= e.last; seq++ {
		out = append(out, e.ring[(seq-1)%keptEvents])
	}
	return out, e.more
}

// event records something about the platform itself: the manager, a node, a token.
func (e *news) event(severity model.Severity, object, reason, message, node string) {
	e.add(model.Event{Severity: severity, Object: object, Reason: reason, Message: message, Node: node})
	e.touch()
}

// networkEvent records something about a network or a part of it. Its owner sees that. The caller holds the lock.
func (k *known) networkEvent(severity model.Severity, object, reason, message, node string) {
	e := model.Event{Severity: severity, Object: object, Network: networkOf(object), Reason: reason,
		Message: message, Node: node}
	k.sign(&e)
	k.add(e)
	k.touch()
}

// sign enters whose an event's network is, and what it is called. The caller holds the lock.
func (k *known) sign(e *model.Event) {
	is := k.nameOf(e.Network)
	e.Owner, e.Title = is.Owner, is.Title
}

// touch tells watchers that something they see has changed. Who has changed it still holds the lock that guards it, so
// that nobody looks too early.
func (e *news) touch() {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.changed)
	e.changed = make(chan struct{})
}

// Changed returns a channel that is closed when something that Dump tells has changed.
func (e *news) Changed() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.changed
}

// networkOf is the network that an event's object is, or belongs to. A network's name contains neither of the
// characters that may follow it.
func networkOf(object string) string {
	if end := strings.IndexAny(object, "/ "); end >= 0 {
		return object[:end]
	}
	return object
}
