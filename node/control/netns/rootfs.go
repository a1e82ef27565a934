package netns

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/software"
)

// An element has a root file system of its own, below NodeDirs.Files. Of the machine it sees only /usr, which it can
// read: no /etc/shadow, no /root, no /var. What lies in the file system belongs to somebody who may plant symbolic
// links. So the driver touches it only through os.Root, which does not leave it.

// rootfs is where an element's root file system is.
func (d *Driver) rootfs(id model.ID) string { return filepath.Join(d.dirs.Files(id), "rootfs") }

// logPath is the file that gets what an element's processes print.
func (d *Driver) logPath(id model.ID) string { return filepath.Join(d.dirs.Files(id), "log") }

// users are an element's own: name, user ID, group ID, home, shell.
var users = []struct {
	name, home, shell string
	uid               int
}{
	{"root", "/root", "/bin/bash", 0},
	{"daemon", "/usr/sbin", "/usr/sbin/nologin", 1},
	{"frr", "/nonexistent", "/usr/sbin/nologin", 300},
	{"bird", "/nonexistent", "/usr/sbin/nologin", 302},
	{"tcpdump", "/nonexistent", "/usr/sbin/nologin", 303}, // which it becomes once it has its socket
	{"nobody", "/nonexistent", "/usr/sbin/nologin", 65534},
}

// groups beside those that are named and numbered like users.
var groups = []struct {
	name, members string
	gid           int
}{
	{"tty", "", 5}, {"frrvty", "frr", 301}, {"nogroup", "", 65534},
}

// elementFiles writes into an element's root file system.
type elementFiles struct {
	root *os.Root
	base int // the machine's user ID that is root in there
	id   model.ID
	// called is what it is called inside.
	called model.ID
	// mend sets aside what an element put in the place of a directory that it must have. Without it, that is an error.
	mend  bool
	moved []change.Change // what was set aside
	// damaged tells that the list of users is empty. Nobody empties it, so it was lost, and then other empty files were
	// lost too.
	damaged bool
	image   bool // it begins as an image
	// below is where the image is mounted. Its files have the numbers there that they have in the image.
	below string
	ways  map[string]bool // directories that must be there for files that are about to be written
	made  []string        // sorted: those that are there for what the element was given
	// trees are those that it was given, for whoever asks what was made inside.
	trees *treesOf
}

// ownedBy makes root and a group the owners of a directory. If they are already, it writes nothing.
func ownedBy(dir string, group int, mode os.FileMode) error {
	var s unix.Stat_t
	if err := unix.Lstat(dir, &s); err == nil && s.Uid == 0 && int(s.Gid) == group && s.Mode&0o7777 == uint32(mode) {
		return nil
	}
	return errors.Join(os.Chown(dir, 0, group), os.Chmod(dir, mode))
}

// openFiles opens an element's root file system, and makes it if there is none. mend is for elements that are about to
// be started: what the element put in the place of its directories is set aside.
func (d *Driver) openFiles(job *control.Job, mend bool) (*elementFiles, error) {
	if err := d.ensureRoot(job); err != nil {
		return nil, err
	}
	path := d.rootfs(job.ID)
	base := int(model.UIDBase(job.Index))
	// The root users of the network must be able to pass through here, and nobody else: the machine's own users must
	// not reach a program that an element has marked set-user-ID.
	own := filepath.Dir(path)
	err := os.MkdirAll(own, 0o711)
	if err == nil {
		err = ownedBy(own, base, 0o710)
	}
	if err != nil {
		return nil, fmt.Errorf("make the directory of the element's files: %w", err)
	}
	if err := d.letWalk(); err != nil {
		return nil, err
	}
	err = os.Mkdir(path, 0o755)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make the element's root directory: %w", err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("open the element's root directory: %w", err)
	}
	f := &elementFiles{root: root, base: base, id: job.ID, called: job.Called(), mend: mend,
		image: job.Element.Image != ""}
	furnish := f.furnishImage
	if f.image {
		if about, _, err := d.image(&job.Element); err == nil && about != nil {
			f.below = about.Dir
		}
	} else { // otherwise ensureRoot has done it
		furnish, err = f.furnish, d.giveFiles(root, base)
	}
	if err != nil {
		root.Close()
		return nil, err
	}
	if err := furnish(job); err != nil {
		root.Close()
		return nil, fmt.Errorf("furnish the element's root directory: %w", err)
	}
	return f, nil
}

// letWalk lets elements' root users pass through (not list) polyplane's directories on the way to their own:
// …/polyplane/INSTANCE/nodes/NODE and those below. Whatever must stay secret in there has modes of its own.
func (d *Driver) letWalk() error {
	const own = 4
	for i, dir := 0, d.dirs.Data; dir != "/"; i, dir = i+1, filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return fmt.Errorf("look at the directory of the elements' files: %w", err)
		}
		mode := info.Mode().Perm()
		switch {
		case mode&0o001 != 0:
		case i < own:
			if err := os.Chmod(dir, mode|0o011); err != nil {
				return fmt.Errorf("let elements pass through %s to their files: %w", dir, err)
			}
		default:
			return fmt.Errorf("elements cannot reach their files: %s lets only its owner pass (mode %04o); give it "+
				"mode %04o, or "+
				"use another data directory", dir, mode, mode|0o011)
		}
	}
	return nil
}

// giveFiles makes the element own its files. If the network has another index now, because it was deleted and made
// again or its files came from another machine, their owners are changed accordingly. The element's root may change
// anything in there, even while this runs. So the walk never leaves the root, and it leaves alone what already belongs
// to the element's range of IDs. The root directory comes last, so that an interrupted walk is begun again.
func (d *Driver) giveFiles(root *os.Root, base int) error {
	info, err := root.Lstat(".")
	if err != nil {
		return fmt.Errorf("look at the element's root directory: %w", err)
	}
	was := ownerOf(info)
	if isOf(was, base) {
		return nil
	}
	// The first ID of the range that the files belonged to: another network's, or the machine's own users'.
	if first := int(model.UIDBase(0)); was >= first {
		was -= (was - first) % model.UIDsPerNetwork
	} else {
		was = 0
	}
	give := func(path string) error {
		info, err := root.Lstat(path)
		if err != nil {
			return err
		}
		uid, gid := moveID(ownerOf(info), was, base), moveID(groupOf(info), was, base)
		if err := root.Lchown(path, uid, gid); err != nil {
			return fmt.Errorf("give %s to the element: %w", path, err)
		}
		if info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 && info.Mode()&fs.ModeSymlink == 0 {
			// lost with the owner
			return root.Chmod(path, info.Mode()&(fs.ModePerm|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky))
		}
		return nil
	}
	err = fs.WalkDir(root.FS(), ".", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && path != "." {
			err = give(path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile
		}
		return err
	})
	if err != nil {
		return err
	}
	return give(".")
}

func ownerOf(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }

func groupOf(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Gid) }

// isOf returns whether an ID is in the range of a network.
func isOf(id, base int) bool { return id >= base && id < base+model.UIDsPerNetwork }

func moveID(id, was, base int) int {
	switch {
	case isOf(id, base): // moved before
		return id
	case isOf(id, was):
		return base + id - was
	}
	return base
}

func (f *elementFiles) close() { f.root.Close() }

// rel turns an absolute path of the element into one below its root.
func rel(path string) string { return strings.TrimPrefix(filepath.Clean("/"+path), "/") }

// dir makes a directory and sets its mode and owner.
func (f *elementFiles) dir(path string, mode fs.FileMode, uid, gid int) error {
	path = rel(path)
	if err := f.ensureNoOther(path); err != nil {
		return err
	}
	err := f.root.Mkdir(path, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return nil // the element may have changed mode and owner
	}
	if err != nil {
		return err
	}
	if err := f.root.Lchown(path, f.base+uid, f.base+gid); err != nil {
		return err
	}
	return f.root.Chmod(path, mode)
}

// write replaces a file.
func (f *elementFiles) write(path, content string, mode fs.FileMode, uid, gid int) error {
	path = rel(path)
	// What is right is not written again: a full disk must not keep its element from being started.
	if now, err := f.read(path, int64(len(content))); err == nil && string(now) == content &&
		f.has(path, mode, uid, gid) {
		return nil
	}
	temporary := path + model.SuffixBeingWritten
	if err := f.clear(temporary); err != nil {
		return err
	}
	if info, err := f.root.Lstat(path); err == nil && info.IsDir() {
		if err := f.setAside(path, "a directory"); err != nil {
			return err
		}
	}
	file, err := f.root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(content)
	err = errors.Join(err, file.Chown(f.base+uid, f.base+gid), file.Chmod(mode), file.Close())
	if err == nil {
		err = f.root.Rename(temporary, path)
	}
	if err != nil {
		f.root.Remove(temporary) //nolint:errcheck // the first error counts; a disk that is full needs the room
	}
	return err
}

// has returns whether a file has this mode and owner.
func (f *elementFiles) has(path string, mode fs.FileMode, uid, gid int) bool {
	info, err := f.root.Lstat(path)
	return err == nil && info.Mode() == mode && ownerOf(info) == f.base+uid && groupOf(info) == f.base+gid
}

// exists returns whether there is anything at path.
func (f *elementFiles) exists(path string) bool {
	_, err := f.root.Lstat(rel(path))
	return err == nil
}

// read reads a regular file of at most limit bytes.
func (f *elementFiles) read(path string, limit int64) ([]byte, error) {
	file, err := openRegular(f.root, path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > limit {
		return nil, fmt.Errorf("%s has %d bytes: at most %d are read", path, info.Size(), limit)
	}
	data := make([]byte, info.Size())
	n, err := file.ReadAt(data, 0)
	if n == len(data) {
		err = nil
	}
	return data[:n], err
}

// openRegular opens a regular file for reading; a pipe that somebody put in its place must not block the agent.
func openRegular(root *os.Root, path string) (*os.File, error) {
	file, err := root.OpenFile(rel(path), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	return regular(file, path)
}

// openPlain is openRegular for a path without any symbolic link. A link may lead to what the agent may read, and the
// element's root may not: the machine's own files below /usr, for example.
func openPlain(root *os.Root, path string) (*os.File, error) {
	dir, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	fd, err := unix.Openat2(int(dir.Fd()), rel(path), &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return regular(os.NewFile(uintptr(fd), path), path)
}

// regular returns a file if it is a regular one that is stored somewhere, and closes it if not. In proc, sysfs and
// their like the kernel answers whoever asks; to the agent it tells what the element's root may not know. Such file
// systems have no blocks (statfs(2)).
func regular(file *os.File, path string) (*os.File, error) {
	info, err := file.Stat()
	var of unix.Statfs_t
	if err == nil {
		err = unix.Fstatfs(int(file.Fd()), &of)
	}
	if err != nil || !info.Mode().IsRegular() || of.Blocks == 0 && of.Type != unix.TMPFS_MAGIC {
		file.Close()
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	return file, nil
}

// ownDirs are the directories of every element's root, by mode.
var ownDirs = []struct {
	path string
	mode fs.FileMode
}{
	{"etc", 0o755}, {"etc/ssl", 0o755}, {"etc/pam.d", 0o755}, {"var", 0o755}, {"var/log", 0o755}, {"var/lib", 0o755},
	{"var/cache", 0o755}, {"var/spool", 0o755}, {"var/tmp", fs.ModeSticky | 0o777}, {"root", 0o700}, {"home", 0o755},
	{"mnt", 0o755}, {"srv", 0o755}, {"opt", 0o755}, {"usr", 0o755}, {"proc", 0o555}, {"sys", 0o555}, {"dev", 0o755},
	{"run", 0o755}, {"tmp", fs.ModeSticky | 0o777},
}

// furnish makes the files that every element has. Those that a person may want to change are written only once.
func (f *elementFiles) furnish(job *control.Job) error {
	for _, dir := range ownDirs {
		if err := f.dir(dir.path, dir.mode, 0, 0); err != nil {
			return err
		}
	}
	if err := f.clearMounts(); err != nil {
		return err
	}
	links := map[string]string{"var/run": "/run", "var/lock": "/run/lock", "etc/mtab": "/proc/self/mounts",
		"etc/os-release": "../usr/lib/os-release"}
	for _, dir := range systemDirs {
		target, err := os.Readlink("/" + dir)
		switch info, statErr := os.Lstat("/" + dir); {
		case err == nil:
			links[dir] = target
		case statErr == nil && info.IsDir():
			if err := f.dir(dir, 0o755, 0, 0); err != nil {
				return err
			}
		}
	}
	for path, target := range links {
		if !f.exists(path) {
			if err := f.root.Symlink(target, path); err != nil {
				return err
			}
			if err := f.root.Lchown(path, f.base, f.base); err != nil {
				return err
			}
		}
	}
	for path, content := range etcOnce(job.Called()) {
		if userFiles[path] && !f.regular(path) {
			// runc reads these to look users up. If one were a pipe, runc would wait forever for somebody to write into
			// it.
			if err := f.clear(path); err != nil {
				return err
			}
		}
		lost := f.lost(path)
		if !f.exists(path) || lost {
			if err := f.write(path, content, 0o644, 0, 0); err != nil {
				return err
			}
		}
		f.damaged = f.damaged || lost && userFiles[path]
	}
	return f.write("etc/hostname", job.Element.Name+"\n", 0o644, 0, 0)
}

// lost returns whether a file exists but its content was lost.
func (f *elementFiles) lost(path string) bool {
	if !f.regular(path) {
		return false
	}
	content, err := f.read(path, maxFirstFile)
	return err == nil && (len(content) == 0 || hasZeros(content))
}

// maxFirstFile is the longest file of etcOnce that is examined, in bytes. A longer one was edited in the element.
const maxFirstFile = 64 << 10

// hasZeros returns whether a text file contains zeros. That is no edit: where the machine's disk was full, or lost its
// power, file systems show zeros instead of what was to be written.
func hasZeros(content []byte) bool { return bytes.IndexByte(content, 0) >= 0 }

// userFiles are those of etcOnce that programs of the machine read.
var userFiles = map[string]bool{"etc/passwd": true, "etc/group": true}

// regular returns whether there is a regular file at path, and not a link to one.
func (f *elementFiles) regular(path string) bool {
	info, err := f.root.Lstat(path)
	return err == nil && info.Mode().IsRegular()
}

func etcOnce(id model.ID) map[string]string {
	var passwd, group strings.Builder
	for _, u := range users {
		fmt.Fprintf(&passwd, "%s:x:%d:%d::%s:%s\n", u.name, u.uid, u.uid, u.home, u.shell)
		if u.name != "nobody" {
			fmt.Fprintf(&group, "%s:x:%d:\n", u.name, u.uid)
		}
	}
	for _, g := range groups {
		fmt.Fprintf(&group, "%s:x:%d:%s\n", g.name, g.gid, g.members)
	}
	prompt := fmt.Sprintf("[ -n \"$PS1\" ] && PS1='%s:\\w\\$ '\n", id)
	return map[string]string{
		"etc/passwd": passwd.String(),
		"etc/group":  group.String(),
		"etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nnetworks: files\nprotocols: " +
			"files\nservices: files\n",
		"etc/resolv.conf": firstResolv,
		"etc/host.conf":   "multi on\n",
		"etc/shells":      "/bin/sh\n/bin/bash\n",
		"etc/profile":     "[ -r /etc/bash.bashrc ] && . /etc/bash.bashrc\n",
		"etc/bash.bashrc": prompt,
		"etc/inputrc":     "set bell-style none\n",
	}
}

// owner looks up the numbers of a user and a group in the element's own files.
func owner(user, group string) (uid, gid int, err error) {
	uid, gid = -1, -1
	for _, u := range users {
		if u.name == user {
			uid = u.uid
		}
		if u.name == group && u.name != "nobody" {
			gid = u.uid
		}
	}
	for _, g := range groups {
		if g.name == group {
			gid = g.gid
		}
	}
	if uid < 0 || gid < 0 {
		return 0, 0, fmt.Errorf("elements have no user %q or no group %q", user, group)
	}
	return uid, gid, nil
}

// owner looks up the numbers of a user and a group: those of an image are the image's own.
func (f *elementFiles) owner(user, group string) (uid, gid int, err error) {
	if !f.image {
		return owner(user, group)
	}
	if uid, err = f.numberIn("etc/passwd", user); err == nil {
		gid, err = f.numberIn("etc/group", group)
	}
	return uid, gid, err
}

// numberIn finds a name's number in the element's list of users or of groups (passwd(5), group(5)).
func (f *elementFiles) numberIn(path, name string) (int, error) {
	if name == "root" {
		return 0, nil
	}
	text, err := f.read(path, maxUsers)
	if err != nil {
		return 0, fmt.Errorf("find %s in its /%s: %w", name, path, err)
	}
	for line := range strings.Lines(string(text)) {
		words := strings.Split(line, ":")
		if words[0] != name || len(words) < 3 {
			continue
		}
		if number, err := strconv.ParseUint(strings.TrimSpace(words[2]), 10, 16); err == nil {
			return int(number), nil
		}
	}
	return 0, fmt.Errorf("its /%s has no %s, which the image's routing software needs", path, name)
}

// maxUsers bounds an image's list of users in bytes.
const maxUsers = 1 << 20

// makeDirs makes the directories that the software needs. An image may lack those above them, and those of files.
func (f *elementFiles) makeDirs(plan *software.Plan) error {
	dirs := plan.Dirs
	if f.image {
		dirs = nil
		above := func(path string) {
			if at := filepath.Dir(path); !f.exists(at) {
				dirs = append(dirs, software.Dir{Path: at, Mode: 0o755, Owner: "root", Group: "root"})
			}
		}
		for _, dir := range plan.Dirs {
			above(dir.Path)
			dirs = append(dirs, dir)
		}
		for i := range plan.Files {
			above(plan.Files[i].Path)
		}
	}
	for _, dir := range dirs {
		uid, gid, err := f.owner(dir.Owner, dir.Group)
		if err == nil {
			err = f.dir(dir.Path, dir.Mode, uid, gid)
		}
		if err == nil && f.isDirOfImage(dir.Path) && !f.has(rel(dir.Path), dir.Mode|fs.ModeDir, uid, gid) {
			err = errors.Join(f.root.Lchown(rel(dir.Path), f.base+uid, f.base+gid),
				f.root.Chmod(rel(dir.Path), dir.Mode))
		}
		if err != nil {
			return fmt.Errorf("make %s: %w", dir.Path, err)
		}
	}
	return nil
}

// writePlan writes the files of the software, except for its running configuration, and returns whether one has
// changed. With keep it leaves existing files: they belong to a configuration that the element has edited.
func (f *elementFiles) writePlan(plan *software.Plan, keep bool) (changed bool, err error) {
	for i := range plan.Files {
		file := &plan.Files[i]
		if slices.Contains(plan.ConfigFiles, file.Path) || keep && f.exists(file.Path) {
			continue
		}
		if now, err := f.read(file.Path, int64(len(file.Content))); err == nil && string(now) == file.Content {
			continue
		}
		if err := f.writeFile(file); err != nil {
			return changed, err
		}
		changed = true
	}
	return changed, nil
}

func (f *elementFiles) writeFile(file *software.File) error {
	uid, gid, err := f.owner(file.Owner, file.Group)
	if err == nil {
		err = f.write(file.Path, file.Content, file.Mode, uid, gid)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", file.Path, err)
	}
	return nil
}
