package fabric

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/fabric/pipeline"
)

// TestRepairs alters every kind of object behind the fabric's back, and sees it put right and nothing else touched.
func TestRepairs(t *testing.T) {
	n1, _, a, _ := twoNodes(t, 9000)
	c, d := newElement(t, "c"), newElement(t, "d")
	n1.plug(c, "eth0", "10.0.1.1/24")
	n1.plug(d, "eth0", "10.0.1.2/24")
	n1.local("c:eth0", "d:eth0")
	n1.apply()
	f := n1.fabric
	index := n1.port("a:eth0").Index
	slot := f.slots[portID("net/a:eth0")]
	do := func(b *linux.Batch) {
		t.Helper()
		for _, err := range f.netlink.Do(b) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	setLink := func(flags, mask uint32) {
		var b linux.Batch
		b.Request(unix.RTM_SETLINK, 0)
		b.Link(index, flags, mask)
		do(&b)
	}
	for _, alter := range []struct {
		name string
		says change.Kind
		how  func() error
	}{
		{"a port's clsact removed", change.ClsactRestored, func() error {
			var b linux.Batch
			b.RemoveClsact(index)
			do(&b)
			return nil
		}},
		{"a port's clsact replaced", change.ClsactRestored, func() error {
			var b linux.Batch
			b.RemoveClsact(index)
			b.AddClsact(index, 0)
			do(&b)
			return nil
		}},
		{"the ports' filter removed", change.FilterSet, func() error {
			var b linux.Batch
			b.RemoveFilter(attachmentOf(f), priority, f.number(portName))
			do(&b)
			return nil
		}},
		{"the ports' filter replaced", change.FilterSet, func() error {
			var b linux.Batch
			b.ReplaceFilter(attachmentOf(f), linux.Filter{Priority: priority, Handle: f.number(portName), Name: "x",
				Program: f.pipe.FromTunnel.FD()})
			do(&b)
			return nil
		}},
		{"a port set down", change.CarrierSet, func() error { setLink(0, unix.IFF_UP); return nil }},
		{"the tunnel device removed", change.TunnelDeviceMade, func() error {
			n1.must("ip", "link", "del", f.TunnelDevice())
			return nil
		}},
		{"the tunnel device set down", change.TunnelDeviceUp, func() error {
			n1.must("ip", "link", "set", f.TunnelDevice(), "down")
			return nil
		}},
		{"the tunnel device of another kind", change.TunnelDeviceMade, func() error {
			n1.must("ip", "link", "del", f.TunnelDevice())
			n1.must("ip", "link", "add", f.TunnelDevice(), "type", "bridge")
			return nil
		}},
		{"the tunnel device's filter removed", change.TunnelFilterSet, func() error {
			n1.must("tc", "filter", "del", "dev", f.TunnelDevice(), "ingress")
			return nil
		}},
		{"a link's end altered", change.LinkRestored, func() error {
			atomic.StoreUint64(&f.pipe.Ports[slot].Link, uint64(pipeline.NewLink(pipeline.Local, 0, 1)))
			return nil
		}},
		{"a device's entry removed", change.EntryRestored,
			func() error { return f.pipe.Devices.Delete(uint32(index)) }},
		{"a VNI removed", change.TunnelRestored, func() error { return f.pipe.Tunnels.Delete(uint32(77)) }},
		{"a VNI of another port", change.TunnelRestored, func() error {
			return f.pipe.Tunnels.Put(uint32(77), pipeline.TunnelEnd{Slot: f.slots[portID("net/c:eth0")], Peer: 1})
		}},
		{"the tunnel's index altered", change.Kind{}, func() error { f.pipe.Ports[0].Ifindex = 1; return nil }},
		{"a table's pin removed", change.PinRestored,
			func() error { return os.Remove(n1.dirs.BPF() + "/" + pipeline.Layout + "/ports") }},
		{"entries of nobody", change.Kind{}, func() error { return f.pipe.Devices.Put(uint32(9999), uint32(9999)) }},
	} {
		a.ping(t, "10.0.0.2")
		c.ping(t, "10.0.1.2")
		indices, counters := n1.indices(), n1.counters()
		if err := alter.how(); err != nil {
			t.Fatalf("%s: %v", alter.name, err)
		}
		changed := n1.apply()
		if alter.says != (change.Kind{}) && !slices.ContainsFunc(changed,
			func(c change.Change) bool { return c.Kind == alter.says }) {
			t.Errorf("%s: changed is %q", alter.name, changed)
		}
		if len(changed) > 2 {
			t.Errorf("%s: more was touched than was wrong: %q", alter.name, changed)
		}
		a.ping(t, "10.0.0.2")
		c.ping(t, "10.0.1.2")
		if again := n1.apply(); len(again) != 0 {
			t.Errorf("%s: the second Apply changed %q", alter.name, again)
		}
		for device, i := range n1.indices() {
			if indices[device] != i && device != f.TunnelDevice() {
				t.Errorf("%s: device %s has another index", alter.name, device)
			}
		}
		for id, now := range n1.counters() {
			if was := counters[id]; now.RxPackets < was.RxPackets || now.TxPackets < was.TxPackets {
				t.Errorf("%s: the counters of %s went back", alter.name, id)
			}
		}
	}
	if all, err := pipeline.All[uint32, uint32](f.pipe.Devices); err != nil || len(all) != 3 {
		t.Errorf("the devices' table has %v, %v", all, err)
	}
}

func (n *node) indices() map[string]int {
	n.t.Helper()
	all := map[string]int{}
	n.do(func() {
		links, err := linux.Whole(netlink.LinkList)
		n.check(err, "list links")
		for _, l := range links {
			all[l.Attrs().Name] = l.Attrs().Index
		}
	})
	return all
}

// TestPortComesBack deletes a port's device and makes it anew, as the control driver would: counters go on.
func TestPortComesBack(t *testing.T) {
	n, a, b := twoElements(t)
	a.ping(t, "10.0.0.2")
	before := n.counters()[portID("net/a:eth0")]
	a.must("ip", "link", "del", "eth0")
	r := n.fabric.Apply(context.Background(), n.state)
	if r.Failed[portID("net/a:eth0")] == nil || len(r.Failed) != 1 || r.Problem != nil {
		t.Fatalf("a port without a device: %+v", r)
	}
	index, mac := n.pair(a, "eth0", "10.0.0.1/24", "fd00::1/64")
	n.port("a:eth0").Index, n.port("a:eth0").MAC = index, mac
	n.apply()
	b.must("ip", "neigh", "flush", "all")
	a.ping(t, "10.0.0.2")
	if after := n.counters()[portID("net/a:eth0")]; before.RxPackets < 3 || after.RxPackets < before.RxPackets+3 {
		t.Errorf("the counters were %+v and are %+v", before, after)
	}
}

func TestDownTakesTheCarrierAway(t *testing.T) {
	n, a, _ := twoElements(t)
	a.ping(t, "10.0.0.2")
	n.port("a:eth0").Down = true
	if changed := n.apply(); len(changed) != 0 {
		t.Errorf("changed: %q", changed)
	}
	carrier := func() bool {
		var up bool
		a.do(func() {
			l, err := netlink.LinkByName("eth0")
			a.check(err, "find eth0")
			up = l.Attrs().RawFlags&unix.IFF_LOWER_UP != 0
		})
		return up
	}
	if carrier() {
		t.Error("the element still has a carrier")
	}
	n.port("a:eth0").Down = false
	n.apply()
	if !carrier() {
		t.Error("the element has no carrier again")
	}
	a.ping(t, "10.0.0.2")
}

func TestSweepWaitsForTheWholeState(t *testing.T) {
	n, a, _ := twoElements(t)
	all := n.state
	n.state = State{Ports: all.Ports[:1], Incomplete: true}
	n.apply()
	a.ping(t, "10.0.0.2")
	n.state.Incomplete = false
	n.apply()
	if c := n.counters(); len(c) != 2 {
		t.Errorf("ports: %v", c)
	}
	if out, err := a.run("ping", "-c", "1", "-W", "1", "10.0.0.2"); err == nil {
		t.Errorf("the far port left, and still answers:\n%s", out)
	}
	if n.counters()[portID("net/a:eth0")].Drops[pipeline.DropNowhere] == 0 {
		t.Errorf("no drop counted: %+v", n.counters())
	}
	n.state = all
	n.apply()
	a.ping(t, "10.0.0.2")
}

func TestErrorsNameThePort(t *testing.T) {
	n := newNode(t, "192.0.2.1")
	e := newElement(t, "e")
	for _, ifc := range []string{"good", "self", "vni", "stranger", "family", "twice", "nodevice", "vlan", "noedge"} {
		n.plug(e, ifc)
	}
	peer := model.Peer{Name: "x", Address: n.under.Next()}
	n.state.Peers = []model.Peer{peer}
	n.port("e:good").Tunnel = &Tunnel{VNI: 5, Peer: peer.Address}
	n.port("e:self").Local = portID("net/e:self")
	n.port("e:vni").Tunnel = &Tunnel{VNI: 1 << 24, Peer: peer.Address}
	n.port("e:stranger").Tunnel = &Tunnel{VNI: 6, Peer: peer.Address.Next()}
	n.port("e:twice").Tunnel = &Tunnel{VNI: 5, Peer: peer.Address}
	n.port("e:nodevice").Index = 9999
	n.port("e:vlan").Edge = &Edge{Device: "lo", VLAN: 4095}
	n.port("e:noedge").Edge = &Edge{Device: "nothere"}
	n.port("e:family").Index = n.port("e:good").Index
	r := n.fabric.Apply(context.Background(), n.state)
	if r.Problem != nil {
		t.Fatal(r.Problem)
	}
	for ifc, want := range map[string]string{"self": "ends at itself", "vni": "VNI 16777216 is not between",
		"twice":    "already belongs to net/e:good",
		"stranger": "is no node's address", "nodevice": "no device with index 9999", "vlan": "VLAN 4095 is not between",
		"noedge": `no device "nothere"`, "family": "is also the device of net/e:good"} {
		if err := r.Failed[portID("net/e:"+ifc)]; err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "net/e:"+ifc) {
			t.Errorf("%s: %v", ifc, err)
		}
		delete(r.Failed, portID("net/e:"+ifc))
	}
	if len(r.Failed) != 0 {
		t.Errorf("failed too: %v", r.Failed)
	}
}

func TestDestroyLeavesNothing(t *testing.T) {
	n1, _, _, _ := twoNodes(t, 9000)
	if err := n1.fabric.Destroy(); err != nil {
		t.Fatal(err)
	}
	n1.fabric = nil
	for device := range n1.indices() {
		if strings.HasPrefix(device, "ppvx") {
			t.Errorf("%s is still there", device)
		}
	}
	if out := n1.must("tc", "qdisc", "show"); strings.Contains(out, "clsact") {
		t.Errorf("qdiscs are still there:\n%s", out)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(n1.dirs.BPF(), &fs); err == nil {
		t.Errorf("%s is still there", n1.dirs.BPF())
	}
}

// TestDeviceBecomesAnotherPorts gives a port's device to another port while the first may still come back, as after a
// node's namespace was made anew: what comes from it is the new port's.
func TestDeviceBecomesAnotherPorts(t *testing.T) {
	n, a, _ := twoElements(t)
	a.ping(t, "10.0.0.2")
	n.port("a:eth0").ID = portID("net/c:eth0")
	n.local("c:eth0", "b:eth0")
	n.state.Incomplete = true
	before := n.counters()[portID("net/a:eth0")]
	n.apply()
	a.ping(t, "10.0.0.2")
	after := n.counters()
	if got := after[portID("net/a:eth0")]; got.RxPackets != before.RxPackets {
		t.Errorf("packets of another's device count as its own: %+v, then %+v", before, got)
	}
	if got := after[portID("net/c:eth0")]; got.RxPackets < 3 {
		t.Errorf("the device's new port has %+v", got)
	}
}
