package images

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/durable"
	"github.com/polyplane/polyplane/image"
	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
)

// noRoom tells that the machine's disk has no room for an image. Its words stay the same while that is so.
type noRoom struct {
	need int64
	dir  string
}

func (n *noRoom) Error() string {
	return fmt.Sprintf("the machine's disk is too full: the image takes %s of it, and %s must stay free: make room "+
		"in %s, and it is had then", model.Bytes(n.need).Rounded(), spareAt(n.dir).Rounded(), n.dir)
}

func spareAt(dir string) model.Bytes {
	room, _ := linux.RoomAt(dir)
	return model.Bytes(room.Spare())
}

// promise has so much of the machine's disk promised to a file that is about to be filled.
func (s *Store) promise(need int64, file string) (*linux.Promise, error) {
	room, err := s.rooms.Promise(s.dir, need, file)
	if errors.Is(err, linux.ErrNoRoom) {
		err = &noRoom{need, s.dir}
	}
	return room, err
}

// unpack makes a file system of an image. It has its name only when all of it is on the disk.
func (s *Store) unpack(id string, img *image.Image) (err error) {
	counts, err := img.Verify(s.ctx)
	if err != nil {
		return err
	}
	size := counts.DiskSize()
	fresh, at := s.path(id, diskSuffix+freshSuffix), s.path(id, mountSuffix)
	room, err := s.promise(size, fresh)
	if err != nil {
		return err
	}
	defer room.End()
	defer os.Remove(fresh) //nolint:errcheck // it has another name by then, or the next life does
	if err := errors.Join(ignore(os.Remove(fresh)), os.WriteFile(fresh, nil, 0o600), os.Truncate(fresh,
		size)); err != nil {
		return err
	}
	// Nothing writes to it later, so it needs no journal.
	if err := run("mkfs.ext4", "-q", "-F", "-b", "4096", "-O", "^has_journal,^resize_inode", "-m", "0", "-N",
		strconv.Itoa(counts.Inodes()), "-E", "lazy_itable_init=1,nodiscard,root_owner=0:0", fresh); err != nil {
		return fmt.Errorf("make a file system: %w", err)
	}
	if err := os.MkdirAll(at, 0o700); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release(at)) }()
	if err := linux.MountNewImage(fresh, at, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_NOATIME,
		"noinit_itable"); err != nil {
		return err
	}
	if err := s.fill(at, img, &counts); err != nil {
		return err
	}
	if err := unmount(at); err != nil {
		return fmt.Errorf("unmount %s: %w", at, err)
	}
	if err := durable.Sync(fresh); err != nil {
		return err
	}
	if err := os.Rename(fresh, s.path(id, diskSuffix)); err != nil {
		return err
	}
	return durable.Sync(s.dir)
}

// unmount waits for whoever still has a file open there: a process that the agent starts meanwhile has all of the
// agent's until it has become another program.
func unmount(at string) error {
	for try := 0; ; try++ {
		err := unix.Unmount(at, unix.UMOUNT_NOFOLLOW)
		if !errors.Is(err, unix.EBUSY) || try == 500 {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (s *Store) fill(at string, img *image.Image, counts *image.Counts) error {
	root, err := os.OpenRoot(at)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.Remove("lost+found"); err != nil {
		return err
	}
	if err := root.Chmod(".", 0o755); err != nil {
		return err
	}
	if err := img.Unpack(s.ctx, counts, root); err != nil {
		return err
	}
	d, err := root.Open(".")
	if err != nil {
		return err
	}
	defer d.Close()
	return unix.Syncfs(int(d.Fd()))
}

// run runs a program of the machine. An error has what it printed last.
func run(args ...string) error {
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err == nil {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return fmt.Errorf("%s: %w: %s", args[0], err, lines[len(lines)-1])
}
