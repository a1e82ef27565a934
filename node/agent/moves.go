package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
)

// arrival is an element whose disk is being sent here, and whose it is.
type arrival struct {
	model.Arrival
	owner string
}

// moves are what is known of elements that are being moved.
type moves struct {
	mu       sync.Mutex           // guards arriving: the API must not wait for the loop
	arriving map[model.ID]arrival // never changed in place
	leaving  map[model.ID]string  // the moves of elements that leave, as far as the node's disk knows; likewise
	settled  map[model.ID]bool    // of the latest pass: those that have the disk that was sent
}

func (m *moves) expected(id model.ID) (a arrival, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a, ok = m.arriving[id]
	return a, ok
}

// noted tells whether a next life of the agent would know, too, that an element leaves by this move. Before that,
// nobody gets its disk, since that life would start it beside the one at the new node.
func (m *moves) noted(id model.ID, move string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return move != "" && m.leaving[id] == move
}

// note remembers what has been written to the node's disk, or read from there.
func (m *moves) note(s *model.NodeState) {
	leaving := map[model.ID]string{}
	for i := range s.Networks {
		for k := range s.Networks[i].Elements {
			if e := &s.Networks[i].Elements[k]; e.Leaving != "" {
				leaving[model.ID{Network: s.Networks[i].Name, Element: e.Name}] = e.Leaving
			}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leaving = leaving
}

// mover is the driver that moves disks; nil if there is none.
func (a *Agent) mover() control.Mover {
	for _, d := range a.Drivers.Controls {
		if m, ok := d.(control.Mover); ok {
			return m
		}
	}
	return nil
}

// settleMoves has elements that have come take up their disks, and clears away what was sent and is not wanted any
// more.
func (a *Agent) settleMoves(ctx context.Context) {
	a.moves.mu.Lock()
	a.moves.arriving = a.plan.arriving
	a.moves.mu.Unlock()
	a.moves.settled = map[model.ID]bool{}
	mover := a.mover()
	if mover == nil {
		return
	}
	wanted := maps.Clone(a.plan.arrived)
	for id, move := range a.plan.arrived {
		a.pulse.at("take up the disk of " + id.String())
		settled, err := mover.Settle(ctx, id, move)
		if err != nil {
			a.Log.Warn("take up a disk that was sent", "element", id, "error", err)
		}
		a.moves.settled[id] = settled
	}
	for id, arrival := range a.plan.arriving {
		wanted[id] = arrival.Move
	}
	if !a.complete || len(a.plan.held) > 0 || len(a.held) > 0 {
		return // somebody may have forgotten what is wanted
	}
	if err := mover.KeepArrivals(ctx, wanted); err != nil {
		a.Log.Warn("clear away disks that were sent", "error", err)
	}
}

// departure sends the disk of an element that leaves.
func (a *Agent) departure(w http.ResponseWriter, r *http.Request) error {
	id, move := idOf(r), r.URL.Query().Get("move")
	d, err := driver[control.Mover](a, id, "be moved with what they own on disk")
	if err != nil {
		return err
	}
	if !a.moves.noted(id, move) {
		return notYet(fmt.Errorf("%w: node %s has not noted on its disk that element %s leaves", control.ErrNotYet,
			a.Dirs.Node, id))
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	to := &begun{w: w}
	if err := d.Depart(r.Context(), id, move, to); err != nil {
		if to.yes {
			panic(http.ErrAbortHandler) // whoever reads it must not take it for whole
		}
		return notYet(err)
	}
	return nil
}

// begun notes that the head of an answer has been sent.
type begun struct {
	w   http.ResponseWriter
	yes bool
}

func (b *begun) Write(p []byte) (int, error) {
	b.yes = true
	return b.w.Write(p)
}

// arrival takes the disk of an element that is about to come.
func (a *Agent) arrival(w http.ResponseWriter, r *http.Request) error {
	id, move := idOf(r), r.URL.Query().Get("move")
	expected, ok := a.moves.expected(id)
	if !ok || expected.Move != move {
		return notYet(fmt.Errorf("%w: node %s has not been told that element %s comes", control.ErrNotYet, a.Dirs.Node,
			id))
	}
	d := a.mover()
	if d == nil {
		return &httpError{http.StatusNotImplemented, "this node has no driver that takes disks"}
	}
	if err := d.Arrive(r.Context(), id.Network, expected.owner, expected.Arrival, r.Body); err != nil {
		if errors.Is(err, control.ErrNotYet) {
			return notYet(err)
		}
		// Whoever still sends would not get the answer, and this one tells what is wrong.
		io.Copy(io.Discard, io.LimitReader(r.Body, 2*int64(expected.Disk))) //nolint:errcheck // err counts
		return notYet(err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// notYet gives an error its status: what will be possible in a moment is a 503, everything else a 409.
func notYet(err error) error {
	status := http.StatusConflict
	if errors.Is(err, control.ErrNotYet) || errors.Is(err, context.Canceled) {
		status = http.StatusServiceUnavailable
	}
	return &httpError{status, err.Error()}
}
