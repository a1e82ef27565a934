package lifecycle

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
)

// hostLimit is one limit of the whole machine that instances raise.
type hostLimit struct {
	key    string // the path below /proc/sys; "#2" behind it means the third number in the file
	values []uint64
	// needed tells that `up` must not go on without it; else a machine that does not let us raise it keeps what it has.
	needed bool
}

// hostWide are the limits of the kernel that all networks of a machine share. Their defaults are for one host, not for
// thousands of routers in one kernel, and one element must not use up what all need. Of several values the first that
// the kernel takes counts. docs/isolation.md has a table of what else is shared.
var hostWide = sync.OnceValue(func() []hostLimit {
	var list []hostLimit
	for _, family := range []string{"ipv4", "ipv6"} {
		// Of the neighbour tables: below the first nothing is collected, the third is never exceeded (128, 512, 1,024).
		for _, l := range []struct {
			name  string
			value uint64
		}{{"gc_thresh3", 262144}, {"gc_thresh2", 131072}, {"gc_thresh1", 65536}} {
			list = append(list, hostLimit{filepath.Join("net", family, "neigh/default", l.name),
				[]uint64{l.value}, true})
		}
	}
	list = append(list,
		hostLimit{"kernel/pid_max", []uint64{1 << 22}, false},     // 32,768: an element may have 1,024
		hostLimit{"kernel/threads-max", []uint64{1 << 20}, false}, // by the machine's memory
		hostLimit{"kernel/pty/max", []uint64{1 << 15}, false},     // 4,096: an element may have 128
		// A network is one user, or part of root; what is made is charged to the memory of whoever makes it.
		hostLimit{"fs/inotify/max_user_instances", []uint64{1 << 20}, false},         // 128
		hostLimit{"fs/inotify/max_user_watches", []uint64{1 << 22}, false},           // by the machine's memory
		hostLimit{"net/core/bpf_jit_limit", []uint64{1500 << 20, 1008 << 20}, false}, // half of what there is room for
		// 1,000: packets to elements wait in one queue a processor, which one network's burst must not fill for all.
		// The largest that one makes without end: the kernel asks for each unknown neighbour again after a second, and
		// does all that falls due within 32 ms at once (with 250 ticks a second, its timers are that coarse). The
		// tables, full, make 8,400 packets so, or twice that with IPv6.
		hostLimit{"net/core/netdev_max_backlog", []uint64{32768}, false},
	)
	// What all sockets of the machine may buffer, in pages. Each element's are charged to its memory limit.
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err == nil {
		pages := info.Totalram * uint64(info.Unit) / uint64(os.Getpagesize())
		for _, protocol := range []string{"udp", "tcp"} {
			for i, part := range []uint64{pages / 2, pages * 3 / 4, pages} {
				list = append(list, hostLimit{fmt.Sprintf("net/ipv4/%s_mem#%d", protocol, i), []uint64{part}, false})
			}
		}
	}
	return list
})

// hostLimits are the limits of the host that instances raise, and the record of what they were. All instances share it:
// it is beside their run directories, and read and written only while the directory is locked. What was found is
// written down before it is raised, so that whoever crashes in between leaves at worst a note of something that was
// never done.
type hostLimits struct {
	dir    string // of all instances' run directories
	sysctl string // /proc/sys
	boot   string // the identity of this boot: a note of another one is about a kernel that is gone
}

// raised is what became of one limit.
type raised struct {
	Found uint64 `json:"found"`
	Set   uint64 `json:"set"`
}

// limitsNote is the record.
type limitsNote struct {
	Boot   string            `json:"boot"`
	Limits map[string]raised `json:"limits"` // by path below /proc/sys
}

func newHostLimits(run string) (hostLimits, error) {
	boot, err := bootID()
	return hostLimits{dir: filepath.Dir(run), sysctl: "/proc/sys", boot: boot}, err
}

// file holds the record. No instance's name contains a dot.
func (h hostLimits) file() string { return filepath.Join(h.dir, "host.limits.json") }

// raise raises the limits that many networks in one kernel run into; nothing is ever lowered. It must run in the host's
// own network namespace, after the caller's run directory has been made.
func (h hostLimits) raise() error {
	return h.locked(func() error {
		note, err := h.read()
		if err != nil {
			return err
		}
		for _, l := range hostWide() {
			if err := h.raiseOne(&note, l); err != nil {
				return fmt.Errorf("raise the machine's limit %s: %w", l.key, err)
			}
		}
		return nil
	})
}

// raiseOne raises one limit, and notes it first.
func (h hostLimits) raiseOne(note *limitsNote, l hostLimit) error {
	now, err := h.get(l.key)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // not in this kernel, or inside a container's network namespace, where the host's limits count
	}
	was, noted := note.Limits[l.key]
	for i := 0; err == nil && i < len(l.values) && now < l.values[i]; i++ {
		found := now
		if noted && was.Set == now {
			found = was.Found // raised before, by a version that raised less
		}
		note.Limits[l.key] = raised{Found: found, Set: l.values[i]}
		if err = h.write(*note); err != nil {
			return err
		}
		if err = h.set(l.key, l.values[i]); err == nil {
			return nil
		}
		if errors.Is(err, unix.EINVAL) && i+1 < len(l.values) {
			err = nil // more than this kernel has room for
		}
		// Nothing was done, so nothing is to be put back.
		if delete(note.Limits, l.key); noted {
			note.Limits[l.key] = was
		}
		if e := h.write(*note); e != nil {
			return e
		}
	}
	if !l.needed {
		return nil
	}
	return err
}

// putBack makes the limits what they were, if no instance is left. What somebody else has changed meanwhile stays. The
// caller's own run directory must be gone. It does nothing outside the host's own network namespace, where they are not
// seen.
func (h hostLimits) putBack() error {
	return h.locked(func() error {
		entries, err := os.ReadDir(h.dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.IsDir() {
				return nil // another instance's, running or not: its networks forward
			}
		}
		note, err := h.read()
		if err != nil {
			return err
		}
		for key, was := range note.Limits {
			now, err := h.get(key)
			if errors.Is(err, fs.ErrNotExist) {
				return nil // not the host's network namespace: somebody who is there does it
			}
			if err != nil {
				return err
			}
			if now != was.Set {
				continue
			}
			if err := h.set(key, was.Found); err != nil {
				return fmt.Errorf("put the machine's limit %s back: %w", key, err)
			}
		}
		if err := os.Remove(h.file()); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

// locked calls f while no other instance does this. The directory is there as long as the caller holds its own
// instance's lock, which is a file in it.
func (h hostLimits) locked(f func() error) error { return linux.Locked(h.dir, f) }

// read returns the record of this boot. A damaged one is as good as none: what it said is lost.
func (h hostLimits) read() (limitsNote, error) {
	var note limitsNote
	b, err := os.ReadFile(h.file())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return note, err
	}
	if err != nil || json.Unmarshal(b, &note) != nil || note.Boot != h.boot || note.Limits == nil {
		note = limitsNote{Boot: h.boot, Limits: map[string]raised{}}
	}
	return note, nil
}

// write replaces the record in one step.
func (h hostLimits) write(note limitsNote) error {
	b, err := json.Marshal(note)
	if err != nil {
		return err
	}
	if err := os.WriteFile(h.file()+".new", append(b, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(h.file()+".new", h.file())
}

// fields reads the numbers in a limit's file; at is the one that the key means.
func (h hostLimits) fields(key string) (path string, numbers []string, at int, err error) {
	name, place, _ := strings.Cut(key, "#")
	path = filepath.Join(h.sysctl, name)
	b, err := os.ReadFile(path)
	if err != nil {
		return path, nil, 0, err
	}
	if place != "" {
		if at, err = strconv.Atoi(place); err != nil {
			return path, nil, 0, fmt.Errorf("%s is no limit: %w", key, err)
		}
	}
	if numbers = strings.Fields(string(b)); at >= len(numbers) {
		return path, nil, 0, fmt.Errorf("%s has %d numbers: want at least %d", path, len(numbers), at+1)
	}
	return path, numbers, at, nil
}

func (h hostLimits) get(key string) (uint64, error) {
	path, numbers, at, err := h.fields(key)
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseUint(numbers[at], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return v, nil
}

func (h hostLimits) set(key string, value uint64) error {
	path, numbers, at, err := h.fields(key)
	if err != nil {
		return err
	}
	numbers[at] = strconv.FormatUint(value, 10)
	return os.WriteFile(path, []byte(strings.Join(numbers, "\t")), 0)
}
