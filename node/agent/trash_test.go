package agent

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
)

// The trash is bounded by age, by its share of the disk and by the disk's room; the oldest goes first.
func TestTrashIsBounded(t *testing.T) {
	now := time.Now()
	var items []model.TrashItem
	for i := range 10 {
		items = append(items, model.TrashItem{ID: fmt.Sprint(i),
			Time: now.Add(-time.Duration(10-i) * 24 * time.Hour), Size: 10 << 20})
	}
	count := func(items []model.TrashItem, disk, free uint64) (n int) {
		for _, ids := range surplus(items, now, disk, free) {
			n += len(ids)
		}
		return n
	}
	const gib = 1 << 30
	for _, c := range []struct {
		disk, free uint64
		want       int
	}{
		{100 * gib, 50 * gib, 3},       // three are older than a week
		{500 << 20, 250 << 20, 5},      // a tenth is 50 MiB
		{100 * gib, 5*gib - 45<<20, 5}, // a twentieth must be free
		{4 * gib, 256<<20 - 45<<20, 5}, // or what is free before anything large is brought there
		{400 << 20, 100 << 20, 6},      // also of a small one; a tenth is 40 MiB
		{800 << 20, 200<<20 - 45<<20, 5},
		{100 * gib, 0, 10},                 // whatever it takes
		{1000 * gib, 20 * gib, 3},          // which is 10 GiB at most
		{100 * gib, 5*gib - 30<<20 + 1, 3}, // what was too old has made room enough
	} {
		if got := count(items, c.disk, c.free); got != c.want {
			t.Errorf("disk %d, free %d: %d are deleted, want %d", c.disk, c.free, got, c.want)
		}
	}
	if got := count(nil, gib, 0); got != 0 {
		t.Error(got)
	}
}

// What an element left behind that was moved away is spared for some hours, once for each, while there is any room.
func TestTrashSparesWhatWasMoved(t *testing.T) {
	now := time.Now()
	item := func(id, element string, ago time.Duration) model.TrashItem {
		return model.TrashItem{ID: id, Element: model.ID{Network: "lab", Element: element}, Time: now.Add(-ago),
			Size: 100 << 20, Moved: true}
	}
	items := []model.TrashItem{item("old", "r1", 7*time.Hour), item("to and fro", "r2", time.Hour),
		item("last", "r2", time.Minute)}
	const gib = 1 << 30
	for _, c := range []struct {
		disk, free uint64
		want       int
	}{{gib / 2, gib / 4, 2}, {4 * gib, 2 * gib, 0}, {100 * gib, 0, 3}} {
		n := 0
		for _, ids := range surplus(items, now, c.disk, c.free) {
			n += len(ids)
			if c.free > 0 && slices.Contains(ids, "last") {
				t.Error("the only other copy is deleted")
			}
		}
		if n != c.want {
			t.Errorf("disk %d, free %d: %d are deleted, want %d", c.disk, c.free, n, c.want)
		}
	}
}

// Who fills the trash drives out his own, and not the one disk that another may want back, however old that is.
func TestTrashIsFair(t *testing.T) {
	now := time.Now()
	items := []model.TrashItem{{ID: "theirs", Element: model.ID{Network: "theirs", Element: "r1"},
		Time: now.Add(-72 * time.Hour), Size: 20 << 20}}
	for i := range 10 {
		items = append(items, model.TrashItem{ID: fmt.Sprint(i), Element: model.ID{Network: "flood", Element: "h"},
			Time: now.Add(time.Duration(i-20) * time.Minute), Size: 10 << 20})
	}
	got := surplus(items, now, 500<<20, 250<<20)["the trash had more than a tenth of the disk"]
	if want := []string{"0", "1", "2", "3", "4", "5", "6"}; !slices.Equal(got, want) {
		t.Errorf("deleted are %v, want %v", got, want)
	}
}

// An owner of many networks drives out the own items, and not those of whoever has one network.
func TestTrashIsFairAmongOwners(t *testing.T) {
	now := time.Now()
	items := []model.TrashItem{{ID: "theirs", Owner: "alice", Element: model.ID{Network: "theirs", Element: "r1"},
		Time: now.Add(-72 * time.Hour), Size: 20 << 20}}
	for i := range 10 {
		items = append(items, model.TrashItem{ID: fmt.Sprint(i), Owner: "bob",
			Element: model.ID{Network: fmt.Sprintf("flood%d", i), Element: "h"},
			Time:    now.Add(time.Duration(i-20) * time.Minute), Size: 10 << 20})
	}
	items[3].Size = 12 << 20 // of his, the network with most goes first
	got := surplus(items, now, 500<<20, 250<<20)["the trash had more than a tenth of the disk"]
	if want := []string{"2", "0", "1", "3", "4", "5", "6"}; !slices.Equal(got, want) {
		t.Errorf("deleted are %v, want %v", got, want)
	}
}

// thrown is a driver's trash.
type thrown struct {
	control.Trash
	items []model.TrashItem
}

func (x *thrown) Trashed(context.Context) ([]model.TrashItem, error) { return x.items, nil }

func (x *thrown) EmptyTrash(_ context.Context, ids []string) error {
	x.items = slices.DeleteFunc(x.items, func(i model.TrashItem) bool { return slices.Contains(ids, i.ID) })
	return nil
}

// What has been in the trash for a week is deleted for good, and that is told; nothing else is.
func TestTrashIsEmptiedByItself(t *testing.T) {
	now := time.Now()
	x := &thrown{items: []model.TrashItem{{ID: "old", Time: now.Add(-8 * 24 * time.Hour)},
		{ID: "new", Time: now.Add(-6 * 24 * time.Hour)}}}
	a := &Agent{Config: Config{Dirs: instance.NodeDirs{Node: "n1", Data: t.TempDir()}},
		reporter: newReporter(nil, "n1", slog.Default())}
	room := func() (disk, free uint64, err error) { return 1 << 40, 1 << 39, nil } // not that of this machine
	for range 2 {
		if err := a.boundTrash(t.Context(), x, now, room); err != nil {
			t.Fatal(err)
		}
	}
	if len(x.items) != 1 || x.items[0].ID != "new" {
		t.Errorf("left are %v", x.items)
	}
	events := a.reporter.events
	if len(events) != 1 || events[0].Reason != "TrashEmptied" || !strings.Contains(events[0].Message, "for a week") {
		t.Errorf("told was %+v", events)
	}
}
