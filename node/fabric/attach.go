package fabric

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/fabric/pipeline"
)

// Our filters are found again by their names and handles. On edges, which are the host's devices, they run before
// filters of lower rank. A packet that belongs to no edge goes on to those.
const (
	priority   = 1
	portName   = "polyplane port"
	tunnelName = "polyplane tunnel"
	edgeName   = "polyplane edge"
)

// filterAt makes program the filter at a place, unless it is already.
func (f *Fabric) filterAt(at linux.Attachment, name string, program *ebpf.Program) (changed bool, err error) {
	info, err := program.Info()
	if err != nil {
		return false, fmt.Errorf("ask about the eBPF program %s: %w", name, err)
	}
	id, _ := info.ID()
	found, _, err := f.netlink.Filters(at)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return false, err
	}
	handle := f.number(name)
	for _, old := range found {
		if old.Priority == priority && old.Handle == handle && old.ID == uint32(id) {
			return false, nil
		}
	}
	var b linux.Batch
	b.ReplaceFilter(at, linux.Filter{Priority: priority, Handle: handle, Name: name, Program: program.FD()})
	if errs := f.netlink.Do(&b); errs != nil {
		return false, fmt.Errorf("attach the filter %q: %w", name, errs[0])
	}
	return true, nil
}

// filtered returns whether one of our programs, of whatever process, is attached at a place.
func (f *Fabric) filtered(at linux.Attachment, name string) bool {
	found, _, err := f.netlink.Filters(at)
	return err == nil && slices.ContainsFunc(found, func(filter linux.Filter) bool {
		return filter.Priority == priority && filter.Handle == f.number(name)
	})
}

// replace puts programs in the place of those of an earlier process, which may use other tables. By now the new tables
// are filled.
func (p *pass) replace() error {
	p.filled = true
	return errors.Join(each.Of(p.waiting, func(put func() error) error { return put() })...)
}

// attach attaches the filter that all ports share. The clsact of each port refers to one block, so the filter is the
// same for all, and one message replaces it. For 2,000 ports that takes 66 ms of processor time (2 cores, Linux 6.18),
// and 112 ms with a filter for each. Two dumps (qdiscs and the block) show whether everything is right, where single
// filters would need a dump for each port. Attaching costs half while a device is down, since the kernel stops and
// starts the queue of one that is up.
func (p *pass) attach() error {
	block := p.block()
	there := false
	for i := range p.wants {
		there = there || p.kernel.Ingress[int(p.wants[i].index)] == linux.Ingress{Kind: "clsact", Block: block}
	}
	if there {
		changed, err := p.filterAt(linux.Attachment{Block: block}, portName, p.pipe.FromPort)
		if err != nil {
			return err
		}
		if changed {
			p.changed(change.FilterSet, "ports'")
		}
	}
	var b linux.Batch
	owners := map[int]model.PortID{} // by request
	send := func() {
		for i, err := range p.netlink.Do(&b) {
			if err != nil {
				p.fail(owners[i], "attach it to the fabric: %w", err)
			}
		}
		b.Reset()
		clear(owners)
	}
	for i := range p.wants {
		w := &p.wants[i]
		q, ok := p.kernel.Ingress[int(w.index)]
		if w.index == 0 || ok && q.Kind == "clsact" && q.Block == block {
			continue
		}
		if ok { // somebody else's, on a device of ours
			owners[b.RemoveClsact(int(w.index))] = w.port.ID
		}
		owners[b.AddClsact(int(w.index), block)] = w.port.ID
		if w.known {
			p.changed(change.ClsactRestored, w.port.ID)
		}
		if there {
			continue
		}
		// The block is created with its first port, and must have its filter before it has a second port.
		send()
		if p.report.Failed[w.port.ID] != nil {
			continue
		}
		if _, err := p.filterAt(linux.Attachment{Block: block}, portName, p.pipe.FromPort); err != nil {
			return err
		}
		there = true
	}
	send()
	return nil
}

// tunnelDevice makes the node's VXLAN device, or repairs it.
func (p *pass) tunnelDevice() error {
	if !p.underlay.IsValid() {
		return nil
	}
	name := p.TunnelDevice()
	d := p.kernel.devices[p.kernel.names[name]]
	if d.index != 0 && (d.kind != "vxlan" || !d.vxlan.Metadata || d.vxlan.Learning || d.vxlan.Port != p.port) {
		var b linux.Batch
		b.Request(unix.RTM_DELLINK, 0)
		b.Link(d.index, 0, 0)
		if errs := p.netlink.Do(&b); errs != nil {
			return fmt.Errorf("remove the altered tunnel device %s: %w", name, errs[0])
		}
		d = device{}
	}
	had := atomic.LoadUint32(&p.pipe.Ports[0].Ifindex) != 0
	made := d.index == 0
	if made {
		var b linux.Batch
		b.AddVXLAN(linux.VXLAN{Name: name, MAC: p.tunnelMAC(), MTU: tunnelMTU, Port: p.port})
		b.Mark(name, p.dirs.AliasPrefix()+"tunnel")
		if errs := p.netlink.Do(&b); errs != nil {
			err := fmt.Errorf("make the tunnel device %s: %w", name, errors.Join(errs...))
			if errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EADDRINUSE) {
				err = fmt.Errorf("%w; another VXLAN device of this namespace uses UDP port %d: choose another", err,
					p.port)
			}
			return err
		}
		if had {
			p.changed(change.TunnelDeviceMade, name)
		}
		var err error
		if p.kernel, err = p.look(); err != nil {
			return err
		}
		d = p.kernel.devices[p.kernel.names[name]]
	}
	var b linux.Batch
	if !d.up() {
		b.Request(unix.RTM_SETLINK, 0)
		b.Link(d.index, unix.IFF_UP, unix.IFF_UP)
		if !made {
			p.changed(change.TunnelDeviceUp, name)
		}
	}
	q, ok := p.kernel.Ingress[d.index]
	if ok && (q.Kind != "clsact" || q.Block != 0) {
		b.RemoveClsact(d.index)
		ok = false
	}
	if !ok {
		b.AddClsact(d.index, 0)
	}
	if errs := p.netlink.Do(&b); errs != nil {
		return fmt.Errorf("set up the tunnel device %s: %w", name, errors.Join(errs...))
	}
	set32(&p.pipe.Ports[0].Ifindex, uint32(d.index))
	p.tunnel, p.hadTunnel = d.index, had
	return nil
}

// attachTunnel attaches the filter of the tunnel device once the tables are filled: a program with a new layout starts
// with empty ones.
func (p *pass) attachTunnel() error {
	if p.tunnel == 0 {
		return nil // there is no device, or an earlier step reported what is wrong with it
	}
	changed, err := p.filterAt(linux.Attachment{Index: p.tunnel}, tunnelName, p.pipe.FromTunnel)
	if err != nil {
		return fmt.Errorf("tunnel device %s: %w", p.TunnelDevice(), err)
	}
	if changed && p.hadTunnel {
		p.changed(change.TunnelFilterSet, p.TunnelDevice())
	}
	asked := len(p.relaying) > 0
	for _, w := range p.wires {
		asked = asked || w.refused == "" && w.flags&pipeline.DriverTunnels != 0
	}
	if asked {
		return p.forwardFrom(p.tunnel)
	}
	return nil
}

// attachEdges attaches the edges' filter to the real devices that have edges, and detaches it from those that no longer
// have any. Such a device is set to receive frames to every address (promiscuous).
func (p *pass) attachEdges() error {
	for i := range p.wants {
		port := p.wants[i].port
		if port.Edge == nil || !p.edges[port.Edge.Device] {
			continue
		}
		if err := p.attachEdge(port.Edge.Device); err != nil {
			p.fail(port.ID, "edge %s: %w", port.Edge.Device, err)
		}
	}
	if p.state.Incomplete {
		return nil
	}
	return p.detachWires(p.kernel, p.edges, p.relayers)
}

// attachEdge has a device's frames come to the programs. The device is set promiscuous: the frames are for the
// elements' MAC addresses, which it does not have, so a real one would not even receive them.
func (p *pass) attachEdge(name string) error {
	d := p.kernel.devices[p.kernel.names[name]]
	var b linux.Batch
	if _, ok := p.kernel.Ingress[d.index]; !ok {
		b.AddClsact(d.index, 0)
		p.kernel.Ingress[d.index] = linux.Ingress{Kind: "clsact"}
	}
	if d.flags&unix.IFF_PROMISC == 0 || !d.up() {
		b.Request(unix.RTM_SETLINK, 0)
		b.Link(d.index, unix.IFF_PROMISC|unix.IFF_UP, unix.IFF_PROMISC|unix.IFF_UP)
		d.flags |= unix.IFF_PROMISC | unix.IFF_UP
		p.kernel.devices[d.index] = d
	}
	if errs := p.netlink.Do(&b); errs != nil {
		return errors.Join(errs...)
	}
	changed, err := p.filterAt(edgePlace(d.index, p.kernel), edgeName, p.pipe.FromEdge)
	if changed {
		p.changed(change.EdgeAttached, name)
	}
	return err
}

// edgePlace is where filters of a device's ingress are. If the device uses a block, they can be reached only through
// that.
func edgePlace(index int, k kernel) linux.Attachment {
	if q := k.Ingress[index]; q.Block != 0 {
		return linux.Attachment{Block: q.Block}
	}
	return linux.Attachment{Index: index}
}

// detachWires takes the filters of edges and of the underlay off all devices but the kept ones.
func (f *Fabric) detachWires(k kernel, edges, relayers map[string]bool) error {
	var errs []error
	for index, q := range k.Ingress {
		d := k.devices[index]
		if q.Block == f.block() || q.Block == f.companionBlock() || d.name == f.TunnelDevice() || f.isLane(d) {
			continue
		}
		for name, keep := range map[string]bool{edgeName: edges[d.name], underlayName: relayers[d.name]} {
			if !keep {
				errs = append(errs, f.detachWire(d, edgePlace(index, k), name))
			}
		}
	}
	return errors.Join(errs...)
}

// detachWire takes a filter of ours off a device, and gives back what the device was given for it. Its clsact goes only
// if nobody else's filter is in it, in either direction.
func (f *Fabric) detachWire(d device, at linux.Attachment, name string) error {
	found, others, err := f.netlink.Filters(at)
	if err != nil {
		return fmt.Errorf("device %s: %w", d.name, err)
	}
	for _, filter := range found {
		if filter.Name != name || filter.Handle != f.number(name) {
			continue
		}
		var b linux.Batch
		b.RemoveFilter(at, filter.Priority, filter.Handle)
		if name == edgeName {
			b.Request(unix.RTM_SETLINK, 0)
			b.Link(d.index, 0, unix.IFF_PROMISC)
		}
		out, outOthers, err := f.netlink.Filters(linux.Attachment{Index: d.index, Egress: true})
		if err == nil && at.Block == 0 && len(found) == 1 && others+len(out)+outOthers == 0 {
			b.RemoveClsact(d.index)
		}
		for _, err := range f.netlink.Do(&b) {
			if err != nil && !errors.Is(err, unix.ENODEV) { // a device that has vanished meanwhile has no filter
				return fmt.Errorf("take the filter %q off %s: %w", name, d.name, err)
			}
		}
	}
	return nil
}

// carriers takes ports up or down. An element's carrier follows that of its port.
func (p *pass) carriers() error {
	var b linux.Batch
	var owners []model.PortID
	for _, w := range p.wants {
		if w.index == 0 {
			continue
		}
		d := p.kernel.devices[int(w.index)]
		if d.up() == !w.port.Down {
			continue
		}
		var flags uint32
		if !w.port.Down {
			flags = unix.IFF_UP
		}
		b.Request(unix.RTM_SETLINK, 0)
		b.Link(d.index, flags, unix.IFF_UP)
		owners = append(owners, w.port.ID)
		if w.known && !w.turned {
			p.changed(change.CarrierSet, w.port.ID)
		}
	}
	for i, err := range p.netlink.Do(&b) {
		if err != nil {
			p.fail(owners[i], "set its device up or down: %w", err)
		}
	}
	return nil
}

// detach removes the fabric's filters from all devices.
func (f *Fabric) detach() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pipe == nil {
		return errClosed
	}
	k, err := f.look()
	if err != nil {
		return err
	}
	err = errors.Join(f.detachWires(k, nil, nil), f.removeShapers(k, nil), f.removeQueues(k), f.removeMirrors(k),
		f.releaseDrivers(k))
	var b linux.Batch
	for index, q := range k.Ingress {
		if q.Block != f.block() && q.Block != f.companionBlock() {
			continue
		}
		b.RemoveClsact(index)
		if k.devices[index].xdp != 0 {
			setXDP(&b, index, -1, xdpNative)
		}
		if q, has := k.Queues[index]; has {
			b.RemoveQueue(index, q.Queue)
		}
	}
	if index := k.names[f.TunnelDevice()]; index != 0 {
		b.Request(unix.RTM_DELLINK, 0)
		b.Link(index, 0, 0)
	}
	for _, e := range f.netlink.Do(&b) {
		if e != nil && !errors.Is(e, unix.ENODEV) && !errors.Is(e, unix.ENOENT) {
			err = errors.Join(err, fmt.Errorf("take the fabric off a device: %w", e))
		}
	}
	return err
}
