package fabric

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/fabric/pipeline"
)

// A slice's bandwidth bounds what all ports of its network on this node send into the underlay and the edges together.
// Such packets first pass a pair of veth devices of the network. The first end has a queue like that of a link with a
// bandwidth. The program at the second end sends packets on by their mark, which says to which port they belong. A pair
// of devices costs other networks nothing, and can be made, changed and removed without touching a device that carries
// others' packets.

const shaperName = "polyplane slice"

// shaperDevices are one network's pair of devices.
func (f *Fabric) shaperDevices(network string) (in, out string) {
	n := f.number("slice " + network)
	return fmt.Sprintf("%sqa%011x", instance.PortDevicePrefix, n),
		fmt.Sprintf("%sqb%011x", instance.PortDevicePrefix, n)
}

func (f *Fabric) shaperAlias() string { return f.dirs.AliasPrefix() + "slice " }

// shapers gives every network with a bandwidth its devices, makes its ports use them, and removes devices that nothing
// has used since the last pass.
func (p *pass) shapers() error {
	mtu := map[string]int{} // the largest MTU of what leaves the node, by network
	for i := range p.wants {
		w := &p.wants[i]
		if network := w.port.ID.Network; p.state.Slices[network] > 0 && w.leaves() {
			mtu[network] = max(mtu[network], p.kernel.devices[int(w.index)].mtu)
		}
	}
	var lanes []lane
	var networks []string
	for network, largest := range mtu {
		in, out := p.shaperDevices(network)
		queue, _ := queueFor(model.Shape{Bandwidth: p.state.Slices[network]}, largest, false)
		lanes = append(lanes, lane{in: in, out: out, alias: p.shaperAlias() + network, queue: queue, filter: shaperName,
			program: p.pipe.FromShaper,
			set: func() {
				p.changed(change.SliceShaped, network, p.state.Slices[network])
			}})
		networks = append(networks, network)
	}
	indices, failed, err := p.lanes(lanes)
	if err != nil {
		return err
	}
	var errs []error
	devices := map[string]int{}
	for i, network := range networks {
		if failed[i] != nil {
			errs = append(errs, fmt.Errorf("bandwidth of network %s: %w", network, failed[i]))
		} else {
			devices[network] = indices[i]
		}
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

// leaves returns whether what the port sends leaves the node.
func (w *want) leaves() bool {
	return w.link.Kind() == pipeline.Tunnel || w.link.Kind() == pipeline.Edge
}

// removeShapers removes devices of slices that nothing uses and nothing waits in; all of them if inUse is nil.
func (f *Fabric) removeShapers(k kernel, inUse map[int]bool) error {
	return f.removeLanes(k, "qa", f.shaperAlias(), inUse)
}
