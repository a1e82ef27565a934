package netns

import (
	"errors"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
)

// TestMachineDiskStaysFree: three elements get files at the same time that the machine's disk has room for twice. What
// is to stay free of it does. The third says what is missing, in words that do not change, and gets them by itself once
// there is room.
func TestMachineDiskStaysFree(t *testing.T) {
	n := newNodeWith(t, "300m")
	var r registry
	n.serveImages(t, &r)
	data := make([]byte, 60<<20)
	rand.NewChaCha8([32]byte{1}).Read(data) //nolint:errcheck // never fails
	tree := r.addFiles(t, map[string]string{"data": string(data)})
	jobs := lineOf("lab", 64, 3)
	for i := range jobs {
		jobs[i].Element.Kind, jobs[i].Element.Software, jobs[i].Element.Config = model.Host, "", nil
		jobs[i].Element.Disk = 200 << 20
		jobs[i].Element.Service = model.Service{Contents: map[string]model.File{"/srv": tree}}
	}
	running, said := 0, map[string]bool{}
	for rounds := 0; running < 2 || rounds < 5; rounds++ {
		running = 0
		for _, res := range n.Apply(t.Context(), jobs) {
			if res.Phase == model.PhaseRunning {
				running++
			}
			if res.Err != nil {
				said[res.Err.Error()] = true
			}
		}
		if t.Context().Err() != nil {
			t.Fatalf("%d run: %v", running, said)
		}
		if running < 2 {
			rounds = 0
		}
	}
	room, err := linux.RoomAt(n.dirs.Data)
	if err != nil || running != 2 || room.Free < room.Spare() {
		t.Errorf("%d run, and %d MiB of %d are free; %v", running, room.Free>>20, room.Size>>20, err)
	}
	if len(said) == 0 {
		t.Error("nothing tells what is missing")
	}
	for words := range said {
		if !strings.Contains(words, "the machine's disk is too full: the files that are put into it take 60MiB, and 75MiB must "+
			"stay free: make room in "+n.dirs.Data) {
			t.Errorf("what is missing is told as %q", words)
		}
	}
	if err := unix.Mount("", filepath.Dir(filepath.Dir(n.dirs.Data)), "", unix.MS_REMOUNT, "size=500m"); err != nil {
		t.Fatal(err)
	}
	n.awaitPhases(t, jobs, model.PhaseRunning)
}

// TestRoomForEverybody: what is promised to others on the machine's disk, such as an image that is unpacked, is not there
// for an element's files; they come by themselves once it is. So it is with files by themselves.
func TestRoomForEverybody(t *testing.T) {
	n := newNodeWith(t, "300m")
	var r registry
	n.serveImages(t, &r)
	tree := r.addFiles(t, map[string]string{"data": strings.Repeat("x", 20<<20)})
	jobs := lineOf("lab", 64, 2)
	for i := range jobs {
		jobs[i].Element.Kind, jobs[i].Element.Software, jobs[i].Element.Config = model.Host, "", nil
		jobs[i].Element.Disk = 100 << 20
		jobs[i].Element.Service = model.Service{Contents: map[string]model.File{"/srv": tree}}
	}
	small := map[string]model.File{}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		small["/srv/"+name] = model.File{Text: strings.Repeat("x", 1<<20)}
	}
	jobs[1].Element.Contents = small
	for {
		if about, _, err := n.images.Get(tree.Tree); err != nil || t.Context().Err() != nil {
			t.Fatal(err)
		} else if about != nil {
			break
		}
	}
	room, err := linux.RoomAt(n.dirs.Data)
	if err != nil {
		t.Fatal(err)
	}
	others, err := n.rooms.Promise(n.dirs.Data, room.Free-room.Spare()-1<<20, "")
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]bool{}
	for len(said) < 2 && t.Context().Err() == nil {
		for _, res := range n.Apply(t.Context(), jobs) {
			if res.Err != nil {
				said[res.Err.Error()] = true
			}
		}
	}
	for words := range said {
		if !strings.Contains(words, "the machine's disk is too full: the files that are put into it take ") {
			t.Errorf("what is missing is told as %q", words)
		}
	}
	others.End()
	n.awaitPhases(t, jobs, model.PhaseRunning)
	if !n.rooms.Has(n.dirs.Data, 100<<20) {
		t.Error("what was promised stays so")
	}
}

// TestTakingIsTold: what is promised to an element's files is what they still need, as far as it was had on the disk.
func TestTakingIsTold(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=800m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	d := &Driver{dirs: instance.NodeDirs{Data: dir}, rooms: linux.NewRooms(filepath.Join(t.TempDir(), "rooms"))}
	left := func() int64 { // in MiB
		most := int64(0)
		for d.rooms.Has(dir, (most+1)<<20) {
			most++
		}
		return 600 - most
	}
	is := &taking{}
	failed := errors.New("no disk")
	var synced, before int64
	is.sync = func() error {
		synced++
		if is.room != nil && left() != before {
			t.Errorf("%d MiB are promised, want %d", left(), before)
		}
		if synced == 4 {
			return failed
		}
		return nil
	}
	const mib = 1 << 20
	replaced := placing{amount{100 * mib, 1}, amount{100 * mib, 1}}
	if err := is.ask(d, []placing{{frees: amount{10 * mib, 1}}, {brings: amount{40 * mib, 1}}, replaced, replaced, replaced}, 3); err != nil {
		t.Fatal(err)
	}
	if left() != 194 { // 40-10+100 at most, and as much as may not be on the disk
		t.Errorf("%d MiB are promised at first", left())
	}
	before = left()
	write := func(mibs int) error {
		for range mibs {
			if _, err := is.Write(make([]byte, mib)); err != nil {
				return err
			}
		}
		return nil
	}
	if err := write(64); err != nil || synced != 1 || left() != 100 { // 36 of the first, and 64
		t.Errorf("after 64 MiB it was synced %d times, and %d are promised: %v", synced, left(), err)
	}
	before = left()
	if err := write(36); err != nil || synced != 1 || left() != before {
		t.Errorf("after a file it was synced %d times, and %d are promised: %v", synced, left(), err)
	}
	is.next()
	if err := write(28); err != nil || synced != 2 || left() != 136 { // what the first was in place of is others' now
		t.Errorf("in the second file it was synced %d times, and %d are promised: %v", synced, left(), err)
	}
	before = left()
	if err := write(72); err != nil || synced != 3 || left() != 72 { // 8 of the second, and 64
		t.Errorf("after two it was synced %d times, and %d are promised: %v", synced, left(), err)
	}
	is.next()
	before = left()
	if err := write(100); !errors.Is(err, failed) || left() != before {
		t.Errorf("what could not be synced is given back: %v", err)
	}
	is.room.End()
	if left() != 0 {
		t.Errorf("%d MiB stay promised", left())
	}
}
