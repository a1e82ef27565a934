package system

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
)

// narrow is a chain of routers with ever smaller MTUs, and back to a larger one.
const narrow = `network: narrow
forwarding: xdp
routers:
  r1: {software: static, node: n1, routes: [0.0.0.0/0 via 10.0.12.2, "::/0 via 2001:db8:12::2"]}
  r2: {software: static, node: n1, routes: [10.0.1.0/24 via 10.0.12.1, 10.0.2.0/24 via 10.0.23.2, "2001:db8:1::/64 via 2001:db8:12::1", "2001:db8:2::/64 via 2001:db8:23::2"]}
  r3: {software: static, node: n2, routes: [0.0.0.0/0 via 10.0.23.1, "::/0 via 2001:db8:23::1"]}
hosts: {h1: {node: n1}, h2: {node: n2}}
links:
  - r1 -- h1: [10.0.1.0/24, "2001:db8:1::/64"]
  - r1 -- r2: {mtu: 1400, prefixes: [10.0.12.0/30, "2001:db8:12::/64"]}
  - r2 -- r3: {mtu: 1300, prefixes: [10.0.23.0/30, "2001:db8:23::/64"]}
  - r3 -- h2: [10.0.2.0/24, "2001:db8:2::/64"]
`

// TestChainUnderXDP: what is not plain transit through a chain of routers that the nodes forward for is as it is
// without them. Senders are told of every hop and of the way's MTU, what may be cut arrives, TCP and UDP find out how
// long their packets may be, options are heeded, routers answer at their own addresses, and captures show it all. Then
// the same where the nodes' kernels forward.
func TestChainUnderXDP(t *testing.T) {
	p := up(t, 2)
	p.run("apply", "-f", file(t, narrow))
	p.run("check", "narrow", "--mesh", "--wait", "3m")
	t.Run("xdp", func(t *testing.T) { chain(t, p.with(t), model.ForwardXDP) })
	for router, way := range map[string]model.Forwarding{"r1": model.ForwardRouter, "r2": model.ForwardBridge,
		"r3": model.ForwardRouter} {
		p.run("set", "narrow/"+router, "forwarding="+string(way))
	}
	sh(t, p.namespace("narrow", "h1"), "ip route flush cache; ip -6 route flush cache")
	before := p.inCompanions("narrow")
	t.Run("companions", func(t *testing.T) { chain(t, p.with(t), model.ForwardRouter) })
	if n := p.inCompanions("narrow") - before; n < 1000 {
		t.Errorf("the companions' kernels forwarded %d packets", n)
	}
}

func chain(t *testing.T, p *platform, way model.Forwarding) {
	h1, h2 := p.namespace("narrow", "h1"), p.namespace("narrow", "h2")
	fastBefore, puntedBefore := p.fast("narrow")
	for _, c := range []struct {
		name, to string
		hops     []string // as told by the interfaces that the packets come in by
		own      []string
		level    int
		discover int
		do       int
		mtu      int
		headers  int
	}{
		{"IPv4", "10.0.2.2", []string{"10.0.1.1", "10.0.12.2", "10.0.23.2", "10.0.2.2"},
			[]string{"10.0.1.1", "10.0.12.1", "10.0.12.2", "10.0.23.1", "10.0.23.2", "10.0.2.1"},
			unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO, unix.IP_MTU, 28},
		{"IPv6", "2001:db8:2::2", []string{"2001:db8:1::1", "2001:db8:12::2", "2001:db8:23::2", "2001:db8:2::2"},
			[]string{"2001:db8:1::1", "2001:db8:12::1", "2001:db8:12::2", "2001:db8:23::1",
				"2001:db8:23::2", "2001:db8:2::1"},
			unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO, unix.IPV6_MTU, 48},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := p.with(t)
			for _, own := range c.own {
				in(t, h1, "ping", "-c1", "-W20", own)
			}
			if hops := p.route("narrow", "h1", c.to); !slices.Equal(hops, c.hops) {
				t.Errorf("the way is shown as %v, and is %v", hops, c.hops)
			}
			// UDP that must not be cut is refused at its sender's once the way is known, a step at a time.
			discovered := udpDiscovers(t, p, h1, h2, c.to, c.level, c.discover, c.do, c.mtu, c.headers)
			if !slices.Equal(discovered, []int{1400, 1300}) {
				t.Errorf("the way's MTU was found to be %v", discovered)
			}
			if got := in(t, h1, "ip", "route", "get", c.to); !strings.Contains(got, "mtu 1300") {
				t.Errorf("nothing was kept of the way's MTU: %s", got)
			}
			in(t, h1, "ping", "-c1", "-W5", "-M", "do", "-s", "1200", c.to)
			in(t, h1, "ping", "-c3", "-i0.05", "-W5", "-M", "dont", "-s", "4000", c.to)
			// A connection that knows nothing of it finds out by itself.
			sh(t, h1, "ip route flush cache; ip -6 route flush cache")
			tcpWhole(t, h1, h2, c.to)
		})
	}
	if out := in(t, h1, "ping", "-c1", "-W5", "-R", "10.0.2.2"); !strings.Contains(out, "10.0.12.1") ||
		!strings.Contains(out, "10.0.23.1") {
		t.Errorf("with the option to record the route:\n%s", out)
	}
	in(t, h1, "ping", "-c1", "-W5", "-s", "4000", "-M", "dont", "10.0.2.2") // fragments of fragments
	packets, punted := uint64(0), map[string]uint64(nil)
	p.await("the fast path's counters", func() bool {
		packets, punted = p.fast("narrow")
		for reason := range punted {
			punted[reason] -= puntedBefore[reason]
		}
		return punted["larger than the MTU"] >= 4 && punted["options"] >= 3 && punted["TTL"] >= 6 &&
			packets-fastBefore >= 1000
	}, func() string { return fmt.Sprintf("%d packets, punted %v", packets-fastBefore, punted) })

	p.fastFlow("narrow", "h1", "h2", "10.0.2.2", 3).isFast(way)

	// Routers between, and at the edge of a node; which way packets go is told from the element's side.
	for _, c := range []struct{ at, request, reply string }{{"r2:r1", "in", "out"}, {"r2:r3", "out", "in"},
		{"r3:h2", "out", "in"}} {
		before, _ := p.fast("narrow")
		capture := p.command("capture", "narrow/"+c.at, "-c", "20", "-w", "-")
		pcap, err := capture.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := capture.Start(); err != nil {
			t.Fatal(err)
		}
		ping := start(t, h1, "ping", "-i0.05", "10.0.2.2")
		decode := exec.Command("tcpdump", "-nn", "-e", "-r", "-")
		decode.Stdin = pcap
		said, err := decode.Output()
		if err != nil {
			t.Fatal(err)
		}
		capture.Wait() //nolint:errcheck // it ends with its 20 packets
		ping.interrupt()
		p.await("the fast path to have taken what was captured",
			func() bool { now, _ := p.fast("narrow"); return now-before >= 2*20 },
			func() string { return "it has not" })
		e := p.elements("narrow")
		mac := func(at string) string {
			element, ifc, _ := strings.Cut(at, ":")
			for _, i := range e[element].Element.Interfaces {
				if i.Name == ifc {
					return i.MAC
				}
			}
			t.Fatalf("there is no %s", at)
			return ""
		}
		element, peer, _ := strings.Cut(c.at, ":")
		ours, theirs := mac(c.at), mac(peer+":"+element)
		from, to := theirs, ours
		if c.request == "out" {
			from, to = ours, theirs
		}
		text, requests, replies := string(said), 0, 0
		for line := range strings.Lines(text) {
			switch {
			case strings.Contains(line, "10.0.1.2 > 10.0.2.2: ICMP echo request") &&
				strings.Contains(line, from+" > "+to):
				requests++
			case strings.Contains(line, "10.0.2.2 > 10.0.1.2: ICMP echo reply") &&
				strings.Contains(line, to+" > "+from):
				replies++
			}
		}
		if requests < 5 || replies < 5 {
			t.Errorf("at %s %d requests and %d replies with the right addresses (%s, %s) were captured:\n%s", c.at,
				requests, replies, from, to, text)
		}
	}
}

// udpDiscovers sends long datagrams that must not be cut, and tells which MTUs of the way the sender learns, one after
// the other; then one that is just as long as the last.
func udpDiscovers(t *testing.T, p *platform, from, to, address string, level, discover, do, mtu,
	headers int) (learnt []int) {
	t.Helper()
	var receive, send *net.UDPConn
	within(t, to, func() (err error) {
		receive, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(address)})
		return err
	})
	defer receive.Close()
	within(t, from, func() (err error) {
		send, err = net.DialUDP("udp", nil, receive.LocalAddr().(*net.UDPAddr))
		return err
	})
	defer send.Close()
	raw, err := send.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	now := 1500
	option := func(f func(fd int) error) {
		t.Helper()
		if e := raw.Control(func(fd uintptr) { err = f(int(fd)) }); e != nil || err != nil {
			t.Fatal(e, err)
		}
	}
	option(func(fd int) error { return unix.SetsockoptInt(fd, level, discover, do) })
	for now > 1300 {
		was := now
		p.await("the sender to be told", func() bool {
			send.Write(make([]byte, was-headers)) //nolint:errcheck // that it is refused, later, is what is waited for
			option(func(fd int) (err error) { now, err = unix.GetsockoptInt(fd, level, mtu); return err })
			return now < was
		}, func() string { return fmt.Sprintf("it has learnt %v", learnt) })
		learnt = append(learnt, now)
	}
	last := make([]byte, now-headers)
	rand.Read(last)
	p.await("the datagram that fits", func() bool {
		_, err := send.Write(last)
		return err == nil
	}, func() string { return "it is refused" })
	for got := make([]byte, 2000); ; {
		n, err := receive.Read(got)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(got[:n], last) {
			return learnt
		}
	}
}

// tcpWhole sends some megabytes by TCP, of which all must come as they were.
func tcpWhole(t *testing.T, from, to, address string) {
	t.Helper()
	var listener net.Listener
	within(t, to, func() (err error) {
		listener, err = net.Listen("tcp", net.JoinHostPort(address, "0"))
		return err
	})
	defer listener.Close()
	sent := make([]byte, 4<<20)
	rand.Read(sent)
	go func() {
		c, err := listener.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		io.Copy(c, c) //nolint:errcheck // what comes back is compared
	}()
	var c net.Conn
	within(t, from, func() (err error) {
		c, err = net.Dial("tcp", listener.Addr().String())
		return err
	})
	defer c.Close()
	go func() {
		c.Write(sent)                 //nolint:errcheck // what comes back is compared
		c.(*net.TCPConn).CloseWrite() //nolint:errcheck // as above
	}()
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("of %d bytes by TCP %d came back: %v", len(sent), len(got), err)
	}
}
