package fabric

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/fabric/pipeline"
	"github.com/polyplane/polyplane/node/port"
)

// program is the ID of the program in a device's driver, 0 if there is none.
func (n *node) program(device string) (id uint32) {
	n.t.Helper()
	n.do(func() {
		l, err := netlink.LinkByName(device)
		n.check(err, "find %s", device)
		if x := l.Attrs().Xdp; x != nil && x.Attached {
			id = x.ProgId
		}
	})
	return id
}

// hook applies the state with this hook of the router, and compares which hook is used where.
func (n *node) hook(hook model.Hook, want map[string]model.Hook) Report {
	n.t.Helper()
	for i := range n.state.Ports {
		if p := &n.state.Ports[i]; p.ID.Element == "r" {
			p.Hook = hook
		}
	}
	r := n.fabric.Apply(n.t.Context(), n.state)
	if r.Problem != nil || len(r.Failed) > 0 {
		n.t.Fatal(r.Problem, r.Failed)
	}
	for ifc, want := range want {
		if use := r.Hooks[portID("net/r:"+ifc)]; use.Hook != want || use.Why == "" {
			n.t.Errorf("hook %s: at %s %+v is used, not %s", hook, ifc, use, want)
		}
	}
	return r
}

// TestHooks gives a router with a host, a tunnel and an edge each hook: which devices have programs and which offloads,
// what is told, and that it is put right, kept over a restart and taken away.
func TestHooks(t *testing.T) {
	t.Parallel()
	n, far := newNode(t, "192.0.2.1"), newNode(t, "192.0.2.2")
	underlay(t, n, far, 1600)
	n.must("ip", "tuntap", "add", "tap0", "mode", "tap")
	r, h := newElement(t, "r"), newElement(t, "h")
	n.plug(r, "h")
	n.plug(h, "r")
	n.local("r:h", "h:r")
	n.plug(r, "tunnel").Tunnel = &Tunnel{VNI: 5, Peer: far.under}
	n.plug(r, "edge").Edge = &Edge{Device: "tap0", VLAN: 42}
	n.state.Peers = []model.Peer{{Name: "far", Address: far.under}}
	host := n.dirs.PortDevice(portID("net/h:r"))
	devices := []string{host, "under", "tap0"}
	programs := func(where ...string) {
		t.Helper()
		for _, d := range devices {
			if has := n.program(d) != 0; has != slices.Contains(where, d) {
				t.Errorf("%s has a program: %v", d, has)
			}
		}
	}
	tc := map[string]model.Hook{"h": model.HookTC, "tunnel": model.HookTC, "edge": model.HookTC}
	xdp := map[string]model.Hook{"h": model.HookXDP, "tunnel": model.HookXDP, "edge": model.HookXDP}
	usual := h.must("ethtool", "-k", "r")

	n.hook(model.HookAuto, tc) // none of the devices is real
	programs()
	// The other end of the underlay is whose we do not know.
	is := n.hook(model.HookXDP, map[string]model.Hook{"h": model.HookXDP, "tunnel": model.HookTC,
		"edge": model.HookXDP})
	if why := is.Underlay["under"].Why; !strings.Contains(why, "other end is not polyplane's") ||
		!slices.ContainsFunc(is.Changed, func(c change.Change) bool { return c.Kind == change.HookRefused && c.Detail == why }) {
		t.Errorf("the underlay's hook is refused as %+v, and told %q", is.Underlay, is.Changed)
	}
	programs(host, "tap0")
	n.must("ip", "link", "set", "under", "alias", n.dirs.UnderlayAlias()+"n--far")
	is = n.hook(model.HookXDP, xdp)
	if is.Underlay["under"].Hook != model.HookXDP {
		t.Errorf("the underlay's hook is %+v", is.Underlay)
	}
	programs(devices...)
	if now := h.must("ethtool", "-k", "r"); !strings.Contains(now, "tx-checksumming: off") ||
		!strings.Contains(now, "tx-vlan-offload: off") ||
		!strings.Contains(now, "generic-receive-offload: on") {
		t.Errorf("the host's end has\n%s", now)
	}
	if conf := n.must("cat", "/proc/sys/net/ipv4/conf/"+n.fabric.TunnelDevice()+"/forwarding"); conf != "1\n" {
		t.Errorf("the tunnel device may ask for routes: %s", conf)
	}
	if is := n.hook(model.HookXDP, xdp); len(is.Changed) > 0 {
		t.Errorf("applied again: %q", is.Changed)
	}

	// What somebody alters is put right.
	for _, d := range devices {
		n.must("ip", "link", "set", d, "xdp", "off")
	}
	h.must("ethtool", "-K", "r", "tx", "on")
	is = n.hook(model.HookXDP, xdp)
	programs(devices...)
	if len(is.Changed) != 3 || !strings.Contains(h.must("ethtool", "-k", "r"), "tx-checksumming: off") {
		t.Errorf("put right: %q", is.Changed)
	}

	// A restart changes nothing.
	before := []uint32{n.program(host), n.program("under"), n.program("tap0")}
	n.restart()
	if after := []uint32{n.program(host), n.program("under"), n.program("tap0")}; !slices.Equal(before, after) {
		t.Errorf("the programs were %v and are %v", before, after)
	}
	if is := n.hook(model.HookXDP, xdp); len(is.Changed) > 0 {
		t.Errorf("after a restart: %q", is.Changed)
	}

	// The node's word counts for its underlay.
	n.state.Underlay = model.HookTC
	n.hook(model.HookXDP, map[string]model.Hook{"h": model.HookXDP, "tunnel": model.HookTC, "edge": model.HookXDP})
	programs(host, "tap0")
	n.state.Underlay = model.HookXDP
	n.hook(model.HookAuto, map[string]model.Hook{"h": model.HookTC, "tunnel": model.HookXDP, "edge": model.HookTC})
	programs("under")
	n.state.Underlay = ""

	n.hook(model.HookTC, tc)
	programs()
	if now := h.must("ethtool", "-k", "r"); now != usual {
		t.Errorf("the host's end had\n%s\nand has\n%s", usual, now)
	}
	if all, err := pipeline.All[uint32, pipeline.Driver](n.fabric.pipe.Drivers); err != nil || len(all) > 0 {
		t.Errorf("the table of drivers has %v, %v", all, err)
	}

	// Another's program stays, and is named.
	other, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	n.do(func() {
		tap, err := netlink.LinkByName("tap0")
		n.check(err, "find tap0")
		n.check(netlink.LinkSetXdpFdWithFlags(tap, other.FD(), 1<<2), "attach another program")
	})
	theirs := n.program("tap0")
	is = n.hook(model.HookXDP, map[string]model.Hook{"edge": model.HookTC, "tunnel": model.HookXDP})
	if why := is.Hooks[portID("net/r:edge")].Why; !strings.Contains(why,
		fmt.Sprintf("another XDP program (ID %d)", theirs)) {
		t.Errorf("the edge's hook: %s", why)
	}
	if n.program("tap0") != theirs {
		t.Error("another's program was replaced")
	}
	// All of ours goes with the fabric.
	if err := n.fabric.Destroy(); err != nil {
		t.Fatal(err)
	}
	n.fabric = nil
	if n.program("under") != 0 || n.program(host) != 0 || n.program("tap0") != theirs {
		t.Error("programs after the end: ", n.program("under"), n.program(host), n.program("tap0"))
	}
}

// machine is what is behind a tap: a virtual machine's interface, which its hypervisor changes.
type machine struct {
	is      linux.Offloads
	refuses error
}

func (m *machine) Offloads(change func(*linux.Offloads) error) error {
	to := m.is
	if err := change(&to); err != nil {
		return err
	}
	if to != m.is && m.refuses != nil {
		return m.refuses
	}
	m.is = to
	return nil
}

// TestHookBeforeATap: a port need not be a pair. What its driver gives for the other side is asked for offloads, and the
// hook is refused where that fails, or where nobody can be asked.
func TestHookBeforeATap(t *testing.T) {
	n := newNode(t, "")
	n.must("ip", "tuntap", "add", "vm", "mode", "tap")
	index := func() (index int) {
		n.do(func() {
			l, err := netlink.LinkByName("vm")
			n.check(err, "find vm")
			index = l.Attrs().Index
		})
		return index
	}()
	n.plug(newElement(t, "r"), "h")
	n.state.Ports = append(n.state.Ports, Port{ID: portID("net/h:r"), Index: index})
	n.local("r:h", "h:r")
	usual := linux.Offloads{Checksum: true, TxVLAN: true, RxVLAN: true}
	vm := &machine{is: usual}
	for _, c := range []struct {
		behind  port.Behind
		refuses error
		want    model.Hook
		why     string
	}{
		{nil, nil, model.HookTC, "nothing is known of what is behind vm"},
		{vm, errors.New("the machine is off"), model.HookTC, "the machine is off"},
		{vm, nil, model.HookXDP, "asked for"},
	} {
		n.port("h:r").Behind, vm.refuses = c.behind, c.refuses
		is := n.hook(model.HookXDP, map[string]model.Hook{"h": c.want})
		if why := is.Hooks[portID("net/r:h")].Why; !strings.Contains(why, c.why) {
			t.Errorf("the hook is %s because %q, not %q", c.want, why, c.why)
		}
		if has := n.program("vm") != 0; has != (c.want == model.HookXDP) {
			t.Errorf("the tap has a program: %v", has)
		}
	}
	if want := (linux.Offloads{RxVLAN: true, GRO: true}); vm.is != want {
		t.Errorf("the machine's interface has %+v, not %+v", vm.is, want)
	}
	n.hook(model.HookTC, map[string]model.Hook{"h": model.HookTC})
	if n.program("vm") != 0 || vm.is != usual {
		t.Errorf("given back, the machine's interface has %+v, not %+v", vm.is, usual)
	}
}

// TestReleaseDrivers takes programs out of drivers although nothing is left of what the node kept in files.
func TestReleaseDrivers(t *testing.T) {
	n := newNode(t, "")
	n.must("ip", "tuntap", "add", "tap0", "mode", "tap")
	r := newElement(t, "r")
	n.plug(r, "edge").Edge = &Edge{Device: "tap0"}
	n.hook(model.HookXDP, map[string]model.Hook{"edge": model.HookXDP})
	if n.program("tap0") == 0 {
		t.Fatal("there is no program")
	}
	if err := n.fabric.Close(); err != nil {
		t.Fatal(err)
	}
	n.fabric = nil
	n.must("umount", n.dirs.BPF())
	n.do(func() { n.check(ReleaseEdges(n.dirs), "release") })
	if n.program("tap0") != 0 {
		t.Error("the program is still there")
	}
}

// TestHookOverIPv6 leaves tunnels over IPv6 to the tc hook, and says so.
func TestHookOverIPv6(t *testing.T) {
	t.Parallel()
	n, far := newNode(t, "2001:db8::1"), newNode(t, "2001:db8::2")
	underlay(t, n, far, 1600)
	n.must("ip", "link", "set", "under", "alias", n.dirs.UnderlayAlias()+"n--far")
	n.plug(newElement(t, "r"), "tunnel").Tunnel = &Tunnel{VNI: 5, Peer: far.under}
	n.state.Peers = []model.Peer{{Name: "far", Address: far.under}}
	is := n.hook(model.HookXDP, map[string]model.Hook{"tunnel": model.HookTC})
	if why := is.Hooks[portID("net/r:tunnel")].Why; !strings.Contains(why, "IPv6") {
		t.Errorf("it is used because %s", why)
	}
	if n.program("under") != 0 {
		t.Error("the underlay has a program")
	}
}
