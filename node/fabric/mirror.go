package fabric

import (
	"fmt"
	"sync/atomic"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/fabric/pipeline"
)

// What passes a link, in both directions, is copied at one of its ports. A meter bounds how many bytes are copied at
// all. The copies then pass a pair of devices with a queue. Behind it a program sends them to the port that gets them,
// or into a tunnel. So the original packets wait for nothing.

const mirrorName = "polyplane mirror"

// Copy says where copies of a link's packets go: to a port of this node, or into a tunnel.
type Copy struct {
	Local  model.PortID
	Tunnel *Tunnel
	// Bandwidth is what all copies together may use. Packets beyond it are counted and not copied.
	Bandwidth model.Bandwidth
}

func (f *Fabric) mirrorDevices(slot uint32) (in, out string) {
	n := uint64(f.number("mirror")&0x3fffffff)<<14 | uint64(slot)
	return fmt.Sprintf("%sma%011x", instance.PortDevicePrefix, n),
		fmt.Sprintf("%smb%011x", instance.PortDevicePrefix, n)
}

func (f *Fabric) mirrorAlias() string { return f.dirs.AliasPrefix() + "mirror " }

// mirrors makes the devices of copies, then says where copies go, and only then has them made. To end copying it does
// this in the opposite order.
func (p *pass) mirrors() error {
	named := map[string]uint32{}
	for _, peer := range p.state.Peers {
		named[peer.Address.Unmap().String()] = p.peers[peer.Address.Unmap()]
	}
	var lanes []lane
	var owners []*want
	inUse := map[int]bool{}
	for i := range p.wants {
		w := &p.wants[i]
		m := &p.pipe.Mirrors[w.slot]
		if link := p.copiesTo(w, named); link != 0 && w.index != 0 {
			in, out := p.mirrorDevices(w.slot)
			queue, _ := queueFor(model.Shape{Bandwidth: w.port.Copy.Bandwidth},
				max(p.kernel.devices[int(w.index)].mtu, 1500), false)
			lanes = append(lanes, lane{in: in, out: out, alias: p.mirrorAlias() + w.port.ID.Network + " " +
				w.port.ID.Element + " " + w.port.ID.Interface,
				queue: queue, filter: mirrorName, program: p.pipe.FromMirror, set: func() {}})
			owners = append(owners, w)
			set(&m.Link, uint64(link))
			continue
		}
		was := atomic.LoadUint32(&p.pipe.Ports[w.slot].Snap)
		atomic.AndUint32(&p.pipe.Ports[w.slot].Snap, ^uint32(pipeline.Copied))
		if was&pipeline.Copied != 0 {
			inUse[int(m.Device)] = true // until the next pass
			p.changed(change.CopyEnded, w.port.ID)
		} else {
			set(&m.Link, 0)
			set(&m.Device, 0)
		}
	}
	indices, failed, err := p.lanes(lanes)
	if err != nil {
		return err
	}
	for i, w := range owners {
		if failed[i] != nil {
			p.fail(w.port.ID, "copy what passes its link: %w", failed[i])
			continue
		}
		m := &p.pipe.Mirrors[w.slot]
		setMeter(&m.Meter, int(w.port.Copy.Bandwidth/8), meterBurst)
		set(&m.Device, uint64(indices[i]))
		inUse[indices[i]] = true
		if atomic.OrUint32(&p.pipe.Ports[w.slot].Snap, pipeline.Copied)&pipeline.Copied == 0 {
			p.changed(change.CopyBegun, w.port.ID)
		}
	}
	if p.state.Incomplete {
		return nil
	}
	return p.removeLanes(p.kernel, "ma", p.mirrorAlias(), inUse)
}

// copiesTo is the word that says where copies of the packets of the port's link go. It is 0 if none are wanted, or if
// they can go nowhere yet.
func (p *pass) copiesTo(w *want, named map[string]uint32) pipeline.Link {
	c := w.port.Copy
	switch {
	case c == nil:
		return 0
	case c.Tunnel == nil:
		if slot, ok := p.slots[c.Local]; ok && p.present[c.Local] {
			return pipeline.NewLink(pipeline.Local, 0, slot)
		}
		return 0
	case c.Tunnel.VNI == 0 || c.Tunnel.VNI >= 1<<24:
		p.fail(w.port.ID, "VNI %d of its copies is not between 1 and 16777215", c.Tunnel.VNI)
		return 0
	}
	number, ok := named[c.Tunnel.Peer.Unmap().String()]
	if !ok || number == 0 || !p.underlay.IsValid() || c.Tunnel.Peer.Unmap().Is4() != p.underlay.Is4() {
		p.fail(w.port.ID, "its copies cannot reach %s: it is no node's address", c.Tunnel.Peer)
		return 0
	}
	return pipeline.NewLink(pipeline.Tunnel, c.Tunnel.VNI, number)
}

func (f *Fabric) removeMirrors(k kernel) error { return f.removeLanes(k, "ma", f.mirrorAlias(), nil) }
