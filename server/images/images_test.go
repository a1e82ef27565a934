package images

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/image"
	. "github.com/polyplane/polyplane/image/imagetest"
	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
)

// stored is an image as it is sent, and its ID.
func stored(t *testing.T, content string) (string, []byte) {
	t.Helper()
	layer := Layer(t, File{Name: "f", Content: content})
	img, err := image.Open(Write(t, "i", Saved(t, "", Config(t, model.ImageRun{}, layer), layer)))
	if err != nil {
		t.Fatal(err)
	}
	defer img.Close()
	var b bytes.Buffer
	if err := img.Write(&b); err != nil {
		t.Fatal(err)
	}
	return string(img.ID), b.Bytes()
}

// lock is the simplest way to take turns.
type lock struct{ sync.Mutex }

func (l *lock) LockFor(ctx context.Context, _ string) error {
	l.Lock()
	if err := ctx.Err(); err != nil {
		l.Unlock()
		return err
	}
	return nil
}

func opened(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir, nil, &lock{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// files are the names in a store's directory.
func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "images")
	s := opened(t, dir)
	one, first := stored(t, "one")
	two, second := stored(t, "two")
	add := func(owner, id, name string, data []byte) (model.Image, error) {
		return s.Add(t.Context(), owner, id, name, 0, bytes.NewReader(data))
	}
	if _, err := add("", one, "web:1", first); err != nil {
		t.Fatal(err)
	}
	is, err := add("ann", two, "web:1", second)
	if err != nil || is.Files != 1 || is.Size != model.Bytes(len(second)) || is.Owner != "ann" {
		t.Fatalf("%+v %v", is, err)
	}
	for _, c := range []struct{ owner, of, want string }{{"ann", "web:1", two}, {"bob", "web:1", one}, {"", "web:1", one},
		{"bob", one, one}, {"ann", "web:1@" + one, one}, {"ann", two[:20], two}, {"ann", two[7:20], two}, {"bob", two, ""},
		{"ann", "web", ""}, {"ann", two[:12], ""}} {
		got, err := s.Find(c.owner, c.of)
		if got.ID != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%s's %s is %s, %v", c.owner, c.of, got.ID, err)
		}
	}
	// Without content only what may be used can be given a name.
	if _, err := s.Name("bob", two, "mine", 0); !errors.Is(err, ErrNone) {
		t.Errorf("bob names ann's image: %v", err)
	}
	if _, err := s.Name("bob", one, "mine", 0); err != nil {
		t.Error(err)
	}
	// A name goes over to a newer image; what it was of stays as long as it is used.
	three, third := stored(t, "three")
	if _, err := add("ann", three, "web:1", third); err != nil {
		t.Fatal(err)
	}
	s = opened(t, dir)
	if got, _ := s.Find("ann", "web:1"); got.ID != three {
		t.Errorf("web:1 is %s", got.ID)
	}
	if err := s.Collect(map[Holder]bool{{"ann", two}: true}); err != nil || len(s.List("ann")) != 3 {
		t.Errorf("%v, and there are %d", err, len(s.List("ann")))
	}
	if err := s.Collect(nil); err != nil || len(s.List("ann")) != 2 {
		t.Errorf("%v, and there are %d", err, len(s.List("ann")))
	}
	if _, err := s.Read(two); !errors.Is(err, ErrNone) {
		t.Errorf("what was collected is read: %v", err)
	}
	// An image that two owners have stays for the other.
	if err := s.Remove("", one, "web:1"); err != nil {
		t.Error(err)
	}
	f, err := s.Read(one)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(f)
	f.Close()
	if err != nil || !bytes.Equal(got, first) {
		t.Errorf("it is read as %d bytes, %v", len(got), err)
	}
	if err := s.Remove("bob", one, ""); err != nil {
		t.Error(err)
	}
	if names := files(t, dir); len(names) != 2 {
		t.Errorf("left are %q", names)
	}
}

// TestTrees: files that are put into elements have no name, are no images, and stay an hour for the network that is to
// use them.
func TestTrees(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "images")
	s := opened(t, dir)
	img, err := image.NewFiles(t.Context(), []image.Given{{Path: "a", Size: 1, Perm: 0o644,
		Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("x")), nil }}})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := img.Write(&b); err != nil {
		t.Fatal(err)
	}
	id, data := string(img.ID), b.Bytes()
	other, image := stored(t, "one")
	if _, err := s.Add(t.Context(), "ann", id, "web:1", 0, bytes.NewReader(data)); !errors.Is(err, ErrWrong) {
		t.Errorf("files with a name: %v", err)
	}
	if _, err := s.Add(t.Context(), "ann", other, "", 0, bytes.NewReader(image)); !errors.Is(err, ErrWrong) {
		t.Errorf("an image without a name: %v", err)
	}
	if is, err := s.Add(t.Context(), "ann", id, "", 0, bytes.NewReader(data)); err != nil || !is.Tree || len(is.Names) > 0 {
		t.Fatalf("%+v %v", is, err)
	}
	if _, err := s.Find("ann", id); !errors.Is(err, ErrNone) {
		t.Errorf("files are an image: %v", err)
	}
	for _, owner := range []string{"ann", "bob", ""} {
		want := owner != "bob"
		if _, err := s.FindTree(owner, id); (err == nil) != want {
			t.Errorf("%s finds them: %v", owner, err)
		}
		if _, err := s.Name(owner, id, "", 0); (err == nil) != want {
			t.Errorf("%s has them sent no more: %v", owner, err)
		}
	}
	s = opened(t, dir)
	s.mu.Lock()
	for i := range s.all {
		if s.all[i].Owner == "ann" {
			s.all[i].Added = s.all[i].Added.Add(-2 * treeStays)
		}
	}
	s.mu.Unlock()
	if err := s.Collect(map[Holder]bool{{"ann", id}: true}); err != nil || len(s.List("")) != 2 {
		t.Errorf("used, and gone: %v", err)
	}
	if err := s.Collect(nil); err != nil || len(s.List("")) != 1 || s.List("")[0].Owner != "" {
		t.Errorf("left are %+v: %v", s.List(""), err)
	}
}

func TestRefusals(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "images")
	s := opened(t, dir)
	one, first := stored(t, "one")
	two, second := stored(t, strings.Repeat("two", 1000))
	ended, end := context.WithCancel(t.Context())
	end()
	for name, c := range map[string]struct {
		id, name string
		quota    model.Bytes
		data     []byte
		ctx      context.Context
		kind     error
	}{
		"another image":   {two, "a", 0, first, nil, ErrWrong},
		"no image":        {one, "a", 0, []byte("hello"), nil, ErrWrong},
		"half of one":     {one, "a", 0, first[:len(first)/2], nil, ErrWrong},
		"a path":          {"sha256:../../x", "a", 0, first, nil, ErrWrong},
		"no name":         {one, "", 0, first, nil, ErrWrong},
		"a file's name":   {one, "./a", 0, first, nil, ErrWrong},
		"a name with ID":  {one, "a@" + one, 0, first, nil, ErrWrong},
		"more than quota": {one, "a", 1 << 20, first, nil, ErrQuota},
		"a caller's end":  {two, "a", 0, second, ended, context.Canceled},
	} {
		ctx := c.ctx
		if ctx == nil {
			ctx = t.Context()
		}
		if _, err := s.Add(ctx, "ann", c.id, c.name, c.quota, bytes.NewReader(c.data)); !errors.Is(err, c.kind) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if names := files(t, dir); len(names) != 0 {
		t.Errorf("left are %q", names)
	}
}

// unread is what is sent, and must not be read.
type unread struct {
	t    *testing.T
	size int64
}

func (u *unread) Size() int64 { return u.size }

func (u *unread) Read([]byte) (int, error) {
	u.t.Error("it is taken in")
	return 0, io.EOF
}

// TestRefusedByItsSize: what an owner may not have for its size, or what the disk has no room for, is refused before any
// of it is taken in. What the owner has already counts once.
func TestRefusedByItsSize(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "images")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=80m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	s := opened(t, dir)
	one, first := stored(t, "one")
	two, _ := stored(t, "two")
	is, err := s.Add(t.Context(), "ann", one, "one", 100<<20, bytes.NewReader(first))
	if err != nil {
		t.Fatal(err)
	}
	quota := cost(&is) + 1<<20
	_, err = s.Add(t.Context(), "ann", two, "two", quota, &unread{t, 1<<20 + 1})
	if !errors.Is(err, ErrQuota) || !strings.Contains(err.Error(), "user ann's quota of images is "+quota.String()+
		": with this image of 1MiB it would be ") {
		t.Errorf("above the quota: %v", err)
	}
	if _, err := s.Add(t.Context(), "ann", two, "two", 0, &unread{t, 61 << 20}); err == nil ||
		!strings.Contains(err.Error(), "too full for 61MiB: ") || !strings.Contains(err.Error(), ", of which 20MiB must stay so; make room there") {
		t.Errorf("more than the disk has room for: %v", err)
	}
	if _, err := s.Add(t.Context(), "ann", one, "again", quota, bytes.NewReader(first)); err != nil {
		t.Errorf("what is there already: %v", err)
	}
}

// held is an image whose first bytes have been asked for, and that does not come on until it is released.
type held struct {
	size     int64
	asked    chan struct{}
	released chan struct{}
}

func (h *held) Size() int64 { return h.size }

func (h *held) Read([]byte) (int, error) {
	h.asked <- struct{}{}
	<-h.released
	return 0, io.ErrUnexpectedEOF
}

// TestUploadsHoldNoDisk: whoever sends nothing of what was announced holds little of the disk, and of the own quota only.
func TestUploadsHoldNoDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "images")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=2g"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	rooms := linux.NewRooms(filepath.Join(t.TempDir(), "rooms"))
	s, err := Open(dir, rooms, &lock{})
	if err != nil {
		t.Fatal(err)
	}
	one, first := stored(t, "one")
	two, _ := stored(t, "two")
	three, _ := stored(t, "three")
	var all sync.WaitGroup
	defer all.Wait()
	released := make(chan struct{})
	defer close(released)
	begin := func(owner, id string) {
		h := &held{700 << 20, make(chan struct{}, 1), released}
		all.Go(func() {
			if _, err := s.Add(t.Context(), owner, id, "x", 2<<30, h); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("an upload that breaks off: %v", err)
			}
		})
		<-h.asked
	}
	begin("ann", two)
	if _, err := s.Add(t.Context(), "ann", three, "y", 1<<30, &unread{t, 500 << 20}); !errors.Is(err, ErrQuota) {
		t.Errorf("with what is under way it is more than the quota: %v", err)
	}
	begin("ann", two)
	if _, err := s.Add(t.Context(), "ann", three, "y", 2<<30, &unread{t, 1}); !errors.Is(err, ErrBusy) ||
		!strings.Contains(err.Error(), "user ann is sending 2 images or files already") {
		t.Errorf("a third upload: %v", err)
	}
	if !rooms.Has(dir, 1200<<20) || rooms.Has(dir, 1300<<20) {
		t.Error("what was announced, and not sent, holds the disk")
	}
	if _, err := s.Add(t.Context(), "bob", one, "one", 100<<20, bytes.NewReader(first)); err != nil {
		t.Errorf("another's upload: %v", err)
	}
	if _, err := s.Add(t.Context(), "bob", three, "y", 0, &unread{t, 1300 << 20}); !errors.Is(err, linux.ErrNoRoom) {
		t.Errorf("what the disk has no room for: %v", err)
	}
}

// TestADiskThatIsAwayHasLostNothing: images are forgotten one by one, not since their whole directory is gone.
func TestADiskThatIsAwayHasLostNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "images")
	s := opened(t, dir)
	id, data := stored(t, "x")
	if _, err := s.Add(t.Context(), "ann", id, "web", 1<<30, bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	away := dir + ".away"
	if err := os.Rename(dir, away); err != nil {
		t.Fatal(err)
	}
	if lost, err := s.ForgetLost(); err != nil || len(lost) != 0 {
		t.Errorf("with its directory away the store forgot %v (%v)", lost, err)
	}
	if err := os.Rename(away, dir); err != nil {
		t.Fatal(err)
	}
	if all := opened(t, dir).List("ann"); len(all) != 1 {
		t.Errorf("with its directory back the store has %v", all)
	}
}

// TestCrashes: what a crash leaves at any step is no image, and goes at the next start.
func TestCrashes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "images")
	s := opened(t, dir)
	one, first := stored(t, "one")
	if _, err := s.Add(t.Context(), "", one, "a", 0, bytes.NewReader(first)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".new-123", indexName + ".new", strings.Repeat("0", 64) + fileSuffix} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s = opened(t, dir)
	if names := files(t, dir); !slices.Equal(names, []string{image.Digest(one).Hex() + fileSuffix, indexName}) {
		t.Errorf("left are %q", names)
	}
	if err := os.Remove(s.path(one)); err != nil {
		t.Fatal(err)
	}
	if s = opened(t, dir); len(s.List("")) != 0 {
		t.Error("an image is told of that is not there")
	}
	if err := os.WriteFile(filepath.Join(dir, indexName), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	// Where it is not known whose images are, nobody has them, and nothing of them is lost.
	if s = opened(t, dir); len(s.List("")) != 0 {
		t.Error("with a damaged index there are images")
	}
	aside, err := filepath.Glob(dir + ".damaged-*")
	if err != nil || len(aside) != 1 || !slices.Equal(files(t, aside[0]), []string{indexName}) {
		t.Errorf("set aside is %q, %v", aside, err)
	}
	if _, err := s.Add(t.Context(), "", one, "a", 0, bytes.NewReader(first)); err != nil {
		t.Error(err)
	}
}
