package manager

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/admission"
	"github.com/polyplane/polyplane/server/api"
)

// Move moves an element to another node with what it owns on disk, or tells what that would do. It returns when the
// move has begun; Moves tells how far it is.
func (v *moves) Move(ctx context.Context, id model.ID, request model.MoveRequest) (model.MoveResult, error) {
	m := v.manager
	var d *admission.Draft
	look := func() ([]*network, error) {
		old, err := m.alive(ctx, id.Network)
		return []*network{old}, err
	}
	settled, err := m.settle(ctx, look, func(olds []*network) (err error) {
		if _, there := olds[0].index[id.Element]; !there {
			return olds[0].noElement(id.Element)
		}
		d, err = admission.DrawMove(olds[0].admitted(), id.Element, request.To, time.Now().UTC())
		return problemOf(err)
	})
	if err != nil {
		return model.MoveResult{}, err
	}
	defer m.changing.Unlock()
	old := settled[0]
	result, err := v.begins(old, id, &request)
	if err != nil {
		return model.MoveResult{}, err
	}
	_, others, err := m.situations([]model.Document{{Network: d.Network()}})
	if err != nil {
		return model.MoveResult{}, err
	}
	s := m.situationOf(others, api.Only(ctx) != "", d)
	next, err := s.Move(d, id.Element)
	if err != nil {
		return model.MoveResult{}, problemOf(err)
	}
	result.Links = admission.MovedLinks(&old.record, &next.Record)
	result.Promise = admission.PromiseOf(old.admitted(), id.Element)
	if was, is := nodeOf(&old.record, id.Element), nodeOf(&next.Record, id.Element); was != is {
		result.Notes = append(result.Notes, fmt.Sprintf("its file says node: %s, which it would go back to with the "+
			"next apply of that; write node: %s there", was, is))
	}
	switch {
	case request.DryRun:
		return result, nil
	case !request.Cold:
		return model.MoveResult{}, api.Conflict("%s stands still while it is moved, for about %s: say that this may "+
			"be (--cold); --dry-run tells what it interrupts", id, time.Duration(result.Stands))
	}
	result.Move = newMove()
	record := old.next()
	record.Moving = &model.Moving{Move: result.Move, Element: id.Element, From: result.From, To: result.To,
		Began: record.Modified, Step: model.MoveCopying, Placement: next.Record.Assigned.Placement}
	c := &change{record: record, resolved: old.resolved, object: id.String(), reason: "MoveBegun", message: fmt.Sprintf(
		"it is being moved from node %s to node %s: it stands still, and its disk is sent", result.From, result.To)}
	if err := m.commit(ctx, c); err != nil {
		return model.MoveResult{}, err
	}
	v.look()
	return result, nil
}

// nodeOf is the node that an element is pinned to.
func nodeOf(r *model.Record, element string) string {
	for i := range r.Network.Elements {
		if e := &r.Network.Elements[i]; e.Name == element {
			return e.Node
		}
	}
	return ""
}

// newMove names a move.
func newMove() string {
	var b [8]byte
	rand.Read(b[:]) //nolint:errcheck // it never fails
	return hex.EncodeToString(b[:])
}

// begins tells what a move begins with, or why it cannot begin, whether or not there is room at the new node.
func (v *moves) begins(old *network, id model.ID, request *model.MoveRequest) (model.MoveResult, error) {
	v.known.mu.RLock()
	defer v.known.mu.RUnlock()
	r := model.MoveResult{ID: id, From: old.record.Assigned.Placement.Elements[id.Element], To: request.To}
	e := &old.resolved.Elements[old.index[id.Element]]
	if e.Kind != model.Switch {
		r.Most = e.Limits().Disk
	}
	to, err := v.nodes.named(request.To)
	switch from := v.nodes[r.From]; {
	case err != nil:
		return r, err
	case r.From == r.To:
		return r, api.Conflict("%s is on node %s already", id, r.To)
	case old.record.Moving != nil:
		return r, api.Conflict("%s was moved to node %s, which has not taken up its disk yet; try again when that is "+
			"done (`polyplane get moves`)", old.record.Moving.Element, old.record.Moving.To)
	case to.mute() != "" || !to.heard:
		return r, api.Unavailable(fmt.Errorf("%s is not moved: node %s does not answer now", id, r.To))
	case from == nil || from.mute() != "" || !from.heard:
		return r, api.Conflict("%s is not moved: node %s, which has its disk, does not answer now. If that is lost "+
			"for good, an apply of its file with `node: %s` and --lose-files makes it there anew", id, r.From, r.To)
	}
	is := v.nodes.elementStatus(old, id.Element)
	if is.Incident != nil && old.record.Overrides[id.Element].Decided < is.Incident.At.UnixNano() {
		return r, api.Conflict("%s is not moved: its node has cut it off, and nobody has decided about that yet "+
			"(`polyplane quarantine` or `polyplane release`)", id)
	}
	if is.Usage != nil {
		r.Disk = is.Usage.Disk
	}
	if to.disk > 0 && to.diskFree < r.Disk+r.Disk/8 {
		return r, api.Conflict("%s is not moved: its disk takes %s, and that of node %s has %s free", id,
			r.Disk.Rounded(), r.To, to.diskFree.Rounded())
	}
	r.Stands = stands(r.Disk, e.Kind)
	return r, nil
}

// stands is about how long an element stands still: measured on two cores with many elements beside, rounded up. What
// it was in the end is told by the event.
func stands(disk model.Bytes, kind model.Kind) model.Duration {
	if kind == model.Switch {
		return model.Duration(time.Second)
	}
	const start, rate = 2 * time.Second, 64 << 20 // bytes a second
	return model.Duration((start + time.Duration(disk)*time.Second/rate).Round(time.Second))
}

// Moves are those that are under way, and the latest that have ended, of one network or of all.
func (v *moves) Moves(ctx context.Context, network string) ([]model.MoveStatus, error) {
	only := api.Only(ctx)
	if network != "" {
		if _, err := v.alive(ctx, network); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(v.all(), func(s model.MoveStatus) bool {
		return network != "" && s.ID.Network != network || only != "" && s.Owner != only
	}), nil
}
