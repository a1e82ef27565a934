package images

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"

	"github.com/polyplane/polyplane/durable"
	"github.com/polyplane/polyplane/image"
	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
)

// upload is an image that is being received. Until it is there it counts with what was told of its size.
type upload struct {
	owner, id string
	size      model.Bytes
}

const (
	// mostUploads is how many an owner may have under way at once. Administrators may have any number.
	mostUploads = 2
	// promisedAhead is how much room is promised to an upload beyond what has arrived: somebody who sends slowly, or
	// nothing at all, holds no more of the disk.
	promisedAhead = 256 << 20
)

// sized is what is sent by somebody who says how much it is.
type sized interface{ Size() int64 }

// Add takes an image in the form in which images are kept. It is verified whole before it counts as there. What is told
// of its size (sized) is believed where that refuses it, before any of it is taken.
func (s *Store) Add(ctx context.Context, owner, id, name string, quota model.Bytes, r io.Reader) (model.Image, error) {
	if !model.IsImageID(id) {
		return model.Image{}, refuse(ErrWrong, "%.80q is no ID of an image", id)
	}
	if name != "" {
		if err := CheckName(name); err != nil {
			return model.Image{}, err
		}
	}
	size := int64(-1)
	if is, known := r.(sized); known {
		size = is.Size()
	}
	under, err := s.begin(&upload{owner, id, model.Bytes(max(0, size))}, quota)
	if err != nil {
		return model.Image{}, err
	}
	defer s.end(under)
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return model.Image{}, err
	}
	f, err := os.CreateTemp(s.dir, newPattern)
	if err != nil {
		return model.Image{}, err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it has another name by then
	defer f.Close()
	most := int64(image.MaxSize)
	if quota > 0 {
		most = min(most, int64(quota)+1<<20)
	}
	n, err := s.receive(f, io.LimitReader(r, most+1), size)
	if errors.Is(err, linux.ErrNoRoom) {
		room, _ := linux.RoomAt(s.dir)
		return model.Image{}, refuse(linux.ErrNoRoom, "the manager's disk is too full for %s: %s are free in %s, "+
			"of which %s must stay so; make room there", model.Bytes(max(size, n)).Rounded(),
			model.Bytes(room.Free).Rounded(), s.dir, model.Bytes(room.Spare()).Rounded())
	}
	if err != nil {
		return model.Image{}, err
	}
	if n > most {
		return model.Image{}, refuse(ErrQuota, "the image has more than %s, which is as much as its owner may have",
			model.Bytes(most).Rounded())
	}
	is, err := s.verify(ctx, owner, id, f)
	if err == nil && is.Tree != (name == "") {
		err = refuse(ErrWrong, "an image has a name, and files that are put into elements have none")
	}
	if err != nil {
		return model.Image{}, err
	}
	is.Size = model.Bytes(n)
	if err := f.Sync(); err != nil { // which takes long
		return model.Image{}, err
	}
	s.mu.Lock()
	if !slices.ContainsFunc(s.all, func(i model.Image) bool { return i.ID == id }) {
		err = errors.Join(os.Rename(f.Name(), s.path(id)), durable.Sync(s.dir))
	}
	s.mu.Unlock()
	if err != nil {
		return model.Image{}, err
	}
	is, err = s.keep(is, owner, name, quota)
	if err != nil {
		s.drop(id)
	}
	return is, err
}

// receive takes what is sent, as long as the disk has room. A size that is told (not -1) is refused if it has none now.
func (s *Store) receive(f *os.File, r io.Reader, size int64) (n int64, err error) {
	if size > 0 && !s.rooms.Has(s.dir, size) {
		return 0, linux.ErrNoRoom
	}
	for {
		room, err := s.rooms.Promise(s.dir, min(n+promisedAhead, size), f.Name())
		if err != nil {
			return n, err
		}
		part, err := s.rooms.Copy(f, io.LimitReader(r, promisedAhead), s.dir)
		room.End()
		if n += part; err != nil || part < promisedAhead {
			return n, err
		}
	}
}

func (s *Store) verify(ctx context.Context, owner, id string, f *os.File) (is model.Image, err error) {
	if err := s.turns.LockFor(ctx, owner); err != nil {
		return is, err
	}
	defer s.turns.Unlock()
	img, err := image.OpenArchive(f)
	if err != nil {
		return is, refuse(ErrWrong, "%v", err)
	}
	if string(img.ID) != id {
		return is, refuse(ErrWrong, "it is another image than was said: %s", img.ID)
	}
	counts, err := img.Verify(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return is, ctx.Err()
		}
		return is, refuse(ErrWrong, "%v", err)
	}
	return model.Image{ID: id, Unpacked: model.Bytes(counts.DiskSize()), Files: counts.Files,
		Bytes: model.Bytes(counts.Bytes), LeftOut: counts.LeftOut,
		Added: now(), Architecture: img.Config.Architecture, Run: img.Config.Config, Tree: img.IsFiles()}, nil
}

// begin enters an upload, or refuses what its owner may not have beside what the owner has and is sending. An image
// takes at least as much as is sent.
func (s *Store) begin(u *upload, quota model.Bytes) (*upload, error) {
	used, sending, there := u.size, 0, false
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.all {
		if s.all[i].Owner == u.owner {
			used += cost(&s.all[i])
			there = there || s.all[i].ID == u.id
		}
	}
	for _, other := range s.underWay {
		if other.owner == u.owner {
			sending++
			if other.id != u.id {
				used += other.size
			}
		}
	}
	switch {
	case u.owner != "" && sending >= mostUploads:
		return nil, refuse(ErrBusy, "user %s is sending %d images or files already, which is as many as may be at "+
			"once: send this one when one of them is here", u.owner, sending)
	case quota > 0 && used > quota && !there: // what is there counts already
		return nil, refuse(ErrQuota, "user %s's quota of images is %s: with this image of %s it would be %s", u.owner,
			quota, u.size.Rounded(), used.Rounded())
	}
	s.underWay = append(s.underWay, u)
	return u, nil
}

func (s *Store) end(u *upload) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.underWay = slices.DeleteFunc(s.underWay, func(is *upload) bool { return is == u })
}
