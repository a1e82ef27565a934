package agent

import (
	"bufio"
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/discover"
)

// newDiscoverer returns what finds out who is at the other ends of the node's underlay.
func (a *Agent) newDiscoverer() *discover.Discoverer {
	off := ""
	if a.Silent {
		off = "it was told not to speak LLDP (--lldp=off)"
	}
	processor := processorName("/proc/cpuinfo")
	var discoverer *discover.Discoverer
	discoverer = discover.New(discover.Config{Node: a.Dirs.Node, Address: a.Address, Off: off, Log: a.Log,
		Look: func() discover.View { return a.lookAround(processor) }, Tell: a.Manager.Discover,
		Refused: func(_, what string) { a.event(model.Warning, a.Dirs.Node, "AnnouncementRefused", what) },
		Failed: func(device, what string) {
			a.Log.Warn("links cannot be discovered", "device", device, "problem", what)
			a.event(model.Warning, a.Dirs.Node, "DiscoveryFailed", device+": "+what)
		}})
	a.links.onOthers(discoverer.Changed)
	return discoverer
}

// standOn takes from a desired state what the node stands on.
func (a *Agent) standOn(s *model.NodeState) {
	a.ground.set(s.Links)
	if a.discovery == nil {
		return
	}
	var towards []netip.Addr
	for _, l := range s.Links {
		towards = append(towards, l.Address)
	}
	a.towards.Store(&towards)
	ground := discover.Ground{Store: s.Store.ID}
	for _, p := range s.Peers {
		ground.Nodes = append(ground.Nodes, p.Name)
	}
	a.discovery.Set(ground)
}

// lookAround tells what devices there are, and which of them are the underlay's: a simulated node's links, or those by
// which a machine's other nodes are reached. There are none as long as there is no other node.
func (a *Agent) lookAround(processor string) discover.View {
	view := discover.View{Processor: processor}
	others := a.links.noPorts()
	c, err := linux.DialRtnetlink()
	if err != nil {
		view.Problem = fmt.Sprintf("open a route netlink socket: %v", err)
		return view
	}
	defer c.Close()
	speeds := map[int32]model.Bandwidth{}
	for index, o := range others {
		if o.kind == "" {
			speeds[index] = model.Bandwidth(c.Speed(o.name)) * 1e6
		}
		if o.name == "lo" {
			continue
		}
		view.Interfaces = append(view.Interfaces, model.NodeInterface{Name: o.name, Kind: o.kind,
			MAC: o.hardware().String(), MTU: int(o.mtu), Up: o.running, Speed: speeds[index],
			Master: others[int32(o.master)].name})
	}
	slices.SortFunc(view.Interfaces, func(a, b model.NodeInterface) int { return cmp.Compare(a.Name, b.Name) })
	view.Interfaces = view.Interfaces[:min(len(view.Interfaces), model.MaxToldInterfaces)]
	var indexes []int32
	if indexes, view.Problem = a.underlayDevices(others); view.Problem != "" {
		return view
	}
	for _, index := range indexes {
		o := others[index]
		view.Underlay = append(view.Underlay, discover.Device{Name: o.name, Index: int(index), MAC: o.hardware(),
			Up: o.running, Speed: capacity(speeds[index], queueRate(int(index)))})
	}
	slices.SortFunc(view.Underlay, func(a, b discover.Device) int { return cmp.Compare(a.Name, b.Name) })
	return view
}

// underlayDevices are the devices on whose wires other nodes may be. A problem is why there are none.
func (a *Agent) underlayDevices(others map[int32]other) (indexes []int32, problem string) {
	for index, o := range others {
		if strings.HasPrefix(o.alias, a.Dirs.UnderlayAlias()) {
			indexes = append(indexes, index)
		}
	}
	towards := a.towards.Load()
	if len(indexes) > 0 || towards == nil || len(*towards) == 0 {
		return indexes, ""
	}
	d, err := openDevices()
	if err != nil {
		return nil, err.Error()
	}
	defer d.close()
	found := map[int32]bool{}
	for _, to := range *towards {
		link, err := d.towards(to)
		if err != nil {
			problem = err.Error()
			continue
		}
		below := wires(others, int32(link.Attrs().Index))
		if len(below) == 0 {
			problem = fmt.Sprintf("%s, by which node %s is reached, is on no Ethernet device", link.Attrs().Name, to)
		}
		for _, index := range below {
			found[index] = true
		}
	}
	for index := range found {
		indexes = append(indexes, index)
	}
	if len(indexes) > 0 {
		problem = ""
	}
	return indexes, problem
}

// wires are the devices with a wire that a device sends by: LLDP is of wires, not of what is built on them.
func wires(others map[int32]other, index int32) []int32 {
	return wiresBelow(others, index, map[int32]bool{})
}

// wiresBelow looks at each device once: notifications come one by one, so what is told of them may go in a circle.
func wiresBelow(others map[int32]other, index int32, seen map[int32]bool) (below []int32) {
	o, there := others[index]
	again := seen[index]
	seen[index] = true
	switch {
	case !there, again, o.name == "lo", o.mac == [6]byte{}:
		return nil
	case o.kind == "vlan" && o.lower != uint32(index) && !o.far:
		return wiresBelow(others, int32(o.lower), seen)
	case o.kind == "bond", o.kind == "team", o.kind == "bridge":
		for i, p := range others {
			// Other ports of a bridge may lead to somebody's virtual machines.
			if p.master == uint32(index) && (o.kind != "bridge" || p.kind == "") {
				below = append(below, wiresBelow(others, i, seen)...)
			}
		}
		return below
	}
	return []int32{index}
}

// processorName is what the processor's maker calls it; empty where nobody says.
func processorName(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	var u unix.Utsname
	if unix.Uname(&u) != nil { // arm64 has numbers only
		return ""
	}
	return unix.ByteSliceToString(u.Machine[:])
}
