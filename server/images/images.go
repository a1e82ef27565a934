// Package images keeps the images that users have given to the manager, by their IDs, whose they are, and what they are
// called.
package images

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/polyplane/polyplane/durable"
	"github.com/polyplane/polyplane/image"
	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
)

// Store keeps images in a directory: a file for each, and an index that says whose they are. An image that the index
// does not name is removed when the store is opened, so a crash leaves nothing half.
type Store struct {
	dir   string
	rooms *linux.Rooms
	turns Turns // one image is verified at a time

	// mu guards all and the index. It is not held while an image is received or verified, which takes long.
	mu       sync.Mutex
	all      []model.Image // one for each owner of an image
	underWay []*upload
}

const (
	indexName  = "index.json"
	fileSuffix = ".image"
	newPattern = ".new-*"
)

// Kinds of what is refused. Other errors are the machine's.
var (
	// ErrNone tells that there is no such image.
	ErrNone = errors.New("there is no such image")
	// ErrWrong tells that what was sent is no image, or not the one that it should be.
	ErrWrong = errors.New("the image is refused")
	// ErrBusy tells that its owner sends as many others as may be at once.
	ErrBusy = errors.New("too many images are being sent")
	// ErrQuota tells that it is more than its owner may have.
	ErrQuota = errors.New("the image is too large")
)

// refusal is an error of one of these kinds, in words of its own.
type refusal struct {
	kind error
	text string
}

func (r *refusal) Error() string        { return r.text }
func (r *refusal) Is(target error) bool { return target == r.kind }

func refuse(kind error, format string, a ...any) error {
	return &refusal{kind, fmt.Sprintf(format, a...)}
}

// Turns is a lock that users get in turn: to verify an image takes a processor for as long as its owner likes.
type Turns interface {
	LockFor(ctx context.Context, user string) error
	Unlock()
}

// Open opens a store. There need not be any yet. Where the index is damaged, nobody knows whose its images are: they
// are set aside, and the store is empty. Nodes keep what they have. rooms is the account of what is promised of the
// disk.
func Open(dir string, rooms *linux.Rooms, turns Turns) (*Store, error) {
	s := &Store{dir: dir, rooms: rooms, turns: turns}
	data, err := os.ReadFile(filepath.Join(dir, indexName))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	default:
		if err := json.Unmarshal(data, &s.all); err != nil {
			aside := fmt.Sprintf("%s.damaged-%d", dir, time.Now().UnixNano())
			if err := os.Rename(dir, aside); err != nil {
				return nil, fmt.Errorf("set damaged images aside: %w", err)
			}
			slog.Error("the index of images cannot be read: import them again; what there was is set aside",
				"at", aside, "error", err)
			s.all = nil
		}
	}
	return s, s.sweep()
}

// sweep removes files that no entry is about, and entries that no file is there for.
func (s *Store) sweep() error {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		s.all = nil
		return nil
	}
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, e := range entries {
		id := "sha256:" + strings.TrimSuffix(e.Name(), fileSuffix)
		known := slices.ContainsFunc(s.all, func(i model.Image) bool { return i.ID == id })
		switch {
		case e.Name() == indexName:
		case strings.HasSuffix(e.Name(), fileSuffix) && known:
			there[id] = true
		default:
			if err := os.Remove(filepath.Join(s.dir, e.Name())); err != nil {
				return err
			}
		}
	}
	s.all = slices.DeleteFunc(s.all, func(i model.Image) bool { return !there[i.ID] })
	return nil
}

func (s *Store) path(id string) string {
	return filepath.Join(s.dir, image.Digest(id).Hex()+fileSuffix)
}

// visible tells whether an owner may use an image: the own ones, and those of administrators, who are no owner. An
// administrator may use all. A tree is part of a network, and so only its owner's.
func visible(i *model.Image, owner string) bool {
	return owner == "" || i.Owner == owner || i.Owner == "" && !i.Tree
}

// List are the images that an owner may use; all for administrators.
func (s *Store) List(owner string) []model.Image {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []model.Image
	for _, i := range s.all {
		if visible(&i, owner) {
			i.Names = slices.Clone(i.Names)
			all = append(all, i)
		}
	}
	slices.SortFunc(all, func(a, b model.Image) int {
		return cmp.Or(cmp.Compare(a.Owner, b.Owner), slices.Compare(a.Names, b.Names), cmp.Compare(a.ID, b.ID))
	})
	return all
}

// Find finds what an owner calls an image: a name, an ID, or the beginning of one with at least 12 digits. An owner's
// own go before those of administrators.
func (s *Store) Find(owner, of string) (model.Image, error) {
	name, id := model.SplitImage(of)
	var found []model.Image
	for _, i := range s.List(owner) {
		if i.Tree { // no element is made from it
			continue
		}
		if id != "" && i.ID == id || id == "" && slices.Contains(i.Names, name) {
			found = append(found, i)
		}
	}
	if digits := strings.TrimPrefix(name, "sha256:"); len(found) == 0 && id == "" && len(digits) >= 12 {
		for _, i := range s.List(owner) {
			if !i.Tree && strings.HasPrefix(image.Digest(i.ID).Hex(), digits) {
				found = append(found, i)
			}
		}
	}
	if len(found) == 0 {
		return model.Image{}, refuse(ErrNone, "there is no image %s", model.ShortImage(of))
	}
	return best(found, owner), nil
}

// FindTree finds files that are put into elements, by their ID, or the beginning of it with at least 12 digits.
func (s *Store) FindTree(owner, id string) (model.Image, error) {
	digits := strings.TrimPrefix(id, "sha256:")
	found := slices.DeleteFunc(s.List(owner), func(i model.Image) bool {
		return !i.Tree || i.ID != id && (len(digits) < 12 || !strings.HasPrefix(image.Digest(i.ID).Hex(), digits))
	})
	if len(found) == 0 {
		return model.Image{}, NoTree(id)
	}
	return best(found, owner), nil
}

// NoTree is the error where nobody has sent files under an ID, or not to whom asks.
func NoTree(id string) error { return refuse(ErrNone, "there is no tree %s", model.ShortImage(id)) }

// Tree is what is known of files that are put into elements.
type Tree struct {
	Owners []string
	Bytes  model.Bytes // zero where it is not known
}

// Trees are all files that are put into elements, by their IDs.
func (s *Store) Trees() map[string]Tree {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]Tree{}
	for _, i := range s.all {
		if i.Tree {
			all[i.ID] = Tree{append(all[i.ID].Owners, i.Owner), max(all[i.ID].Bytes, i.Bytes)}
		}
	}
	return all
}

// Holder is an owner who has an image.
type Holder struct{ Owner, ID string }

// Holders are those who have each image, by its ID.
func (s *Store) Holders() map[string][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string][]string{}
	for _, i := range s.all {
		all[i.ID] = append(all[i.ID], i.Owner)
	}
	return all
}

// Share gives an owner what others have, under their names for it where the owner has none that are called so: a
// network that uses it has become the owner's.
func (s *Store) Share(ids []string, owner string, quota model.Bytes) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, used, more := slices.Clone(s.all), model.Bytes(0), model.Bytes(0)
	names := map[string]bool{}
	for i := range next {
		if next[i].Owner == owner {
			used += cost(&next[i])
			for _, name := range next[i].Names {
				names[name] = true
			}
		}
	}
	for _, id := range ids {
		at := slices.IndexFunc(next, func(i model.Image) bool { return i.ID == id })
		if at < 0 || slices.ContainsFunc(next, func(i model.Image) bool { return i.ID == id && visible(&i, owner) }) {
			continue
		}
		is := next[at]
		is.Owner, is.UsedBy = owner, nil
		is.Names = slices.DeleteFunc(slices.Clone(is.Names), func(name string) bool { return names[name] })
		for _, name := range is.Names {
			names[name] = true
		}
		more += cost(&is)
		next = append(next, is)
	}
	switch {
	case more == 0:
		return nil
	case quota > 0 && used+more > quota:
		return refuse(ErrQuota, "user %s's quota of images is %s: with those of the network, of %s, it would be %s",
			owner, quota, more.Rounded(), (used + more).Rounded())
	}
	return s.write(next)
}

// ForgetLost forgets images whose files are not there any more, and returns them: whoever brings one again is not told
// that it is there.
func (s *Store) ForgetLost() (lost []model.Image, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// A disk that is away for a moment has lost nothing: its index would be written anew without what it has.
	if _, err := os.Stat(filepath.Join(s.dir, indexName)); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	next := slices.DeleteFunc(slices.Clone(s.all), func(i model.Image) bool {
		_, err := os.Stat(s.path(i.ID))
		if errors.Is(err, fs.ErrNotExist) {
			lost = append(lost, i)
		}
		return errors.Is(err, fs.ErrNotExist)
	})
	if len(lost) == 0 {
		return nil, nil
	}
	return lost, s.write(next)
}

// best is the one of several that an owner means.
func best(found []model.Image, owner string) model.Image {
	// Those of owners come after those of nobody; an owner's own count first, as do nobody's for administrators.
	slices.SortStableFunc(found, func(a, b model.Image) int {
		mine := func(i model.Image) int {
			if i.Owner == owner {
				return 0
			}
			return 1
		}
		return mine(a) - mine(b)
	})
	return found[0]
}

// Used is how many bytes an owner's images take on a node.
func (s *Store) Used(owner string) (used model.Bytes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.all {
		if s.all[i].Owner == owner {
			used += cost(&s.all[i])
		}
	}
	return used
}

// cost is what of an image counts: what it takes on each node, or as it is kept, whichever is more.
func cost(i *model.Image) model.Bytes { return max(i.Size, i.Unpacked) }

// CheckName says why an image cannot have a name.
func CheckName(name string) error {
	_, id := model.SplitImage(name)
	switch {
	case name == "" || len(name) > model.MaxImageName || !utf8.ValidString(name) ||
		strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsGraphic(r) || unicode.IsSpace(r) }):
		return refuse(ErrWrong, "%q is no name of an image; one like lab/web:1, without spaces, was expected",
			model.Shorten(name, model.MaxName))
	case id != "" || name[0] == '/' || name[0] == '.':
		return refuse(ErrWrong, "%q is no name of an image: it would be taken for an ID, or for a file", name)
	}
	return nil
}

// Name gives an owner a name for an image that may be used already, whose content need not be sent then.
func (s *Store) Name(owner, id, name string, quota model.Bytes) (model.Image, error) {
	if name == "" { // a tree, which is wanted again
		is, err := s.FindTree(owner, id)
		if err == nil {
			is.Added = now()
			is, err = s.keep(is, owner, name, quota)
		}
		return is, err
	}
	if err := CheckName(name); err != nil {
		return model.Image{}, err
	}
	is, err := s.Find(owner, id)
	if err != nil {
		return model.Image{}, err
	}
	return s.keep(is, owner, name, quota)
}

func now() time.Time { return time.Now().UTC().Truncate(time.Second) }

// keep enters an image for an owner under a name, which another of the owner's images loses.
func (s *Store) keep(is model.Image, owner, name string, quota model.Bytes) (model.Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var next []model.Image
	var mine *model.Image
	used := cost(&is)
	for _, i := range s.all {
		i.Names = slices.Clone(i.Names)
		if i.Owner == owner {
			i.Names = slices.DeleteFunc(i.Names, func(n string) bool { return n == name })
			if i.ID == is.ID {
				mine = &i
				continue
			}
			used += cost(&i)
		}
		next = append(next, i)
	}
	if mine == nil {
		if quota > 0 && used > quota {
			return is, refuse(ErrQuota, "user %s's quota of images is %s: with this image of %s it would be %s", owner,
				quota, cost(&is).Rounded(), used.Rounded())
		}
		is.Owner, is.Names, is.UsedBy = owner, nil, nil
		mine = &is
	}
	switch {
	case is.Tree:
		mine.Added = is.Added
	case len(mine.Names) >= maxNames:
		return is, refuse(ErrWrong, "the image has %d names already", maxNames)
	default:
		mine.Names = append(mine.Names, name)
		slices.Sort(mine.Names)
	}
	if err := s.write(append(next, *mine)); err != nil {
		return is, err
	}
	return *mine, nil
}

// maxNames is how many names an image has at most.
const maxNames = 32

// Remove takes an owner's image away, or one of its names where it has others.
func (s *Store) Remove(owner, id, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := slices.Clone(s.all)
	at := slices.IndexFunc(next, func(i model.Image) bool { return i.ID == id && i.Owner == owner })
	if at < 0 {
		return refuse(ErrNone, "there is no image %s", model.ShortImage(id))
	}
	if names := next[at].Names; len(names) > 1 && slices.Contains(names, name) {
		next[at].Names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name })
	} else {
		next = slices.Delete(next, at, at+1)
	}
	if err := s.write(next); err != nil {
		return err
	}
	s.dropLocked(id)
	return nil
}

// treeStays is how long a tree stays that no network uses: the network that is to use it is applied once it is here.
const treeStays = time.Hour

// Collect removes images that no name leads to any more and that nobody uses: those that a newer one has replaced, and
// trees of networks that have others or are gone.
func (s *Store) Collect(used map[Holder]bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var gone []string
	next := slices.DeleteFunc(slices.Clone(s.all), func(i model.Image) bool {
		if len(i.Names) > 0 || used[Holder{i.Owner, i.ID}] || i.Tree && time.Since(i.Added) < treeStays {
			return false
		}
		gone = append(gone, i.ID)
		return true
	})
	if len(gone) == 0 {
		return nil
	}
	if err := s.write(next); err != nil {
		return err
	}
	for _, id := range gone {
		s.dropLocked(id)
	}
	return nil
}

func (s *Store) drop(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropLocked(id)
}

// dropLocked removes an image's file where nobody has it any more. A file that stays goes at the next start.
func (s *Store) dropLocked(id string) {
	if !slices.ContainsFunc(s.all, func(i model.Image) bool { return i.ID == id }) {
		os.Remove(s.path(id)) //nolint:errcheck // said above
	}
}

// Read opens an image, in the form in which it is kept.
func (s *Store) Read(id string) (*os.File, error) {
	if !model.IsImageID(id) {
		return nil, refuse(ErrNone, "%.80q is no ID of an image", id)
	}
	f, err := os.Open(s.path(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, refuse(ErrNone, "there is no image %s", model.ShortImage(id))
	}
	return f, err
}

// write replaces the index.
func (s *Store) write(next []model.Image) error {
	data, err := json.Marshal(next)
	if err != nil {
		return err
	}
	if err := durable.Replace(filepath.Join(s.dir, indexName), data, 0o600); err != nil {
		return fmt.Errorf("note which images there are: %w", err)
	}
	s.all = next
	return nil
}
