package bridge

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
)

var _ control.Trimmer = (*Plane)(nil)

// trimTime is how long one Trim may look at bridges. A bridge that knows as much as it may takes some 10 ms.
const trimTime = 50 * time.Millisecond

// Trim makes bridges of kernels before Linux 6.7 forget everything that they learnt, once that is more than they may
// have. The next frame of each member teaches the bridge again; until then frames to that member go everywhere.
func (p *Plane) Trim(ctx context.Context) (trimmed []control.Trimmed, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ids := slices.Collect(maps.Keys(p.done))
	ids = slices.DeleteFunc(ids, func(id model.ID) bool { return p.done[id].limited })
	slices.SortFunc(ids, func(a, b model.ID) int { return strings.Compare(a.String(), b.String()) })
	var failed []error
	for n, began := 0, time.Now(); n < len(ids) && (n == 0 || time.Since(began) < trimTime) && ctx.Err() == nil; n++ {
		p.looked++
		id := ids[p.looked%len(ids)]
		had := 0
		err := p.enter(id, func() (err error) { had, err = forget(); return })
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = append(failed, fmt.Errorf("switch %s: bound what its bridge learns: %w", id, err))
		} else if had > maxLearned {
			trimmed = append(trimmed, control.Trimmed{ID: id, Table: control.Addresses, Had: had, Limit: maxLearned})
		}
	}
	return trimmed, errors.Join(failed...)
}

// forget counts what the bridge here has learnt, and makes it forget all of it when it is too much.
func forget() (had int, err error) {
	if had, err = learnt(); err != nil || had <= maxLearned {
		return had, err
	}
	c, err := linux.DialRtnetlink() // not the one whose answer was not read to its end
	if err != nil {
		return 0, err
	}
	defer c.Close()
	var b linux.Batch
	b.Request(unix.RTM_NEWLINK, 0)
	b.Link(0, 0, 0)
	b.String(unix.IFLA_IFNAME, device)
	b.Begin(unix.IFLA_LINKINFO)
	b.String(unix.IFLA_INFO_KIND, "bridge")
	b.Begin(unix.IFLA_INFO_DATA)
	b.Flag(iflaBrFDBFlush)
	b.End()
	b.End()
	if errs := c.Do(&b); errs != nil {
		return 0, fmt.Errorf("have it forget what it learnt: %w", errs[0])
	}
	return had, nil
}

// learnt counts the addresses that the bridge here has learnt. It stops at one too many: for each part that the kernel
// tells of a bridge, it walks over everything that it told before.
func learnt() (n int, err error) {
	c, err := linux.DialRtnetlink()
	if err != nil {
		return 0, err
	}
	defer c.Close()
	var b linux.Batch
	b.Request(unix.RTM_GETNEIGH, 0)
	all := []byte{unix.AF_BRIDGE, 11: 0} // a struct ndmsg
	b.Raw(all)
	err = c.Dump(&b, func(kind uint16, p []byte) error {
		if kind != unix.RTM_NEWNEIGH || len(p) < len(all) {
			return nil
		}
		if state := binary.NativeEndian.Uint16(p[8:]); state&(unix.NUD_PERMANENT|unix.NUD_NOARP) == 0 {
			n++
		}
		if n > maxLearned {
			return linux.ErrEnough
		}
		return nil
	})
	// a frame's address more or less
	if err != nil && !errors.Is(err, linux.ErrEnough) && !errors.Is(err, linux.ErrDumpInterrupted) {
		return 0, fmt.Errorf("read what it learnt: %w", err)
	}
	return n, nil
}
