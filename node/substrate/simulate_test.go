package substrate

import (
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
)

// testDirs are an instance's own, removed with everything that is mounted in them.
func testDirs(t *testing.T) instance.Dirs {
	t.Helper()
	d := instance.Dirs{Name: "test-" + strings.ToLower(rand.Text()[:8]), Run: t.TempDir(), Data: t.TempDir()}
	t.Cleanup(func() {
		entries, _ := os.ReadDir(d.Run + "/nodes")
		for _, e := range entries {
			unix.Unmount(d.Node(e.Name()).NodeNamespace(), unix.MNT_DETACH)
		}
	})
	return d
}

func simulated(t *testing.T, n int, top Topology, previous model.Substrate) model.Substrate {
	t.Helper()
	s, err := Simulated(n, top, machine)
	if err != nil {
		t.Fatal(err)
	}
	if s, err = Number(s, previous); err != nil {
		t.Fatal(err)
	}
	return s
}

func in(t *testing.T, d instance.Dirs, name string, f func() error) {
	t.Helper()
	ns, err := netns.GetFromPath(d.Node(name).NodeNamespace())
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	if err := linux.Inside(int(ns), f); err != nil {
		t.Fatal(err)
	}
}

// indices lists "node device index mtu" of all underlay devices.
func indices(t *testing.T, d instance.Dirs, s model.Substrate) []string {
	t.Helper()
	var all []string
	for _, n := range s.Nodes {
		in(t, d, n.Name, func() error {
			ifs, err := net.Interfaces()
			for _, i := range ifs {
				all = append(all, fmt.Sprintln(n.Name, i.Name, i.Index, i.MTU, i.Flags&net.FlagUp))
			}
			return err
		})
	}
	return all
}

// reach sends a datagram of the underlay's size, unfragmented, from each node to each other.
func reach(t *testing.T, d instance.Dirs, s model.Substrate) {
	t.Helper()
	socks := map[string]*net.UDPConn{}
	for _, n := range s.Nodes {
		in(t, d, n.Name, func() error {
			c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: n.Address.AsSlice(), Port: 7777})
			if err != nil {
				return err
			}
			socks[n.Name] = c
			raw, err := c.SyscallConn()
			if err != nil {
				return err
			}
			return raw.Control(func(fd uintptr) {
				unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
			})
		})
		defer func() { socks[n.Name].Close() }()
	}
	payload := make([]byte, UnderlayMTU-28)
	buf := make([]byte, UnderlayMTU)
	for _, a := range s.Nodes {
		for _, b := range s.Nodes {
			if a.Name == b.Name {
				continue
			}
			if _, err := socks[a.Name].WriteToUDP(payload,
				&net.UDPAddr{IP: b.Address.AsSlice(), Port: 7777}); err != nil {
				t.Fatalf("%s to %s: %v", a.Name, b.Name, err)
			}
			n, from, err := socks[b.Name].ReadFromUDPAddrPort(buf)
			if err != nil || n != len(payload) || from.Addr() != a.Address {
				t.Fatalf("%s to %s: %d bytes from %s, %v; want %d from %s", a.Name, b.Name, n, from, err,
					len(payload), a.Address)
			}
		}
	}
}

func TestSimulate(t *testing.T) {
	d := testDirs(t)
	s := simulated(t, 5, Line, model.Substrate{})
	changed, err := Simulate(d, s)
	if err != nil {
		t.Fatal(err)
	}
	if len(changed) != 9 {
		t.Errorf("changed = %q, want 5 nodes and 4 links", changed)
	}
	reach(t, d, s)
	before := indices(t, d, s)
	again, err := Simulate(d, s)
	if err != nil || len(again) != 0 {
		t.Fatalf("a second time: %q, %v; want nothing changed", again, err)
	}
	if after := indices(t, d, s); !slices.Equal(before, after) {
		t.Errorf("the second time altered devices: %q, before %q", after, before)
	}
	in(t, d, "n2", func() error {
		b, err := os.ReadFile("/proc/sys/net/ipv4/ip_forward")
		if strings.TrimSpace(string(b)) != "1" {
			t.Errorf("ip_forward = %q in n2", b)
		}
		return err
	})

	queue := func() (text string) {
		in(t, d, "n2", func() error {
			out, err := exec.Command("tc", "qdisc", "show", "dev", "to-n3", "root").CombinedOutput()
			text = string(out)
			return err
		})
		return text
	}
	if is := queue(); !strings.Contains(is, "pfifo") || !strings.Contains(is, "limit 10000p") {
		t.Errorf("the link's end has no queue: %s", is)
	}
	in(t, d, "n2", func() error { return exec.Command("tc", "qdisc", "del", "dev", "to-n3", "root").Run() })
	if _, err := Tend(d, s); err != nil {
		t.Error(err)
	}
	if is := queue(); !strings.Contains(is, "limit 10000p") {
		t.Errorf("a queue that somebody removed is not there again: %s", is)
	}
	before = indices(t, d, s)

	// What is deleted or altered comes back, and the rest stays.
	in(t, d, "n2", func() error {
		l, err := netlink.LinkByName("to-n3")
		if err != nil {
			return err
		}
		return netlink.LinkDel(l)
	})
	if changed, err = Tend(d, s); err != nil || !slices.Equal(changed, []string{"link n2 -- n3"}) {
		t.Fatalf("after a deletion: %q, %v", changed, err)
	}
	reach(t, d, s)
	for _, dev := range indices(t, d, s) {
		if !slices.Contains(before, dev) && !strings.Contains(dev, "n2 to-n3") && !strings.Contains(dev, "n3 to-n2") {
			t.Errorf("%q was altered", dev)
		}
	}

	// Growing keeps what is there; another shape removes what is not wanted.
	ring := simulated(t, 6, Ring, s)
	before = indices(t, d, s)
	if changed, err = Simulate(d, ring); err != nil || len(changed) != 3 {
		t.Fatalf("grown: %q, %v; want n6 and its two links", changed, err)
	}
	reach(t, d, ring)
	after := indices(t, d, ring)
	for _, dev := range before {
		if !slices.Contains(after, dev) {
			t.Errorf("%q was altered by growing", dev)
		}
	}
	if _, err = Simulate(d, simulated(t, 6, Line, ring)); err != nil {
		t.Fatal(err)
	}
	for _, dev := range indices(t, d, ring) {
		if strings.Contains(dev, "n1 to-n6") || strings.Contains(dev, "n6 to-n1") {
			t.Errorf("%q is left of the ring", dev)
		}
	}

	// A node that is at work is not made anew.
	unix.Unmount(d.Node("n5").NodeNamespace(), unix.MNT_DETACH)
	if changed, err = Tend(d, s); err == nil || !strings.Contains(err.Error(), "n5") {
		t.Errorf("without n5's namespace: %q, %v", changed, err)
	}
}
