// Package images keeps the images of a node's elements: each is had from the manager once, unpacked once, and mounted
// read-only for all elements.
package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/durable"
	"github.com/polyplane/polyplane/image"
	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
)

// Fetch gets an image, in the form in which images are kept, by its ID, and how many bytes it has; -1 where that is not
// known.
type Fetch func(ctx context.Context, id string) (r io.ReadCloser, size int64, err error)

// Store keeps images. An image lies in a file system of its own, in a file: so it takes no more room than it was found
// to need, its files are out of reach of the machine's users, and a look at one name tells whether it is whole.
type Store struct {
	dir, run string // where the files are, where they are mounted
	rooms    *linux.Rooms
	log      *slog.Logger

	all    sync.WaitGroup
	ctx    context.Context
	cancel context.CancelFunc
	turn   chan struct{} // one image is unpacked at a time

	mu      sync.Mutex
	fetch   Fetch
	changed func()
	swept   bool
	told    bool // what is used was heard from the manager in this life
	known   map[string]*entry
}

// entry is what the store knows of an image.
type entry struct {
	about  *About // when it is whole and mounted
	busy   bool   // it is being fetched or unpacked
	doing  string
	err    error
	lacks  int64 // it failed since the machine's disk has no room for so many bytes more
	failed int
	again  time.Time // no try before
	seen   time.Time // when an element needed it last
	noted  time.Time // when that was noted on the disk, for lives to come
}

// About is what an element needs to know of its image.
type About struct {
	// Dir is where it is mounted.
	Dir          string `json:"-"`
	Architecture string `json:"architecture,omitempty"`
	// Tree tells that it was verified to be files that are put into elements. No element is made from them, and no
	// other image is put into one: it may have links, which lead elsewhere outside of an element.
	Tree bool           `json:"tree,omitempty"`
	Run  model.ImageRun `json:"run"`
}

// FilesName is what a tree has in its root: one file, or a directory.
const FilesName = image.FilesName

const (
	// unusedFor is how long an image stays that no element of the node is made from any more.
	unusedFor = 10 * time.Minute
	// noteEvery is how often it is noted that one is needed.
	noteEvery = time.Minute
)

// New is a store in a directory, with its mounts in another. rooms is the account of what is promised of the disk.
func New(dir, run string, rooms *linux.Rooms, log *slog.Logger) *Store {
	if log == nil {
		log = slog.Default()
	}
	s := &Store{dir: dir, run: run, rooms: rooms, log: log, turn: make(chan struct{}, 1), known: map[string]*entry{},
		changed: func() {}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Serve tells where images come from, and who is told when one has become ready or has failed.
func (s *Store) Serve(fetch Fetch, changed func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fetch != nil {
		s.fetch = fetch
	}
	if changed != nil {
		s.changed = changed
	}
}

// Close ends what is under way. What is mounted stays.
func (s *Store) Close() {
	s.cancel()
	s.all.Wait()
}

func (s *Store) path(id, suffix string) string {
	return filepath.Join(s.dir, image.Digest(id).Hex()+suffix)
}

const (
	diskSuffix  = ".ext4"
	aboutSuffix = ".json"
	freshSuffix = ".new"
	mountSuffix = ".mount"
)

// Get returns what is known of an image that is ready. Where it is not, it is had from now on; waits then says how far
// that is: "it is being sent to this node". An error is told until the next try.
func (s *Store) Get(id string) (about *About, waits string, err error) {
	if !image.Digest(id).Valid() {
		return nil, "", fmt.Errorf("%.80q is no ID of an image", id)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.sweep(); err != nil {
		return nil, "", fmt.Errorf("clear away what an earlier life left of images: %w", err)
	}
	e := s.known[id]
	if e == nil {
		e = &entry{}
		s.known[id] = e
	}
	e.seen = time.Now()
	switch {
	case e.busy:
		return nil, e.doing, nil
	case e.about != nil && linux.IsMount(e.about.Dir):
		return e.about, "", nil
	case e.err != nil && (time.Now().Before(e.again) || e.lacks > 0 && !s.rooms.Has(s.dir, e.lacks)):
		return nil, "", e.err
	}
	e.about = nil
	if a, err := s.mounted(id); err == nil && a != nil {
		e.about, e.err, e.failed = a, nil, 0
		return a, "", nil
	} else if err != nil {
		s.log.Warn("an image on this node cannot be mounted, and is had again", "image", id, "error", err)
		if err := s.drop(id); err != nil {
			return nil, "", err
		}
	}
	if s.fetch == nil {
		return nil, "", errors.New("this node gets no images")
	}
	e.busy, e.doing = true, "it is being sent to this node"
	fetch := s.fetch
	s.all.Go(func() { s.obtain(id, e, fetch) })
	return nil, e.doing, nil
}

// mounted mounts an image that is on the disk; nil without an error where there is none.
func (s *Store) mounted(id string) (*About, error) {
	data, err := os.ReadFile(s.path(id, aboutSuffix))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	a := &About{}
	if err == nil {
		err = json.Unmarshal(data, a)
	}
	if err != nil {
		return nil, err
	}
	a.Dir = filepath.Join(s.run, image.Digest(id).Hex())
	if err := os.MkdirAll(a.Dir, 0o700); err != nil {
		return nil, err
	}
	if linux.IsMount(a.Dir) {
		return a, nil
	}
	return a, linux.MountImage(s.path(id, diskSuffix), a.Dir, unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "")
}

// drop removes an image. What says that it is whole goes first.
func (s *Store) drop(id string) error {
	dir := filepath.Join(s.run, image.Digest(id).Hex())
	err := errors.Join(ignore(os.Remove(s.path(id, aboutSuffix))), release(dir),
		ignore(os.Remove(s.path(id, diskSuffix))))
	os.Remove(s.run) //nolint:errcheck // when it is empty
	os.Remove(s.dir) //nolint:errcheck // as above
	return err
}

func ignore(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// release unmounts what is mounted at a directory, and removes that.
func release(dir string) error {
	if linux.IsMount(dir) {
		if err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("unmount %s: %w", dir, err)
		}
	}
	return ignore(os.Remove(dir))
}

// sweep removes what was under way when an earlier life ended.
func (s *Store) sweep() error {
	if s.swept {
		return nil
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, entry := range entries {
		path := filepath.Join(s.dir, entry.Name())
		id := "sha256:" + strings.TrimSuffix(entry.Name(), diskSuffix)
		switch {
		case strings.HasSuffix(path, mountSuffix):
			err = release(path)
		case strings.HasSuffix(path, freshSuffix):
			err = os.Remove(path)
		case strings.HasSuffix(path, diskSuffix):
			if _, missing := os.Stat(s.path(id, aboutSuffix)); missing != nil {
				err = os.Remove(path) // it was not told to be whole
			}
		}
		if err != nil {
			return err
		}
	}
	// Those that an earlier life has unpacked.
	paths, _ := filepath.Glob(filepath.Join(s.dir, "*"+aboutSuffix))
	for _, path := range paths {
		id := "sha256:" + strings.TrimSuffix(filepath.Base(path), aboutSuffix)
		if s.known[id] == nil && image.Digest(id).Valid() {
			s.known[id] = &entry{seen: time.Now()}
			if info, err := os.Stat(path); err == nil && info.ModTime().Before(time.Now()) {
				s.known[id].seen = info.ModTime()
			}
		}
	}
	s.swept = true
	return nil
}

// obtain has an image, and notes what came of it.
func (s *Store) obtain(id string, e *entry, fetch Fetch) {
	err := s.obtainOnce(id, e, fetch)
	s.mu.Lock()
	e.busy, e.lacks = false, 0
	var full *noRoom
	if errors.As(err, &full) {
		e.lacks = full.need
	}
	if e.err = err; err != nil {
		e.failed++
		e.again = time.Now().Add(min(time.Minute, time.Second<<min(e.failed-1, 6)))
		if s.ctx.Err() == nil {
			// Whoever needs it asks again then.
			time.AfterFunc(time.Until(e.again), s.changed)
		}
	}
	changed := s.changed
	s.mu.Unlock()
	changed()
}

func (s *Store) say(e *entry, words string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.doing = words
}

func (s *Store) obtainOnce(id string, e *entry, fetch Fetch) error {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	fresh := s.path(id, freshSuffix)
	defer os.Remove(fresh) //nolint:errcheck // the next life does
	f, err := os.OpenFile(fresh, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	r, size, err := fetch(s.ctx, id)
	if err != nil {
		return fmt.Errorf("get it from the manager: %w", err)
	}
	room, err := s.promise(size, fresh)
	if err != nil {
		r.Close() //nolint:errcheck // nothing of it is wanted
		return err
	}
	defer room.End()
	n, err := s.rooms.Copy(f, io.LimitReader(r, image.MaxSize+1<<20), s.dir)
	if err = errors.Join(err, r.Close()); errors.Is(err, linux.ErrNoRoom) {
		return &noRoom{max(size, n), s.dir}
	} else if err != nil {
		return fmt.Errorf("get it from the manager: %w", err)
	}
	s.say(e, "it is being unpacked on this node")
	img, err := image.OpenArchive(f)
	if err != nil {
		return err
	}
	if string(img.ID) != id {
		return fmt.Errorf("what the manager sent is another image (%s)", img.ID.Short())
	}
	if a := img.Config.Architecture; a != "" && a != runtime.GOARCH {
		return fmt.Errorf("it is for machines of %s, and this node is one of %s", a, runtime.GOARCH)
	}
	if err := s.unpack(id, img); err != nil {
		if full := (*noRoom)(nil); errors.As(err, &full) {
			full.need += n // it is there until it is unpacked
		}
		return err
	}
	about, err := json.Marshal(About{Architecture: img.Config.Architecture, Tree: img.IsFiles(),
		Run: img.Config.Config})
	if err != nil {
		return err
	}
	return durable.Replace(s.path(id, aboutSuffix), about, 0o600)
}

// Told tells that from now on Keep is told all that the manager wants of this node. Before, an earlier life may have
// been told less, long ago, and nothing is removed.
func (s *Store) Told() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = true
}

// Keep tells which images elements are made from. Others are removed after a while.
func (s *Store) Keep(used map[string]bool) {
	s.keep(used, time.Now(), unusedFor)
}

func (s *Store) keep(used map[string]bool, now time.Time, most time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.swept {
		if _, err := os.Stat(s.dir); errors.Is(err, fs.ErrNotExist) {
			return // this node has never had any
		}
		if err := s.sweep(); err != nil {
			s.log.Warn("clear away what an earlier life left of images", "error", err)
			return
		}
	}
	for id, e := range s.known {
		switch {
		case used[id] || e.busy:
			e.seen = now
			s.note(id, e)
		case e.seen.IsZero():
			e.seen = now
		case s.told && now.Sub(e.seen) >= most:
			if err := s.drop(id); err != nil {
				s.log.Warn("remove an image that is not used any more", "image", id, "error", err)
				continue
			}
			delete(s.known, id)
		}
	}
}

// note notes now and then that an image is needed: what says that it is whole has that time.
func (s *Store) note(id string, e *entry) {
	if e.seen.Sub(e.noted) < noteEvery {
		return
	}
	if err := os.Chtimes(s.path(id, aboutSuffix), time.Time{}, e.seen); err == nil {
		e.noted = e.seen
	}
}

// Release unmounts all images, where nothing is to be left of the node.
func (s *Store) Release() error {
	s.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for id := range s.known {
		errs = append(errs, s.drop(id))
	}
	s.known = map[string]*entry{}
	return errors.Join(errs...)
}
