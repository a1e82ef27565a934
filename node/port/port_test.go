package port

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
)

const prefix = "polyplane:test:n1:"

// node is the network namespace of a node, in which the test's thread is.
type node struct {
	*testing.T
	c *linux.Rtnetlink
}

func newNode(t *testing.T) *node {
	runtime.LockOSThread() // never unlocked: the thread ends with the test, and its namespace with it
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	c, err := linux.DialRtnetlink()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &node{t, c}
}

// newNamespace is an element's network namespace, by a file descriptor.
func newNamespace(t *testing.T) int {
	fds := make(chan int)
	go func() {
		runtime.LockOSThread() // as above
		fd := -1
		if unix.Unshare(unix.CLONE_NEWNET) == nil {
			fd, _ = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		fds <- fd
	}()
	fd := <-fds
	if fd < 0 {
		t.Fatal("no network namespace can be made")
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func (n *node) ip(args ...string) string {
	n.Helper()
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		n.Fatalf("ip %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (n *node) do(fill func(b *linux.Batch)) {
	n.Helper()
	var b linux.Batch
	fill(&b)
	for _, err := range n.c.Do(&b) {
		if err != nil {
			n.Fatal(err)
		}
	}
}

// find is the port, as a driver finds it.
func (n *node) find(p *Port) *Link {
	n.Helper()
	ports, names, err := Find(n.c, prefix, 1)
	if err != nil {
		n.Fatal(err)
	}
	ports.Adopt(p, names)
	return ports[p.Key]
}

// right wants a port of which nothing is left to be put right.
func (n *node) right(p *Port, what string) {
	n.Helper()
	if l := n.find(p); l == nil || !p.Is(l) || !l.Up() {
		n.Fatalf("%s is %+v, and shall be %+v", what, l, p)
	}
}

// keep does what a driver does for a port that is there.
func (n *node) keep(p *Port) {
	n.Helper()
	l := n.find(p)
	if l == nil {
		n.Fatalf("no device is port %s", p.Key)
	}
	n.do(func(b *linux.Batch) { p.Restore(b, l) })
	silent, err := NewSilencer()
	if err != nil {
		n.Fatal(err)
	}
	defer silent.Close()
	if err := silent.Silence(p.Name); err != nil {
		n.Fatal(err)
	}
	if err := silent.Silence("nobody"); err == nil {
		n.Error("a device that is not there was silenced")
	}
	n.do(p.Raise)
}

// TestAnyDeviceIsAPort: the end of a pair, a tap that a hypervisor has made, and another kind of device become ports
// alike, and are put right whatever somebody did to them.
func TestAnyDeviceIsAPort(t *testing.T) {
	for kind, made := range map[string][]string{
		"tap":            {"tuntap", "add", "pp7", "mode", "tap"},
		"another device": {"link", "add", "pp7", "type", "bridge"},
		"a pair":         nil,
	} {
		t.Run(kind, func(t *testing.T) {
			n := newNode(t)
			p := &Port{Key: "lab/r1:eth0", Name: "pp7", Alias: prefix + "lab/r1:eth0", MTU: 1400}
			if made != nil {
				n.ip(made...)
			} else {
				fd := newNamespace(t)
				p.Pair = &End{Name: "eth0", MAC: net.HardwareAddr{2, 0, 0, 0, 0, 9}, Single: true}
				n.do(func(b *linux.Batch) { p.Make(b, fd) })
				out, err := exec.Command("nsenter", fmt.Sprintf("--net=/proc/%d/fd/%d", os.Getpid(), fd), "ip", "-d",
					"link", "show", "eth0").CombinedOutput()
				if err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				for _, want := range []string{"02:00:00:00:00:09", "mtu 1400", "gso_max_segs 1 "} {
					if !strings.Contains(string(out), want) {
						t.Errorf("the other end is no %q:\n%s", want, out)
					}
				}
			}
			n.keep(p)
			n.right(p, "the new port")
			for _, damage := range [][]string{
				{"link", "set", "pp7", "mtu", "1300"},
				{"link", "set", "pp7", "arp", "on"},
				{"link", "set", "pp7", "alias", ""},
				{"link", "set", "pp7", "name", "other"},
			} {
				n.ip(damage...)
				if l := n.find(p); l == nil || p.Is(l) {
					t.Errorf("after %v it is %+v", damage, l)
				}
				n.keep(p)
				n.right(p, "after ip "+strings.Join(damage, " "))
			}
			for _, damage := range []string{"echo 0 >/proc/sys/net/ipv6/conf/pp7/disable_ipv6",
				"echo 0 >/proc/sys/net/ipv4/conf/pp7/rp_filter"} {
				if out, err := exec.Command("sh", "-c", damage).CombinedOutput(); err != nil {
					t.Fatalf("%s: %v\n%s", damage, err, out)
				}
				if p.Is(n.find(p)) {
					t.Errorf("%s is not seen", damage)
				}
				n.keep(p)
				n.right(p, "after "+damage)
			}
			l := n.find(p)
			n.do(func(b *linux.Batch) { Delete(b, l) })
			if l := n.find(p); l != nil {
				t.Errorf("a deleted port is %+v", l)
			}
		})
	}
}

// TestBehind: the other end of a pair is found in its namespace, whatever its name is there, and its offloads are
// changed; what is not there is told.
func TestBehind(t *testing.T) {
	n, inside := newNode(t), newNamespace(t)
	p := &Port{Name: "port", Alias: prefix + "lab/r:x", MTU: 1500, Pair: &End{Name: "x"}}
	var b linux.Batch
	p.Make(&b, inside)
	if errs := n.c.Do(&b); errs != nil {
		t.Fatal(errs)
	}
	links, err := Links(n.c)
	if err != nil {
		t.Fatal(err)
	}
	path := fmt.Sprintf("/proc/self/fd/%d", inside)
	behind := Peer{Namespace: path}
	for _, l := range links {
		if l.Name == "port" {
			behind.Index = l.Peer
		}
	}
	var was, is linux.Offloads
	change := func(o *linux.Offloads) error {
		was, o.Checksum, o.GRO = *o, false, true
		return nil
	}
	read := func(o *linux.Offloads) error { is = *o; return nil }
	if err := errors.Join(behind.Offloads(change), behind.Offloads(read)); err != nil {
		t.Fatal(err)
	}
	want := was
	if want.Checksum, want.GRO = false, true; is != want || !was.Checksum {
		t.Errorf("the offloads were %+v and are %+v, not %+v", was, is, want)
	}
	if err := (Device{n.c, "port"}).Offloads(read); err != nil || is != was {
		t.Errorf("the port itself has %+v, not %+v: %v", is, was, err)
	}
	for what, gone := range map[string]Peer{"open the network namespace": {path + "0000", behind.Index},
		"look for a port's other end": {path, 1 << 20}} {
		if err := gone.Offloads(read); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%+v gave %v", gone, err)
		}
	}
}
