package netns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/control"
)

// Strangers are devices that somebody made in an element. In one that is stopped they are taken down, since packets
// could circle through them without any process, and then removed. To take one down the kernel needs a millisecond, to
// remove a bridge some 40 (mostBridges says why), and an element may have a thousand. So a worker of the crew does
// both. The element counts as stopped once all of them are down, and is not started again before all of them are gone.

// strangerGroup marks devices that are to be removed. The mark stays with the device: after an agent that was killed,
// the next one goes on. An element's root who sets it has his device removed at the next stop.
const strangerGroup = 0x706f6c79

// clearing is the removal of an element's strangers.
type clearing struct {
	down  chan struct{}   // all of them are down
	ended chan struct{}   // they are gone, or could not be removed
	told  []change.Change // what was done; to be read when it has ended
}

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// isStranger tells whether a device is to be removed from an element that is stopped. A bridge alone forwards nothing,
// and a switch's bridge belongs to its plane.
func (w *want) isStranger(l *link) bool {
	return l.Name != "lo" && (l.Up() || l.Group == strangerGroup) && !(l.Bridge && w.kind == model.Switch) &&
		!w.hasDevice(l.Name)
}

// hasStrangers tells whether an element that is stopped has such devices.
func (in *inside) hasStrangers(w *want) bool {
	for _, l := range in.links {
		if !w.up && w.isStranger(l) {
			return true
		}
	}
	return false
}

// clearAll begins to remove the strangers of those elements that have any, and waits for that unless the driver is in a
// hurry. The caller holds the lock.
func (d *Driver) clearAll(ctx context.Context, todo []*work) {
	var begun []*work
	for _, w := range todo {
		if !w.strangers || w.e.clearing != nil {
			continue
		}
		fd, err := unix.FcntlInt(uintptr(w.e.fd), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			w.fail(fmt.Errorf("element %s: remove the devices that were made in it: %w", w.job.ID, err))
			continue
		}
		c := &clearing{down: make(chan struct{}), ended: make(chan struct{})}
		w.e.clearing = c
		begun = append(begun, w)
		namespace := os.NewFile(uintptr(fd), "namespace")
		d.crew.do(w.job.ID.Network, false, func(*hand) {
			defer namespace.Close()
			if err := c.run(ctx, namespace, w.want, d.wake); err != nil && ctx.Err() == nil {
				d.log.Warn("remove the devices that were made in an element", "element", w.job.ID, "error", err)
				c.told = append(c.told, change.DevicesStay.Of(err))
			}
			if !closed(c.down) {
				close(c.down)
			}
			close(c.ended)
			d.wake()
		})
	}
	for _, w := range begun {
		if !d.hurried {
			<-w.e.clearing.ended
		}
		d.cleared(w.e)
	}
}

// cleared takes the result over, if it has ended. The caller holds the lock.
func (d *Driver) cleared(e *element) {
	if e.clearing == nil || !closed(e.clearing.ended) {
		return
	}
	e.process.news = append(e.process.news, e.clearing.told...)
	e.clearing = nil
}

// tellClearing is the result of an element that is wanted again before its strangers are gone. The caller holds the
// lock.
func (d *Driver) tellClearing(e *element, res *control.Result) {
	res.Devices, res.Restarts, res.Busy = e.devices, e.process.again, true
	res.Phase = model.PhaseStarting
	res.Message = "waits until the kernel has removed the devices that were made in it"
}

// run takes the strangers down, removes them one by one, so that others have their turns at the kernel's lock, and
// notes what was done.
func (c *clearing) run(ctx context.Context, namespace *os.File, w *want, wake func()) error {
	return linux.InsideWith(int(namespace.Fd()), func(conn *linux.Rtnetlink) error {
		links, err := readLinks(conn, w)
		if err != nil {
			return err
		}
		var b linux.Batch
		var strangers []*link
		for _, l := range links {
			if w.isStranger(l) {
				strangers = append(strangers, l)
				b.Request(unix.RTM_SETLINK, 0)
				b.Link(l.Index, 0, unix.IFF_UP)
				b.Uint32(unix.IFLA_GROUP, strangerGroup)
			}
		}
		var errs []error
		for i, err := range conn.Do(&b) {
			if err != nil && !errors.Is(err, unix.ENODEV) {
				errs = append(errs, fmt.Errorf("take %s down: %w", strangers[i].Name, err))
			}
		}
		close(c.down)
		wake()
		for _, l := range strangers {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			b.Reset()
			b.Request(unix.RTM_DELLINK, 0)
			b.Link(l.Index, 0, 0)
			for _, err := range conn.Do(&b) {
				if err != nil && !errors.Is(err, unix.ENODEV) {
					errs = append(errs, fmt.Errorf("remove %s: %w", l.Name, err))
				}
			}
		}
		gone, err := unmark(conn, w, strangers)
		c.told = tellGone(gone)
		return errors.Join(append(errs, err)...)
	})
}

// unmark takes the mark from devices that are still there – the kernel keeps some that it makes itself, such as sit0 –
// and returns the names of the others. Those that stay are down.
func unmark(conn *linux.Rtnetlink, w *want, strangers []*link) (gone []string, err error) {
	links, err := readLinks(conn, w)
	if err != nil {
		return nil, err
	}
	var b linux.Batch
	for _, l := range strangers {
		if now := links[l.Name]; now == nil || now.Index != l.Index {
			gone = append(gone, l.Name)
			continue
		}
		b.Request(unix.RTM_SETLINK, 0)
		b.Link(l.Index, 0, 0)
		b.Uint32(unix.IFLA_GROUP, 0)
	}
	for _, failed := range conn.Do(&b) {
		if failed != nil && !errors.Is(failed, unix.ENODEV) {
			err = fmt.Errorf("give a device its group back: %w", failed)
		}
	}
	return gone, err
}

// tellGone says which devices were removed, each by itself if they are few.
func tellGone(names []string) (told []change.Change) {
	const few = 4
	if len(names) > few {
		return []change.Change{change.DevicesRemoved.Of(strings.Join(names[:few-1], ", "), len(names))}
	}
	return each.Of(names, func(name string) change.Change { return change.DeviceRemoved.Of(name) })
}
