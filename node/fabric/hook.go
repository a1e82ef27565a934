package fabric

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/fabric/pipeline"
	"github.com/polyplane/polyplane/node/port"
)

// Where the driver's hook is used follows from where the links of routers that forward here end (pass.chooseHooks):
//   - at a port of this node, whose device is a veth: where the router asks for it (hook: xdp);
//   - in a tunnel: at the underlay's devices, if they are real or the router or the node asks for it;
//   - at an edge: if its device is real or the router asks for it;
//   - and nowhere for a router that asks for tc, nor for tunnels if the node does.

// hooking is what became of a device whose driver's hook shall be used.
type hooking struct {
	refused string // why it is not, if so
}

// wire is a device outside the elements.
type wire struct {
	hooking
	flags  uint32 // pipeline.DriverTunnels or pipeline.DriverEdges
	forced bool   // somebody asks for the hook by name (hook: xdp), so devices that are not real may have it too
}

// wires are those on which the driver's hook is asked for, by interface index, also those where it is refused.
type wires map[int]*wire

func (w wires) uses(index int) bool { return w[index] != nil && w[index].refused == "" }

func (w wires) want(index int, flags uint32, forced bool) {
	if w[index] == nil {
		w[index] = &wire{}
	}
	w[index].flags |= flags
	w[index].forced = w[index].forced || forced
}

// refusal is what a driver answered, so that it is not asked again in every pass.
type refusal struct {
	mtu  int // of the device then: with another one the driver may agree
	when time.Time
	why  string
}

// refusalTime is how long a driver's refusal is remembered if its device does not change.
const refusalTime = time.Minute

// chooseHooks finds the devices on which the driver's hook is to be used.
func (p *pass) chooseHooks() (err error) {
	p.hooked, p.wires = map[uint32]*hooking{}, wires{}
	if p.drivers, err = pipeline.All[uint32, pipeline.Driver](p.pipe.Drivers); err != nil {
		return err
	}
	ports := make(map[model.PortID]*want, len(p.wants))
	for i := range p.wants {
		ports[p.wants[i].port.ID] = &p.wants[i]
	}
	tunnels, forced := false, p.state.Underlay == model.HookXDP
	for i := range p.wants {
		w := &p.wants[i]
		hook := w.port.Hook
		if hook == "" {
			continue
		}
		if hook == model.HookTC {
			w.flags |= pipeline.TC
			continue
		}
		switch w.link.Kind() {
		case pipeline.Local:
			if far := ports[w.port.Local]; hook == model.HookXDP && far != nil && far.port.Hook == "" {
				p.hooked[far.slot] = &hooking{}
			}
		case pipeline.Tunnel:
			tunnels, forced = true, forced || hook == model.HookXDP
		case pipeline.Edge:
			p.wires.want(int(w.link.Target()), pipeline.DriverEdges, hook == model.HookXDP)
		}
	}
	if !tunnels || p.state.Underlay == model.HookTC || !p.underlay.Is4() {
		return nil
	}
	for _, index := range p.underlays() {
		p.wires.want(index, pipeline.DriverTunnels, forced)
	}
	return nil
}

// underlays are the devices that lead to the other nodes.
func (p *pass) underlays() []int {
	found := map[int]bool{}
	for _, peer := range p.state.Peers {
		a := peer.Address.Unmap()
		if a.Is4() != p.underlay.Is4() || a == p.underlay {
			continue
		}
		routes, err := p.routes.RouteGet(a.AsSlice())
		if err != nil {
			continue // there is no way to it
		}
		for _, r := range routes {
			if p.kernel.devices[r.LinkIndex].flags&unix.IFF_LOOPBACK == 0 {
				found[r.LinkIndex] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// unfit says why the driver's hook of a device outside the elements must not be used.
func (p *pass) unfit(d device, w *wire) string {
	real := d.kind == "" && d.flags&unix.IFF_LOOPBACK == 0
	ours := strings.HasPrefix(d.alias, p.dirs.UnderlayAlias())
	switch {
	case d.kind == "veth" && !w.forced:
		return "it is a veth, whose other end would have to do without TSO"
	case d.kind == "veth" && !ours:
		return "it is a veth whose other end is not polyplane's: that may leave checksums and VLAN tags to be filled " +
			"in, which get lost there"
	case !real && !w.forced:
		return fmt.Sprintf("it is no real device but a %s", cmp.Or(d.kind, "loopback"))
	case w.flags&pipeline.DriverTunnels != 0 && p.wholeEdge(d.index):
		return "an edge without a VLAN takes all its frames"
	case d.xdp != 0 && !p.Fabric.ours(d):
		return fmt.Sprintf("another XDP program (ID %d) is in its driver", d.xdp)
	}
	return ""
}

// wholeEdge returns whether a device is an edge without a VLAN.
func (p *pass) wholeEdge(index int) bool {
	return slices.ContainsFunc(p.wants, func(w want) bool {
		return w.link.Kind() == pipeline.Edge && int(w.link.Target()) == index && w.link.Label() == 0
	})
}

// hookWires attaches the program to the drivers of devices outside the elements.
func (p *pass) hookWires() error {
	for _, index := range slices.Sorted(maps.Keys(p.wires)) {
		w, d := p.wires[index], p.kernel.devices[index]
		if w.refused = p.unfit(d, w); w.refused != "" {
			continue
		}
		if r, ok := p.refusals[index]; ok && r.mtu == d.mtu && time.Since(r.when) < refusalTime {
			w.refused = r.why
			continue
		}
		delete(p.refusals, index)
		changed, err := p.hookWire(d, w)
		if err != nil {
			w.refused = err.Error()
			p.refusals[index] = refusal{d.mtu, time.Now(), w.refused}
			continue
		}
		if changed {
			p.changed(change.HookUsed, d.name)
		}
	}
	return nil
}

// hookWire makes a device ready for the program, attaches it, and notes what the program must know of the device. A
// real one must leave VLAN tags in the frames: a program in the driver's hook does not see those that hardware took
// off.
func (p *pass) hookWire(d device, w *wire) (changed bool, err error) {
	index := uint32(d.index)
	if d.kind != "veth" {
		err := p.ready(port.Device{Rtnetlink: p.netlink, Name: d.name}, index,
			func(o *linux.Offloads) { o.RxVLAN = false })
		if err != nil {
			return false, fmt.Errorf("VLAN tags must stay in its frames: %w", err)
		}
	}
	if changed, err = p.attachXDP(d, p.pipe.FromWireXDP); err != nil {
		return false, err
	}
	e := p.drivers[index]
	e.Mac, e.Flags, e.Port = pipeline.MAC(d.mac), w.flags, uint32(p.port>>8|p.port<<8)
	return changed, p.note(index, e)
}

// forwardFrom lets the program look routes up as if packets came from the tunnel device: the kernel gives none to a
// device that does not forward. Nothing that comes from it may reach the node's stack, so it gets its filter first.
func (p *pass) forwardFrom(index int) error {
	const conf, forwarding = 1, 1 // IFLA_INET_CONF, IPV4_DEVCONF_FORWARDING
	var b linux.Batch
	b.Request(unix.RTM_SETLINK, 0)
	b.Link(index, 0, 0)
	b.Begin(unix.IFLA_AF_SPEC)
	b.Begin(unix.AF_INET)
	b.Begin(conf)
	b.Uint32(forwarding, 1)
	b.End()
	b.End()
	b.End()
	if errs := p.netlink.Do(&b); errs != nil {
		return fmt.Errorf("let the tunnel device ask for routes: %w", errs[0])
	}
	return nil
}

// tellHooks reports which hook is used where, and why. Where one is asked for and refused, it also reports a change.
func (p *pass) tellHooks() error {
	told := map[string]string{}
	refused := func(what, why string) {
		if told[what] = why; p.told[what] != why {
			p.changed(change.HookRefused, what, why)
		}
	}
	for i := range p.wants {
		w := &p.wants[i]
		if w.port.Hook == "" {
			continue
		}
		use := p.useAt(w)
		p.report.Hooks[w.port.ID] = use
		if w.port.Hook == model.HookXDP && use.Hook == model.HookTC {
			refused("port "+w.port.ID.String(), use.Why)
		}
	}
	for index, w := range p.wires {
		if w.flags&pipeline.DriverTunnels == 0 {
			continue
		}
		d := p.kernel.devices[index]
		use := model.HookUse{Hook: model.HookXDP, Why: "a real device"}
		switch {
		case w.refused != "":
			use = model.HookUse{Hook: model.HookTC, Why: w.refused}
			if w.forced {
				refused(d.name, w.refused)
			}
		case d.kind != "":
			use.Why = "asked for"
		}
		p.report.Underlay[d.name] = use
	}
	p.Fabric.told = told
	return nil
}

// useAt returns which hook takes what comes to a router by a port.
func (p *pass) useAt(w *want) model.HookUse {
	tc := func(format string, a ...any) model.HookUse {
		return model.HookUse{Hook: model.HookTC, Why: fmt.Sprintf(format, a...)}
	}
	through := func(index int, what string) model.HookUse {
		d, h := p.kernel.devices[index], p.wires[index]
		if h.refused != "" {
			return tc("%s %s: %s", what, d.name, h.refused)
		}
		return model.HookUse{Hook: model.HookXDP, Why: what + " " + d.name}
	}
	if w.port.Hook == model.HookTC {
		return tc("asked for")
	}
	if w.flags&(pipeline.Queue|pipeline.Rated) != 0 {
		return tc("its link has a bandwidth or a delay, whose queue comes first")
	}
	switch w.link.Kind() {
	case pipeline.Local:
		far := slices.IndexFunc(p.wants, func(o want) bool { return o.slot == w.link.Target() })
		if far < 0 {
			return tc("its far end is not there")
		}
		f := &p.wants[far]
		h := p.hooked[f.slot]
		switch {
		case f.port.Hook == model.HookTC:
			return tc("asked for by %s", f.port.ID.Element)
		case f.port.Hook != "":
			return model.HookUse{Hook: w.port.Hook, Why: "as " + f.port.ID.Element + " gets them: the same run goes on"}
		case h == nil:
			return tc("%s is joined by a veth and would have to do without TSO", f.port.ID.Element)
		case h.refused != "":
			return tc("%s: %s", f.port.ID.Element, h.refused)
		}
		return model.HookUse{Hook: model.HookXDP, Why: "asked for"}
	case pipeline.Edge:
		return through(int(w.link.Target()), "edge")
	case pipeline.Tunnel:
		return p.useOfTunnels()
	}
	return tc("its link ends nowhere")
}

// useOfTunnels returns which hook takes what comes by tunnels.
func (p *pass) useOfTunnels() model.HookUse {
	var used, refused []string
	for _, index := range slices.Sorted(maps.Keys(p.wires)) {
		w, name := p.wires[index], p.kernel.devices[index].name
		switch {
		case w.flags&pipeline.DriverTunnels == 0:
		case w.refused == "":
			used = append(used, name)
		default:
			refused = append(refused, name+": "+w.refused)
		}
	}
	switch {
	case len(used) > 0:
		return model.HookUse{Hook: model.HookXDP, Why: "underlay " + strings.Join(append(used, refused...), ", ")}
	case p.state.Underlay == model.HookTC:
		return model.HookUse{Hook: model.HookTC, Why: "asked for by the node, for its underlay"}
	case p.underlay.Is6():
		return model.HookUse{Hook: model.HookTC,
			Why: "the underlay is IPv6, which the driver's hook leaves to the tunnel device"}
	case len(refused) == 0:
		return model.HookUse{Hook: model.HookTC, Why: "no way to another node is known"}
	}
	return model.HookUse{Hook: model.HookTC, Why: "underlay " + strings.Join(refused, ", ")}
}

// releaseDrivers detaches the programs from the drivers of real devices, and gives all devices their offloads back, as
// far as the table that knows of them exists.
func (f *Fabric) releaseDrivers(k kernel) error {
	var errs []error
	for _, d := range k.devices {
		if d.xdp != 0 && f.ours(d) {
			errs = append(errs, f.detachXDP(d))
		}
	}
	table, err := ebpf.LoadPinnedMap(filepath.Join(f.dirs.BPF(), pipeline.Layout, "drivers"), nil)
	if err != nil {
		return errors.Join(errs...)
	}
	defer table.Close()
	drivers, err := pipeline.All[uint32, pipeline.Driver](table)
	errs = append(errs, err)
	for index, e := range drivers {
		if d, ok := k.devices[int(index)]; ok && e.Flags != 0 {
			errs = append(errs, restore(port.Device{Rtnetlink: f.netlink, Name: d.name}, e.Restore))
		}
		errs = append(errs, table.Delete(index))
	}
	return errors.Join(errs...)
}
