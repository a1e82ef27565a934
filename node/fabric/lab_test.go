package fabric

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/port"
)

// space is a network namespace of a test.
type space struct {
	t      testing.TB
	handle netns.NsHandle
}

func newSpace(t testing.TB) *space {
	t.Helper()
	s := &space{t: t}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		var err error
		s.handle, err = netns.Get()
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatalf("make a network namespace (needs root): %v", err)
	}
	t.Cleanup(func() { s.handle.Close() })
	s.do(func() {
		lo, err := netlink.LinkByName("lo")
		if err == nil {
			err = netlink.LinkSetUp(lo)
		}
		s.check(err, "set lo up")
		// Addresses, link-local ones too, are good at once.
		s.check(os.WriteFile("/proc/sys/net/ipv6/conf/default/accept_dad", []byte("0"), 0), "switch DAD off")
	})
	return s
}

func (s *space) check(err error, what string, a ...any) {
	if err != nil {
		s.t.Errorf(what+": %v", append(a, err)...)
		panic(err)
	}
}

// do runs f on a thread inside the namespace.
func (s *space) do(f func()) {
	s.t.Helper()
	done := make(chan any)
	go func() {
		defer func() { done <- recover() }()
		runtime.LockOSThread()
		if err := netns.Set(s.handle); err != nil {
			panic(err)
		}
		f()
	}()
	if p := <-done; p != nil {
		s.t.Fatalf("in a network namespace: %v", p)
	}
}

// run runs a command inside the namespace and returns its output.
func (s *space) run(name string, args ...string) (string, error) {
	var out []byte
	var err error
	s.do(func() { out, err = exec.Command(name, args...).CombinedOutput() })
	return string(out), err
}

// must is run for what has to succeed.
func (s *space) must(name string, args ...string) string {
	s.t.Helper()
	out, err := s.run(name, args...)
	if err != nil {
		s.t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return out
}

// node is a node's namespace with its fabric.
type node struct {
	*space
	dirs   instance.NodeDirs
	fabric *Fabric
	under  netip.Addr
	state  State
}

func newNode(t testing.TB, underlay string) *node {
	t.Helper()
	random := make([]byte, 4)
	rand.Read(random)
	name := "test-fabric-" + hex.EncodeToString(random)
	run := filepath.Join("/run/polyplane", name)
	n := &node{space: newSpace(t), dirs: instance.NodeDirs{Instance: name, Node: "n", Run: run,
		Data: filepath.Join(run, "data")}}
	if underlay != "" {
		n.under = netip.MustParseAddr(underlay)
	}
	t.Cleanup(func() {
		if n.fabric != nil {
			if err := n.fabric.Destroy(); err != nil {
				t.Errorf("destroy the fabric: %v", err)
			}
		}
		unix.Unmount(n.dirs.BPF(), unix.MNT_DETACH)
		os.RemoveAll(run)
	})
	n.open()
	return n
}

func (n *node) open() {
	n.t.Helper()
	n.do(func() {
		f, err := New(n.dirs, n.under)
		n.check(err, "open the fabric")
		n.fabric = f
	})
}

// restart closes the fabric as the end of its process would, and opens it anew.
func (n *node) restart() {
	n.t.Helper()
	if err := n.fabric.Close(); err != nil {
		n.t.Fatalf("close the fabric: %v", err)
	}
	n.open()
}

// apply applies the node's state, which must succeed, and returns what was changed. It applies it again as an agent does
// if there is something to be done later.
func (n *node) apply() []change.Change {
	n.t.Helper()
	r := n.fabric.Apply(context.Background(), n.state)
	for r.Again > 0 {
		time.Sleep(r.Again)
		before := r.Changed
		r = n.fabric.Apply(context.Background(), n.state)
		r.Changed = append(before, r.Changed...)
	}
	if r.Problem != nil {
		n.t.Fatalf("apply: %v", r.Problem)
	}
	for id, err := range r.Failed {
		n.t.Fatalf("apply: %s: %v", id, err)
	}
	return r.Changed
}

func portID(s string) model.PortID {
	var id model.PortID
	id.UnmarshalText([]byte(s))
	return id
}

// element is a namespace with interfaces on a node.
type element struct {
	*space
	name string
}

func newElement(t testing.TB, name string) *element {
	return &element{space: newSpace(t), name: name}
}

// plug makes an interface with its port on the node, and adds it to the node's state.
func (n *node) plug(e *element, ifc string, addresses ...string) *Port {
	n.t.Helper()
	index, mac := n.pair(e, ifc, addresses...)
	behind := port.Peer{Namespace: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(e.handle))}
	e.do(func() {
		l, err := netlink.LinkByName(ifc)
		e.check(err, "find %s", ifc)
		behind.Index = l.Attrs().Index
	})
	n.state.Ports = append(n.state.Ports, Port{ID: portID("net/" + e.name + ":" + ifc), Index: index, MAC: mac,
		Behind: behind})
	return &n.state.Ports[len(n.state.Ports)-1]
}

// pair makes a veth pair: one end in the element, the port on the node.
func (n *node) pair(e *element, ifc string, addresses ...string) (index int, mac net.HardwareAddr) {
	n.t.Helper()
	name := n.dirs.PortDevice(portID("net/" + e.name + ":" + ifc))
	n.do(func() {
		l := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: ifc,
			PeerNamespace: netlink.NsFd(e.handle)}
		n.check(netlink.LinkAdd(l), "make the veth pair of %s:%s", e.name, ifc)
		got, err := netlink.LinkByName(name)
		n.check(err, "find %s", name)
		index = got.Attrs().Index
		n.check(netlink.LinkSetUp(got), "set %s up", name)
	})
	e.do(func() {
		l, err := netlink.LinkByName(ifc)
		e.check(err, "find %s", ifc)
		mac = l.Attrs().HardwareAddr
		for _, a := range addresses {
			addr, err := netlink.ParseAddr(a)
			e.check(err, "parse %s", a)
			addr.Flags = unix.IFA_F_NODAD
			e.check(netlink.AddrAdd(l, addr), "add %s to %s", a, ifc)
		}
		e.check(netlink.LinkSetUp(l), "set %s up", ifc)
	})
	return index, mac
}

// local joins two ports of one node.
func (n *node) local(a, b string) {
	for i := range n.state.Ports {
		p := &n.state.Ports[i]
		switch p.ID {
		case portID("net/" + a):
			p.Local = portID("net/" + b)
		case portID("net/" + b):
			p.Local = portID("net/" + a)
		}
	}
}

func (n *node) port(name string) *Port {
	for i := range n.state.Ports {
		if n.state.Ports[i].ID == portID("net/"+name) {
			return &n.state.Ports[i]
		}
	}
	panic("no port " + name)
}

func (n *node) counters() map[model.PortID]Counters {
	n.t.Helper()
	c, err := n.fabric.Counters(context.Background())
	if err != nil {
		n.t.Fatal(err)
	}
	return c
}

func (e *element) ping(t testing.TB, to string) {
	t.Helper()
	if out, err := e.run("ping", "-c", "3", "-i", "0.01", "-W", "2", to); err != nil {
		t.Fatalf("ping %s from %s: %v\n%s", to, e.name, err, out)
	}
}

func name(i int) string { return fmt.Sprintf("e%d", i) }

// underlay joins two nodes by a veth pair of the MTU.
func underlay(t testing.TB, a, b *node, mtu int) {
	t.Helper()
	a.do(func() {
		l := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "under", MTU: mtu}, PeerName: "under",
			PeerMTU:       uint32(mtu),
			PeerNamespace: netlink.NsFd(b.handle)}
		a.check(netlink.LinkAdd(l), "make the underlay")
	})
	for _, n := range []*node{a, b} {
		n.do(func() {
			l, err := netlink.LinkByName("under")
			n.check(err, "find the underlay")
			bits := 24
			if n.under.Is6() {
				bits = 64
			}
			addr, err := netlink.ParseAddr(netip.PrefixFrom(n.under, bits).String())
			n.check(err, "parse the address")
			if n.under.Is6() {
				addr.Flags = unix.IFA_F_NODAD
			}
			n.check(netlink.AddrAdd(l, addr), "add the address")
			n.check(netlink.LinkSetUp(l), "set the underlay up")
		})
	}
}
