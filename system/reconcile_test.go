package system

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/fabric/pipeline"
)

// twoOfEach is two networks with the same addresses and everything that an element can be, over two nodes.
const twoOfEach = `network: NAME
routers:
  r1: {node: n1, software: static, routes: [10.2.0.0/24 via 10.0.12.2, 2001:db8:2::/64 via 2001:db8:12::2,
       10.3.0.0/24 via 10.0.12.2, 2001:db8:3::/64 via 2001:db8:12::2]}
  r2: {node: n2, software: static, routes: [10.1.0.0/24 via 10.0.12.1, 2001:db8:1::/64 via 2001:db8:12::1,
       10.3.0.0/24 via 10.0.23.2, 2001:db8:3::/64 via 2001:db8:23::2]}
  f3:
    node: n1
    software: frr
    config: |
      frr defaults traditional
      ip route 0.0.0.0/0 10.0.23.1
      ipv6 route ::/0 2001:db8:23::1
hosts:
  h1: {node: n1}
  h2: {node: n1}
  h3: {node: n2}
  h4: {node: n2}
switches:
  s: {node: n2, prefixes: [10.2.0.0/24, 2001:db8:2::/64]}
links:
  - r1 -- r2: 10.0.12.0/30, 2001:db8:12::/64
  - r2 -- f3: 10.0.23.0/30, 2001:db8:23::/64
  - r1 -- h1: 10.1.0.0/24, 2001:db8:1::/64
  - r2 -- s
  - h2 -- s
  - h4 -- s
  - f3 -- h3: 10.3.0.0/24, 2001:db8:3::/64
`

// lab is the platform of TestDriftIsPutRight, with words for its objects.
type lab struct {
	*platform
	node1, node2 string // the nodes' namespaces
}

func (l *lab) ns(element string) string {
	node := map[string]string{"r1": "n1", "r2": "n2", "f3": "n1", "h1": "n1", "h2": "n1", "h3": "n2",
		"h4": "n2", "s": "n2"}[element]
	return l.dirs.Node(node).Namespace(model.ID{Network: "lab", Element: element})
}

// port is the device of a port.
func (l *lab) port(node, element, ifc string) string {
	return l.dirs.Node(node).PortDevice(model.PortID{ID: model.ID{Network: "lab", Element: element}, Interface: ifc})
}

// sh runs a shell command in a namespace; it must succeed.
func sh(t *testing.T, namespace, command string) string {
	t.Helper()
	out, err := exec.Command("nsenter", "--net="+namespace, "sh", "-c", command).CombinedOutput()
	if err != nil {
		t.Fatalf("%s in %s: %v\n%s", command, namespace, err, out)
	}
	return strings.TrimSpace(string(out))
}

// holds tells whether a shell command succeeds in a namespace.
func holds(namespace, command string) bool {
	return exec.Command("nsenter", "--net="+namespace, "sh", "-c", command).Run() == nil
}

// table opens one of the fabric's pinned tables.
func (l *lab) table(t *testing.T, node, name string) *ebpf.Map {
	t.Helper()
	m, err := ebpf.LoadPinnedMap(filepath.Join(l.dirs.Node(node).BPF(), pipeline.Layout, name), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// slot is the slot of a port in a node's tables.
func (p *platform) slot(identities *ebpf.Map, port string) uint32 {
	p.t.Helper()
	key, _ := pipeline.NewIdentity(port, 0)
	var e pipeline.Identity
	if err := identities.Lookup(key, &e); err != nil {
		p.t.Fatalf("the slot of %s: %v", port, err)
	}
	return e.Slot
}

func index(t *testing.T, namespace, device string) int {
	t.Helper()
	n, err := strconv.Atoi(sh(t, namespace, "cat /sys/class/net/"+device+"/ifindex 2>/dev/null || ip -o link show dev "+
		device+" | cut -d: -f1"))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestDriftIsPutRight deletes or alters every kind of object behind the platform's back. Each is put right, everything
// works again, and all else keeps its interface index and its counters.
func TestDriftIsPutRight(t *testing.T) {
	p := up(t, 2)
	file := filepath.Join(t.TempDir(), "two.yaml")
	text := strings.ReplaceAll(twoOfEach, "NAME", "lab") + "---\n" + strings.ReplaceAll(twoOfEach, "NAME", "other")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p.run("apply", "-f", file)
	l := &lab{p, p.dirs.Node("n1").NodeNamespace(), p.dirs.Node("n2").NodeNamespace()}
	p.allWell("lab", "other")

	// An alteration returns what tells that it is put right.
	type alteration func(t *testing.T) (right func() bool)
	// do alters by a shell command that runs in a namespace; another tells whether that is put right.
	do := func(namespace, alter, right string) alteration {
		return func(t *testing.T) func() bool {
			if !holds(namespace, right) {
				t.Fatalf("%s does not hold before anything was altered", right)
			}
			sh(t, namespace, alter)
			return func() bool { return holds(namespace, right) }
		}
	}
	r1, r2, s := l.ns("r1"), l.ns("r2"), l.ns("s")
	r1h1, r2r1 := l.port("n1", "r1", "h1"), l.port("n2", "r2", "r1")
	pair := []string{"n1 " + r1h1, "lab/r1 h1", "port lab/r1:h1"}
	anew := func(namespace, device string, alter string) alteration { // by its index: it comes back as another
		return func(t *testing.T) func() bool {
			was := index(t, namespace, device)
			sh(t, namespace, alter)
			return func() bool {
				return holds(namespace, fmt.Sprintf("ip link show dev %s && ! ip link show dev %[1]s | grep -q '^%d:'",
					device, was))
			}
		}
	}
	underlay := []string{"n1 to-n2", "n2 to-n1"}
	tunnel := func(namespace string) string {
		return sh(t, namespace, `ip -o link show type vxlan | cut -d: -f2 | tr -d ' '`)
	}
	block := sh(t, l.node1, "tc qdisc show dev "+r1h1+` clsact | sed -n 's/.*ingress_block \([0-9]*\).*/\1/p'`)
	for _, test := range []struct {
		name    string
		alter   alteration
		changed []string // what may have other indices and counters afterwards
	}{
		{"port deleted", anew(l.node1, r1h1, "ip link del "+r1h1), pair},
		{"element's device deleted", anew(r1, "h1", "ip link del h1"), pair},
		{"element's device taken away", anew(r1, "h1", "ip link set h1 netns "+s), pair},
		{"element's device renamed", do(r1, "ip link set h1 down; ip link set h1 name x; ip link set x up",
			"ip link show dev h1 up | grep -q UP"), nil},
		{"element's device down", do(r1, "ip link set h1 down", "ip link show dev h1 up | grep -q UP"), nil},
		{"element's device of another MTU",
			do(r1, "ip link set h1 mtu 1300", "ip link show dev h1 | grep -q 'mtu 1500'"), nil},
		{"element's device of another MAC", do(r1, "ip link set h1 address 02:00:00:00:00:77",
			"! ip link show dev h1 | grep -q 02:00:00:00:00:77"), nil},
		{"port down", do(l.node1, "ip link set "+r1h1+" down", "ip link show dev "+r1h1+" up | grep -q UP"), nil},
		// The agent may be there before the last step is.
		{"port renamed", do(l.node1, "ip link set "+r1h1+" down; ip link set "+r1h1+
			" name x; ip link set x up 2>/dev/null || :", "ip link show dev "+r1h1+" up | grep -q UP"), nil},
		{"port of another MTU", do(l.node1, "ip link set "+r1h1+" mtu 1300", "ip link show dev "+r1h1+
			" | grep -q 'mtu 1500'"), nil},
		{"IPv4 address removed", do(r1, "ip addr del 10.0.12.1/30 dev r2",
			"ip addr show dev r2 | grep -q 10.0.12.1/30"), nil},
		{"IPv6 address removed", do(r1, "ip addr del 2001:db8:12::1/64 dev r2",
			"ip addr show dev r2 | grep -q 2001:db8:12::1/64"), nil},
		{"link-local address removed", do(r1, "ip -6 addr flush dev r2 scope link",
			"ip -6 addr show dev r2 scope link | grep -q fe80"), nil},
		{"lo down", do(r1, "ip link set lo down", "ip link show dev lo | grep -q ,UP"), nil},
		{"IPv4 route removed", do(r1, "ip route del 10.2.0.0/24", "ip route show 10.2.0.0/24 | grep -q 10.0.12.2"),
			nil},
		{"IPv6 route removed", do(r1, "ip -6 route del 2001:db8:2::/64",
			"ip -6 route show 2001:db8:2::/64 | grep -q 2001:db8:12::2"), nil},
		{"connected IPv4 routes removed", do(r1, "ip route flush table main",
			"ip route show 10.1.0.0/24 | grep -q 'dev h1 proto kernel scope link src'"), nil},
		{"connected IPv6 routes removed", do(r1, "ip -6 route flush table main",
			"ip -6 route show 2001:db8:1::/64 | grep -q 'dev h1 proto kernel metric 256'"), nil},
		{"IPv4 forwarding off", do(r1, "echo 0 > /proc/sys/net/ipv4/ip_forward",
			"grep -q 1 /proc/sys/net/ipv4/ip_forward"), nil},
		{"IPv6 forwarding off", do(r2, "echo 0 > /proc/sys/net/ipv6/conf/all/forwarding",
			"grep -q 1 /proc/sys/net/ipv6/conf/all/forwarding"), nil},
		{"namespace unmounted", do(l.node1, "umount "+r1, "stat -f -c %T "+r1+" | grep -q nsfs"), nil},
		{"user namespace unmounted", do(l.node1, "umount "+l.dirs.Node("n1").UserNamespace("lab"),
			"stat -f -c %T "+l.dirs.Node("n1").UserNamespace("lab")+" | grep -q nsfs"), nil},
		{"clsact removed", do(l.node1, "tc qdisc del dev "+r1h1+" clsact", "tc qdisc show dev "+r1h1+
			" | grep -q 'clsact.*ingress_block "+block+"'"), nil},
		{"clsact replaced", do(l.node1, "tc qdisc del dev "+r1h1+" clsact && tc qdisc add dev "+r1h1+" clsact",
			"tc qdisc show dev "+r1h1+" | grep -q 'clsact.*ingress_block "+block+"'"), nil},
		{"the ports' filter removed", do(l.node1, "tc filter del block "+block, "tc filter show block "+block+
			" | grep -q bpf"), nil},
		{"the tunnel device's filter removed", do(l.node1, "tc filter del dev "+tunnel(l.node1)+" ingress",
			"tc filter show dev "+tunnel(l.node1)+" ingress | grep -q bpf"), nil},
		{"tunnel device deleted", anew(l.node2, tunnel(l.node2), "ip link del "+tunnel(l.node2)),
			[]string{"n2 " + tunnel(l.node2)}},
		{"tunnel device down", do(l.node2, "ip link set "+tunnel(l.node2)+" down", "ip link show dev "+tunnel(l.node2)+
			" | grep -q ,UP"), nil},
		{"a link's end altered", func(t *testing.T) func() bool {
			ports, identities := l.table(t, "n1", "ports"), l.table(t, "n1", "identities")
			slot := l.slot(identities, "lab/r1:h1")
			return altered(t, ports, slot)
		}, nil},
		{"a device's entry removed", func(t *testing.T) func() bool {
			return removed(t, l.table(t, "n1", "devices"), uint32(index(t, l.node1, r1h1)))
		}, nil},
		{"a tunnel's entry removed", func(t *testing.T) func() bool {
			return removed(t, l.table(t, "n2", "tunnels"), l.vni(t, "r1--r2"))
		}, nil},
		{"a peer's entry altered", func(t *testing.T) func() bool {
			peers := l.table(t, "n2", "peers")
			right, wrong := netip.MustParseAddr("100.64.0.1"), netip.MustParseAddr("203.0.113.9")
			place := peerPlace(t, peers, right)
			if place == 0 {
				t.Fatalf("%s is not among the peers", right)
			}
			if err := peers.Put(place, pipeline.NewPeer(wrong)); err != nil {
				t.Fatal(err)
			}
			return func() bool { return peerPlace(t, peers, right) != 0 && peerPlace(t, peers, wrong) == 0 }
		}, nil},
		{"a table's pin removed", do(l.node1, "rm "+l.dirs.Node("n1").BPF()+"/"+pipeline.Layout+"/ports", "test -e "+
			l.dirs.Node("n1").BPF()+"/"+pipeline.Layout+"/ports"), nil},
		{"the bpffs unmounted", do(l.node1, "umount "+l.dirs.Node("n1").BPF(), "test -e "+l.dirs.Node("n1").BPF()+"/"+
			pipeline.Layout+"/ports"), nil},
		{"a program's pin removed", do(l.node1, "rm "+l.dirs.Node("n1").BPF()+"/"+pipeline.Layout+"/*-from_port",
			"test -e "+l.dirs.Node("n1").BPF()+"/"+pipeline.Layout+"/*-from_port"), nil},
		{"underlay address removed",
			do(l.node1, "ip addr del $(ip -o -4 addr show dev to-n2 | tr -s ' ' | cut -d' ' -f4) dev to-n2",
				"ip -4 addr show dev to-n2 | grep -q inet"), nil},
		{"node's address removed", do(l.node1, "ip addr del 100.64.0.1/32 dev lo",
			"ip addr show dev lo | grep -q 100.64.0.1/32"), nil},
		{"underlay route removed", do(l.node2, "ip route del 100.64.0.1", "ip route show 100.64.0.1 | grep -q to-n1"),
			nil},
		{"underlay device down", do(l.node2, "ip link set to-n1 down",
			"ip link show dev to-n1 | grep -q ,UP && ip route show 100.64.0.1 | grep -q to-n1"), nil},
		{"underlay device deleted", anew(l.node1, "to-n2", "ip link del to-n2"), underlay},
		{"bridge deleted", anew(s, "pp-bridge", "ip link del pp-bridge"), []string{"lab/s pp-bridge"}},
		{"interface taken off the bridge",
			do(s, "ip link set h4 nomaster", "ip link show dev h4 | grep -q 'master pp-bridge'"), nil},
		{"bridge down", do(s, "ip link set pp-bridge down", "ip link show dev pp-bridge | grep -q ,UP"), nil},
		{"container killed", func(t *testing.T) func() bool {
			was := l.init(t, "f3")
			if err := unix.Kill(was, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			return func() bool {
				now := l.init(t, "f3")
				return now != 0 && now != was
			}
		}, nil},
		{"router's daemon killed", func(t *testing.T) func() bool {
			was := 0
			p.await("zebra to run", func() bool { was = l.inside("f3", "zebra"); return was != 0 },
				func() string { return "it does not" })
			if err := unix.Kill(was, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			return func() bool {
				now := l.inside("f3", "zebra")
				return now != 0 && now != was
			}
		}, nil},
		{"several at once", func(t *testing.T) func() bool {
			sh(t, l.node2, "ip link del "+r2r1)
			sh(t, r1, "ip route flush table main; ip addr flush dev r2")
			sh(t, s, "ip link del pp-bridge")
			return func() bool {
				return holds(l.node2, "ip link show dev "+r2r1) && holds(s, "ip link show dev pp-bridge") &&
					holds(r1, "ip route show 10.2.0.0/24 | grep -q 10.0.12.2")
			}
		}, []string{"n2 " + r2r1, "lab/r2 r1", "port lab/r2:r1", "lab/s pp-bridge"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := p.with(t)
			l.platform = p
			began := time.Now()
			before := p.objects()
			right := test.alter(t)
			p.await("it to be put right", right, func() string {
				return "it is not; events:\n" +
					p.run("get", "events")
			})
			t.Logf("put right after %s", time.Since(began).Round(time.Millisecond))
			p.allWell("lab", "other")
			p.untouched(before, test.changed...)
		})
	}
}

// altered spoils an entry of an array whose memory the programs read, and returns what tells that it is as it was.
func altered(t *testing.T, m *ebpf.Map, key uint32) func() bool {
	t.Helper()
	read := func() []byte {
		b, err := m.LookupBytes(key)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	// bytes, where the port's link ends; what follows changes by itself, as when somebody looks at the port
	const end = 8
	spoilt := read()
	was := string(spoilt[:end])
	for i := range end {
		spoilt[i] ^= 0x55
	}
	if err := m.Put(key, spoilt); err != nil {
		t.Fatal(err)
	}
	return func() bool { return string(read()[:end]) == was }
}

// peerPlace is where an address stands among a node's peers; 0 where it does not.
func peerPlace(t *testing.T, peers *ebpf.Map, a netip.Addr) uint32 {
	t.Helper()
	for i := uint32(1); i < 16; i++ {
		var e pipeline.Peer
		if err := peers.Lookup(i, &e); err != nil {
			t.Fatal(err)
		}
		if pipeline.AddressOf(&e) == a {
			return i
		}
	}
	return 0
}

// removed removes an entry of a hash table, and returns what tells that it is as it was.
func removed(t *testing.T, m *ebpf.Map, key uint32) func() bool {
	t.Helper()
	var was, now []byte
	if err := m.Lookup(key, &was); err != nil {
		t.Fatal(err)
	}
	if err := m.Delete(key); err != nil {
		t.Fatal(err)
	}
	return func() bool { return m.Lookup(key, &now) == nil && bytes.Equal(now, was) }
}

// vni is the tunnel number of a link.
func (l *lab) vni(t *testing.T, link string) uint32 {
	t.Helper()
	var links []model.LinkStatus
	if err := json.Unmarshal([]byte(l.run("get", "links", "lab", "-o", "json")), &links); err != nil {
		t.Fatal(err)
	}
	for _, s := range links {
		if s.Link.Name == link {
			return s.VNI
		}
	}
	t.Fatalf("there is no link %s", link)
	return 0
}

// inside finds a process by its command's name in an element's network namespace; 0 when there is none.
func (l *lab) inside(element, command string) int {
	var namespace unix.Stat_t
	if err := unix.Stat(l.ns(element), &namespace); err != nil {
		return 0
	}
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range processes {
		var its unix.Stat_t
		comm, _ := os.ReadFile(dir + "/comm")
		if strings.TrimSpace(string(comm)) == command && unix.Stat(dir+"/ns/net", &its) == nil &&
			its.Ino == namespace.Ino {
			pid, _ := strconv.Atoi(filepath.Base(dir))
			return pid
		}
	}
	return 0
}

// init is the first process of an element's container; 0 when none runs.
func (l *lab) init(t *testing.T, element string) int {
	t.Helper()
	out, err := exec.Command("runc", "--root", l.dirs.Node("n1").Runc(), "list", "-f", "json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var containers []struct {
		ID, Status string
		Pid        int
	}
	if err := json.Unmarshal(out, &containers); err != nil {
		t.Fatal(err)
	}
	for _, c := range containers {
		if strings.Contains(c.ID, "lab") && strings.Contains(c.ID, element) && c.Status == "running" {
			return c.Pid
		}
	}
	return 0
}
