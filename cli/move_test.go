package cli

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api/client"
)

func (f *fake) Move(_ context.Context, id model.ID, request model.MoveRequest) (model.MoveResult, error) {
	r := model.MoveResult{ID: id, From: "n1", To: request.To, Disk: 1 << 20, Most: 256 << 20,
		Stands: model.Duration(2 * time.Second), Links: []model.MovedLink{{Link: "r1--r2",
			After: []model.LinkPath{{Nodes: []string{"n1", "n2"}}}}},
		Promise: model.MovePromise{Keeps: []string{"its disk"}, Interrupts: []string{"all traffic through it"},
			Loses: []string{"what is in memory"}}, Notes: []string{"its file says node: n1"}}
	switch {
	case request.To == "n9":
		return r, &client.Error{Status: http.StatusNotFound, Detail: "there is no node n9"}
	case request.DryRun:
	case !request.Cold:
		return r, &client.Error{Status: http.StatusConflict, Detail: "it stands still: say --cold"}
	default:
		r.Move = "m1"
	}
	return r, f.up()
}

func (f *fake) Moves(context.Context, string) ([]model.MoveStatus, error) {
	if len(f.moving) == 0 {
		return nil, f.up()
	}
	is := f.moving[0]
	if len(f.moving) > 1 {
		f.moving = f.moving[1:]
	}
	return []model.MoveStatus{is}, f.up()
}

func TestMove(t *testing.T) {
	id := model.ID{Network: "lab", Element: "r2"}
	at := func(step model.MoveStep, message string) model.MoveStatus {
		s := model.MoveStatus{Moving: model.Moving{Move: "m1", Element: "r2", From: "n1", To: "n2", Began: now, Step: step},
			ID: id, Sent: 1 << 20, Message: message}
		if step == model.MoveDone || step == model.MoveUndone {
			s.Ended, s.Stands = now, model.Duration(1500*time.Millisecond)
		}
		return s
	}
	for _, c := range []struct {
		args   string
		moving []model.MoveStatus
		code   int
		want   []string
	}{
		{"move lab/r2 --to n2 --dry-run", nil, 0, []string{"lab/r2 would move from node n1 to node n2",
			"  keeps         its disk\n", "  interrupts    all traffic", "  loses         what is in memory",
			"  copies        1MiB of its disk, which may have 256MiB", "  stands still  for about 2s",
			"  link          r1--r2: within n1, then n1→n2", "note: its file says node: n1"}},
		{"move lab/r2 --to n2 --cold", []model.MoveStatus{at(model.MoveCopying, ""), at(model.MoveStarting, ""),
			at(model.MoveDone, "")}, 0, []string{"lab/r2 moves from node n1 to node n2",
			"lab/r2 is on node n2 with its disk (1MiB); it stood still for 1.5 s"}},
		{"move lab/r2 --to n2 --cold", []model.MoveStatus{at(model.MoveUndone, "the disk of node n2 is full")},
			ExitFailed, []string{"lab/r2 was not moved, and goes on at node n1: the disk of node n2 is full"}},
		{"move lab/r2 --to n2 --cold", []model.MoveStatus{at(model.MoveDone, "no such program")}, ExitFailed,
			[]string{"and fails there: no such program"}},
		{"move lab/r2 --to n2", nil, ExitRefused, []string{"say --cold"}},
		{"move lab/r2", nil, ExitUsage, []string{"--to NODE"}},
		{"get moves", []model.MoveStatus{at(model.MoveDone, "")}, 0, []string{"ELEMENT", "lab/r2", "done", "1.5 s"}},
	} {
		f := lab()
		f.moving = c.moving
		is := run(t, f, strings.Fields(c.args)...)
		if is.code != c.code {
			t.Errorf("%s: status %d, want %d: %s", c.args, is.code, c.code, is.err)
		}
		for _, want := range c.want {
			if !strings.Contains(is.out+is.err, want) {
				t.Errorf("%s: %q is missing in\n%s%s", c.args, want, is.out, is.err)
			}
		}
	}
}
