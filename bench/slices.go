package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"runtime"
	"time"
	"unsafe"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/measure/frame"
	"github.com/polyplane/polyplane/measure/netdev"
	"github.com/polyplane/polyplane/measure/turns"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/node/fabric"
	"github.com/polyplane/polyplane/node/forward"
)

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target bpfel slices bpf/slices.c -- -O2 -mcpu=v3 -Wall -Werror -Wno-unused-variable

// manySlices is SLICES in C.
const manySlices = 1000

// wires are two devices of the node for a group of slices. Frames for all its slices come in by one device and leave by
// the other. On each, VLANs 1 to n are edges of the slices 1 to n. Source and sink are at the other ends of the
// devices.
type wires struct {
	*lab
	name   string
	n      int
	source netdev.Ref
	sink   netdev.Ref
	far    *netdev.Namespace
}

func (w *wires) network(i int) string { return fmt.Sprintf("%s%d", w.name, i+1) }

func (w *wires) router(i int) model.ID { return model.ID{Network: w.network(i), Element: "r"} }

// The interfaces of a slice's router, and the devices.
const (
	wireIn  = "in"
	wireOut = "out"
)

func (w *wires) device(ifc string) string { return w.name + ifc }

// slicesOn makes the wires of a group.
func (l *lab) slicesOn(name string, n int, first byte) (*wires, error) {
	far, err := netdev.NewNamespace()
	if err != nil {
		return nil, err
	}
	w := &wires{lab: l, name: name, n: n, far: far, source: netdev.Ref{Namespace: far.Path(), Name: wireIn},
		sink: netdev.Ref{Namespace: far.Path(), Name: wireOut}}
	for i, end := range []netdev.Ref{w.source, w.sink} {
		near := netdev.Ref{Namespace: l.home, Name: w.device(end.Name)}
		if err := netdev.NewVeth(end, near, first+byte(2*i)); err != nil {
			return nil, errors.Join(err, far.Close())
		}
		// The fabric uses a veth's driver only if both ends are known to be polyplane's. The alias makes them known.
		err := netdev.In(l.home, func() error {
			d, err := netlink.LinkByName(near.Name)
			if err == nil {
				err = netlink.LinkSetAlias(d, l.dirs.UnderlayAlias()+near.Name)
			}
			return err
		})
		if err != nil {
			return nil, errors.Join(err, far.Close())
		}
	}
	return w, nil
}

// jobs are the routers, all with the same addresses.
func (w *wires) jobs(first uint32) (jobs []control.Job) {
	for i := range w.n {
		j := control.Job{ID: w.router(i), Index: first + uint32(i),
			Element: model.NodeElement{PlacedElement: model.PlacedElement{
				Name: w.router(i).Element, Kind: model.Router, Control: model.ControlNetns,
				Software:   model.SoftwareStatic,
				Forwarding: model.ForwardXDP}}}
		for side, ifc := range []string{wireIn, wireOut} {
			j.Element.Interfaces = append(j.Element.Interfaces, model.PlacedInterface{
				ResolvedInterface: model.ResolvedInterface{Name: ifc, MTU: 1500, MAC: w.mac(i, ifc).String(),
					Addresses: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.0.%d.1/24", side))}}})
		}
		jobs = append(jobs, j)
	}
	return jobs
}

func (w *wires) port(i int, ifc string) model.PortID {
	return model.PortID{ID: w.router(i), Interface: ifc}
}

func (w *wires) mac(i int, ifc string) net.HardwareAddr {
	mac, _ := net.ParseMAC(model.MAC(w.port(i, ifc)))
	return mac
}

// join gives the routers their next hop, and the route to what lies behind it.
func (w *wires) join() error {
	next := net.IPv4(10, 0, 1, 2)
	for i := range w.n {
		err := netdev.In(w.dirs.Namespace(w.router(i)), func() error {
			d, err := netlink.LinkByName(wireOut)
			if err != nil {
				return err
			}
			return errors.Join(
				netlink.NeighSet(&netlink.Neigh{LinkIndex: d.Attrs().Index, State: netlink.NUD_PERMANENT, IP: next,
					HardwareAddr: netdev.MAC(9)}),
				netlink.RouteReplace(&netlink.Route{LinkIndex: d.Attrs().Index, Gw: next,
					Dst: &net.IPNet{IP: net.IPv4(10, 64, 0, 0).To4(), Mask: net.CIDRMask(10, 32)}}))
		})
		if err != nil {
			return fmt.Errorf("router of %s: %w", w.network(i), err)
		}
	}
	return nil
}

// slicedNode makes groups of slices: routers whose packets the fabric forwards in the drivers' hook, metered.
func (l *lab) slicedNode(groups ...*wires) error {
	for _, w := range groups {
		l.jobs = append(l.jobs, w.jobs(uint32(len(l.jobs)+1))...)
	}
	if err := l.make(); err != nil {
		return err
	}
	s := fabric.State{Packets: map[string]int{}, Steering: l.steering}
	var jobs []forward.Job
	for _, w := range groups {
		for i := range w.n {
			s.Packets[w.network(i)] = 1e9
			for _, ifc := range []string{wireIn, wireOut} {
				id := w.port(i, ifc)
				s.Ports = append(s.Ports, fabric.Port{ID: id, Index: l.devices[id].Index, MAC: w.mac(i, ifc),
					Hook: model.HookXDP, Edge: &fabric.Edge{Device: w.device(ifc), VLAN: i + 1}})
			}
		}
	}
	if _, err := l.put(s); err != nil {
		return err
	}
	for _, w := range groups {
		if err := w.join(); err != nil {
			return err
		}
	}
	jobs = append(jobs, each.Of(l.jobs, func(j control.Job) forward.Job { return l.job(&j) })...)
	if err := l.take(model.ForwardXDP, jobs); err != nil {
		return err
	}
	r, err := l.put(s)
	for id, use := range r.Hooks {
		if use.Hook != model.HookXDP && err == nil {
			err = fmt.Errorf("port %s: the driver's hook is not used: %s", id, use.Why)
		}
	}
	return err
}

// forwarded is how many frames the fabric forwarded in the drivers' hook, for each slice of the group.
func (w *wires) forwarded() ([]uint64, error) {
	counts, err := w.fabric.Forwarded(w.ctx)
	if err != nil {
		return nil, err
	}
	each := make([]uint64, w.n)
	for i := range each {
		each[i] = counts[w.router(i)].Driver
	}
	return each, nil
}

// header is what the frames of all slices share: 64 bytes with tag and check sequence.
func (w *wires) header(to netip.Addr) (words [15]uint32, sum uint32) {
	const tag, size = 4, 64 - frame.FCS
	h := frame.Headers{Kind: frame.IPv4, Source: netip.MustParseAddr("10.0.0.2"), SourceMAC: netdev.MAC(8),
		DestMAC: netdev.MAC(0)}
	t := h.Template()
	b := make([]byte, size)
	copy(b, t[:12])
	binary.BigEndian.PutUint16(b[12:], 0x8100)
	copy(b[12+tag:], t[12:])
	ip := b[14+tag:]
	binary.BigEndian.PutUint16(ip[2:], size-14-tag)
	copy(ip[16:], to.AsSlice())
	binary.BigEndian.PutUint16(ip[20:], 1024)
	binary.BigEndian.PutUint16(ip[24:], size-14-tag-20)
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	for i := range words {
		words[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return words, sum
}

// loop sends frames to all slices at random.
func (w *wires) loop() turns.Loop {
	return turns.Loop{From: w.source, Run: func(ctx context.Context, thread func(int)) error {
		if err := w.run(ctx, thread); err != nil && !errors.Is(err, ctx.Err()) {
			return fmt.Errorf("%d slices: %w", w.n, err)
		}
		return nil
	}}
}

func (w *wires) run(ctx context.Context, thread func(int)) (err error) {
	var o slicesObjects
	if err := loadSlicesObjects(&o, nil); err != nil {
		return fmt.Errorf("load source and sink: %w", err)
	}
	defer o.Close()
	var ways [manySlices]slicesWay
	for n := range ways {
		i := n % w.n
		var mac [8]byte
		copy(mac[:], w.mac(i, wireIn))
		ways[n].Mac = binary.LittleEndian.Uint64(mac[:])
		binary.BigEndian.PutUint16(unsafe.Slice((*byte)(unsafe.Pointer(&ways[n].Tag)), 2), uint16(i+1))
	}
	header, sum := w.header(netip.MustParseAddr("10.64.0.0"))
	if err := errors.Join(o.Ways.Set(ways), o.Header.Set(header), o.Sum.Set(sum)); err != nil {
		return fmt.Errorf("write what to send: %w", err)
	}
	var sink link.Link
	if err := netdev.In(w.sink.Namespace, func() error {
		d, err := net.InterfaceByName(w.sink.Name)
		if err == nil {
			sink, err = link.AttachXDP(link.XDPOptions{Program: o.SlicesSink, Interface: d.Index,
				Flags: link.XDPDriverMode})
		}
		return err
	}); err != nil {
		return fmt.Errorf("attach to %v: %w", w.sink, err)
	}
	defer sink.Close()
	before, err := w.forwarded()
	if err != nil {
		return err
	}
	sent, err := netdev.Transmitted(w.source)
	if err != nil {
		return err
	}
	err = netdev.In(w.source.Namespace, func() error {
		runtime.LockOSThread()
		if err := errors.Join(netdev.Pin(0), netdev.First(0)); err != nil {
			return err
		}
		d, err := net.InterfaceByName(w.source.Name)
		if err != nil {
			return err
		}
		if err := o.SlicesOut.Put(uint32(0), uint32(d.Index)); err != nil {
			return err
		}
		defer turns.Interrupting(ctx, unix.Gettid())()
		thread(unix.Gettid())
		return netdev.RunLive(o.SlicesSource, make([]byte, 4*len(header)), math.MaxUint32, 256,
			func() bool { return ctx.Err() != nil })
	})
	if err != nil {
		return err
	}
	return w.check(&o, sent, before)
}

// check makes sure that the measurement was of what it claims: nearly all frames took the drivers' hook at the router
// of each slice, and arrived with the tag of their slice.
func (w *wires) check(o *slicesObjects, begun uint64, before []uint64) error {
	const leastDriver = 0.99
	var sent, right, wrong, driver uint64
	for range 200 { // until what is under way has come
		is, err := netdev.Transmitted(w.source)
		if err = errors.Join(err, o.Right.Get(&right), o.Wrong.Get(&wrong)); err != nil {
			return err
		}
		if sent = is - begun; right+wrong >= sent {
			break
		}
		time.Sleep(time.Millisecond)
	}
	after, err := w.forwarded()
	if err != nil {
		return err
	}
	for i := range after {
		if after[i] == before[i] {
			return fmt.Errorf("of %d frames none was forwarded for %s", sent, w.network(i))
		}
		driver += after[i] - before[i]
	}
	switch {
	case wrong > 0 || float64(right) < (1-mayLose)*float64(sent):
		return fmt.Errorf("of %d frames %d came as they should, and %d others", sent, right, wrong)
	case float64(driver) < leastDriver*float64(sent):
		return fmt.Errorf("of %d frames the drivers' hook took %d", sent, driver)
	}
	return nil
}

// slicesApart compares a thousand slices with one, and some of them.
func slicesApart(ctx context.Context, o options) (tables []table, err error) {
	err = onNode(ctx, func(l *lab) error {
		var groups []*wires
		for i, n := range []int{1, manySlices} {
			w, err := l.slicesOn(string(rune('a'+i)), n, byte(16*(i+1)))
			if err != nil {
				return err
			}
			defer w.far.Close()
			groups = append(groups, w)
		}
		if err := l.slicedNode(groups...); err != nil {
			return err
		}
		t := table{Name: "forwarding-slices", Title: "1,000 slices with a router each against one slice, one core",
			Columns: ratioColumns,
			Note: fmt.Sprintf(oneCore, 3*o.rounds) +
				" Frames come in by one device for all slices and leave by another, with a VLAN tag for each slice: " +
				"its router, in a " +
				"namespace of its own, has an edge on both. Each frame is for a slice at random; the source draws " +
				"from as long a list when there is one slice. The fast path's " +
				"own counters, read in every round, say that each slice's router forwarded, and at least 99 % of the " +
				"frames in the drivers' hook."}
		var rounds []*system
		for _, n := range []int{manySlices, 100} {
			some := *groups[1]
			some.n = n
			one, many := &system{name: fmt.Sprintf("1 slice beside %d", n), live: groups[0].loop},
				&system{name: fmt.Sprintf("%d slices", n), live: some.loop}
			if err := compete(ctx, o, 3*o.rounds, one, many); err != nil {
				return err
			}
			rounds = append(rounds, one, many)
		}
		t.Raw = raw(rounds...)
		t.Rows, err = o.rows(
			comparison{"1,000 slices, xdp, driver's hook, meters and counters on", rounds[1], rounds[0], "≥ 0.9"},
			comparison{"100 of them", rounds[3], rounds[2], ""},
		)
		tables = append(tables, t)
		return err
	})
	return tables, err
}
