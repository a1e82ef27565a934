package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
)

// What is thrown away stays in the trash for this long, and takes at most a tenth of the disk that it is on, or less
// where that disk is nearly full.
const (
	trashLook  = 30 * time.Second
	trashAge   = 7 * 24 * time.Hour
	trashShare = 10       // one part of so many
	leastFree  = 20       // one part in so many of the disk must be free
	mostLeast  = 10 << 30 // or so many bytes
	// movedStays is how long the disk of an element that was moved away is spared, as long as there is any room: until
	// the element runs at its new node, it may be the only other copy.
	movedStays = 6 * time.Hour
)

// trashes are the drivers that have a trash.
func (a *Agent) trashes() []control.Trash {
	var all []control.Trash
	for _, d := range a.Drivers.Controls {
		if t, ok := d.(control.Trash); ok {
			all = append(all, t)
		}
	}
	return all
}

// boundTrash deletes for good what is too old or too much for the room that the disk has.
func (a *Agent) boundTrash(ctx context.Context, t control.Trash, now time.Time,
	room func() (disk, free uint64, err error)) error {
	items, err := t.Trashed(ctx)
	if err != nil || len(items) == 0 {
		return err
	}
	disk, free, err := room()
	if err != nil {
		return err
	}
	return a.deleteTrash(ctx, t, surplus(items, now, disk, free))
}

// leastOf is what must be free of a disk so that nothing of the trash is deleted: not less than what stays free of
// whatever large things are brought there. What is larger than what is free beyond that is refused, whatever is in the
// trash: it does not give way to what is yet to come.
func leastOf(disk uint64) uint64 {
	return max(min(disk/leastFree, mostLeast), uint64(linux.Room{Size: int64(disk)}.Spare()))
}

// surplus are the items to delete, by reason. If there is too much, those of the owner who has the most in the trash go
// first, and of them those of the network that has most: somebody who throws much away drives out his own things, and
// not what others may want back. A network of which no owner was noted counts as an owner.
func surplus(items []model.TrashItem, now time.Time, disk, free uint64) map[string][]string {
	out := map[string][]string{}
	total, of := uint64(0), map[keeper]uint64{}
	count := func(i *model.TrashItem, size uint64) {
		whose := keeperOf(i)
		of[keeper{owner: whose.owner}] += size
		of[whose] += size
		total += size
	}
	for i := range items {
		count(&items[i], uint64(items[i].Size))
	}
	least, share := leastOf(disk), disk/trashShare
	var left, spared []model.TrashItem // the oldest first
	last := map[model.ID]bool{}        // somebody who moves to and fro has one copy spared
	for _, i := range slices.Backward(items) {
		if i.Moved && now.Sub(i.Time) < movedStays && !last[i.Element] {
			last[i.Element] = true
			spared = append(spared, i)
			count(&i, -uint64(i.Size))
		} else {
			left = append(left, i)
		}
	}
	slices.Reverse(left)
	slices.Reverse(spared)
	remove := func(at int, why string) { // the item
		i := left[at]
		left = slices.Delete(left, at, at+1)
		out[why] = append(out[why], i.ID)
		count(&i, -uint64(i.Size))
		free += uint64(i.Size)
	}
	for len(left) > 0 && now.Sub(left[0].Time) > trashAge {
		remove(0, "they were there for a week")
	}
	for len(left) > 0 || len(spared) > 0 && free < least {
		if len(left) == 0 {
			for i := range spared {
				count(&spared[i], uint64(spared[i].Size))
			}
			left, spared, share = spared, nil, math.MaxUint64
		}
		why := ""
		switch {
		case total > share:
			why = "the trash had more than a tenth of the disk"
		case free < least:
			why = "the disk is nearly full"
		default:
			return out
		}
		at := 0
		for k := range left {
			a, b := keeperOf(&left[k]), keeperOf(&left[at])
			if cmp.Or(cmp.Compare(of[keeper{owner: a.owner}], of[keeper{owner: b.owner}]),
				cmp.Compare(of[a], of[b])) > 0 {
				at = k
			}
		}
		remove(at, why)
	}
	return out
}

// keeper is who has something in the trash: an owner, with one network.
type keeper struct{ owner, network string }

func keeperOf(i *model.TrashItem) keeper {
	return keeper{cmp.Or(i.Owner, "/"+i.Element.Network), i.Element.Network}
}

func (a *Agent) deleteTrash(ctx context.Context, t control.Trash, items map[string][]string) error {
	for why, ids := range items {
		if err := t.EmptyTrash(ctx, ids); err != nil {
			return err
		}
		a.event(model.Info, a.Dirs.Node, "TrashEmptied",
			fmt.Sprintf("the files of %d removed elements were deleted for good, since %s", len(ids), why))
	}
	return nil
}

// discard deletes at once what was thrown away since then by networks that asked to leave nothing.
func (a *Agent) discard(ctx context.Context, since time.Time) error {
	var now []string
	for _, g := range a.desired.Gone {
		if g.Now {
			now = append(now, g.Name)
		}
	}
	if len(now) == 0 {
		return nil
	}
	for _, t := range a.trashes() {
		items, err := t.Trashed(ctx)
		if err != nil {
			return err
		}
		var ids []string
		for _, i := range items {
			if slices.Contains(now, i.Element.Network) && !i.Time.Before(since.UTC().Truncate(time.Microsecond)) {
				ids = append(ids, i.ID)
			}
		}
		if err := t.EmptyTrash(ctx, ids); err != nil {
			return err
		}
	}
	return nil
}

// listTrash, restoreTrash and emptyTrash are the agent's API for it.
func (a *Agent) listTrash(w http.ResponseWriter, r *http.Request) error {
	var list model.TrashList
	for _, t := range a.trashes() {
		more, err := t.Trashed(r.Context())
		if err != nil {
			return err
		}
		list.Items = append(list.Items, more...)
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(list)
}

func (a *Agent) restoreTrash(w http.ResponseWriter, r *http.Request) error {
	return a.changeTrash(w, r, func(t control.Trash, request model.TrashOrder) error {
		for _, item := range request.Items {
			if err := t.Untrash(r.Context(), item, request.Into[item], request.AnyOwner); err != nil {
				return &httpError{http.StatusConflict, err.Error()}
			}
		}
		return nil
	})
}

func (a *Agent) emptyTrash(w http.ResponseWriter, r *http.Request) error {
	return a.changeTrash(w, r, func(t control.Trash, request model.TrashOrder) error {
		return t.EmptyTrash(r.Context(), request.Items)
	})
}

func (a *Agent) changeTrash(w http.ResponseWriter, r *http.Request,
	do func(control.Trash, model.TrashOrder) error) error {
	var request model.TrashOrder
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 16<<20)).Decode(&request); err != nil {
		return &httpError{http.StatusBadRequest, err.Error()}
	}
	for _, t := range a.trashes() {
		if err := do(t, request); err != nil {
			return err
		}
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// renewDisk gives an element a new disk when it is started next.
func (a *Agent) renewDisk(w http.ResponseWriter, r *http.Request) error {
	id := idOf(r)
	d, err := driver[control.Trash](a, id, "give elements new disks")
	if err != nil {
		return err
	}
	if err := d.RenewDisk(r.Context(), id); err != nil {
		return &httpError{http.StatusConflict, err.Error()}
	}
	a.event(model.Warning, id.String(), "DiskRenewed", "gets a new disk; the one that it had is in the trash")
	w.WriteHeader(http.StatusNoContent)
	return nil
}
