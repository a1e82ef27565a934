package system

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/system/attack"
)

// TestRogueRouterAdvertisement has a host tell everybody on its switch that it is their router. Who takes such words is
// an element of the same switch that says so itself; no other element does by default, no other network, no node and no
// companion.
func TestRogueRouterAdvertisement(t *testing.T) {
	attack.Tell(t, "a host tells everybody on its switch that it is their router",
		"nobody takes it but who said so himself: no other element, network, node or companion")
	p := up(t, 2)
	const lab = `network: NAME
routers:
  r1: {node: n1, software: static, forwarding: router}
switches:
  s: {node: n1}
hosts:
  h0: {node: n1}
  h1: {node: n2}
  h2: {node: n1}
links:
  - s -- r1: 2001:db8:1::/64
  - s -- h0
  - s -- h1
  - s -- h2
`
	for _, name := range []string{"lab", "other"} {
		p.run("apply", "-f", file(t, strings.Replace(lab, "NAME", name, 1)))
	}
	p.run("exec", "lab/h2", "--", "sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/s/accept_ra")
	taken := func() (by []string) {
		spaces := map[string]string{"this machine": "/proc/self/ns/net"}
		for _, e := range p.all() {
			spaces[e.ID.String()] = p.dirs.Node(e.Node).Namespace(e.ID)
		}
		for _, pid := range strings.Fields(shell(t, "lsns -n -t net -o PID")) {
			spaces["the namespace of process "+pid] = "/proc/" + pid + "/ns/net"
		}
		for _, name := range []string{"lab", "other"} {
			id := model.ID{Network: name, Element: "r1"}
			spaces[id.String()+"'s companion"] = p.dirs.Node("n1").Companion(id, model.ForwardRouter)
		}
		asked, err := os.Stat(p.namespace("lab", "h2"))
		if err != nil {
			t.Fatal(err)
		}
		for name, path := range spaces {
			if is, err := os.Stat(path); err != nil && !strings.Contains(name, "process") {
				t.Fatal(err)
			} else if err == nil && os.SameFile(is, asked) {
				name = "lab/h2"
			}
			out, _ := exec.Command("nsenter", "--net="+path, "sh", "-c",
				"ip -6 route show table all; ip -6 addr").Output()
			if strings.Contains(string(out), "2001:db8:bad:") || strings.Contains(string(out), "via fe80::bad ") {
				by = append(by, name)
			}
		}
		return by
	}
	if by := taken(); len(by) != 0 {
		t.Fatalf("before anything was sent, %v took it", by)
	}
	p.run("exec", "lab/h0", "--", "ip", "address", "replace", "fe80::bad/64", "dev", "s", "nodad")
	index := strings.TrimSuffix(strings.Fields(in(t, p.namespace("lab", "h0"), "ip", "-o", "link", "show",
		"dev", "s"))[0], ":")
	var sending int
	for _, c := range index {
		sending = 10*sending + int(c-'0')
	}
	advertise := func() {
		within(t, p.namespace("lab", "h0"), func() error {
			fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, 255); err != nil {
				return err
			}
			message := []byte{134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0, // router for 1,800 s
				3, 4, 64, 0xc0, 0, 0, 7, 8, 0, 0, 7, 8, 0, 0, 0, 0, // and a prefix to make addresses of
				0x20, 1, 0xd, 0xb8, 0xb, 0xad, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
			return unix.Sendto(fd, message, 0, &unix.SockaddrInet6{ZoneId: uint32(sending),
				Addr: [16]byte{0: 0xff, 1: 2, 15: 1}})
		})
	}
	var by []string
	p.await("who asked for it to take it", func() bool {
		advertise()
		by = taken()
		return len(by) > 0
	}, func() string { return "nobody took it" })
	for range 5 {
		advertise()
	}
	for _, who := range taken() {
		if who != "lab/h2" {
			t.Errorf("%s took a word that lab/h0 is its router", who)
		}
	}
}
