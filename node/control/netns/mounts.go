package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
)

// The namespaces of a network's elements are mounted in one small tmpfs, so that a single unmount releases all of them.

func (d *Driver) networkDir(network string) string {
	return filepath.Dir(d.dirs.UserNamespace(network))
}

func (d *Driver) namespacesDir(network string) string {
	return filepath.Dir(d.dirs.Namespace(model.ID{Network: network, Element: "x"}))
}

// ensureNetwork makes a network's directories, and returns whether its user namespace is there.
func (d *Driver) ensureNetwork(network string, base uint32) (user bool, err error) {
	dir := d.namespacesDir(network)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return false, fmt.Errorf("make the directory of network %s: %w", network, err)
	}
	if !linux.IsMount(dir) {
		// Shared, as /run/netns is: a service with a copy of the mount table sees unmounts too, and so keeps no
		// namespace alive.
		if err := unix.Mount("polyplane", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC,
			"mode=0755,size=1m"); err != nil {
			return false, fmt.Errorf("mount the directory of network %s's namespaces: %w", network, err)
		}
		if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
			return false, fmt.Errorf("mount the directory of network %s's namespaces: %w", network, err)
		}
	}
	return d.userNamespace(network, base)
}

// userNamespace returns whether the network's user namespace is mounted and maps from base.
func (d *Driver) userNamespace(network string, base uint32) (bool, error) {
	if !isNamespace(d.dirs.UserNamespace(network)) {
		return false, nil
	}
	data, err := os.ReadFile(d.basePath(network))
	if err != nil {
		return false, fmt.Errorf("read the first user ID of network %s: %w", network, err)
	}
	if was := strings.TrimSpace(string(data)); was != strconv.Itoa(int(base)) {
		return false, fmt.Errorf("network %s was made with user IDs from %s and shall now have them from %d: remove "+
			"its elements first", network, was, base)
	}
	return true, nil
}

// restoreUserNamespace mounts the network's user namespace again if its mount is gone, and returns whether it did. The
// namespace lives as long as any of the network's elements, and new elements must be in the same one.
func (d *Driver) restoreUserNamespace(network string) (bool, error) {
	path := d.dirs.UserNamespace(network)
	if isNamespace(path) {
		return false, nil
	}
	for id, e := range d.elements {
		if id.Network != network {
			continue
		}
		user, err := unix.IoctlRetInt(e.fd, unix.NS_GET_USERNS)
		if err != nil {
			return false, fmt.Errorf("find the user namespace of network %s: %w", network, err)
		}
		defer unix.Close(user)
		if err := unmount(path); err != nil {
			return false, fmt.Errorf("take away what is in the place of network %s's user namespace: %w", network, err)
		}
		return true, bindNamespace(fmt.Sprintf("/proc/self/fd/%d", user), path)
	}
	return false, nil
}

func (d *Driver) basePath(network string) string {
	return filepath.Join(d.networkDir(network), "first-uid")
}

// keepUserNamespace mounts the user namespace at path as the network's.
func (d *Driver) keepUserNamespace(network string, base uint32, path string) error {
	if err := os.WriteFile(d.basePath(network), []byte(strconv.Itoa(int(base))+"\n"), 0o644); err != nil {
		return fmt.Errorf("note the first user ID of network %s: %w", network, err)
	}
	return bindNamespace(path, d.dirs.UserNamespace(network))
}

// bindNamespace keeps the namespace at source alive at target.
func bindNamespace(source, target string) error {
	f, err := os.OpenFile(target, os.O_CREATE|os.O_RDONLY, 0o444)
	if err != nil {
		return fmt.Errorf("make the mount point of a namespace: %w", err)
	}
	f.Close()
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount a namespace at %s: %w", target, err)
	}
	return nil
}

func isNamespace(path string) bool {
	var s unix.Statfs_t
	return unix.Statfs(path, &s) == nil && s.Type == unix.NSFS_MAGIC
}

// namespaceOf returns the inode of the namespace mounted at path, or zero if there is none.
func (d *Driver) namespaceOf(path string) uint64 {
	var s unix.Stat_t
	if unix.Stat(path, &s) != nil || s.Dev != d.nsfs {
		return 0
	}
	return s.Ino
}

// unmount removes whatever is mounted at path, and then the file or empty directory below it.
func unmount(path string) error {
	for {
		err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if err == unix.EINVAL || err == unix.ENOENT {
			break // nothing is mounted there any more
		}
		if err != nil {
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// mountWatch tells whether anything was mounted or unmounted. The kernel says so by a poll of mountinfo (proc(5)),
// which is far cheaper than a look at each of a thousand mounts.
type mountWatch struct{ info int }

func watchMounts() (mountWatch, error) {
	fd, err := unix.Open("/proc/thread-self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return mountWatch{}, fmt.Errorf("open the list of mounts: %w", err)
	}
	return mountWatch{fd}, nil
}

// changed returns whether anything has changed since the last call.
func (m mountWatch) changed() bool {
	fds := []unix.PollFd{{Fd: int32(m.info), Events: unix.POLLPRI}}
	n, err := unix.Poll(fds, 0)
	return n != 0 || err != nil
}
