package fabric

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/linux"
)

// lane is a pair of veth devices for packets that must wait in a queue and then go on in the data path. The first
// device has the queue. At the second one a program takes what has passed it.
type lane struct {
	in, out, alias string
	queue          linux.Queue
	filter         string
	program        *ebpf.Program
	set            func() // tells that the queue was changed
}

// laneMTU lets every frame through.
const laneMTU = 65000

// lanes makes the devices, or repairs them. It returns the indices of the first devices, or what failed.
func (p *pass) lanes(all []lane) (indices []int, failed []error, err error) {
	indices, failed = make([]int, len(all)), make([]error, len(all))
	var missing linux.Batch
	var of []int
	for i := range all {
		l := &all[i]
		if p.kernel.names[l.in] != 0 && p.kernel.names[l.out] != 0 {
			continue
		}
		missing.AddVeth(l.in, l.out, laneMTU)
		missing.Mark(l.in, l.alias)
		missing.Mark(l.out, l.alias)
		of = append(of, i)
	}
	for i, err := range p.netlink.Do(&missing) {
		if err != nil && failed[of[i/3]] == nil {
			failed[of[i/3]] = fmt.Errorf("make its devices: %w", err)
		}
	}
	if len(of) > 0 {
		if p.kernel, err = p.look(); err != nil {
			return nil, nil, err
		}
	}
	for i := range all {
		if failed[i] == nil {
			indices[i], failed[i] = p.lane(&all[i])
		}
	}
	return indices, failed, nil
}

// lane repairs existing devices.
func (p *pass) lane(l *lane) (int, error) {
	a, b := p.kernel.devices[p.kernel.names[l.in]], p.kernel.devices[p.kernel.names[l.out]]
	if a.index == 0 || b.index == 0 {
		return 0, fmt.Errorf("its devices %s and %s are missing", l.in, l.out)
	}
	var batch linux.Batch
	if is, has := p.kernel.Queues[a.index]; !has || !is.Same(l.queue) {
		batch.ReplaceQueue(a.index, l.queue)
		l.set()
	}
	if qdisc, has := p.kernel.Ingress[b.index]; !has || qdisc.Kind != "clsact" || qdisc.Block != 0 {
		if has {
			batch.RemoveClsact(b.index)
		}
		batch.AddClsact(b.index, 0)
	}
	if errs := p.netlink.Do(&batch); errs != nil {
		return 0, errors.Join(errs...)
	}
	at, name, program := linux.Attachment{Index: b.index}, l.filter, l.program
	if !p.filled && p.filtered(at, name) {
		p.waiting = append(p.waiting, func() error { _, err := p.filterAt(at, name, program); return err })
	} else if _, err := p.filterAt(at, name, program); err != nil {
		return 0, err
	}
	batch.Reset()
	// The far end first: then the near one has its carrier, and so its queue, as soon as it is taken up.
	for _, d := range []device{b, a} {
		if !d.up() {
			batch.Request(unix.RTM_SETLINK, 0)
			batch.Link(d.index, unix.IFF_UP, unix.IFF_UP)
		}
	}
	return a.index, errors.Join(p.netlink.Do(&batch)...)
}

// removeLanes removes devices that nothing uses and nothing waits in; all of them if inUse is nil.
func (f *Fabric) removeLanes(k kernel, name, alias string, inUse map[int]bool) error {
	var b linux.Batch
	for index, d := range k.devices {
		if strings.HasPrefix(d.alias, alias) && strings.HasPrefix(d.name, instance.PortDevicePrefix+name) &&
			(inUse == nil || !inUse[index] && k.Queues[index].Backlog == 0) {
			b.Request(unix.RTM_DELLINK, 0)
			b.Link(index, 0, 0)
		}
	}
	for _, err := range f.netlink.Do(&b) {
		if err != nil && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("remove the devices of a queue: %w", err)
		}
	}
	return nil
}

// isLane returns whether a device belongs to a lane.
func (f *Fabric) isLane(d device) bool {
	return strings.HasPrefix(d.alias, f.shaperAlias()) || strings.HasPrefix(d.alias, f.queueAlias()) ||
		strings.HasPrefix(d.alias, f.mirrorAlias())
}
