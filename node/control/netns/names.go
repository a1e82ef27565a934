package netns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
)

// Elements find each other by name: the elements of a network stand in each other's /etc/hosts, and those of a network
// with a way out have name servers in /etc/resolv.conf. Both are files of the element. So polyplane's lines stand
// between two marks, and nothing else is changed.

const (
	blockBegins = "# polyplane writes what is between this line and the next one that begins with `# polyplane`."
	blockEnds   = "# polyplane: what you write outside of these lines stays."

	resolvConf = "etc/resolv.conf"

	firstHosts  = "127.0.0.1 localhost\n::1 localhost ip6-localhost\n"
	firstResolv = "# This element knows no name server.\n"
	// mostLines is how large a file may be, in bytes, to be kept up to date. A larger one is the element's own matter.
	mostLines = 4 << 20
)

// roll are a network's names. The same pointer means the same names.
type roll struct {
	names   []model.NamedAddresses
	outside bool
	spaces  map[string]int        // of those elements that are not in the first one
	hosts   func() map[int]string // the lines, by the space of who knows them
}

// newRoll makes the lines only when the first element needs them: with thousands of names that takes time and memory.
func newRoll(names []model.NamedAddresses, outside bool) *roll {
	r := &roll{names: names, outside: outside, spaces: map[string]int{}}
	for i := range names {
		if n := names[i].Space; n != 0 {
			r.spaces[names[i].Name] = n
		}
	}
	r.hosts = sync.OnceValue(func() map[int]string {
		of := map[int][]model.NamedAddresses{}
		for i := range names {
			of[names[i].Space] = append(of[names[i].Space], names[i])
		}
		lines := make(map[int]string, len(of))
		for space, names := range of {
			lines[space] = hostLines(names)
		}
		return lines
	})
	return r
}

// linesFor are the lines that an element has: the names of its own space.
func (r *roll) linesFor(element string) string { return r.hosts()[r.spaces[element]] }

// updateRolls finds out what the networks' names are by now.
func (d *Driver) updateRolls(jobs []control.Job) {
	seen := map[string]bool{}
	for i := range jobs {
		job, network := &jobs[i], jobs[i].ID.Network
		if seen[network] {
			continue
		}
		seen[network] = true
		names := job.Names
		if names == nil { // a manager of another version tells none
			for k := range jobs {
				if jobs[k].ID.Network == network {
					names = append(names, model.NamesOf(&jobs[k].Element.PlacedElement))
				}
			}
		}
		was := d.rolls[network]
		if was != nil && was.outside == job.Outside && (len(names) > 0 && len(was.names) == len(names) &&
			&was.names[0] == &names[0] || slices.EqualFunc(was.names, names, model.NamedAddresses.Equal)) {
			continue
		}
		d.rolls[network] = newRoll(names, job.Outside)
	}
}

func (d *Driver) hasElements(network string) bool {
	for id := range d.elements {
		if id.Network == network {
			return true
		}
	}
	return false
}

// rollOf are the names that an element shall know.
func (d *Driver) rollOf(job *control.Job) *roll {
	if r := d.rolls[job.ID.Network]; r != nil {
		return r
	}
	return newRoll(job.Names, job.Outside)
}

// renameAll brings the names of running elements up to date, in shifts. What is to be started has them anyway. The
// caller holds the lock.
func (d *Driver) renameAll(ctx context.Context, jobs []control.Job) {
	var begun []model.ID
	defer func() { d.await(begun) }()
	for i := range jobs {
		id := jobs[i].ID
		e := d.elements[id]
		if e == nil || d.shifts[id] != nil || !e.process.running() && e.shells == 0 && !e.kept {
			continue
		}
		r := d.rollOf(&jobs[i])
		if e.roll == r {
			continue
		}
		e.roll = r
		s := &shift{work: work{job: e.job}, process: e.process.copy(), apart: true}
		d.hand(ctx, id, s, func(context.Context) error {
			files, err := d.openFiles(&s.job, false)
			if err == nil {
				defer files.close()
				err = files.writeNames(r, id.Element, s.job.Element.Contents)
			}
			if err != nil { // it works without, and has them at its next start
				d.log.Warn("write the names of its network into an element", "element", id, "error", err)
			}
			return nil
		})
		begun = append(begun, id)
	}
}

// writeNames writes what an element knows of names, except into files that its owner has put in their place.
func (f *elementFiles) writeNames(r *roll, element string, given map[string]model.File) error {
	if _, own := given["/etc/hosts"]; !own {
		if err := f.writeBlock("etc/hosts", firstHosts, "", r.linesFor(element)); err != nil {
			return fmt.Errorf("write /etc/hosts: %w", err)
		}
	}
	if _, own := given["/"+resolvConf]; own {
		return nil
	}
	servers := ""
	if r.outside {
		servers = serverLines()
	}
	if err := f.writeBlock(resolvConf, "", firstResolv, servers); err != nil {
		return fmt.Errorf("write /etc/resolv.conf: %w", err)
	}
	return nil
}

// writeBlock keeps lines of a file up to date. Where there is no file it begins with first; without lines it is empty.
// A link, or anything else that is no file, is the element's own matter.
func (f *elementFiles) writeBlock(path, first, empty, lines string) error {
	mode, uid, gid := fs.FileMode(0o644), 0, 0
	now, was := first, ""
	switch info, err := f.root.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case info.IsDir() && f.mend: // it is set aside, as in the place of any file that an element must have
	case !info.Mode().IsRegular() || info.Size() > mostLines:
		return nil
	default:
		data, err := f.read(path, mostLines)
		if err != nil {
			return err
		}
		if !hasZeros(data) && len(data) > 0 { // else the machine lost it
			now, was = string(data), string(data)
		}
		mode = info.Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
		if uid, gid = ownerOf(info)-f.base, groupOf(info)-f.base; uid < 0 || gid < 0 {
			uid, gid = 0, 0
		}
	}
	if next := withBlock(now, empty, lines); next != was {
		return f.write(path, next, mode, uid, gid)
	}
	return nil
}

// withBlock is a text with polyplane's lines in it: in their place if it has one, else at its end.
func withBlock(text, empty, lines string) string {
	before, rest, there := strings.Cut(text, blockBegins+"\n")
	after := ""
	if there {
		var ended bool
		if _, after, ended = strings.Cut(rest, blockEnds); !ended {
			after = notOurs(rest, lines)
		} else if strings.HasPrefix(after, "\n") {
			after = after[1:]
		}
	} else if before == empty {
		before = ""
	}
	if lines == "" {
		return cmp.Or(before+after, empty)
	}
	if before != "" && !strings.HasSuffix(before, "\n") {
		before += "\n"
	}
	return before + blockBegins + "\n" + lines + blockEnds + "\n" + after
}

// notOurs is the text behind the mark at the beginning of polyplane's lines, where the one at their end is lost. It is
// without the lines that are polyplane's as far as anybody can tell: those that begin it and have a name that lines
// have.
func notOurs(text, lines string) string {
	names := map[string]bool{}
	for line := range strings.Lines(lines) {
		if words := strings.Fields(line); len(words) == 2 {
			names[words[1]] = true
		}
	}
	kept := ""
	for rest := text; rest != ""; {
		line, after, whole := strings.Cut(rest, "\n")
		words := strings.Fields(line)
		if !whole || len(words) != 2 {
			return kept + rest
		}
		if !names[words[1]] {
			kept += line + "\n"
		}
		rest = after
	}
	return kept
}

func hostLines(names []model.NamedAddresses) string {
	var b strings.Builder
	for _, n := range names[:min(len(names), model.MaxNames)] {
		for _, a := range n.Addresses {
			fmt.Fprintf(&b, "%s %s\n", a, n.Name)
		}
	}
	return b.String()
}

// serverLines are the machine's name servers, as far as elements can reach them: one on the machine itself they cannot.
func serverLines() string {
	for _, path := range []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"} {
		data, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		if lines := reachable(string(data)); lines != "" {
			return lines
		}
	}
	return ""
}

func reachable(conf string) string {
	var b strings.Builder
	for line := range strings.Lines(conf) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "nameserver" {
			continue
		}
		a, err := netip.ParseAddr(words[1])
		if err == nil && !a.IsLoopback() && !a.IsLinkLocalUnicast() && !a.IsUnspecified() && a.Zone() == "" {
			fmt.Fprintf(&b, "nameserver %s\n", a)
		}
	}
	return b.String()
}
