package fabric

import (
	"maps"
	"slices"
	"sync/atomic"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/fabric/pipeline"
)

// Cut says which elements are in quarantine: these, and those of the networks on hold that are already; no others. From
// this moment on their ports, and ports that come later, neither take nor deliver a packet, whoever forwards for the
// element. For each port that takes a single store. The element's processes and the carrier of its own interfaces stay
// as they are. (Port.Down takes the carrier away at the far ends.) Captures at the ports still show what the element
// sends. An agent that starts finds its elements still cut.
func (f *Fabric) Cut(elements map[model.ID]bool, hold []string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pipe == nil {
		return errClosed
	}
	cut := maps.Clone(elements)
	for id := range f.cut {
		if slices.Contains(hold, id.Network) {
			cut[id] = true
		}
	}
	f.cut = cut
	for port, slot := range f.slots {
		flags := &f.pipe.Ports[slot].Flags
		if f.cut[port.ID] {
			atomic.OrUint32(flags, pipeline.Cut)
		} else {
			atomic.AndUint32(flags, ^uint32(pipeline.Cut))
		}
	}
	return nil
}

// cutOf are the flags that quarantine sets on a port.
func (f *Fabric) cutOf(port model.PortID) uint32 {
	if f.cut[port.ID] {
		return pipeline.Cut
	}
	return 0
}
