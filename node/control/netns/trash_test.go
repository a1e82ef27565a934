package netns

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// What a removed element owned is in the trash, and goes back to a stopped element of its name, of whatever number;
// what that had goes there instead. A life of the driver between changes nothing.
func TestTrash(t *testing.T) {
	n, ctx := newNode(t), context.Background()
	jobs := birdLine("lab", 61, 1)
	id := jobs[0].ID
	items := func(want int) []model.TrashItem {
		t.Helper()
		all, err := n.Trashed(ctx)
		if err != nil || len(all) != want {
			t.Fatalf("the trash has %v (%v), want %d", all, err, want)
		}
		return all
	}
	n.apply(t, jobs)
	n.run(t, id, "sh", "-c", "echo first > /root/work")
	items(0)
	if err := n.Remove(ctx, []model.ID{id}, false); err != nil {
		t.Fatal(err)
	}
	first := items(1)[0]
	if first.Element != id || first.Size == 0 || first.Node != "n1" {
		t.Errorf("%+v", first)
	}
	if err := n.Untrash(ctx, first.ID); err == nil || !strings.Contains(err.Error(), "apply its network again") {
		t.Errorf("restored to an element that is not there: %v", err)
	}
	n.restart(t)
	jobs[0].Index = 62 // it was made again, with another number
	n.apply(t, jobs)
	n.run(t, id, "sh", "-c", "test ! -e /root/work && echo second > /root/work")
	if err := n.Untrash(ctx, first.ID); err == nil || !strings.Contains(err.Error(), "polyplane stop lab/") {
		t.Errorf("restored to an element that runs: %v", err)
	}
	if got := n.run(t, id, "cat", "/root/work"); got != "second\n" {
		t.Fatalf("a refused restore has changed %q", got)
	}
	jobs[0].Element.Stopped = true
	n.apply(t, jobs)
	if err := n.Untrash(ctx, first.ID); err != nil {
		t.Fatal(err)
	}
	jobs[0].Element.Stopped = false
	n.apply(t, jobs)
	if got := n.run(t, id, "cat", "/root/work"); got != "first\n" {
		t.Errorf("after the restore the file says %q", got)
	}
	if got := n.run(t, id, "stat", "-c", "%u", "/root/work"); got != "0\n" {
		t.Errorf("the file's owner inside is %q", got)
	}
	second := items(1)[0]
	if second.ID == first.ID {
		t.Error("what the element had is not in the trash")
	}
	for _, bad := range []string{"", "x", "../x@20261122T000000.000000Z", "lab/../../x@20261122T000000.000000Z",
		"lab/none@20261122T000000.000000Z"} {
		if n.EmptyTrash(ctx, []string{bad}) == nil || n.Untrash(ctx, bad) == nil {
			t.Errorf("%q was taken for an item", bad)
		}
	}
	if err := n.EmptyTrash(ctx, []string{second.ID}); err != nil {
		t.Fatal(err)
	}
	items(0)
	if _, err := os.Stat(n.trashDir()); err == nil {
		t.Error("an empty trash is left behind")
	}
}

// A disk that makes no sense any more is said to be damaged, and what to do; with a new one the element runs, and the
// damaged one is kept.
func TestDamagedDisk(t *testing.T) {
	n, ctx := newNode(t), context.Background()
	jobs := birdLine("lab", 63, 1)
	id := jobs[0].ID
	for _, spoil := range []func(*os.File) error{
		func(f *os.File) error { _, err := f.WriteAt(make([]byte, 8<<20), 0); return err },
		func(f *os.File) error { return f.Truncate(512) },
		func(f *os.File) error { return f.Truncate(0) },
	} {
		n.apply(t, jobs)
		jobs[0].Element.Stopped = true
		n.apply(t, jobs)
		if err := n.unmountDisk(id, 0); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(n.dirs.Disk(id), os.O_RDWR, 0)
		if err == nil {
			err = spoil(f)
			f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		jobs[0].Element.Stopped = false
		r := n.Apply(ctx, jobs)[0]
		if r.Err == nil || !strings.Contains(r.Err.Error(), "its disk is damaged") ||
			!strings.Contains(r.Err.Error(), "restart --new-disk lab/") {
			t.Fatalf("a damaged disk: %v", r.Err)
		}
		if err := n.RenewDisk(ctx, id); err != nil {
			t.Fatal(err)
		}
	}
	n.apply(t, jobs)
	n.run(t, id, "sh", "-c", "echo fresh > /root/work")
	all, err := n.Trashed(ctx)
	if err != nil || len(all) != 3 {
		t.Errorf("the damaged disks are not kept: %v, %v", all, err)
	}
}

// New disks are copies of an empty one that is kept. When that is damaged – zeros, say, since the machine's disk was
// full –, every new disk would be: it is made anew, in the same life of the agent and in the next.
func TestDamagedEmptyDisk(t *testing.T) {
	n, ctx := newNode(t), context.Background()
	jobs := birdLine("lab", 69, 1)
	id := jobs[0].ID
	n.apply(t, jobs)
	empty, err := filepath.Glob(filepath.Join(n.dirs.Data, "disks", ".empty-*"))
	if err != nil || len(empty) != 1 {
		t.Fatalf("there are the empty disks %v (%v)", empty, err)
	}
	for i, spoil := range []func() error{
		func() error { return os.WriteFile(empty[0], make([]byte, 64<<20), 0o600) },
		func() error { return os.Truncate(empty[0], 4096) },
		func() error { // zeros in the middle of its tables
			f, err := os.OpenFile(empty[0], os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteAt(make([]byte, 64<<10), 4096)
			return errors.Join(err, f.Close())
		},
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			n.restart(t)
			n.apply(t, jobs)
		}
		if err := n.RenewDisk(ctx, id); err != nil {
			t.Fatal(err)
		}
		n.apply(t, jobs)
		n.run(t, id, "sh", "-c", "echo fresh > /root/work && sync")
	}
}
