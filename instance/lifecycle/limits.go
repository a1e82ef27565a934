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

	"github.com/polyplane/polyplane/linux"
)

// neighbourLimits are the host-wide limits of the kernel's neighbour tables: below the first nothing is collected, the
// third is never exceeded. The defaults (128, 512, 1024) are for one host, not for thousands of routers in one kernel.
var neighbourLimits = []struct {
	name  string
	value uint64
}{{"gc_thresh3", 262144}, {"gc_thresh2", 131072}, {"gc_thresh1", 65536}}

// hostLimits are the limits of the host that instances raise, and the record of what they were. All instances share it: it
// is beside their run directories, and read and written only while the directory is locked. What was found is written down
// before it is raised, so that whoever crashes in between leaves at worst a note of something that was never done.
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

// raise raises the limits that many networks in one kernel run into; nothing is ever lowered. It must run in the host's own
// network namespace, after the caller's run directory has been made.
func (h hostLimits) raise() error {
	return h.locked(func() error {
		note, err := h.read()
		if err != nil {
			return err
		}
		for _, family := range []string{"ipv4", "ipv6"} {
			for _, l := range neighbourLimits {
				key := filepath.Join("net", family, "neigh/default", l.name)
				now, err := h.get(key)
				if errors.Is(err, fs.ErrNotExist) {
					continue // no IPv6, or inside a container's network namespace, where the host's limits count
				}
				if err != nil {
					return err
				}
				if now >= l.value {
					continue
				}
				found := now
				if was, ok := note.Limits[key]; ok && was.Set == now {
					found = was.Found // raised before, by a version that raised less
				}
				note.Limits[key] = raised{Found: found, Set: l.value}
				if err := h.write(note); err != nil {
					return err
				}
				if err := h.set(key, l.value); err != nil {
					return fmt.Errorf("raise the limit of the neighbour tables: %w", err)
				}
			}
		}
		return nil
	})
}

// putBack makes the limits what they were, if no instance is left. What somebody else has changed meanwhile stays. The
// caller's own run directory must be gone. It does nothing outside the host's own network namespace, where they are not seen.
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
				return fmt.Errorf("put the limit of the neighbour tables back: %w", err)
			}
		}
		if err := os.Remove(h.file()); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

// locked calls f while no other instance does this. The directory is there as long as the caller holds its own instance's
// lock, which is a file in it.
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

func (h hostLimits) get(key string) (uint64, error) {
	path := filepath.Join(h.sysctl, key)
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return v, nil
}

func (h hostLimits) set(key string, value uint64) error {
	return os.WriteFile(filepath.Join(h.sysctl, key), strconv.AppendUint(nil, value, 10), 0)
}
