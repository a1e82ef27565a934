package netns

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/durable"
	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/control"
)

// What an element owns on disk lies in a file system of its own. That is a sparse file, mounted where the element's
// files are. However much the element writes, it takes nobody else's room, and of the machine's disk only what it has
// written. The file is made when the element first has processes; elements without processes have none.

// mkfs makes the file system: an inode for each 16 KiB, a small journal, and 3 % that only the agent can use. So an
// element that has filled its disk can still be started.
var mkfs = []string{"mkfs.ext4", "-q", "-F", "-b", "4096", "-J", "size=4", "-i", "16384", "-m", "3", "-E",
	"lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner=0:0"}

// diskOptions: what is deleted inside goes back to the machine, and blocks that were never used are not written.
const (
	diskFlags   = unix.MS_NOSUID | unix.MS_NODEV
	diskOptions = "discard,noinit_itable,errors=remount-ro"
)

// ensureDisk mounts the element's disk. It makes a new one if there is none, and lets it grow if necessary. It returns
// later when that has to wait until nothing uses the disk. Processes that an earlier polyplane started may run on files
// that are not on a disk. Those are left alone, and move onto a disk at the next start.
func (d *Driver) ensureDisk(job *control.Job, running bool) (later bool, err error) {
	dir := d.dirs.Files(job.ID)
	if !running {
		if err := d.roomToStart(); err != nil {
			return false, err
		}
	}
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return false, fmt.Errorf("make the directory of the element's files: %w", err)
	}
	if linux.IsMount(dir) {
		grown, err := growMounted(d.dirs.Disk(job.ID), dir, job.Element.Limits().Disk)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return false, &missingDiskError{job.ID, d.dirs.Disk(job.ID)}
		case err != nil:
			return false, fmt.Errorf("let the element's disk grow to %s: %w", job.Element.Limits().Disk, err)
		}
		if running {
			return !grown, nil
		}
		broken := isBroken(dir)
		if grown && !broken {
			return false, nil
		}
		if err := d.unmountRoot(job.ID, unix.MNT_DETACH); err != nil {
			return false, err
		}
		switch err := unmountSoon(dir); {
		case errors.Is(err, unix.EBUSY) && !broken: // somebody reads its logs
			return true, nil
		case err != nil:
			return false, fmt.Errorf("unmount the element's disk, to mend it or let it grow: %w", err)
		}
		if broken && !awaitRelease(d.dirs.Disk(job.ID)) {
			return false, fmt.Errorf("an error has made the element's disk %s read-only, and it cannot be mended "+
				"while something else on "+
				"this machine holds it mounted: end what does (another mount namespace may)", d.dirs.Disk(job.ID))
		}
	} else if _, err := os.Stat(d.dirs.Disk(job.ID)); running && errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return false, d.mountDisk(job)
}

// unmountSoon unmounts a disk. Processes that have just ended hold it for a moment, in which it is tried again.
func unmountSoon(dir string) error {
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if err := unix.Unmount(dir, 0); !errors.Is(err, unix.EBUSY) || time.Since(began) > holdTime {
			return err
		}
	}
}

// holdTime bounds how long an unbroken disk is waited for.
const holdTime = 2 * time.Second

// awaitRelease waits until nothing holds a disk that was unmounted, and returns whether that is so. Processes that have
// just ended hold it for a moment. Mounting it meanwhile would bring the broken file system back.
func awaitRelease(image string) bool {
	for began := time.Now(); linux.LoopOf(image) != ""; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > releaseTime {
			return false
		}
	}
	return true
}

// releaseTime bounds how long a broken disk is waited for.
const releaseTime = 5 * time.Second

// isBroken returns whether an error has made a mounted disk read-only, because the machine's disk below it was full or
// failed. Newer kernels (such as 6.18) do not set the flag that says so. Then only a write shows it, and it writes what
// is there already.
func isBroken(dir string) bool {
	var s unix.Stat_t
	return unix.Stat(dir, &s) == nil && errors.Is(unix.Chmod(dir, s.Mode&0o7777), unix.EROFS)
}

// fallsShort tells whether the element's software has failed, and runs on a disk that an error has made read-only: it
// may be for that – FRR's daemons open a log –, and nothing but a restart on a mended disk gets it out of there. The
// disk of those that work is not asked, since asking is a write.
func (d *Driver) fallsShort(job *control.Job, p *process) bool {
	return p.wanted && p.trouble != "" && p.running() && !job.Element.Suspended && isBroken(d.dirs.Files(job.ID))
}

// leastRoom is what must be free on the machine's disk, in bytes, for an element to be started or its broken disk
// mended.
const leastRoom = 8 << 20

// roomToStart tells that the machine's disk is too full to start an element, or nil. What is written into its file
// system then seems to be there and is lost later.
func (d *Driver) roomToStart() error {
	var s unix.Statfs_t
	if err := unix.Statfs(d.dirs.Data, &s); err != nil {
		return nil // whoever writes there will say more
	}
	if free := s.Bavail * uint64(s.Bsize); free < leastRoom {
		return fmt.Errorf("the machine's disk is full: %s has %s free, and starting an element takes %s: make room "+
			"there", d.dirs.Data, model.Bytes(free), model.Bytes(leastRoom))
	}
	return nil
}

// mendDisk restarts an element whose files must change and cannot because its disk is broken, or whose software has
// failed on it: a disk can be mended only while nothing uses it. An element that needs no change goes on as it is until
// its next start.
func (d *Driver) mendDisk(ctx context.Context, w *work, cause error) error {
	if !isBroken(d.dirs.Files(w.job.ID)) {
		return cause
	}
	if err := d.roomToStart(); err != nil {
		return fmt.Errorf("an error has made its disk read-only: it goes on with what it has, and is restarted with "+
			"its disk mended when there "+
			"is room (%w)", err)
	}
	if err := d.removeContainer(ctx, containerID(w.job.ID), d.graceOf(w.job.ID)); err != nil {
		return fmt.Errorf("stop its processes, to mend its disk: %w", err)
	}
	w.p.forget()
	w.p.again++
	if err := d.applyProcess(ctx, w); err != nil {
		return err
	}
	w.did(change.ElementRestarted, "an error had made its disk read-only")
	return nil
}

// mountDisk mounts the element's disk. If there is none, it makes one.
func (d *Driver) mountDisk(job *control.Job) error {
	dir, image, size := d.dirs.Files(job.ID), d.dirs.Disk(job.ID), job.Element.Limits().Disk
	if err := d.checkMove(job); err != nil {
		return err
	}
	if linux.IsMount(dir) { // it is about to be emptied
		return fmt.Errorf("mount the element's disk at %s: something else is mounted there; unmount it", dir)
	}
	mount := linux.MountImage
	_, err := os.Stat(image)
	if errors.Is(err, fs.ErrNotExist) {
		mount, err = linux.MountNewImage, d.makeDisk(image, dir, size)
	} else if err == nil && linux.LoopOf(image) == "" { // otherwise somebody still holds what was mounted before
		if err := checkDisk(image, size); err != nil {
			return &damagedDiskError{job.ID, err}
		}
	}
	if err != nil {
		return fmt.Errorf("make the element's disk: %w", err)
	}
	if err := emptyDir(dir); err != nil { // what was there is on the disk
		return fmt.Errorf("make the directory of the element's files empty: %w", err)
	}
	d.noteOwner(job)
	if err := mount(image, dir, diskFlags, diskOptions); err != nil {
		err = fmt.Errorf("mount the element's disk: %w", err)
		// the kernel's errors for a file system that makes no sense
		if errors.Is(err, unix.EUCLEAN) || errors.Is(err, unix.EINVAL) {
			return &damagedDiskError{job.ID, err}
		}
		return err
	}
	return nil
}

// makeDisk makes the image, with the files of the directory in it. The image appears only when it is complete.
func (d *Driver) makeDisk(image, dir string, size model.Bytes) error {
	if err := os.MkdirAll(filepath.Dir(image), 0o700); err != nil {
		return err
	}
	empty, err := d.emptyDisk(size)
	if err != nil {
		return err
	}
	fresh := image + ".new"
	if at := fresh + mountSuffix; linux.IsMount(at) { // a copy that was cut short
		if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
			return err
		}
	}
	if err := linux.RemoveTree(fresh); err != nil { // do not write to it either: somebody may still hold it
		return err
	}
	if err := linux.CopySparse(empty, fresh); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err == nil && len(entries) > 0 {
		if err = fillDisk(fresh, dir, size); err != nil {
			err = errors.Join(err, os.Remove(fresh))
		}
	}
	if err == nil {
		err = durable.Sync(fresh) // else the name may outlive what it is of
	}
	if err != nil {
		return err
	}
	if err := os.Rename(fresh, image); err != nil {
		return err
	}
	return durable.Sync(filepath.Dir(image))
}

// emptyDisk returns an image of an empty file system of this size. The image is made once: copying the little that is
// in it takes a tenth of the time. Every new disk is a copy of it, so it must be whole. It is checked once in each life
// of the agent, and made anew if it is damaged.
func (d *Driver) emptyDisk(size model.Bytes) (string, error) {
	d.disks.Lock()
	defer d.disks.Unlock()
	path := filepath.Join(d.dirs.Data, "disks", fmt.Sprintf(".empty-%d", uint64(size))) // no network's name begins so
	if info, err := os.Stat(path); err == nil && info.Size() == int64(size) &&
		(d.sound[size] || run("e2fsck", "-n", "-f", path) == nil) {
		d.sound[size] = true
		return path, nil
	}
	fresh := path + ".new"
	if err := linux.RemoveTree(fresh); err != nil {
		return "", err
	}
	if err := os.WriteFile(fresh, nil, 0o600); err != nil {
		return "", err
	}
	if err := os.Truncate(fresh, int64(size)); err != nil {
		return "", err
	}
	if err := run(append(mkfs[:len(mkfs):len(mkfs)], fresh)...); err != nil {
		return "", err
	}
	if err := run("debugfs", "-w", "-R", "rmdir lost+found", fresh); err != nil { // of use to nobody who may look
		return "", err
	}
	if err := durable.Sync(fresh); err != nil {
		return "", err
	}
	d.sound[size] = true
	return path, os.Rename(fresh, path)
}

// doubtDisks has the empty images checked again before the next copy: a copy of one was damaged.
func (d *Driver) doubtDisks() {
	d.disks.Lock()
	defer d.disks.Unlock()
	clear(d.sound)
}

// mountSuffix ends the name of the directory where a new disk is filled.
const mountSuffix = ".mount"

// fillDisk copies the files that an earlier polyplane kept in the directory onto the new disk.
func fillDisk(image, dir string, size model.Bytes) error {
	at := image + mountSuffix
	if err := os.Mkdir(at, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	defer os.Remove(at)
	if err := linux.MountImage(image, at, diskFlags, diskOptions); err != nil {
		return err
	}
	err := run("cp", "-a", dir+"/.", at)
	if err != nil {
		err = fmt.Errorf("move the element's files onto a disk of %s (`disk:` gives it a larger one): %w", size, err)
	}
	if err = errors.Join(err, unix.Unmount(at, 0)); err != nil {
		return err
	}
	return durable.Sync(image) // what it was copied from goes next
}

func emptyDir(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, linux.RemoveTree(filepath.Join(dir, e.Name())))
	}
	return err
}

// ext4's superblock (linux/fs/ext4/ext4.h): its offset, and the offsets of the magic number and the state in it.
const (
	superblock     = 1024
	superMagic     = superblock + 0x38
	superState     = superblock + 0x3a
	extMagic       = 0xef53
	stateHasErrors = 2
)

// checkDisk mends a file system on which the kernel has noted errors, and grows it to this size if it is smaller. A
// crash alone is no error, since the journal repairs what it leaves.
func checkDisk(image string, size model.Bytes) error {
	faulty, err := hasErrors(image)
	if err != nil {
		return err
	}
	info, err := os.Stat(image)
	if err != nil {
		return err
	}
	grows := info.Size() < int64(size)
	if !faulty && !grows {
		return nil
	}
	err = run("e2fsck", "-p", "-f", image)
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) { // 1: mended
		return err
	}
	if !grows {
		return nil
	}
	if err := run("resize2fs", image, strconv.FormatUint(uint64(size)>>10, 10)+"K"); err != nil {
		return fmt.Errorf("let it grow to %s: %w", size, err)
	}
	return nil
}

func hasErrors(image string) (bool, error) {
	f, err := os.Open(image)
	if err != nil {
		return false, err
	}
	defer f.Close()
	var b [superState + 2 - superMagic]byte
	if _, err := f.ReadAt(b[:], superMagic); err != nil {
		return false, err
	}
	magic, state := binary.LittleEndian.Uint16(b[:]), binary.LittleEndian.Uint16(b[superState-superMagic:])
	return magic != extMagic || state&stateHasErrors != 0, nil
}

// checkImage tells that an element's disk that is not in use can never be mounted. It is for elements without
// processes, whose disk is only looked at when somebody runs something in them.
func (d *Driver) checkImage(id model.ID) error {
	image := d.dirs.Disk(id)
	info, err := os.Stat(image)
	if err != nil || linux.IsMount(d.dirs.Files(id)) {
		return nil //nolint:nilerr // it has none, or it works
	}
	var b [2]byte
	f, err := os.Open(image)
	if err == nil {
		_, err = f.ReadAt(b[:], superMagic)
		f.Close()
	}
	switch {
	case errors.Is(err, io.EOF):
		err = fmt.Errorf("%s has only %d bytes", image, info.Size())
	case err == nil && binary.LittleEndian.Uint16(b[:]) != extMagic:
		err = fmt.Errorf("%s holds no file system", image)
	}
	if err != nil {
		return &damagedDiskError{id, err}
	}
	return nil
}

// growMounted grows a file system that is in use to this size, if it is smaller. It returns false if this machine does
// not allow that. ext4 cannot shrink while it is mounted.
func growMounted(image, dir string, size model.Bytes) (bool, error) {
	info, err := os.Stat(image)
	if err != nil || info.Size() >= int64(size) {
		return err == nil, err
	}
	if !mayRaise() {
		return false, nil
	}
	if err := os.Truncate(image, int64(size)); err != nil {
		return false, err
	}
	device, err := linux.MountedLoop(dir)
	if err == nil {
		err = run("resize2fs", "-f", device)
	}
	return err == nil, err
}

// mayRaise returns whether this process has CAP_SYS_RESOURCE.
var mayRaise = sync.OnceValue(func() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&header, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
})

// unmountDisk unmounts the element's disk. Its content stays in its image. The flags are those of umount2(2).
func (d *Driver) unmountDisk(id model.ID, flags int) error {
	dir := d.dirs.Files(id)
	if _, err := os.Stat(dir); err != nil || !linux.IsMount(dir) {
		return nil
	}
	if err := d.unmountRoot(id, flags); err != nil {
		return err
	}
	if err := unix.Unmount(dir, flags|unix.UMOUNT_NOFOLLOW); err != nil {
		return fmt.Errorf("unmount the disk of element %s: %w", id, err)
	}
	return nil
}

// removeFiles puts what the element owns on disk into the trash.
func (d *Driver) removeFiles(id model.ID) error {
	dir, image := d.dirs.Files(id), d.dirs.Disk(id)
	err := d.throwAway(id)
	if err == nil {
		err = errors.Join(linux.RemoveTree(dir), linux.RemoveTree(image), linux.RemoveTree(image+".new"))
	}
	if err != nil {
		return fmt.Errorf("remove the files of element %s: %w", id, err)
	}
	os.Remove(filepath.Dir(dir)) //nolint:errcheck // when it is empty
	if os.Remove(filepath.Dir(image)) == nil {
		disks := filepath.Dir(filepath.Dir(image))
		entries, err := os.ReadDir(disks)
		if err == nil && !slices.ContainsFunc(entries, fs.DirEntry.IsDir) { // no network has any
			err = linux.RemoveTree(disks)
		}
		return err
	}
	return nil
}

// diskUsage returns how many bytes of the element's disk are used, and whether its room or its inodes are used up. ok
// is false if the element has no disk.
func (d *Driver) diskUsage(id model.ID) (used model.Bytes, full, ok bool) {
	dir := d.dirs.Files(id)
	var s unix.Statfs_t
	if !linux.IsMount(dir) || unix.Statfs(dir, &s) != nil {
		return 0, false, false
	}
	// Newer kernels' ext4 refuses a large write as a whole and leaves room for small ones. So a disk counts as full
	// while it has a little room.
	const fewBytes, fewFiles = 1 << 20, 8
	return model.Bytes((s.Blocks - s.Bfree) * uint64(s.Bsize)), s.Bavail*uint64(s.Bsize) < fewBytes ||
		s.Ffree < fewFiles, true
}

// run runs a program of the machine to its end. An error contains what the program printed last.
func run(args ...string) error {
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	return programError(args[0], err, string(out))
}

// programError is the error of a program, with the last line that it said.
func programError(program string, err error, out string) error {
	if err == nil {
		return nil
	}
	words := ""
	for line := range strings.Lines(out) {
		if line = strings.TrimSpace(line); line != "" {
			words = line
		}
	}
	if words != "" {
		return fmt.Errorf("%s: %w: %s", program, err, words)
	}
	return fmt.Errorf("%s: %w", program, err)
}

// DiskShare is the used share of an element's disk: of its room or of its inodes, whichever is more.
func (d *Driver) DiskShare(id model.ID) float64 {
	dir := d.dirs.Files(id)
	var s unix.Statfs_t
	if !linux.IsMount(dir) || unix.Statfs(dir, &s) != nil || s.Blocks == 0 || s.Files == 0 {
		return 0
	}
	return max(1-float64(s.Bfree)/float64(s.Blocks), 1-float64(s.Ffree)/float64(s.Files))
}

// Takes is what the elements' disks take of the node's disk: what was written to them and not given back.
func (d *Driver) Takes(context.Context) map[model.ID]model.Bytes {
	d.mu.Lock()
	ids := slices.Collect(maps.Keys(d.elements))
	d.mu.Unlock()
	all := map[model.ID]model.Bytes{}
	for _, id := range ids {
		var s unix.Stat_t
		if unix.Stat(d.dirs.Disk(id), &s) == nil && s.Blocks > 0 {
			all[id] = model.Bytes(s.Blocks * 512)
		}
	}
	return all
}
