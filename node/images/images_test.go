package images

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/image"
	. "github.com/polyplane/polyplane/image/imagetest"
	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
)

// bench is a store whose images come from a map.
type bench struct {
	*Store
	dir   string
	rooms *linux.Rooms
	kept  map[string][]byte
	told  chan struct{}
	read  int // how many bytes of all images were taken
}

// counted counts what is read.
type counted struct {
	io.Reader
	read *int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	*c.read += n
	return n, err
}

func newBench(t *testing.T) *bench {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("needs root: images are mounted for real")
	}
	b := &bench{dir: t.TempDir(), kept: map[string][]byte{}, told: make(chan struct{}, 100)}
	b.rooms = linux.NewRooms(filepath.Join(b.dir, "rooms"))
	b.open()
	t.Cleanup(func() {
		if err := b.Release(); err != nil {
			t.Error(err)
		}
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil || strings.Contains(string(mounts), b.dir) {
			t.Errorf("something stays mounted, %v", err)
		}
	})
	return b
}

func (b *bench) open() {
	b.Store = New(filepath.Join(b.dir, "images"), filepath.Join(b.dir, "run"), b.rooms, nil)
	b.Serve(func(_ context.Context, id string) (io.ReadCloser, int64, error) {
		data, ok := b.kept[id]
		if !ok {
			return nil, 0, errors.New("there is none")
		}
		return io.NopCloser(&counted{bytes.NewReader(data), &b.read}), int64(len(data)), nil
	}, func() { b.told <- struct{}{} })
}

// add adds an image with one layer, in the form in which images are kept.
func (b *bench) add(t *testing.T, config []byte, layer []byte) string {
	t.Helper()
	img, err := image.Open(Write(t, "i", Saved(t, "", config, layer)))
	if err != nil {
		t.Fatal(err)
	}
	defer img.Close()
	var data bytes.Buffer
	if err := img.Write(&data); err != nil {
		t.Fatal(err)
	}
	b.kept[string(img.ID)] = data.Bytes()
	return string(img.ID)
}

// await waits until an image is there, or refused.
func (b *bench) await(t *testing.T, id string) (*About, error) {
	t.Helper()
	for {
		about, _, err := b.Get(id)
		if about != nil || err != nil {
			return about, err
		}
		<-b.told
	}
}

func (b *bench) files(t *testing.T) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(b.dir, "images"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestStore(t *testing.T) {
	b := newBench(t)
	layer := Layer(t, File{Name: "bin/su", Content: "x", Mode: 0o4755}, File{Name: "etc/motd", Content: "hello", UID: 7},
		File{Name: "zeros", Content: string(make([]byte, 8<<20))})
	id := b.add(t, Config(t, model.ImageRun{Cmd: []string{"/bin/su"}}, layer), layer)
	about, err := b.await(t, id)
	if err != nil {
		t.Fatal(err)
	}
	if about.Run.Cmd[0] != "/bin/su" {
		t.Errorf("it runs %q", about.Run.Cmd)
	}
	var s unix.Stat_t
	if err := unix.Stat(filepath.Join(about.Dir, "etc/motd"), &s); err != nil || s.Uid != 7 {
		t.Errorf("a file is user %d's, %v", s.Uid, err)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(about.Dir, &fs); err != nil || fs.Flags&(unix.ST_RDONLY|unix.ST_NOSUID|unix.ST_NODEV) !=
		unix.ST_RDONLY|unix.ST_NOSUID|unix.ST_NODEV {
		t.Errorf("it is mounted with %#x, %v", fs.Flags, err)
	}
	if err := unix.Stat(b.path(id, diskSuffix), &s); err != nil || s.Blocks*512 > 4<<20 {
		t.Errorf("zeros take %d KiB, %v", s.Blocks/2, err)
	}
	if info, err := os.Stat(filepath.Dir(about.Dir)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("others reach it: %v, %v", info.Mode(), err)
	}

	// Another life finds it as it is, and what the one before was at when it ended is gone.
	b.Close()
	if err := unix.Unmount(about.Dir, 0); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.new", strings.Repeat("0", 64) + diskSuffix, "b.ext4.new"} {
		if err := os.WriteFile(filepath.Join(b.dir, "images", name), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(b.dir, "images", "c"+mountSuffix), 0o700); err != nil {
		t.Fatal(err)
	}
	clear(b.kept)
	b.open()
	if _, err := b.await(t, id); err != nil {
		t.Fatal(err)
	}
	if names := b.files(t); len(names) != 2 {
		t.Errorf("there are %q", names)
	}
	// What is used stays, however long; what is not goes after a while.
	now := time.Now()
	b.Told()
	b.keep(map[string]bool{id: true}, now, time.Minute)
	b.keep(nil, now, time.Minute)
	b.keep(nil, now.Add(30*time.Second), time.Minute)
	if names := b.files(t); len(names) != 2 {
		t.Errorf("there are %q", names)
	}
	b.keep(nil, now.Add(time.Minute), time.Minute)
	if names := b.files(t); len(names) != 0 || linux.IsMount(about.Dir) {
		t.Errorf("left are %q", names)
	}
}

// TestUnusedOverLives: how long nobody has needed an image is counted on by the next life, from when it was last needed
// and not from when it came. Nothing goes before the manager has told the node what it is to have: one that was off for
// an hour knows what it was to have an hour ago.
func TestUnusedOverLives(t *testing.T) {
	b := newBench(t)
	layer := Layer(t, File{Name: "f", Content: "x"})
	id := b.add(t, Config(t, model.ImageRun{}, layer), layer)
	if _, err := b.await(t, id); err != nil {
		t.Fatal(err)
	}
	came := time.Now()
	if err := os.Chtimes(b.path(id, aboutSuffix), came, came.Add(-48*time.Hour)); err != nil {
		t.Fatal(err)
	}
	const most = 10 * time.Minute
	ago := came.Add(-90 * time.Minute)
	b.keep(map[string]bool{id: true}, ago, most)
	for _, c := range []struct {
		after time.Duration // since it was last needed
		told  bool
		left  int
	}{{6 * time.Minute, true, 2}, {9 * time.Minute, true, 2}, {time.Hour, false, 2}, {10*time.Minute + time.Second, true, 0}} {
		b.Close()
		b.open()
		if c.told {
			b.Told()
		}
		b.keep(nil, ago.Add(c.after), most)
		if names := b.files(t); len(names) != c.left {
			t.Errorf("%s after it was last needed there are %q", c.after, names)
		}
	}
}

// TestTreesAreNoted: whether an image was verified to be files that are put into elements is known in every life.
func TestTreesAreNoted(t *testing.T) {
	b := newBench(t)
	layer := Layer(t, File{Name: "files/a", Content: "x", Mode: 0o644})
	config := Config(t, model.ImageRun{}, layer)
	same := b.add(t, config, layer)
	tree := b.add(t, bytes.Replace(config, []byte("{"), []byte(`{"polyplane":"files",`), 1), layer)
	for life := range 2 {
		for id, want := range map[string]bool{same: false, tree: true} {
			if about, err := b.await(t, id); err != nil || about.Tree != want {
				t.Errorf("in life %d it is %+v, %v; wanted: %t", life, about, err, want)
			}
		}
		b.Close()
		b.open()
	}
	links := Layer(t, File{Name: "files/a", Kind: '2', Link: "/etc/shadow"})
	id := b.add(t, bytes.Replace(Config(t, model.ImageRun{}, links), []byte("{"), []byte(`{"polyplane":"files",`), 1), links)
	if _, err := b.await(t, id); err == nil || !strings.Contains(err.Error(), "is no regular file") {
		t.Errorf("with a link: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	b := newBench(t)
	layer := Layer(t, File{Name: "f", Content: "x"})
	good := b.add(t, Config(t, model.ImageRun{}, layer), layer)
	other := []byte(strings.Replace(string(Config(t, model.ImageRun{}, layer)), `"architecture":"`, `"architecture":"x`, 1))
	strange := b.add(t, other, layer)
	missing := "sha256:" + strings.Repeat("1", 64)
	swapped := "sha256:" + strings.Repeat("2", 64)
	b.kept[swapped] = b.kept[good]
	loop := Layer(t, File{Name: "h", Kind: '1', Link: "nothing"})
	broken := b.add(t, Config(t, model.ImageRun{}, loop), loop)
	for id, words := range map[string]string{strange: "is for machines of x", missing: "there is none",
		swapped: "another image", "../x": "no ID", broken: "hard link"} {
		if _, err := b.await(t, id); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%.20s: %v", id, err)
		}
	}
	if names := b.files(t); len(names) != 0 {
		t.Errorf("left are %q", names)
	}
	// What failed is tried again.
	b.mu.Lock()
	b.known[missing].again = time.Time{}
	b.mu.Unlock()
	if _, waits, err := b.Get(missing); err != nil || waits == "" {
		t.Errorf("it is not tried again: %v", err)
	}
	if _, err := b.await(t, missing); err == nil {
		t.Error("it is there")
	}
}

// TestNoRoom: an image for which the machine's disk has no room is refused before any of it is taken, or before it is
// unpacked, and comes by itself once there is room.
func TestNoRoom(t *testing.T) {
	b := newBench(t)
	small := filepath.Join(b.dir, "images")
	if err := os.Mkdir(small, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=80m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(small, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	data := make([]byte, 20<<20)
	rand.NewChaCha8([32]byte{1}).Read(data) //nolint:errcheck // never fails
	layer := Layer(t, File{Name: "data", Content: string(data)})
	id := b.add(t, Config(t, model.ImageRun{}, layer), layer)
	spare := int64(20 << 20) // a fourth of a small disk
	filler := filepath.Join(small, "filler")
	for _, c := range []struct{ free, read int64 }{{spare + 10<<20, 0}, {spare + 30<<20, int64(len(b.kept[id]))}} {
		if err := os.WriteFile(filler, make([]byte, 80<<20-c.free), 0o600); err != nil {
			t.Fatal(err)
		}
		b.read = 0
		_, err := b.await(t, id)
		if err == nil || !strings.Contains(err.Error(), "the machine's disk is too full: the image takes") ||
			!strings.Contains(err.Error(), "20MiB must stay free: make room in "+small) {
			t.Errorf("with %d MiB: %v", c.free>>20, err)
		}
		if int64(b.read) != c.read {
			t.Errorf("with %d MiB %d bytes were taken of it", c.free>>20, b.read)
		}
		if names := b.files(t); len(names) != 1 {
			t.Errorf("left are %q", names)
		}
		b.mu.Lock()
		b.known[id].again = time.Time{}
		b.mu.Unlock()
		if _, waits, again := b.Get(id); again == nil || waits != "" || again.Error() != err.Error() {
			t.Errorf("as long as it is so, it is told as %q %v", waits, again)
		}
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
	}
	// What others were promised is not there for it.
	room, err := linux.RoomAt(small)
	if err != nil {
		t.Fatal(err)
	}
	others, err := b.rooms.Promise(small, room.Free-spare-10<<20, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.await(t, id); err == nil || !strings.Contains(err.Error(), "the machine's disk is too full") {
		t.Errorf("with room that others were promised: %v", err)
	}
	others.End()
	if _, err := b.await(t, id); err != nil {
		t.Error(err)
	}
	if !b.rooms.Has(small, 20<<20) {
		t.Error("what was promised stays so")
	}
}
