package netns

import (
	"cmp"
	"context"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
)

// auditTime bounds how long one Audit looks around inside elements.
const auditTime = 3 * time.Millisecond

// A look into an element with a million routes takes a tenth of a second or more. If a look took longer than longLook,
// the element is left alone for a multiple of that time, at most for longRest. The time is processor time: on a busy
// machine a look waits for a processor, and that wait costs nobody anything.
const (
	longLook  = 20 * time.Millisecond
	restAfter = 200
	longRest  = 2 * time.Minute
)

// threadTime is the processor time that the calling thread has used.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err) // every Linux has that clock
	}
	return time.Duration(t.Nano())
}

// Audit looks at the mounts, if any has changed, at the processes of all elements, and inside the next few elements.
// The next Apply verifies in full those that differ. With 1,000 elements and a call a second, each is looked into about
// once a minute.
func (d *Driver) Audit(ctx context.Context) ([]model.ID, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var differ []model.ID
	ids := make([]model.ID, 0, len(d.elements))
	mounts := d.mounts.changed()
	for id, e := range d.elements {
		switch {
		case !e.verified: // Apply knows
		case mounts && d.namespaceOf(d.dirs.Namespace(id)) != e.inode:
			differ = append(differ, id)
		case d.shifts[id] != nil || e.clearing != nil: // when it ends it is looked at
		case e.process.due() || d.fallsShort(&e.job, &e.process):
			differ = append(differ, id)
		default:
			ids = append(ids, id)
		}
	}
	if starting, _ := d.starting(); len(ids) == 0 || starting > 0 && time.Since(d.looked) < lookRest {
		return differ, nil // elements that are being started have priority
	}
	d.looked = time.Now()
	slices.SortFunc(ids, compareIDs)
	err := onThread(func() error {
		start := time.Now()
		var sysctl sysctlReader
		defer sysctl.close()
		for n := range ids {
			if n > 0 && time.Since(start) > auditTime || ctx.Err() != nil {
				break
			}
			d.auditAt++
			id := ids[d.auditAt%len(ids)]
			e := d.elements[id]
			if time.Now().Before(e.rest) {
				continue
			}
			began := threadTime()
			right, err := d.asWanted(e, &sysctl)
			if took := threadTime() - began; took > longLook {
				e.rest = time.Now().Add(min(restAfter*took, longRest))
			}
			if err != nil {
				d.log.Warn("look into an element", "element", id, "error", err)
			}
			if !right {
				e.verified = false
				differ = append(differ, id)
			}
		}
		return nil
	})
	return differ, err
}

func compareIDs(a, b model.ID) int {
	return cmp.Or(cmp.Compare(a.Network, b.Network), cmp.Compare(a.Element, b.Element))
}

// asWanted returns whether an element's inside is right. The calling thread stays in its namespace.
func (d *Driver) asWanted(e *element, sysctl *sysctlReader) (bool, error) {
	if err := unix.Setns(e.fd, unix.CLONE_NEWNET); err != nil {
		return false, err
	}
	c, err := linux.DialRtnetlink()
	if err != nil {
		return false, err
	}
	defer c.Close()
	in, err := inspect(c, false, e.want, e.want.protocols(false))
	if err != nil {
		return false, err
	}
	for i := range e.want.interfaces {
		if l := in.links[e.want.interfaces[i].Pair.Name]; l == nil || l.Peer != e.devices[i].Index {
			return false, nil
		}
	}
	if add, remove := in.vlansToChange(e.want); len(add)+len(remove) > 0 {
		return false, nil
	}
	var r repair
	if err := in.readRules(c, e.want); err != nil {
		return false, err
	}
	in.planVRFs(&r, e.want)
	if in.plan(&r, e.want, e.want, false); r.Len() > 0 || in.hasStrangers(e.want) {
		return false, nil
	}
	return sysctl.right(append(slices.Clip(sysctls(e.want.kind)), e.want.labelSettings()...))
}
