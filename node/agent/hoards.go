package agent

import (
	"fmt"
	"sync"
	"time"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/node/kernelmemory"
	"github.com/polyplane/polyplane/node/watch"
)

// hoards connects the watcher of kernel memory that is charged to nobody with the loop: it tells it which elements
// there are, and takes its verdicts.
type hoards struct {
	kernelmemory.Watcher[model.ID]

	// mu guards the two below, which each pass replaces. It is not held while anything is done to elements.
	mu       sync.Mutex
	elements map[model.ID]kernelmemory.Element
	holders  map[model.ID]control.Holder
	taken    map[hoard]*bite // not yet told; the watcher's goroutine alone uses it
}

// hoard is a table in which an element had too much. What was taken is told once a minute for each of them.
type hoard struct {
	id    model.ID
	table kernelmemory.Table
}

func (h *hoards) prepare(a *Agent) {
	h.Log = a.Log
	h.taken = map[hoard]*bite{}
	h.Elements = func() map[model.ID]kernelmemory.Element {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.elements
	}
	h.Hold = func(id model.ID) func() {
		h.mu.Lock()
		holder := h.holders[id]
		h.mu.Unlock()
		if holder == nil {
			return func() {}
		}
		return holder.Hold(id)
	}
	h.Tell = func(v kernelmemory.Verdict[model.ID]) { h.verdict(a, v, time.Now()) }
}

// set says which elements have a network namespace here, after a pass.
func (h *hoards) set(outcomes map[model.ID]*outcome) {
	elements := make(map[model.ID]kernelmemory.Element, len(outcomes))
	holders := make(map[model.ID]control.Holder, len(outcomes))
	for id, o := range outcomes {
		enterer, is := o.driver.(control.Enterer)
		if !is {
			continue
		}
		limits := o.job.Element.Limits()
		e := kernelmemory.Element{Path: enterer.Namespace(id), Memory: int64(limits.Memory), Devices: limits.Devices}
		e.Ports = append(e.Ports, each.Of(o.devices, func(d control.Device) int { return d.Index })...)
		for i := range o.job.Element.Interfaces {
			if ifc := &o.job.Element.Interfaces[i]; ifc.HasVLANs() {
				e.VLANs += ifc.Tagged.Count() + 1
			}
		}
		elements[id] = e
		if holder, ok := o.driver.(control.Holder); ok {
			holders[id] = holder
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.elements, h.holders = elements, holders
}

// verdict tells what was taken from an element: the first time for each table, and then at most once a minute. The
// watcher calls it from its own goroutine.
func (h *hoards) verdict(a *Agent, v kernelmemory.Verdict[model.ID], now time.Time) {
	// Other elements' packets make exceptions and advertised routes as well.
	if v.Table != kernelmemory.Exceptions && v.Table != kernelmemory.Advertised {
		a.watcher.tally.add(v.ID, watch.Tables, 1, now)
	}
	if v.Err != nil {
		a.Log.Error("what an element has too much of the kernel's memory is still there", "element", v.ID, "table",
			v.Table, "error", v.Err)
	}
	key := hoard{v.ID, v.Table}
	b := h.taken[key]
	if b == nil {
		for k, old := range h.taken {
			if now.Sub(old.told) > limitEvery && old.count == 0 {
				delete(h.taken, k)
			}
		}
		b = &bite{}
		h.taken[key] = b
	}
	if b.count += int64(v.Removed); b.count == 0 || now.Sub(b.told) < limitEvery {
		return
	}
	a.event(model.Warning, v.ID.String(), "KernelMemoryLimit", hoardWords(v, b.count))
	*b = bite{told: now}
}

func hoardWords(v kernelmemory.Verdict[model.ID], count int64) string {
	more := fmt.Sprintf("(`polyplane set %s memory=N` raises the limit)", v.ID)
	switch v.Table {
	case kernelmemory.Devices:
		return fmt.Sprintf("it had more than %d network devices beside the ends of its links: the latest %s removed "+
			"(`polyplane set %s devices=N` raises the limit)", v.Limit, counted(count, "was", "were"), v.ID)
	case kernelmemory.Buffers:
		return fmt.Sprintf("its raw, packet and netlink sockets buffered more than %s: %s, those that had most of it "+
			"%s", model.Bytes(v.Limit), counted(count, "process was ended", "processes were ended"), more)
	case kernelmemory.Exceptions:
		return fmt.Sprintf("ICMP messages, or tunnels of its own, made so many exceptions of its routes (path MTUs "+
			"and redirects) that they may take more than %s of the kernel's memory, which nobody is charged for: all "+
			"were forgotten; its routes stay, %d were made anew %s", model.Bytes(v.Limit), count, more)
	case kernelmemory.Encapsulations:
		return fmt.Sprintf("the encapsulations of its routes took more than %s of the kernel's memory, which nobody "+
			"is charged for: all routes with one were removed (%d) %s", model.Bytes(v.Limit), count, more)
	case kernelmemory.Advertised:
		return fmt.Sprintf("router advertisements on its links, which its root accepts, made routes that took more "+
			"than %s of the kernel's memory, which nobody is charged for: all of these were removed (%d) %s",
			model.Bytes(v.Limit), count, more)
	case kernelmemory.TunnelGroups: // count is of devices
		return fmt.Sprintf("the multicast groups of its VXLAN devices took more than %s of the kernel's memory, which "+
			"nobody is charged for: %s with their groups %s", model.Bytes(v.Limit),
			counted(count, "device was removed", "devices were removed"), more)
	case kernelmemory.BridgeVLANs: // count is of ranges
		return fmt.Sprintf("its VLANs of bridges and their ports took more than %s of the kernel's memory, which "+
			"nobody is charged for: all were removed but those of frames without a tag %s", model.Bytes(v.Limit), more)
	}
	return fmt.Sprintf("its %s took more than %s of the kernel's memory, which nobody is charged for: all were "+
		"removed (%d) %s", v.Table, model.Bytes(v.Limit), count, more)
}
