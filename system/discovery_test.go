package system

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
)

// ofSwitch is a frame of LLDP (IEEE 802.1AB) as a switch sends it, unsigned.
func ofSwitch(name, port string) []byte {
	tlv := func(kind int, value ...byte) []byte {
		return append([]byte{byte(kind << 1), byte(len(value))}, value...)
	}
	return slices.Concat([]byte{0x01, 0x80, 0xc2, 0, 0, 0x0e, 0, 0x1b, 0x21, 1, 2, 3, 0x88, 0xcc},
		tlv(1, 4, 0, 0x1b, 0x21, 1, 2, 3), tlv(2, append([]byte{5}, port...)...), tlv(3, 0, 120), tlv(5, []byte(name)...),
		tlv(8, 5, 1, 192, 0, 2, 1, 2, 0, 0, 0, 7, 0), tlv(0))
}

// sendBy sends a frame by a device of a network namespace.
func sendBy(t *testing.T, namespace, device string, frame []byte) {
	t.Helper()
	within(t, namespace, func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		d, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		return unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: d.Index})
	})
}

// discovered are the events of discovery, as "object reason".
func (p *platform) discovered(object string) (all []string) {
	p.t.Helper()
	var events []model.Event
	decode(p.t, p.run("get", "events", "-o", "json"), &events)
	for _, e := range events {
		if e.Object == object && slices.Contains([]string{"LinkFound", "LinkLost", "CapacityChanged", "AnnouncementRefused",
			"DiscoveryFailed"}, e.Reason) {
			all = append(all, e.Reason)
		}
	}
	return all
}

func (p *platform) awaitDiscovered(object string, want ...string) {
	p.t.Helper()
	p.await(fmt.Sprintf("%s to have %v", object, want), func() bool { return slices.Equal(p.discovered(object), want) },
		func() string { return p.run("get", "events") + p.run("get", "substrate", "-o", "wide") })
}

// TestLinksAreFound has three nodes find their links, one of which is cut and comes back, and somebody forge.
func TestLinksAreFound(t *testing.T) {
	p := newPlatform(t)
	substrate := filepath.Join(t.TempDir(), "substrate.yaml")
	if err := os.WriteFile(substrate, []byte("nodes: {n1: , n2: , n3: }\nlinks:\n  - n1 -- n2: {bandwidth: 1Gbit}\n"+
		"  - n2 -- n3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.run("up", "--substrate", substrate, "-d")
	p.awaitDiscovered("n1 -- n2", "LinkFound")
	p.awaitDiscovered("n2 -- n3", "LinkFound")
	if out := p.run("get", "substrate", "-o", "wide"); !strings.Contains(out, "to-n2 to-n1") {
		t.Errorf("the links are shown as\n%s", out)
	}
	in(t, p.dirs.Node("n2").NodeNamespace(), "ip", "link", "set", "to-n3", "down") // and the platform puts it right
	p.awaitDiscovered("n2 -- n3", "LinkFound", "LinkLost", "LinkFound")
	// Somebody has got onto the wire of n1 and n2, and speaks there as n3. The agent of n1 goes on.
	sendBy(t, p.dirs.Node("n1").NodeNamespace(), "to-n2", ofSwitch("n3", "to-n2"))
	p.awaitDiscovered("n2", "AnnouncementRefused")
	// Agents that die are not missed: the links are there, before and afterwards.
	p.kill("agent n2")
	p.kill("agent n1")
	p.await("the agents to be back", func() bool { return strings.Count(p.run("get", "substrate"), "yes") == 2 },
		func() string { return p.run("get", "events") + p.run("get", "substrate") })
	p.awaitDiscovered("n1 -- n2", "LinkFound")
	var nodes []model.NodeStatus
	decode(t, p.run("get", "nodes", "-o", "json"), &nodes)
	for _, n := range nodes {
		if n.Found == nil || n.Found.Off != "" || n.Found.Processor == "" || len(n.Found.Interfaces) == 0 {
			t.Errorf("of node %s this was found: %+v", n.Name, n.Found)
		}
	}
	p.run("down")
	p.run("up", "--lldp", "off", "-d")
	p.await("the nodes to be silent", func() bool { return strings.Contains(p.run("describe", "node/n1"), "--lldp=off") },
		func() string { return p.run("describe", "node/n1") })
	if out := p.run("get", "substrate", "-o", "json"); strings.Contains(out, `"found"`) {
		t.Errorf("silent nodes find\n%s", out)
	}
}

// TestJoinedHostsFindTheirLinks has two hosts find each other, first by a cable between them, whose speed changes, and
// then by a switch, which passes no LLDP on and speaks for itself.
func TestJoinedHostsFindTheirLinks(t *testing.T) {
	hostA, hostB := twoHosts(t)
	a, b := newPlatformOn(t, hostA), newPlatformOn(t, hostB)
	shape := func(rate string) {
		for _, h := range []string{hostA, hostB} {
			in(t, h, "tc", "qdisc", "replace", "dev", "wire", "root", "tbf", "rate", rate, "burst", "64k", "latency", "50ms")
		}
	}
	shape("1gbit")
	a.run("up", "--host", "--underlay", "198.51.100.1", "--listen", "198.51.100.1:7455", "-d")
	var nodes []model.NodeStatus
	decode(t, a.run("get", "nodes", "-o", "json"), &nodes)
	here := nodes[0].Name
	b.run(words(t, a.run("token", "create", "--node", "far"))...)
	link := here + " -- far"
	if "far" < here {
		link = "far -- " + here
	}
	a.awaitDiscovered(link, "LinkFound")
	shape("100mbit")
	a.await("the change to be told", func() bool { return slices.Contains(a.discovered(link), "CapacityChanged") },
		func() string { return a.run("get", "events") })
	// A switch between them.
	middle := family + "s"
	sh(t, "/proc/self/ns/net", "ip netns add "+middle)
	t.Cleanup(func() { exec.Command("ip", "netns", "del", middle).Run() }) //nolint:errcheck // the tests' namespace ends anyway
	ns := "/run/netns/" + middle
	in(t, ns, "ip", "link", "add", "b0", "type", "bridge")
	in(t, ns, "ip", "link", "set", "b0", "up")
	for i, h := range []string{hostA, hostB} {
		sh(t, h, "ip link del wire || true") // the second has gone with the first
		port := fmt.Sprintf("p%d", i)
		sh(t, h, "ip link add wire type veth peer name "+port+" netns "+middle)
		in(t, h, "ip", "addr", "add", fmt.Sprintf("198.51.100.%d/24", i+1), "dev", "wire")
		in(t, h, "ip", "link", "set", "wire", "up")
		in(t, ns, "ip", "link", "set", port, "master", "b0", "up")
	}
	a.await("the link to be lost", func() bool { return slices.Contains(a.discovered(link), "LinkLost") },
		func() string { return a.run("get", "events") })
	a.await("the switch to be a vertex", func() bool {
		for i := range 2 {
			sendBy(t, ns, fmt.Sprintf("p%d", i), ofSwitch("core1", fmt.Sprintf("Gi1/0/%d", i)))
		}
		out := a.run("get", "substrate", "-o", "wide")
		return strings.Contains(out, here+"--core1") && strings.Contains(out, "far--core1")
	}, func() string { return a.run("get", "substrate", "-o", "wide") + a.run("describe", "node/far") })
	var links []model.SubstrateLinkStatus
	decode(t, a.run("get", "substrate", "-o", "json"), &links)
	if len(links) != 3 {
		t.Errorf("the links are %+v", links)
	}
	b.run("down", "--purge")
}
