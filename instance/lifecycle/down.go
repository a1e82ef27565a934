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
	"github.com/polyplane/polyplane/model"
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
	data, err := dataOf(d.Dirs)
	if err != nil {
		return err
	}
	if err := data.unmount(); err != nil {
		return err
	}
	real := d.Dirs
	real.Data = data.at
	if err := d.Rest(real); err != nil {
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
	if d.Purge {
		if kept {
			if err := data.purge(); err != nil {
				return fmt.Errorf("delete the data of polyplane '%s': %w", d.Dirs.Name, err)
			}
			kept = data.deleted > 0
		}
		if err := forgetMount(d.Dirs); err != nil {
			return fmt.Errorf("forget where the data of polyplane '%s' were: %w", d.Dirs.Name, err)
		}
	}
	unix.Rmdir(filepath.Dir(d.Dirs.Data)) //nolint:errcheck // only if no other instance has data, and it is no link
	switch {
	case elsewhere != "" && d.Purge:
		fmt.Fprintf(d.Out, "polyplane '%s' is down, and forgotten here. Its data are on the disk that was mounted "+
			"at %s: nothing of them was deleted.\n", d.Dirs.Name, elsewhere)
	case d.Purge && len(data.left) > 0:
		fmt.Fprintf(d.Out, "polyplane '%s' is down, and its data is deleted, except for what is named here.\n",
			d.Dirs.Name)
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
	for _, at := range data.mounts {
		fmt.Fprintf(d.Out, "A disk is mounted at %s: it stays so.\n", at)
	}
	if len(data.left) > 0 {
		fmt.Fprintf(d.Out, "Left as it is, since others may have made what is there: %s.\n",
			model.FewNames(10, data.left))
	}
	if d.Purge && len(data.foreign) > 0 {
		fmt.Fprintf(d.Out, "Not deleted, since polyplane did not make it, was %s, in %s.\n",
			model.FewNames(10, data.foreign), data.at)
	}
	if installed {
		fmt.Fprintf(d.Out, "systemd starts it again at the next boot; `%s` prevents that.\n",
			instance.Command(d.Dirs.Name, "uninstall"))
	}
	return nil
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
	mounts, err := mountsBelow(run, 1)
	if err != nil {
		return err
	}
	if err := endInside(mounts); err != nil {
		return err
	}
	if err := unmountBelow(run, 1); err != nil {
		return err
	}
	if err := awaitKernel(); err != nil {
		return err
	}
	return linux.RemoveTree(run)
}

// unmountBelow takes away every mount that is at least so deep below a directory. It must come before anything is
// deleted there: what is mounted could belong to somebody else.
func unmountBelow(dir string, depth int) error {
	mounts, err := mountsBelow(dir, depth)
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
	if mounts, err = mountsBelow(dir, depth); err == nil && len(mounts) > 0 {
		err = fmt.Errorf("%s is still mounted", mounts[0])
	}
	return err
}

// mountsBelow lists the mount points that are at least so deep below a directory, in the order they were mounted.
func mountsBelow(dir string, depth int) ([]string, error) {
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
		if p := unescape(fields[4]); strings.HasPrefix(p, dir+"/") &&
			strings.Count(p[len(dir):], "/") >= depth {
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
