package edge

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
)

// lab is a world of namespaces: the world, a machine with an uplink to it, which is the node as well, and elements that
// are joined to their edges by a bridge each.
type lab struct {
	t    *testing.T
	dir  string
	dirs instance.NodeDirs
	d    *Driver
	// nodes are the addresses of other nodes that the agent would tell of.
	nodes []netip.Addr
}

// Addresses of the lab: the world's server, and the machine's on its uplink and elsewhere.
const (
	server4, server6   = "203.0.113.7", "2001:db8:f::7"
	machine4, machine6 = "192.0.2.2", "2001:db8:2::2"
	other4             = "172.17.0.1"
)

func newLab(t *testing.T) *lab {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("internet edges are made of network namespaces: run the tests as root")
	}
	dir := t.TempDir()
	run := filepath.Join(dir, "run", "test")
	l := &lab{t: t, dir: dir, dirs: instance.NodeDirs{Instance: "t" + filepath.Base(filepath.Dir(dir)), Node: "n",
		Run:  filepath.Join(run, "nodes", "n"),
		Data: filepath.Join(dir, "data")}}
	l.dirs.Instance = fmt.Sprintf("edge-%x", os.Getpid())
	for _, p := range []string{l.dirs.Run, l.dirs.Data} {
		if err := os.MkdirAll(p, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if l.d != nil {
			l.d.Close()
		}
		for _, pattern := range []string{"*.net", "run/test/*.net", "run/test/*.bpf",
			"run/test/nodes/*/edges/*/*/net"} {
			mounts, _ := filepath.Glob(filepath.Join(dir, pattern))
			for _, m := range mounts {
				unix.Unmount(m, unix.MNT_DETACH)
			}
		}
	})
	l.space("world")
	l.space("machine")
	l.sh("world", "ip link add eth0 type veth peer name eth0 netns /proc/self/fd/9", l.path("machine"))
	l.sh("world", `ip link set eth0 up; ip addr add 192.0.2.1/24 dev eth0; ip addr add 2001:db8:2::1/64 dev eth0 nodad
ip addr add 203.0.113.7/32 dev lo; ip addr add 2001:db8:f::7/128 dev lo`)
	// The lab's bridges stand for the fabric, which no rule sees.
	l.sh("machine", "for f in /proc/sys/net/bridge/bridge-nf-call-*; do [ ! -e $f ] || echo 0 >$f; done")
	l.sh("machine", `ip link set eth0 up; ip addr add 192.0.2.2/24 dev eth0; ip addr add 2001:db8:2::2/64 dev eth0 nodad
ip route add default via 192.0.2.1; ip -6 route add default via 2001:db8:2::1
ip link add docker0 type bridge; ip addr add 172.17.0.1/16 dev docker0; ip link set docker0 up`)
	l.open()
	return l
}

// open starts the driver, as an agent does that has just been started.
func (l *lab) open() {
	l.t.Helper()
	if l.d != nil {
		l.d.Close()
	}
	var err error
	if l.d, err = open(l.dirs, l.path("machine"), l.path("machine")); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) path(name string) string { return filepath.Join(l.dir, name+".net") }

func (l *lab) space(name string) {
	l.t.Helper()
	if _, err := linux.MountNamespace(l.path(name)); err != nil {
		l.t.Fatal(err)
	}
	l.sh(name, "ip link set lo up; sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0")
}

// sh runs a script in a namespace; another may be given, which is the script's file descriptor 9.
func (l *lab) sh(name, script string, other ...string) string {
	l.t.Helper()
	out, err := l.try(name, script, other...)
	if err != nil {
		l.t.Fatalf("in %s: %s: %v\n%s", name, script, err, out)
	}
	return out
}

func (l *lab) try(name, script string, other ...string) (string, error) {
	path := name
	if !filepath.IsAbs(name) {
		path = l.path(name)
	}
	c := exec.Command("nsenter", "--net="+path, "sh", "-ec", script)
	for _, o := range other {
		f, err := os.Open(o)
		if err != nil {
			return "", err
		}
		defer f.Close()
		c.Args[3] = "exec 9</proc/self/fd/3; " + script
		c.Args = []string{c.Args[0], c.Args[1], "sh", "-ec",
			strings.ReplaceAll(script, "/proc/self/fd/9", "/proc/self/fd/3")}
		c.ExtraFiles = []*os.File{f}
	}
	out, err := c.CombinedOutput()
	return string(out), err
}

// element makes an end system with the given addresses that is joined to an edge's gateway, and returns the edge.
func (l *lab) element(network string, forwards ...model.Forward) Edge {
	l.t.Helper()
	l.space(network)
	l.sh(network, "ip link add eth0 type veth peer name "+network+" netns /proc/self/fd/9", l.path("machine"))
	l.sh(network, `ip link set eth0 up; ip addr add 10.0.0.2/30 dev eth0; ip addr add fd00::2/64 dev eth0 nodad
ip addr add 10.1.0.1/32 dev lo; ip route add default via 10.0.0.1; ip -6 route add default via fd00::1`)
	e := Edge{ID: ID{network, "uplink"}, MTU: 1500,
		Internet: model.ResolvedInternet{Internet: model.Internet{Forwards: forwards},
			Gateway: prefixes("10.0.0.1/30", "fd00::1/64"), Via: addresses("10.0.0.2", "fd00::2"),
			Sources: prefixes("10.0.0.0/30", "10.1.0.0/24", "fd00::/64"),
			Targets: map[string][]netip.Addr{"h": addresses("10.0.0.2", "fd00::2")}}}
	l.sh("machine", "ip link add br-"+network+" type bridge; ip link set dev br-"+network+" up; ip link set dev "+
		network+" up master br-"+network)
	return e
}

// apply has the driver make edges, and joins their gateways to the elements.
func (l *lab) apply(edges ...Edge) Report {
	l.t.Helper()
	r := l.d.Apply(context.Background(), edges, l.nodes)
	if r.Problem != nil {
		l.t.Fatal(r.Problem)
	}
	for _, e := range edges {
		if r.Failed[e.ID] == nil {
			l.sh("machine", "ip link set dev "+r.Devices[e.ID]+" up master br-"+e.ID.Network)
		}
	}
	return r
}

func (l *lab) must(r Report) Report {
	l.t.Helper()
	for _, err := range r.Failed {
		l.t.Fatal(err)
	}
	return r
}

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, s := range texts {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

func addresses(texts ...string) (all []netip.Addr) {
	for _, s := range texts {
		all = append(all, netip.MustParseAddr(s))
	}
	return all
}

// within calls f in a namespace.
func (l *lab) within(name string, f func() error) {
	l.t.Helper()
	fd, err := unix.Open(l.path(name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		defer unix.Close(fd)
		err = linux.Inside(fd, f)
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// serve answers every connection, and every datagram, with who asked, then sends back what it is sent.
func (l *lab) serve(name string, port int) {
	l.t.Helper()
	l.within(name, func() error {
		stream, err := net.Listen("tcp", fmt.Sprint(":", port))
		if err != nil {
			return err
		}
		l.t.Cleanup(func() { stream.Close() })
		go func() {
			for {
				c, err := stream.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					fmt.Fprintf(c, "%s %s\n", name, c.RemoteAddr())
					io.Copy(c, c)
				}()
			}
		}()
		own := []string{""}
		if name == "world" { // an answer must come from the address that was asked
			own = []string{server4, server6}
		}
		for _, a := range own {
			packets, err := net.ListenPacket("udp", net.JoinHostPort(a, fmt.Sprint(port)))
			if err != nil {
				return err
			}
			l.t.Cleanup(func() { packets.Close() })
			go func() {
				buf := make([]byte, 64<<10)
				for {
					_, from, err := packets.ReadFrom(buf)
					if err != nil {
						return
					}
					packets.WriteTo(fmt.Appendf(nil, "%s %s\n", name, from), from)
				}
			}()
		}
		return nil
	})
}

// wait is how long something may take that is sure to come; blocked how long one looks for what must not.
const (
	wait    = 20 * time.Second
	blocked = 300 * time.Millisecond
)

// ask connects from a namespace and returns what is answered.
func (l *lab) ask(from, network, to string, patience time.Duration) (answer string, err error) {
	l.t.Helper()
	l.within(from, func() error {
		var c net.Conn
		if c, err = net.DialTimeout(network, to, patience); err != nil {
			return nil
		}
		defer c.Close()
		again := 1
		if network == "udp" { // the first may get lost while neighbours are looked for
			again = 3
		}
		buf := make([]byte, 200)
		for range again {
			c.SetDeadline(time.Now().Add(patience / time.Duration(again)))
			if network == "udp" {
				if _, err = c.Write([]byte("who?")); err != nil {
					return nil
				}
			}
			var n int
			if n, err = c.Read(buf); err == nil {
				answer = strings.TrimSpace(string(buf[:n]))
				return nil
			}
		}
		return nil
	})
	return answer, err
}

func (l *lab) reaches(from, network, to, want string) {
	l.t.Helper()
	answer, err := l.ask(from, network, to, wait)
	if err != nil || !strings.HasPrefix(answer, want) {
		l.t.Errorf("%s asked %s at %s: got %q, %v; want %q", from, network, to, answer, err, want)
	}
}

func (l *lab) blocked(from, network, to string) {
	l.t.Helper()
	if answer, err := l.ask(from, network, to, blocked); err == nil {
		l.t.Errorf("%s reached %s at %s, which answered %q; it must not", from, network, to, answer)
	}
}

// same compares two states, and tells the lines in which they differ.
func same(t *testing.T, what, before, after string) {
	t.Helper()
	lines := map[string]int{}
	for line := range strings.Lines(before) {
		lines[line]--
	}
	for line := range strings.Lines(after) {
		lines[line]++
	}
	for line, n := range lines {
		if n < 0 {
			t.Errorf("%s: gone is %s", what, line)
		} else if n > 0 {
			t.Errorf("%s: new is %s", what, line)
		}
	}
}

// await returns once what is to come has come.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(wait); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %s", what, wait)
		}
	}
}
