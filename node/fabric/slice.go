package fabric

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/fabric/pipeline"
)

// A slice's bandwidth caps what all ports of its network on this node send into the underlay and the edges together.
// Such packets first pass a pair of veth devices of the network's own, whose first end has a queue like a rated link's;
// the program at the second end sends them on, by the mark that says whose they are. A pair of devices costs other
// networks nothing, and can be made, changed and removed without touching a device that carries others' packets.

const shaperName = "polyplane slice"

// shaperMTU lets every frame through.
const shaperMTU = 65000

// shaper is one network's pair of devices.
func (f *Fabric) shaperDevices(network string) (in, out string) {
	n := f.number("slice " + network)
	return fmt.Sprintf("%sqa%011x", instance.PortDevicePrefix, n), fmt.Sprintf("%sqb%011x", instance.PortDevicePrefix, n)
}

func (f *Fabric) shaperAlias() string { return f.dirs.AliasPrefix() + "slice " }

// shapers gives every network with a cap its devices, has its ports use them, and removes those that none has used since
// the last pass.
func (p *pass) shapers() error {
	mtu := map[string]int{} // the largest of what leaves the node, by network
	for i := range p.wants {
		w := &p.wants[i]
		if network := w.port.ID.Network; p.state.Slices[network] > 0 && w.leaves() {
			mtu[network] = max(mtu[network], p.kernel.devices[int(w.index)].mtu)
		}
	}
	var missing linux.Batch
	var names []string
	for network := range mtu {
		in, out := p.shaperDevices(network)
		if p.kernel.names[in] != 0 && p.kernel.names[out] != 0 {
			continue
		}
		missing.AddVeth(in, out, shaperMTU)
		missing.Mark(in, p.shaperAlias()+network)
		missing.Mark(out, p.shaperAlias()+network)
		names = append(names, network)
	}
	var errs []error
	for i, err := range p.netlink.Do(&missing) {
		if err != nil {
			errs = append(errs, fmt.Errorf("make the devices of network %s's bandwidth: %w", names[i/3], err))
		}
	}
	if len(names) > 0 {
		var err error
		if p.kernel, err = p.look(); err != nil {
			return errors.Join(append(errs, err)...)
		}
	}
	devices := map[string]int{}
	for network, largest := range mtu {
		index, err := p.shaper(network, largest)
		if err != nil {
			errs = append(errs, fmt.Errorf("bandwidth of network %s: %w", network, err))
			continue
		}
		devices[network] = index
	}
	inUse := map[int]bool{}
	for i := range p.wants {
		w := &p.wants[i]
		to := &p.pipe.Shapers[w.slot]
		inUse[int(atomic.LoadUint64(to))] = true
		index := 0
		if w.leaves() {
			index = devices[w.port.ID.Network]
		}
		set(to, uint64(index))
		inUse[index] = true
	}
	if p.state.Incomplete {
		return errors.Join(errs...)
	}
	return errors.Join(append(errs, p.removeShapers(p.kernel, inUse))...)
}

// leaves tells that what the port sends goes off the node.
func (w *want) leaves() bool {
	return w.link.Kind() == pipeline.Tunnel || w.link.Kind() == pipeline.Edge
}

// shaper makes a network's devices right and returns the index of the first.
func (p *pass) shaper(network string, mtu int) (int, error) {
	in, out := p.shaperDevices(network)
	a, b := p.kernel.devices[p.kernel.names[in]], p.kernel.devices[p.kernel.names[out]]
	if a.index == 0 || b.index == 0 {
		return 0, fmt.Errorf("its devices %s and %s are missing", in, out)
	}
	var batch linux.Batch
	cap := p.state.Slices[network]
	q, _ := queueFor(model.Shape{Bandwidth: cap}, mtu, false)
	if is, has := p.kernel.Queues[a.index]; !has || !is.Same(q) {
		batch.ReplaceQueue(a.index, q)
		p.changed("network %s: what it sends off the node set to %s", network, cap)
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
	if _, err := p.filterAt(linux.Attachment{Index: b.index}, shaperName, p.pipe.FromShaper); err != nil {
		return 0, err
	}
	batch.Reset()
	// The far end first: the near one then has its carrier, and so its queue, at once when it is set up.
	for _, d := range []device{b, a} {
		if !d.up() {
			batch.Request(unix.RTM_SETLINK, 0)
			batch.Link(d.index, unix.IFF_UP, unix.IFF_UP)
		}
	}
	return a.index, errors.Join(p.netlink.Do(&batch)...)
}

// removeShapers removes the devices of slices that nothing uses and nothing waits in; all when inUse is nil.
func (f *Fabric) removeShapers(k kernel, inUse map[int]bool) error {
	var b linux.Batch
	for index, d := range k.devices {
		if strings.HasPrefix(d.alias, f.shaperAlias()) && strings.HasPrefix(d.name, instance.PortDevicePrefix+"qa") &&
			(inUse == nil || !inUse[index] && k.Queues[index].Backlog == 0) {
			b.Request(unix.RTM_DELLINK, 0)
			b.Link(index, 0, 0)
		}
	}
	for _, err := range f.netlink.Do(&b) {
		if err != nil && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("remove the devices of a slice's bandwidth: %w", err)
		}
	}
	return nil
}
