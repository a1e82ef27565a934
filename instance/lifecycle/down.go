package lifecycle

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/linux"
)

// Down is one call of `polyplane down`.
type Down struct {
	Dirs  instance.Dirs
	Purge bool // delete the data directory too
	Out   io.Writer
	// Drivers removes what drivers have in the kernel.
	Drivers Purge
	// Rest removes what of that can go only when all processes have ended and nothing is mounted any more.
	Rest func(d instance.Dirs) error
}

// Purge removes what nodes' drivers have in the kernel, except what goes with the nodes' mounts and devices. Without a
// node's name it does so for all nodes, and for what drivers have beside nodes. The agents must have ended.
type Purge func(d instance.Dirs, nodes ...string) error

// Run ends the instance's processes and removes everything that it has in the kernel, even if the processes have ended
// already. It may be repeated; if there is nothing, it says so.
func (d *Down) Run(context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New("polyplane removes namespaces and devices: run it as root")
	}
	if err := CheckName(d.Dirs.Name); err != nil {
		return err
	}
	installed, err := stopUnit(d.Dirs)
	if err != nil {
		return err
	}
	l, stopped, err := takeOver(d.Dirs, politeness+5*time.Second)
	if err != nil {
		return err
	}
	defer l.release()
	_, err = os.Stat(d.Dirs.Run)
	ran := stopped || err == nil
	if err := d.Drivers(d.Dirs); err != nil {
		return err
	}
	if err := sweepRun(d.Dirs.Run); err != nil {
		return fmt.Errorf("remove what polyplane '%s' has in the kernel: %w", d.Dirs.Name, err)
	}
	if err := unmountBelow(d.Dirs.Data); err != nil {
		return err
	}
	if err := d.Rest(d.Dirs); err != nil {
		return err
	}
	if err := sweepDevices(d.Dirs); err != nil {
		return err
	}
	if err := d.handBack(); err != nil {
		return err
	}
	limits, err := newHostLimits(d.Dirs.Run)
	if err == nil {
		err = limits.putBack()
	}
	if err != nil {
		return err
	}
	_, err = os.Stat(d.Dirs.Data)
	kept := err == nil
	elsewhere, err := away(d.Dirs)
	if err != nil {
		return err
	}
	mounted := false
	if d.Purge {
		if kept {
			err := removeBehind(d.Dirs.Data)
			if err == nil {
				mounted, err = removeData(d.Dirs.Data)
			}
			if err != nil {
				return fmt.Errorf("delete the data of polyplane '%s': %w", d.Dirs.Name, err)
			}
		}
		if err := forgetMount(d.Dirs); err != nil {
			return fmt.Errorf("forget where the data of polyplane '%s' were: %w", d.Dirs.Name, err)
		}
	}
	os.Remove(filepath.Dir(d.Dirs.Data)) //nolint:errcheck // only if no other instance has data
	switch {
	case elsewhere != "" && d.Purge:
		fmt.Fprintf(d.Out, "polyplane '%s' is down, and forgotten here. Its data are on the disk that was mounted "+
			"at %s: nothing of them was deleted.\n", d.Dirs.Name, elsewhere)
	case d.Purge && kept && mounted:
		fmt.Fprintf(d.Out, "polyplane '%s' is down, and its data is deleted. The disk that is mounted at %s is empty; "+
			"it stays mounted.\n", d.Dirs.Name, d.Dirs.Data)
	case d.Purge && kept:
		fmt.Fprintf(d.Out, "polyplane '%s' is down, and its data is deleted.\n", d.Dirs.Name)
	case ran && kept:
		fmt.Fprintf(d.Out, "polyplane '%s' is down. Its networks are kept in %s: `%s` comes back to them, `%s` "+
			"deletes them.\n", d.Dirs.Name, d.Dirs.Data, instance.Command(d.Dirs.Name, "up"),
			instance.Command(d.Dirs.Name, "down --purge"))
	case ran:
		fmt.Fprintf(d.Out, "polyplane '%s' is down.\n", d.Dirs.Name)
	default:
		fmt.Fprintf(d.Out, "polyplane '%s' was not running; nothing was left of it to remove.\n", d.Dirs.Name)
	}
	if installed {
		fmt.Fprintf(d.Out, "systemd starts it again at the next boot; `%s` prevents that.\n",
			instance.Command(d.Dirs.Name, "uninstall"))
	}
	return nil
}

// removeData removes a directory with all that is in it. Where a disk is mounted there, mounted tells so: then it is
// emptied, and stays.
func removeData(path string) (mounted bool, err error) {
	if !linux.IsMount(path) {
		return false, linux.RemoveTree(path)
	}
	entries, err := os.ReadDir(path)
	for _, e := range entries {
		err = errors.Join(err, linux.RemoveTree(filepath.Join(path, e.Name())))
	}
	return true, err
}

// removeBehind removes what a symbolic link leads to; linux.RemoveTree would take away the link alone.
func removeBehind(path string) error {
	if info, err := os.Lstat(path); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return nil //nolint:nilerr // it is no link
	}
	to, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	return linux.RemoveTree(to)
}

// handBack gives the ports' names back to the host's network managers when this was the last instance.
func (d *Down) handBack() error {
	others, err := filepath.Glob(filepath.Join(filepath.Dir(d.Dirs.Run), "*", "manager.sock"))
	if err != nil || len(others) > 0 {
		return err
	}
	return handBack("/")
}

// sweepRun removes everything that was made for one run directory, the instance's or one node's, and can be recognised
// by it: processes, mounts, the directory itself.
func sweepRun(run string) error {
	if _, err := os.Stat(run); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	mounts, err := mountsBelow(run)
	if err != nil {
		return err
	}
	if err := endInside(mounts); err != nil {
		return err
	}
	if err := unmountBelow(run); err != nil {
		return err
	}
	if err := awaitKernel(); err != nil {
		return err
	}
	return linux.RemoveTree(run)
}

// unmountBelow takes away every mount below a directory. It must come before anything is deleted there: what is mounted
// could belong to somebody else.
func unmountBelow(dir string) error {
	mounts, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	// The latest first: a mount may be within another.
	for _, m := range slices.Backward(mounts) {
		if err := unix.Unmount(m, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) &&
			!errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("unmount %s: %w", m, err)
		}
	}
	if mounts, err = mountsBelow(dir); err == nil && len(mounts) > 0 {
		err = fmt.Errorf("%s is still mounted", mounts[0])
	}
	return err
}

// mountsBelow lists the mount points below a directory, in the order they were mounted.
func mountsBelow(dir string) ([]string, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var found []string
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		fields := strings.Fields(s.Text()) // proc(5): the fifth is the mount point
		if len(fields) < 5 {
			continue
		}
		if p := unescape(fields[4]); strings.HasPrefix(p, dir+"/") {
			found = append(found, p)
		}
	}
	return found, nil
}

// unescape undoes the octal escapes of mountinfo.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// endInside ends every process that lives in one of the elements' network or user namespaces among the mounts. The
// nodes' own namespaces are left alone: somebody may look around there with tcpdump.
func endInside(mounts []string) error {
	ours := map[uint64]bool{}
	for _, m := range mounts {
		if filepath.Base(m) == "node.net" {
			continue
		}
		var fs unix.Statfs_t
		var st unix.Stat_t
		if unix.Statfs(m, &fs) == nil && fs.Type == unix.NSFS_MAGIC && unix.Stat(m, &st) == nil {
			ours[st.Ino] = true
		}
	}
	if len(ours) == 0 {
		return nil
	}
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return err
	}
	for _, p := range processes {
		pid, _ := strconv.Atoi(filepath.Base(p))
		if pid == os.Getpid() {
			continue
		}
		for _, kind := range []string{"net", "user"} {
			var st unix.Stat_t
			if unix.Stat(p+"/ns/"+kind, &st) == nil && ours[st.Ino] {
				if err := end(pid, 0); err != nil {
					return err
				}
				break
			}
		}
	}
	return nil
}

// sweepDevices removes what is left of the instance's devices in this namespace, on a machine that is a node itself.
// Most went with their elements.
func sweepDevices(d instance.Dirs) error {
	links, err := linux.Whole(netlink.LinkList)
	if err != nil {
		return fmt.Errorf("list the host's devices: %w", err)
	}
	for _, l := range links {
		if !strings.HasPrefix(l.Attrs().Alias, "polyplane "+d.Name+" ") {
			continue
		}
		if err := netlink.LinkDel(l); err != nil && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("remove device %s: %w", l.Attrs().Name, err)
		}
	}
	return nil
}
