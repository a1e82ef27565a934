package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/admission"
	"github.com/polyplane/polyplane/server/api"
	"github.com/polyplane/polyplane/server/api/client"
)

// A move is a part of its network's record, and so are its steps. So whoever becomes the manager goes on with it, and
// an element has one owner at any time: the node that the record places it on. Each step may be repeated.
//
//	copying   The old node has stopped the element, and leaves its disk alone. The manager passes the disk on to the new
//	          node, which keeps it. If anything fails, or either node is away for too long, the move is taken back: the
//	          element goes on where it was. What the new node has of it goes to that node's trash.
//	starting  The record places the element on the new node, which takes the disk up. The old node puts the one that it
//	          has into its trash. There is no way back any more.
const (
	// moveWaits is how long a step is tried again before a move is taken back, and how long a stream of a disk may
	// stand still.
	moveWaits = 30 * time.Second
	moveRest  = 50 * time.Millisecond
	// mostChecking is how long the new node may take to look at a disk that has come, as long as its agent is there.
	mostChecking = 12 * time.Minute
	// handRests is how long the manager rests at most between two tries to store that an element is the new node's.
	handRests = 2 * time.Second
	// mostMoving is how many disks are sent at a time, and mostEnded how many moves that have ended are remembered.
	mostMoving = 4
	mostEnded  = 256
)

// moves carries out the moves that records tell of.
type moves struct {
	*known
	manager  *Manager
	changed  chan struct{} // has the records looked at
	sending  chan struct{} // holds a token for each disk that is being sent
	patience time.Duration
	// at is called at each step, for tests.
	at func(step string)

	mu     sync.Mutex                  // guards all below; it may be taken while the manager's is held
	under  map[string]model.MoveStatus // by move
	ended  []model.MoveStatus          // the latest last
	halted map[string]time.Time        // since when the element stands still, by move
}

func newMoves(k *known, m *Manager) moves {
	return moves{known: k, manager: m, changed: make(chan struct{}, 1), sending: make(chan struct{}, mostMoving),
		patience: moveWaits, at: func(string) {}, under: map[string]model.MoveStatus{},
		halted: map[string]time.Time{}}
}

// look has the records looked at.
func (v *moves) look() {
	select {
	case v.changed <- struct{}{}:
	default:
	}
}

// run carries out moves until the context ends.
func (v *moves) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	tick := time.Tick(loopEvery) // what was restored, or came with a backup
	for {
		v.known.mu.RLock()
		for name, n := range v.networks {
			m := n.record.Moving
			if n.damaged != nil || n.record.Deleting || m == nil || !v.begin(n, m) {
				continue
			}
			wg.Go(func() {
				v.carry(ctx, name, m.Move)
				v.mu.Lock()
				defer v.mu.Unlock()
				delete(v.under, m.Move)
				delete(v.halted, m.Move)
			})
		}
		v.known.mu.RUnlock()
		select {
		case <-ctx.Done():
			return
		case <-v.changed:
		case <-tick:
		}
	}
}

// begin notes that somebody carries out a move, and returns false if somebody does already.
func (v *moves) begin(n *network, m *model.Moving) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, there := v.under[m.Move]; there {
		return false
	}
	name := n.record.Network.Name
	v.under[m.Move] = model.MoveStatus{Moving: *m, ID: model.ID{Network: name, Element: m.Element},
		Owner: n.record.WhoseItIs(), Title: n.record.Network.Called()}
	v.halted[m.Move] = m.Began
	return true
}

// all are the moves under way, and then those that have ended, the latest first.
func (v *moves) all() (all []model.MoveStatus) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, s := range v.under {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b model.MoveStatus) int {
		return cmp.Or(b.Began.Compare(a.Began), cmp.Compare(a.Move, b.Move))
	})
	for _, s := range slices.Backward(v.ended) {
		all = append(all, s)
	}
	return all
}

// note changes what is told of a move.
func (v *moves) note(move string, change func(*model.MoveStatus)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if s, there := v.under[move]; there {
		change(&s)
		v.under[move] = s
	}
}

// end remembers how a move has ended.
func (v *moves) end(move string, step model.MoveStep, message string) (s model.MoveStatus) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s = v.under[move]
	s.Step, s.Message, s.Ended, s.Placement = step, message, time.Now().UTC(), model.Placement{}
	if since := v.halted[move]; !since.IsZero() {
		s.Stands = model.Duration(s.Ended.Sub(since).Round(time.Millisecond))
	}
	v.under[move] = s
	if v.ended = append(v.ended, s); len(v.ended) > mostEnded {
		v.ended = slices.Delete(v.ended, 0, len(v.ended)-mostEnded)
	}
	return s
}

// now is the record's word about a move; nil when it has ended.
func (v *moves) now(network, move string) (*network, *model.Moving) {
	v.known.mu.RLock()
	defer v.known.mu.RUnlock()
	return v.current(network, move)
}

// current is now for who holds the manager's lock.
func (v *moves) current(name, move string) (*network, *model.Moving) {
	n := v.networks[name]
	if n == nil || n.damaged != nil || n.record.Deleting || n.record.Moving == nil || n.record.Moving.Move != move {
		return nil, nil
	}
	return n, n.record.Moving
}

// carry takes a move from step to step until it has ended.
func (v *moves) carry(ctx context.Context, name, move string) {
	began, step := time.Now(), model.MoveStep("")
	var failing time.Time // since when nothing but failures came
	failed := func(id model.ID, m *model.Moving, err error) (ended bool) {
		if ctx.Err() != nil {
			return false
		}
		if failing.IsZero() {
			failing = time.Now()
		}
		why := reasonOf(err.Error())
		v.note(move, func(s *model.MoveStatus) { s.Message = why })
		return (client.StaysRefused(err) || time.Since(failing) > v.patience) && v.undo(ctx, id, m, why)
	}
	for ctx.Err() == nil {
		n, m := v.now(name, move)
		if m == nil {
			v.end(move, model.MoveUndone, "it was given up: its network has been changed, or removed")
			return
		}
		if step != m.Step {
			began, step = time.Now(), m.Step
		}
		v.note(move, func(s *model.MoveStatus) { s.Step = m.Step })
		id := model.ID{Network: name, Element: m.Element}
		if m.Step == model.MoveStarting {
			if v.hasStarted(n, m, time.Since(began) > v.patience) && v.finish(ctx, id, m) {
				return
			}
		} else if sent, err := v.send(ctx, id, n, m); err == nil {
			failing = time.Time{}
			v.note(move, func(s *model.MoveStatus) { s.Sent, s.Message = sent, "" })
			v.at("sent")
			// The disk is there: what is tried again is only to store that.
			for rest := moveRest; ctx.Err() == nil; rest = min(2*rest, handRests) {
				if err = v.hand(ctx, id, m, sent); err == nil {
					break
				}
				if is, _ := v.now(name, move); is == nil {
					break
				}
				if failed(id, m, fmt.Errorf("its network cannot be stored with the element at its new node: %w", err)) {
					return
				}
				sleep(ctx, rest)
			}
			continue
		} else if failed(id, m, err) {
			return
		}
		sleep(ctx, moveRest)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// send passes a disk on from the old node to the new one, which keeps it.
func (v *moves) send(ctx context.Context, id model.ID, n *network, m *model.Moving) (model.Bytes, error) {
	select {
	case v.sending <- struct{}{}:
		defer func() { <-v.sending }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	v.known.mu.RLock()
	dials := map[string]api.Dial{}
	var err error
	for _, node := range []string{m.From, m.To} {
		on := v.nodes[node]
		switch {
		case on == nil:
			err = fmt.Errorf("the substrate has no node %s any more", node)
		case on.watches == 0:
			err = fmt.Errorf("the agent of node %s is away", node)
		default:
			dials[node] = on.dial()
		}
	}
	v.known.mu.RUnlock()
	if err != nil {
		return 0, err
	}
	from, to := client.NewAgent(dials[m.From], m.From), client.NewAgent(dials[m.To], m.To)
	defer from.Close()
	defer to.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := newWatchdog(v.patience, cancel, func(node string) bool { return v.manager.muteNode(node) == "" }, m)
	defer watch.end()
	because := func(err error) error {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
			return cause
		}
		return err
	}
	disk, err := from.Departure(ctx, id, m.Move)
	if err != nil {
		return 0, because(fmt.Errorf("node %s: %w", m.From, err))
	}
	defer disk.Close()
	v.at("sending")
	counted := &countedReader{r: disk, read: func(sum int64) {
		watch.progress()
		v.note(m.Move, func(s *model.MoveStatus) { s.Sent = model.Bytes(sum) })
	}, end: watch.checking}
	err = to.Arrival(ctx, id, m.Move, counted)
	counted.mu.Lock() // whoever answered early may have left it to be read
	defer counted.mu.Unlock()
	switch {
	case counted.err != nil && !client.StaysRefused(err):
		return 0, because(fmt.Errorf("node %s broke off: %w", m.From, counted.err))
	case err != nil:
		return 0, because(fmt.Errorf("node %s: %w", m.To, err))
	}
	return model.Bytes(counted.sum), nil
}

// countedReader tells how much has been read, and remembers the error with which it ended.
type countedReader struct {
	r    io.Reader
	read func(sum int64)
	end  func() // is called at the end of the stream
	mu   sync.Mutex
	sum  int64
	err  error
}

func (c *countedReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sum += int64(n); n > 0 {
		c.read(c.sum)
	}
	switch {
	case errors.Is(err, io.EOF):
		c.end()
	case err != nil:
		c.err = err
	}
	return n, err
}

// watchdog ends the sending of a disk when nothing happens. While the new node looks at what has come, it need only be
// there.
type watchdog struct {
	mu       sync.Mutex
	timer    *time.Timer
	patience time.Duration
	waits    string    // for this node
	checks   time.Time // since when the new node has all of the disk
	to       string
}

func newWatchdog(patience time.Duration, cancel context.CancelCauseFunc, there func(node string) bool,
	m *model.Moving) *watchdog {
	w := &watchdog{patience: patience, waits: m.From, to: m.To}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(patience, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.checks.IsZero() && time.Since(w.checks) < mostChecking && there(w.to) {
			w.timer.Reset(patience)
			return
		}
		why := fmt.Errorf("nothing was heard of its disk for %s: node %s does not answer", patience, w.waits)
		if w.waits == "" {
			why = fmt.Errorf("its disk did not get on for %s, from node %s to node %s", patience, m.From, m.To)
		}
		cancel(why)
	})
	return w
}

func (w *watchdog) progress() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waits = ""
	w.timer.Reset(w.patience)
}

func (w *watchdog) checking() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waits, w.checks = w.to, time.Now()
	w.timer.Reset(w.patience)
}

func (w *watchdog) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
}

// change stores the next step of a move, if it still is at the one that m tells.
func (v *moves) change(ctx context.Context, id model.ID, m *model.Moving,
	next func(n *network, r *model.Record, c *change)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := v.changing.LockFor(ctx, ""); err != nil {
		return err
	}
	defer v.changing.Unlock()
	n, is := v.now(id.Network, m.Move)
	if is == nil || is.Step != m.Step {
		return errors.New("it has been given up meanwhile")
	}
	c := &change{record: n.next(), resolved: n.resolved, object: id.String()}
	next(n, &c.record, c)
	return v.manager.commit(ctx, c)
}

// hand makes the element the new node's.
func (v *moves) hand(ctx context.Context, id model.ID, m *model.Moving, sent model.Bytes) error {
	return v.change(ctx, id, m, func(n *network, r *model.Record, c *change) {
		next := *r
		next.Assigned.Placement = m.Placement
		next.Assigned.Turns = maps.Clone(r.Assigned.Turns)
		for _, l := range admission.MovedLinks(r, &next) {
			delete(next.Assigned.Turns, l.Link) // the path that it was to take is another's now
		}
		if len(next.Assigned.Turns) == 0 {
			next.Assigned.Turns = nil
		}
		r.Assigned = next.Assigned
		is := *m
		is.Step, is.Placement = model.MoveStarting, model.Placement{}
		r.Moving = &is
		if nodeOf(r, m.Element) == m.From {
			r.Network.Elements = slices.Clone(r.Network.Elements)
			c.resolved.Elements = slices.Clone(c.resolved.Elements)
			pin(r.Network.Elements, m.Element, m.To)
			pin(c.resolved.Elements, m.Element, m.To)
		}
		c.reason, c.message = "MoveSent", fmt.Sprintf("node %s has its disk (%s, %s after the begin), and starts it",
			m.To, sent.Rounded(), time.Since(m.Began).Round(time.Millisecond))
	})
}

func pin[I any](elements []model.ElementOf[I], name, node string) {
	for i := range elements {
		if elements[i].Name == name {
			elements[i].Node = node
		}
	}
}

// undo takes a move back: the element goes on where it was.
func (v *moves) undo(ctx context.Context, id model.ID, m *model.Moving, why string) bool {
	err := v.change(ctx, id, m, func(_ *network, r *model.Record, c *change) {
		r.Moving = nil
		c.reason, c.message = "MoveUndone", fmt.Sprintf("its move to node %s was taken back, and it goes on at node "+
			"%s: %s", m.To, m.From, why)
	})
	if err == nil {
		v.end(m.Move, model.MoveUndone, why)
	}
	return err == nil
}

// hasStarted tells whether the new node has taken up the disk, and made the element what it is to be. Software that
// takes long to be ready is not waited for.
func (v *moves) hasStarted(n *network, m *model.Moving, late bool) bool {
	v.known.mu.RLock()
	defer v.known.mu.RUnlock()
	on := v.nodes[m.To]
	if on == nil || on.mute() != "" {
		return false
	}
	is := v.nodes.elementStatus(n, m.Element)
	v.note(m.Move, func(s *model.MoveStatus) { s.Message = is.Message })
	return is.Arrived == m.Move && (late || is.Phase != model.PhasePending && is.Phase != model.PhaseStarting)
}

// finish ends a move.
func (v *moves) finish(ctx context.Context, id model.ID, m *model.Moving) bool {
	v.at("finish")
	v.note(m.Move, func(s *model.MoveStatus) { s.Message = "" })
	v.known.mu.RLock()
	message := ""
	if n, _ := v.current(id.Network, m.Move); n != nil {
		if is := v.nodes.elementStatus(n, m.Element); is.Phase == model.PhaseFailed {
			message = is.Message
		}
	}
	v.known.mu.RUnlock()
	stood, was := "", "its old node"
	if !m.Began.IsZero() { // else the network was put together from the nodes
		stood = fmt.Sprintf(", and stood still for %s", time.Since(m.Began).Round(time.Millisecond))
	}
	if m.From != "" {
		was = "node " + m.From
	}
	err := v.change(ctx, id, m, func(_ *network, r *model.Record, c *change) {
		r.Moving = nil
		c.reason, c.message = "MoveDone", fmt.Sprintf("it is on node %s with its disk%s; the disk that it "+
			"had on %s is in the trash there", m.To, stood, was)
		if message != "" {
			c.message += "; it fails there: " + message
		}
	})
	if err != nil {
		return false
	}
	v.end(m.Move, model.MoveDone, message)
	return true
}
