// Package sockets bounds what the sockets of elements take of memory that the kernel charges to nobody: the rings of
// packet sockets, as tcpdump uses them, and compiled packet filters. An eBPF program at setsockopt, which can read what
// is asked for – a filter of system calls cannot –, keeps the account and refuses what is too much. It goes on without
// this process. So do two more, where the kernel runs them: one at messages to netfilter, and one where the kernel is
// about to load a module for somebody.
package sockets

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// layout is the version of the tables' layout, and of what the program means by them.
const layout = "1"

// Filters is how many filters of more than 32 instructions an element's packet sockets may have at a time; other
// sockets have none.
const Filters = 128

// Guard is the program with its tables, pinned in a file system of its own.
type Guard struct {
	limits, taken, asked *ebpf.Map
	modules              *ebpf.Collection // nil if nothing sees what modules are loaded
	refusals             uint64
	// Lacking is why this kernel does not bound what is asked of netfilter. LackingModules is why it does not bound
	// which modules it loads for elements.
	Lacking, LackingModules error
}

// Open finds what is pinned at dir, or makes and attaches it.
func Open(dir string) (*Guard, error) {
	if err := mount(dir); err != nil {
		return nil, err
	}
	spec, err := loadProgram()
	if err != nil {
		return nil, fmt.Errorf("read the embedded eBPF program: %w", err)
	}
	pins := filepath.Join(dir, layout)
	if err := os.MkdirAll(pins, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of pinned eBPF objects: %w", err)
	}
	for _, m := range spec.Maps {
		m.Pinning = ebpf.PinByName
	}
	all, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: pins}})
	if err != nil {
		return nil, fmt.Errorf("load the program that bounds what sockets take: %w", err)
	}
	defer all.Close()
	if err := attach(all.Programs[programProgSetOption], filepath.Join(pins, "link")); err != nil {
		return nil, err
	}
	g := &Guard{limits: all.DetachMap(programMapLimits), taken: all.DetachMap(programMapTaken),
		asked: all.DetachMap(programMapAsked)}
	if messages, err := netfilterHook.attach(pins, g.limits); err != nil {
		g.Lacking = fmt.Errorf("attach the program that bounds what is asked of netfilter: %w", err)
	} else {
		messages.Close()
	}
	if loadsModules() {
		if g.modules, err = modulesHook.attach(pins, g.limits); err != nil {
			g.LackingModules = fmt.Errorf("attach the program that bounds which modules are loaded: %w", err)
		}
	}
	return g, nil
}

// attach attaches the program to the machine's first control group, or puts it in the place of the one there.
func attach(program *ebpf.Program, pin string) error {
	l, err := link.LoadPinnedLink(pin, nil)
	if err == nil {
		defer l.Close()
		if err := l.Update(program); err != nil {
			return fmt.Errorf("replace the program that bounds what sockets take: %w", err)
		}
		return nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("find the program that bounds what sockets take: %w", err)
	}
	root, err := groups()
	if err != nil {
		return err
	}
	defer root.Close()
	raw, err := link.AttachRawLink(link.RawLinkOptions{Target: int(root.Fd()), Program: program,
		Attach: ebpf.AttachCGroupSetsockopt})
	if err != nil {
		return fmt.Errorf("attach the program that bounds what sockets take: %w", err)
	}
	defer raw.Close()
	if err := raw.Pin(pin); err != nil {
		return fmt.Errorf("pin the program that bounds what sockets take: %w", err)
	}
	return nil
}

// groups opens the first group of control groups v2, which all processes are below whichever version the machine's
// limits use, and wherever it is mounted, if it is.
func groups() (*os.File, error) {
	failed := func(err error) error { return fmt.Errorf("open the hierarchy of control groups v2: %w", err) }
	fs, err := unix.Fsopen("cgroup2", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, failed(err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, failed(err)
	}
	mounted, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC,
		unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return nil, failed(err)
	}
	defer unix.Close(mounted)
	fd, err := unix.Openat(mounted, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, failed(err)
	}
	return os.NewFile(uintptr(fd), "cgroup2"), nil
}

func mount(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the mount point of a bpffs: %w", err)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err == nil && fs.Type == unix.BPF_FS_MAGIC {
		return nil
	}
	if err := unix.Mount("bpf", dir, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700"); err != nil {
		return fmt.Errorf("mount a bpffs at %s: %w", dir, err)
	}
	return nil
}

// Destroy detaches the program that is pinned at dir and takes the tables away.
func Destroy(dir string) error {
	if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) &&
		!errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount the bpffs at %s: %w", dir, err)
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the mount point of a bpffs: %w", err)
	}
	return nil
}

// Close lets go of the tables. The program goes on.
func (g *Guard) Close() error {
	if g.modules != nil {
		g.modules.Close()
	}
	return errors.Join(g.limits.Close(), g.taken.Close(), g.asked.Close())
}

// Cookie is the number that the kernel gives the calling thread's network namespace, for as long as the machine runs.
func Cookie() (uint64, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open a socket: %w", err)
	}
	defer unix.Close(fd)
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return 0, fmt.Errorf("ask for the number of a network namespace: %w", err)
	}
	return cookie, nil
}

// Bound lets the sockets of a network namespace have rings of so many bytes together. It may be said again, with
// another number.
func (g *Guard) Bound(cookie, rings uint64) error {
	err := g.taken.Update(cookie, programAccount{}, ebpf.UpdateNoExist)
	if err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
		return fmt.Errorf("bound what sockets take: %w", err)
	}
	var l programAllowance
	if err := g.limits.Lookup(cookie, &l); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("bound what sockets take: %w", err)
	}
	l.Rings, l.Filters = rings, Filters
	if err := g.limits.Update(cookie, l, ebpf.UpdateAny); err != nil {
		return fmt.Errorf("bound what sockets take: %w", err)
	}
	return nil
}

// Forget drops the account of a namespace that is gone.
func (g *Guard) Forget(cookie uint64) {
	g.limits.Delete(cookie) //nolint:errcheck // what is not there is gone
	g.taken.Delete(cookie)  //nolint:errcheck
}

// Known are the namespaces with an account.
func (g *Guard) Known() (cookies []uint64, err error) {
	var cookie uint64
	var l programAllowance
	all := g.limits.Iterate()
	for all.Next(&cookie, &l) {
		cookies = append(cookies, cookie)
	}
	if err := all.Err(); err != nil {
		return nil, fmt.Errorf("read what sockets took: %w", err)
	}
	return cookies, nil
}

// Asked counts how often sockets asked for rings or filters; while it stays, nobody has more than before.
func (g *Guard) Asked() (n uint64, err error) {
	if err := g.asked.Lookup(uint32(0), &n); err != nil {
		return 0, fmt.Errorf("read how often sockets asked for memory: %w", err)
	}
	return n, nil
}

// Account is what a namespace's sockets were given and have not been seen to give back, and how often they were
// refused.
type Account struct {
	Rings, RingsLimit            uint64 // bytes
	Filters                      uint64
	RingsRefused, FiltersRefused uint64
	ringsEver, filtersEver       uint64
}

// Account reads the account of the network namespace with this cookie.
func (g *Guard) Account(cookie uint64) (Account, error) {
	var l programAllowance
	var t programAccount
	if err := errors.Join(g.limits.Lookup(cookie, &l), g.taken.Lookup(cookie, &t)); err != nil {
		return Account{}, fmt.Errorf("read what sockets took: %w", err)
	}
	return Account{Rings: t.Rings - l.RingsBack, RingsLimit: l.Rings, Filters: t.Filters - l.FiltersBack,
		RingsRefused: t.RingsRefused, FiltersRefused: t.FiltersRefused, ringsEver: t.Rings, filtersEver: t.Filters}, nil
}

// Settle puts an account right by what was seen in its namespace after the account was read. What was taken in between
// is counted twice until the next time. What was allowed, and not there yet to be seen, is not counted until the next
// time: who times that well has up to twice its limit, and then nothing more.
func (g *Guard) Settle(cookie uint64, a Account, seen Seen) error {
	var l programAllowance
	if err := g.limits.Lookup(cookie, &l); err != nil {
		return fmt.Errorf("put right what sockets took: %w", err)
	}
	l.RingsBack = a.ringsEver - seen.Rings
	l.FiltersBack = a.filtersEver - min(a.Filters, 2*seen.Sockets) // a socket has one, and its fanout group
	if err := g.limits.Update(cookie, l, ebpf.UpdateExist); err != nil {
		return fmt.Errorf("put right what sockets took: %w", err)
	}
	return nil
}
