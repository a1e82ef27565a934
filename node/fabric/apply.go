package fabric

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/fabric/pipeline"
)

// pass is one run of Apply.
type pass struct {
	*Fabric
	state  State
	report Report
	kernel kernel
	wants  []want
	peers  map[netip.Addr]uint32
	edges  map[string]bool      // devices that have edges
	ends   map[uint32]tunnelEnd // what is to come by tunnels, by VNI
	// VNIs that are relayed, devices at which that is done, and what cannot be.
	relaying  map[uint32]bool
	relayers  map[string]bool
	unrelayed []error
	// Devices that are edges as a whole, trunks, and devices with any edges, by index, with the owning port.
	trunks, taken map[int]model.PortID
	present       map[model.PortID]bool // in the state
	turned        map[model.ID]*steered // steered in another way than before
	// attached counts ports that were joined for the first time, or whose device was made anew.
	attached, freed int
	// Devices on which the driver's hook is to be used: those of ports, by slot, and others.
	hooked    map[uint32]*hooking
	wires     wires
	drivers   map[uint32]pipeline.Driver // as noted, by interface index
	tunnel    int                        // the tunnel device's index; zero when it is not ready
	hadTunnel bool                       // before this pass
	// filled tells that the tables contain all that programs look for. Until then, what an earlier process attached
	// stays in place, and its replacement waits.
	filled  bool
	waiting []func() error
}

// want is what the tables are to say about one port. The fields from index on are words of pipeline.Port.
type want struct {
	port  *Port
	slot  uint32
	known bool // the port had this slot and this device before
	// turned tells that Down has changed.
	turned bool
	index  uint32 // 0: its device is not there
	flags  uint32 // queues, meters and hooks add theirs to what resolve found
	mac    uint64
	loss   uint32
	link   pipeline.Link
	comes  []pipeline.Link // tunnels whose packets are taken beside those of link
}

// Apply makes the fabric what s says, and repairs what was altered behind its back. It does not touch what is right,
// and may be repeated at any time. If the far end of a port's link is not among the ports, what the port sends is
// dropped and counted.
func (f *Fabric) Apply(ctx context.Context, s State) Report {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := &pass{Fabric: f, state: s, report: Report{Failed: map[model.PortID]error{},
		Hooks: map[model.PortID]model.HookUse{}, Underlay: map[string]model.HookUse{}},
		edges: map[string]bool{}, trunks: map[int]model.PortID{}, taken: map[int]model.PortID{}}
	p.report.Problem = p.run(ctx)
	return p.report
}

// run looks at the kernel once, and then takes the steps. A tunnel device that cannot be made stops none of them, since
// links within the node do without it; that is told in the end.
func (p *pass) run(ctx context.Context) error {
	if p.pipe == nil {
		return errClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := mountBPF(p.dirs.BPF()); err != nil {
		return err
	}
	restored, err := p.pipe.Repin()
	if err != nil {
		return err
	}
	for _, name := range restored {
		p.changed(change.PinRestored, name)
	}
	if p.kernel, err = p.look(); err != nil {
		return err
	}
	tunnels := p.tunnelDevice()
	p.numberPeers()
	p.steer()
	for _, step := range p.steps() {
		if err := step(); err != nil {
			return errors.Join(tunnels, p.relayProblem(), err)
		}
	}
	if p.attached > 0 {
		p.changed(change.PortsJoined, p.attached)
	}
	if p.freed > 0 {
		p.changed(change.PortsLeft, p.freed)
	}
	return errors.Join(tunnels, p.relayProblem())
}

// steps are the steps of a pass, in this order. Packets flow meanwhile. So what a table leads to must exist before the
// table says so, and may go only when no table says so any more.
func (p *pass) steps() []func() error {
	return []func() error{
		// First of all, work out what is to be in the tables.
		p.resolve,
		p.nodes, // before edges and tunnels carry anything: elements must not send to these addresses

		// What the entries of ports refer to by number: queues, meters, and programs at the driver's hook, to which
		// frames are redirected.
		p.queues,
		p.meters,
		p.puntMeters,
		p.chooseHooks,
		p.hookPorts,
		p.hookWires,
		p.tellHooks,
		p.enter,
		// What the entries referred to before, and no longer do.
		p.leaveQueues,
		p.unhook,

		// Where links end. By now both ends of a link have their entries, so that the first frame finds its way back.
		p.join,
		p.mirrors, // where copies of a link's packets go, which the entries of its ports say
		p.companions,
		p.relays,

		// Programs come after their tables: with empty tables a program would drop what an earlier process's program
		// forwards. The tunnels' program comes before the ports', since other nodes answer the frames that ports send.
		p.replace,
		p.attachTunnel,
		p.attachUnderlay,
		p.attach,
		p.attachEdges,
		p.shapers, // devices that have their network's ports use them, once the filters look there

		// An element gets its carrier when the whole way is there.
		p.carriers,
		// What is no longer wanted goes last, when nothing leads to it.
		p.sweep,
	}
}

func (p *pass) changed(kind change.Kind, parts ...any) {
	p.report.Changed = append(p.report.Changed, kind.Of(parts...))
}

func (p *pass) fail(id model.PortID, format string, a ...any) {
	if p.report.Failed[id] == nil {
		p.report.Failed[id] = fmt.Errorf("port %s: "+format, append([]any{id}, a...)...)
	}
}

// numberPeers gives every peer its place in the table.
func (p *pass) numberPeers() {
	p.peers = map[netip.Addr]uint32{}
	for i := 1; i < len(p.pipe.Peers); i++ {
		if a := pipeline.AddressOf(&p.pipe.Peers[i]); a.IsValid() {
			p.peers[a] = uint32(i)
		}
	}
	if p.underlay.IsValid() {
		setPeer(&p.pipe.Peers[0], p.underlay)
	}
	free := 1
	for _, peer := range p.state.Peers {
		a := peer.Address.Unmap()
		if _, ok := p.peers[a]; ok || !a.IsValid() {
			continue
		}
		for free < len(p.pipe.Peers) && atomic.LoadUint32(&p.pipe.Peers[free].Family) != 0 {
			free++
		}
		if free == len(p.pipe.Peers) {
			return // its ports will say so
		}
		setPeer(&p.pipe.Peers[free], a)
		p.peers[a] = uint32(free)
	}
}

// nodes tells the programs which addresses belong to nodes, so that nothing that elements send out of edges gets into
// their tunnels.
func (p *pass) nodes() error {
	set(&p.pipe.Ports[0].Mac, uint64(p.port))
	known, err := pipeline.All[pipeline.NodeKey, uint32](p.pipe.Nodes)
	if err != nil {
		return err
	}
	wanted := map[pipeline.NodeKey]bool{}
	for _, a := range append([]netip.Addr{p.underlay}, addressesOf(p.state.Peers)...) {
		if !a.IsValid() {
			continue
		}
		key := pipeline.NodeKey{Address: pipeline.NewPeer(a).Address}
		wanted[key] = true
		if _, ok := known[key]; !ok {
			if err := p.pipe.Nodes.Put(key, uint32(1)); err != nil {
				return fmt.Errorf("write %s into the table of nodes: %w", a, err)
			}
		}
	}
	if p.state.Incomplete {
		return nil
	}
	return remove(p.pipe.Nodes, wanted)
}

func addressesOf(peers []model.Peer) []netip.Addr {
	all := make([]netip.Addr, len(peers))
	for i, peer := range peers {
		all[i] = peer.Address.Unmap()
	}
	return all
}

// setPeer writes the address first, and then the family, which makes it valid.
func setPeer(to *pipeline.Peer, a netip.Addr) {
	e := pipeline.NewPeer(a)
	if pipeline.AddressOf(to) == a {
		return
	}
	for i := range e.Address {
		atomic.StoreUint32(&to.Address[i], e.Address[i])
	}
	atomic.StoreUint32(&to.Family, e.Family)
}

// resolve finds each port's slot and what the tables are to say about it.
func (p *pass) resolve() error {
	if err := p.newSlots(); err != nil {
		return err
	}
	p.present = make(map[model.PortID]bool, len(p.state.Ports))
	for i := range p.state.Ports {
		p.present[p.state.Ports[i].ID] = true
	}
	named := make(map[netip.Addr]bool, len(p.state.Peers))
	for _, peer := range p.state.Peers {
		named[peer.Address.Unmap()] = true
	}
	p.wants = make([]want, 0, len(p.state.Ports))
	indices := make(map[uint32]model.PortID, len(p.state.Ports))
	ends := map[uint64]model.PortID{} // tunnels' VNIs and edges that are taken
	for i := range p.state.Ports {
		port := &p.state.Ports[i]
		slot, ok := p.slots[port.ID]
		if !ok {
			continue // no room: said
		}
		w := want{port: port, slot: slot, mac: pipeline.MAC(port.MAC), loss: pipeline.Loss(port.Shape.Loss)}
		w.known = port.Index != 0 && atomic.LoadUint32(&p.pipe.Ports[slot].Ifindex) == uint32(port.Index)
		d, ok := p.kernel.devices[port.Index]
		other, twice := indices[uint32(port.Index)]
		switch {
		case !ok:
			p.fail(port.ID, "the node has no device with index %d", port.Index)
		case twice:
			p.fail(port.ID, "its device %s is also the device of %s", d.name, other)
		default:
			w.index = uint32(port.Index)
			indices[w.index] = port.ID
		}
		if !d.straight() {
			w.flags |= pipeline.Queue
		}
		if port.Copies {
			// sent through the device, so that the element's kernel sees for whom frames are
			w.flags |= pipeline.Copies | pipeline.Queue
			w.mac = 0
		}
		if port.Down {
			w.flags |= pipeline.Down
		}
		if port.Virtual {
			w.flags |= pipeline.Virtual
		}
		if port.Untagged {
			w.flags |= pipeline.Untagged
		}
		w.flags |= p.steeringOf(port.ID) | p.cutOf(port.ID) | p.paceOf(port.ID)
		w.link = p.linkOf(port, named, ends)
		w.comes = p.alsoOf(port, named, ends)
		if w.link.Kind() == pipeline.Edge && port.Edge.Trunk {
			w.flags |= pipeline.Trunk
		}
		p.wants = append(p.wants, w)
	}
	return nil
}

// linkOf is the word in the tables that says where a port's link ends.
func (p *pass) linkOf(port *Port, named map[netip.Addr]bool, ends map[uint64]model.PortID) pipeline.Link {
	take := p.taker(port, ends)
	switch {
	case port.Local == port.ID:
		p.fail(port.ID, "its link ends at itself")
	case port.Local != model.PortID{}:
		// It must never lead to a slot that sweep frees and a later port may get.
		if slot, ok := p.slots[port.Local]; ok && (p.present[port.Local] || p.state.Incomplete) {
			return pipeline.NewLink(pipeline.Local, 0, slot)
		}
	case port.Tunnel != nil:
		return p.tunnelOf(port, *port.Tunnel, named, take)
	case port.Edge != nil:
		e := port.Edge
		index, ok := p.kernel.names[e.Device]
		switch {
		case e.VLAN < 0 || e.VLAN > 4094:
			p.fail(port.ID, "VLAN %d is not between 1 and 4094 (or 0 for untagged)", e.VLAN)
		case !ok:
			p.fail(port.ID, "the node has no device %q for its edge", e.Device)
		case p.trunks[index] != model.PortID{}:
			p.fail(port.ID, "the edge %s is a trunk and all of it belongs to %s", e.Device, p.trunks[index])
		case e.Trunk && e.VLAN == 0 && p.taken[index] != model.PortID{}:
			p.fail(port.ID, "the edge %s cannot be its trunk: a part of it belongs to %s", e.Device, p.taken[index])
		default:
			p.edges[e.Device], p.taken[index] = true, port.ID
			if e.Trunk && e.VLAN == 0 {
				p.trunks[index] = port.ID
			}
			l := pipeline.NewLink(pipeline.Edge, uint32(e.VLAN), uint32(index))
			return take(l, uint64(l), fmt.Sprintf("the edge %s, VLAN %d,", e.Device, e.VLAN))
		}
	}
	return 0
}

// newSlots gives slots to ports that have none.
func (p *pass) newSlots() error {
	ids := make([]model.PortID, len(p.state.Ports))
	for i := range p.state.Ports {
		ids[i] = p.state.Ports[i].ID
	}
	refused, err := p.takeSlots(ids)
	for _, id := range refused {
		p.fail(id, "%w", errNoSlot)
	}
	return err
}

// enter writes the ports' own entries and the table of devices.
func (p *pass) enter() error {
	devices, err := pipeline.All[uint32, uint32](p.pipe.Devices)
	if err != nil {
		return err
	}
	var keys, slots []uint32
	p.vacate()
	for i := range p.wants {
		w := &p.wants[i]
		e := &p.pipe.Ports[w.slot]
		w.turned = (atomic.LoadUint32(&e.Flags)^w.flags)&pipeline.Down != 0
		set(&e.Mac, w.mac)
		set32(&e.Loss, w.loss)
		set32(&e.Flags, w.flags)
		set32(&e.Ifindex, w.index)
		if slot, ok := devices[w.index]; w.index != 0 && (!ok || slot != w.slot) {
			keys, slots = append(keys, w.index), append(slots, w.slot)
			if w.known {
				p.changed(change.EntryRestored, w.port.ID)
			}
		}
		if !w.known && w.index != 0 {
			p.attached++
		}
	}
	p.turn()
	return write(p.pipe.Devices, keys, slots)
}

// vacate makes sure that no port claims a device that belongs to another port now: when a namespace is made anew,
// indices come again. The programs trust what they remember of a device as long as its port claims it.
func (p *pass) vacate() {
	fresh := map[uint32]uint32{} // slots by index
	for _, w := range p.wants {
		if !w.known && w.index != 0 {
			fresh[w.index] = w.slot
		}
	}
	if len(fresh) == 0 {
		return
	}
	for slot := 1; slot < len(p.pipe.Ports); slot++ {
		index := &p.pipe.Ports[slot].Ifindex
		if owner, ok := fresh[atomic.LoadUint32(index)]; ok && owner != uint32(slot) {
			set32(index, 0)
		}
	}
}

func set(to *uint64, v uint64) bool {
	if atomic.LoadUint64(to) == v {
		return false
	}
	atomic.StoreUint64(to, v)
	return true
}

func set32(to *uint32, v uint32) bool {
	if atomic.LoadUint32(to) == v {
		return false
	}
	atomic.StoreUint32(to, v)
	return true
}

func write[K any](m *ebpf.Map, keys []K, slots []uint32) error {
	if len(keys) == 0 {
		return nil
	}
	if _, err := m.BatchUpdate(keys, slots, nil); err != nil {
		return fmt.Errorf("write %d entries into the table %v: %w", len(keys), m, err)
	}
	return nil
}

// join writes where the links end: first what leads in from tunnels and edges, then the ports' own words.
func (p *pass) join() error {
	if err := p.tunnelEnds(); err != nil {
		return err
	}
	edges, err := pipeline.All[pipeline.EdgeKey, uint32](p.pipe.Edges)
	if err != nil {
		return err
	}
	var edgeSlots []uint32
	var newEdges []pipeline.EdgeKey
	for _, w := range p.wants {
		if w.link.Kind() != pipeline.Edge {
			continue
		}
		key := pipeline.EdgeKey{Ifindex: w.link.Target(), Vlan: w.link.Label()}
		if slot, ok := edges[key]; !ok || slot != w.slot {
			newEdges, edgeSlots = append(newEdges, key), append(edgeSlots, w.slot)
			if pipeline.LinkOf(&p.pipe.Ports[w.slot]) == w.link {
				p.changed(change.EdgeRestored, w.port.ID)
			}
		}
	}
	if err := write(p.pipe.Edges, newEdges, edgeSlots); err != nil {
		return err
	}
	for _, w := range p.wants {
		last, before := p.links[w.slot]
		p.links[w.slot] = w.link
		if !set(&p.pipe.Ports[w.slot].Link, uint64(w.link)) || !w.known || !before {
			continue
		}
		if last == w.link {
			p.changed(change.LinkRestored, w.port.ID)
		} else {
			p.changed(change.LinkMoved, w.port.ID, ending(w.port))
		}
	}
	return nil
}

func ending(p *Port) string {
	switch {
	case p.Local != model.PortID{}:
		return "at " + p.Local.String()
	case p.Tunnel != nil:
		return fmt.Sprintf("in tunnel %d to %s", p.Tunnel.VNI, p.Tunnel.Peer)
	case p.Edge != nil && p.Edge.VLAN != 0:
		return fmt.Sprintf("at %s, VLAN %d", p.Edge.Device, p.Edge.VLAN)
	case p.Edge != nil:
		return "at " + p.Edge.Device
	}
	return "nowhere"
}
