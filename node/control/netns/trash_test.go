package netns

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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
	if err := n.Untrash(ctx, first.ID, model.ID{}, true); err == nil || !strings.Contains(err.Error(), "apply its network again") {
		t.Errorf("restored to an element that is not there: %v", err)
	}
	n.restart(t)
	jobs[0].Index = 62 // it was made again, with another number
	n.apply(t, jobs)
	n.run(t, id, "sh", "-c", "test ! -e /root/work && echo second > /root/work")
	if err := n.Untrash(ctx, first.ID, model.ID{}, true); err == nil || !strings.Contains(err.Error(), "polyplane stop lab/") {
		t.Errorf("restored to an element that runs: %v", err)
	}
	if got := n.run(t, id, "cat", "/root/work"); got != "second\n" {
		t.Fatalf("a refused restore has changed %q", got)
	}
	jobs[0].Element.Stopped = true
	n.apply(t, jobs)
	if err := n.Untrash(ctx, first.ID, model.ID{}, true); err != nil {
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
		if n.EmptyTrash(ctx, []string{bad}) == nil || n.Untrash(ctx, bad, model.ID{}, true) == nil {
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

// Whose a disk was goes into the trash with it, also when the driver has begun again since, and it goes back to an
// element of somebody else only if that is said. Nor does it go to one that may have less disk.
func TestTrashKnowsTheOwner(t *testing.T) {
	n, ctx := newNode(t), context.Background()
	jobs := birdLine("lab", 64, 1)
	id := jobs[0].ID
	thrown := func(owner string) model.TrashItem {
		t.Helper()
		all, err := n.Trashed(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range all {
			if i.Owner == owner {
				return i
			}
		}
		t.Fatalf("the trash has %v, and nothing of %q", all, owner)
		return model.TrashItem{}
	}
	remove := func() {
		t.Helper()
		if err := n.Remove(ctx, []model.ID{id}, false); err != nil {
			t.Fatal(err)
		}
	}
	write := func(word string) {
		t.Helper()
		n.run(t, id, "sh", "-c", "echo "+word+" > /root/work")
	}
	stop := func(stopped bool) {
		t.Helper()
		jobs[0].Element.Stopped = stopped
		n.apply(t, jobs)
	}
	n.apply(t, jobs) // as an earlier polyplane left it: nobody noted whose it was
	write("nobodys")
	remove()
	thrown("")
	jobs[0].Owner = "bob"
	n.apply(t, jobs)
	jobs[0].Owner = "alice" // was given to her
	n.apply(t, jobs)
	write("alices")
	n.restart(t)
	remove()
	hers := thrown("alice")
	jobs[0].Owner, jobs[0].Index = "bob", 65
	n.apply(t, jobs)
	write("bobs")
	stop(true)
	for _, item := range []model.TrashItem{hers, thrown("")} {
		if err := n.Untrash(ctx, item.ID, model.ID{}, false); err == nil || !strings.Contains(err.Error(), "--any-owner") {
			t.Errorf("what was %q's was given to bob: %v", item.Owner, err)
		}
	}
	stop(false)
	if got := n.run(t, id, "cat", "/root/work"); got != "bobs\n" {
		t.Fatalf("after a refusal the file says %q", got)
	}
	stop(true)
	if err := n.Untrash(ctx, hers.ID, model.ID{}, true); err != nil {
		t.Fatal(err)
	}
	stop(false)
	if got := n.run(t, id, "cat", "/root/work"); got != "alices\n" {
		t.Errorf("an administrator gave it, and the file says %q", got)
	}
	remove() // it is bob's from then on
	if first, second := thrown("bob"), hers; first.ID == second.ID {
		t.Errorf("%v is in the trash still", second)
	}
	all, err := n.Trashed(ctx)
	if err != nil || len(all) != 3 {
		t.Fatalf("the trash has %v (%v)", all, err)
	}
	jobs[0].Element.Disk = 64 << 20
	n.apply(t, jobs)
	stop(true)
	if err := n.Untrash(ctx, thrown("bob").ID, model.ID{}, false); err == nil ||
		!strings.Contains(err.Error(), "polyplane set lab/r0 disk=256MiB") {
		t.Errorf("a disk of 256 MiB was given to an element that may have 64: %v", err)
	}
	jobs[0].Element.Disk = 0
	stop(true)
	if err := n.Untrash(ctx, all[2].ID, model.ID{}, false); err != nil {
		t.Error(err)
	}
}

// TestTrashGoesToTheNetworkMadeAnew: what an owner's network of another key had goes into the one that there is now, if
// that is the owner's too.
func TestTrashGoesToTheNetworkMadeAnew(t *testing.T) {
	n, ctx := newNode(t), context.Background()
	before := birdLine("lab", 64, 1)
	before[0].Owner = "alice"
	n.apply(t, before)
	n.run(t, before[0].ID, "sh", "-c", "echo hers > /root/work")
	if err := n.Remove(ctx, []model.ID{before[0].ID}, false); err != nil {
		t.Fatal(err)
	}
	all, err := n.Trashed(ctx)
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	now := birdLine("lab.4821", 65, 1)
	now[0].Owner, now[0].Element.Stopped = "bob", true
	n.apply(t, now)
	if err := n.Untrash(ctx, all[0].ID, now[0].ID, false); err == nil || !strings.Contains(err.Error(), "alice's") {
		t.Errorf("alice's disk went to bob: %v", err)
	}
	now[0].Owner = "alice"
	n.apply(t, now)
	if err := n.Untrash(ctx, all[0].ID, now[0].ID, false); err != nil {
		t.Fatal(err)
	}
	now[0].Element.Stopped = false
	n.apply(t, now)
	if got := n.run(t, now[0].ID, "cat", "/root/work"); got != "hers\n" {
		t.Errorf("the file says %q", got)
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
		for tries := 0; r.Err == nil && r.Phase != model.PhaseRunning && tries < 600; tries++ { // it waits for its turn
			time.Sleep(50 * time.Millisecond)
			r = n.Apply(ctx, jobs)[0]
		}
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

// A host has no processes that would notice what has become of its disk: it is told when it is started, and what gives
// it a new one.
func TestDamagedDiskOfAHost(t *testing.T) {
	n, ctx := newNode(t), context.Background()
	jobs := lineOf("lab", 66, 1)
	jobs[0].Element.Kind, jobs[0].Element.Software = model.Host, ""
	id := jobs[0].ID
	n.apply(t, jobs)
	n.run(t, id, "sh", "-c", "echo here > /root/work")
	for _, spoil := range []func() error{
		func() error {
			f, err := os.OpenFile(n.dirs.Disk(id), os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteAt(make([]byte, 8<<20), 0)
			return errors.Join(err, f.Close())
		},
		func() error { return os.Truncate(n.dirs.Disk(id), 100) },
	} {
		jobs[0].Element.Stopped = true
		n.apply(t, jobs)
		if err := n.unmountDisk(id, 0); err != nil {
			t.Fatal(err)
		}
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		jobs[0].Element.Stopped = false
		for range 2 {
			r := n.Apply(ctx, jobs)[0]
			if r.Err == nil || !strings.Contains(r.Err.Error(), "restart --new-disk lab/r0") {
				t.Fatalf("a host whose disk holds nothing: %+v", r)
			}
		}
		if err := n.RenewDisk(ctx, id); err != nil {
			t.Fatal(err)
		}
		n.apply(t, jobs)
		n.run(t, id, "sh", "-c", "test ! -e /root/work && echo here > /root/work")
	}
}

// The image may go from under a mounted disk: what is on it can still be copied, and a new disk is named.
func TestMissingDisk(t *testing.T) {
	n, ctx := newNode(t), context.Background()
	jobs := birdLine("lab", 67, 1)
	id := jobs[0].ID
	n.apply(t, jobs)
	n.run(t, id, "sh", "-c", "echo here > /root/work")
	if err := os.Remove(n.dirs.Disk(id)); err != nil {
		t.Fatal(err)
	}
	jobs[0].Element.Memory = 64 << 20 // a change, so that it is looked at
	r := n.Apply(ctx, jobs)[0]
	if r.Err == nil || !strings.Contains(r.Err.Error(), "restart --new-disk lab/r0") ||
		!strings.Contains(r.Err.Error(), "polyplane cp") {
		t.Fatalf("a disk whose image is gone: %v", r.Err)
	}
	if got := n.run(t, id, "cat", "/root/work"); got != "here\n" {
		t.Errorf("what was on it is %q", got)
	}
	if err := n.RenewDisk(ctx, id); err != nil {
		t.Fatal(err)
	}
	n.apply(t, jobs)
	n.run(t, id, "sh", "-c", "test ! -e /root/work && echo fresh > /root/work")
}

// A disk that cannot grow while it is used grows with a restart, as `set` promises, also where something holds it for a
// moment longer than the element's processes.
func TestDiskGrowsAtRestart(t *testing.T) {
	n := newNode(t)
	jobs := birdLine("lab", 68, 1)
	id := jobs[0].ID
	n.apply(t, jobs)
	n.run(t, id, "sh", "-c", "echo here > /root/work")
	jobs[0].Element.Disk = 512 << 20
	results := n.apply(t, jobs)
	if said := strings.Join(changes(results), "; "); strings.Contains(said, "its disk grows at its next start") == mayRaise() {
		t.Errorf("told is %q", said)
	}
	holds, err := os.Open(filepath.Join(n.dirs.Files(id), "rootfs", "root", "work"))
	if err != nil {
		t.Fatal(err)
	}
	before, err := unix.PidfdOpen(n.elements[id].process.pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer unix.Close(before)
		defer holds.Close()
		for !ended(before) {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(200 * time.Millisecond)
	}()
	jobs[0].Element.Restarts++
	n.apply(t, jobs)
	if info, err := os.Stat(n.dirs.Disk(id)); err != nil || info.Size() != 512<<20 {
		t.Errorf("after a restart the disk has %v (%v)", info.Size(), err)
	}
	if got := n.run(t, id, "sh", "-c", "cat /root/work; df -m / | awk 'END { print ($2 > 400) }'"); got != "here\n1\n" {
		t.Errorf("inside there is %q", got)
	}
}
