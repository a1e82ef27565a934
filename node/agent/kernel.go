package agent

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/node/kerneltime"
	"github.com/polyplane/polyplane/node/watch"
)

// kernel connects the watcher of the kernel's time for packets with the loop.
type kernel struct {
	kerneltime.Watcher[model.ID]

	mu       sync.Mutex                      // guards elements, and is held for moments only: the watcher must not wait
	elements map[model.ID]kerneltime.Element // each pass replaces the map
}

func (k *kernel) prepare(a *Agent) {
	k.Log = a.Log
	k.Elements = func() map[model.ID]kerneltime.Element {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.elements
	}
	k.Pace = func(id model.ID, e kerneltime.Element, rate int) error {
		return a.Drivers.Fabric.Pace(id, e.Ports, rate)
	}
	k.Tell = func(v kerneltime.Verdict[model.ID]) { k.excess(a, v) }
}

// set says which elements have a network namespace here, after a pass.
func (k *kernel) set(a *Agent, outcomes map[model.ID]*outcome) {
	next := make(map[model.ID]kerneltime.Element, len(outcomes))
	for id, o := range outcomes {
		enterer, is := o.driver.(control.Enterer)
		if !is {
			continue
		}
		e := kerneltime.Element{Path: enterer.Namespace(id), Network: id.Network,
			CPU: float64(o.job.Element.CPU) / 1000, Stopped: o.job.Element.Stopped}
		for _, d := range o.devices {
			e.Ports, e.Inner = append(e.Ports, d.Index), append(e.Inner, d.Inner)
			if !a.inner(o, d.Interface) {
				e.Outer = append(e.Outer, d.Index)
			}
		}
		next[id] = e
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.elements = next
}

// inner tells whether an interface's link leads to an element of this node.
func (a *Agent) inner(o *outcome, name string) bool {
	i := slices.IndexFunc(o.job.Element.Interfaces, func(ifc model.PlacedInterface) bool { return ifc.Name == name })
	if i < 0 {
		return false
	}
	far := o.job.Element.Interfaces[i].Far
	return far != nil && (far.Node == "" || far.Node == a.Dirs.Node)
}

// packetTime enters how long the kernel worked for the elements' packets. It returns whether that has changed.
func (k *kernel) packetTime(elements []model.ElementStatus) (changed bool) {
	times := k.Times()
	for i := range elements {
		e := &elements[i]
		cores := math.Round((times[e.ID].Taken)*100) / 100
		changed = changed || cores != e.PacketTime
		e.PacketTime = cores
	}
	return changed
}

// count reports to the watch for attacks. Work that goes on counts once in five seconds. Making again what was cut
// counts twice. An element that still goes on after it was paced for a while counts as an attacker at once.
func (k *kernel) count(a *Agent, v kerneltime.Verdict[model.ID], now time.Time) {
	switch {
	case v.Barred:
		a.watcher.tally.add(v.ID, watch.Kernel, 2, now)
	case v.Paced > kerneltime.PacedFor:
		a.watcher.tally.add(v.ID, watch.Kernel, 3, now)
	case len(v.Devices) > 0:
		a.watcher.tally.add(v.ID, watch.Kernel, 1, now)
	case a.watcher.tally.sum(v.ID, watch.Kernel, now, usageEvery) == 0:
		a.watcher.tally.add(v.ID, watch.Kernel, 1, now)
	}
}

// excess tells of an element that made the kernel work more than it may.
func (k *kernel) excess(a *Agent, v kerneltime.Verdict[model.ID]) {
	k.count(a, v, time.Now())
	id := v.ID.String()
	if v.Err != nil {
		a.Log.Error("an element's packets take too much of the processors, and that could not be ended",
			"element", id, "error", v.Err)
	}
	may := fmt.Sprintf("packets of its own making took %.1f cores of this node's kernel, and may take %.1f", v.Cores,
		v.Allowed)
	if len(v.Devices) == 0 {
		why := fmt.Sprintf("it makes too much of each of the %.0f packets a second on its interfaces, as rules that "+
			"each packet has to pass do", v.Rate)
		if v.Round {
			why = fmt.Sprintf("it passes on %.0f packets a second, though %.0f come into its network: they go round "+
				"over the links of several elements", v.Rate/2, v.Entered)
		}
		a.event(model.Warning, id, "PacketTime",
			fmt.Sprintf("%s: %s; for %s it gets %d packets a second in both directions, and the rest is dropped",
				may, why, v.Paced, v.Pace))
		return
	}
	names := v.Devices
	const most = 8
	rest := ""
	if len(names) > most {
		names, rest = names[:most], fmt.Sprintf(" and %d more", len(names)-most)
	}
	later := ""
	if v.Barred {
		later = "; since it was not the first time, it may have no devices of its own for the next ten minutes"
	}
	a.event(model.Warning, id, "LoopCut",
		fmt.Sprintf("%s: %.0f packets a second went round on devices made inside it (%s%s), which were "+
			"removed%s", may, v.Rate, strings.Join(names, ", "), rest, later))
}
