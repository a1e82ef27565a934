package edge

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/system/attack"
)

// neighbours are how many a gateway has.
func (l *lab) neighbours(gateway string) int {
	l.t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(l.sh(gateway,
		"(ip -4 neigh show dev in nud all; ip -6 neigh show dev in nud all) | wc -l")))
	if err != nil {
		l.t.Fatal(err)
	}
	return n
}

// An element that makes up neighbours fills neither its gateway's table nor, thereby, everybody's.
func TestMadeUpNeighbours(t *testing.T) {
	attack.Tell(t, "an element behind an Internet edge makes up neighbours without end",
		"the gateway forgets them")
	roomForNeighbours(t, 4*maxNeighbours)
	l := newLab(t)
	a := l.element("net-a")
	a.Internet.Gateway, a.Internet.Sources = prefixes("10.0.0.1/16", "fd00::1/64"), prefixes("10.0.0.0/16", "fd00::/64")
	l.must(l.apply(a))
	gateway := l.dirs.Gateway("net-a", "uplink") + "/net"
	l.sh("net-a", "ping -c1 -W10 10.0.0.1; ping -c1 -W10 fd00::1")

	const senders = 2000 // by ARP as many without as within the edge's subnet, and by neighbour solicitation
	began := time.Now()
	l.within("net-a", func() error {
		eth0, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for i := range senders {
			for _, frame := range [][]byte{arpRequest(eth0.HardwareAddr, i, 10), arpRequest(eth0.HardwareAddr, i, 11),
				solicitation(eth0.HardwareAddr, i)} {
				if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: eth0.Index}); err != nil {
					return err
				}
			}
		}
		return nil
	})
	l.sh("net-a", "ping -c1 -W10 10.0.0.1; ping -c1 -W10 fd00::1") // after all that
	most := 2*(500+200*int(time.Since(began)/time.Second+1)) + 10
	if n := l.neighbours(gateway); n > most {
		t.Errorf("after %d made-up senders the gateway has %d neighbours; want at most %d", 3*senders, n, most)
	} else if n < 500 {
		t.Errorf("the gateway has %d neighbours: the made-up senders are not such that it would have entered", n)
	}

	// However they came there, what is too much goes.
	var batch strings.Builder
	for i := range maxNeighbours + 1 {
		fmt.Fprintf(&batch, "neigh replace 10.0.%d.%d lladdr 02:00:00:00:00:01 nud stale dev in\n", 100+i>>8, i&255)
	}
	file := l.dir + "/neighbours"
	if err := os.WriteFile(file, []byte(batch.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	l.sh(gateway, "ip -batch "+file)
	if l.d.Audit() {
		t.Error("the audit finds fault")
	}
	if n := l.neighbours(gateway); n > 20 {
		t.Errorf("after the audit the gateway still has %d neighbours", n)
	}
	l.sh("net-a", "ping -c1 -W10 10.0.0.1; ping -c1 -W10 fd00::1; ping -c1 -W10 "+server4)
	if r := l.must(l.apply(a)); len(r.Changed[a.ID]) != 0 {
		t.Errorf("applied again, something changes: %v", r.Changed)
	}
	l.remove(a.ID)
}

// roomForNeighbours has the machine's table of IPv4 neighbours take so many, as `polyplane up` would have it. What
// somebody else has set meanwhile is left.
func roomForNeighbours(t *testing.T, n int) {
	t.Helper()
	const table = "/proc/sys/net/ipv4/neigh/default/"
	for _, name := range []string{"gc_thresh3", "gc_thresh2", "gc_thresh1"} {
		was, err := os.ReadFile(table + name)
		if err != nil {
			t.Fatal(err)
		}
		set := fmt.Sprintln(n)
		if is, err := strconv.Atoi(strings.TrimSpace(string(was))); err != nil || is >= n {
			continue
		}
		if err := os.WriteFile(table+name, []byte(set), 0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if is, err := os.ReadFile(table + name); err == nil && string(is) == set {
				os.WriteFile(table+name, was, 0) //nolint:errcheck // as it was
			}
		})
	}
}

// arpRequest asks for 10.0.0.1 from the i-th made-up address of a network.
func arpRequest(mac net.HardwareAddr, i int, network byte) []byte {
	f := append(append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, mac...), 8, 6, 0, 1, 8, 0, 6, 4, 0, 1)
	f = append(append(f, mac...), network, 0, byte(1+i>>8), byte(i))
	return append(f, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1)
}

// solicitation asks for fd00::1 from the i-th made-up address of fd00::/64 (RFC 4861, section 4.3).
func solicitation(mac net.HardwareAddr, i int) []byte {
	from, to := netip.MustParseAddr("fd00::1:0:0").As16(), netip.MustParseAddr("fd00::1").As16()
	binary.BigEndian.PutUint16(from[14:], uint16(i))
	group := netip.MustParseAddr("ff02::1:ff00:1").As16()
	message := append(append([]byte{135, 0, 0, 0, 0, 0, 0, 0}, to[:]...), 1, 1)
	message = append(message, mac...)
	sum := uint32(len(message) + unix.IPPROTO_ICMPV6)
	for _, part := range [][]byte{from[:], group[:], message} {
		for n := 0; n < len(part); n += 2 {
			sum += uint32(binary.BigEndian.Uint16(part[n:]))
		}
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(message[2:], ^uint16(sum>>16+sum&0xffff))
	f := append(append([]byte{0x33, 0x33, 0xff, 0, 0, 1}, mac...), 0x86, 0xdd, 0x60, 0, 0, 0, 0, byte(len(message)),
		unix.IPPROTO_ICMPV6, 255)
	return append(append(append(f, from[:]...), group[:]...), message...)
}

// What comes for an edge's forwarded ports takes no more of the table of connections that all edges share than is the
// edge's.
func TestTooManyFromOutside(t *testing.T) {
	attack.Tell(t, "flows from outside to a forwarded port, beyond the edge's part of the table of connections",
		"others' connections go on")
	l := newLab(t)
	a := l.element("net-a", model.Forward{Protocol: model.UDP, Port: 5353, Element: "h", To: 53})
	l.must(l.apply(a))
	o, err := openNamespace(l.dirs.Outlet())
	if err != nil {
		t.Fatal(err)
	}
	defer o.close()
	if err := linux.Inside(o.fd, func() error { // none is forgotten meanwhile, however slow the machine is
		return os.WriteFile("/proc/sys/net/netfilter/nf_conntrack_udp_timeout", []byte("3600"), 0)
	}); err != nil {
		t.Fatal(err)
	}
	l.within("world", func() error {
		for i := range MaxConnections + 500 {
			c, err := net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP("192.0.2.1"), Port: 20000 + i},
				&net.UDPAddr{IP: net.ParseIP(machine4), Port: 5353})
			if err != nil {
				return err
			}
			_, err = c.Write([]byte("hello"))
			c.Close()
			if err != nil {
				return err
			}
		}
		return nil
	})
	l.sh("net-a", "ping -c1 -W10 "+server4) // after all that
	err = linux.Inside(o.fd, func() error {
		b, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count")
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(b)))
		if n > MaxConnections+2 { // and the ping
			t.Errorf("the outlet has %d connections; want at most %d", n, MaxConnections+2)
		}
		if n < MaxConnections/2 {
			t.Errorf("the outlet has %d connections, which is too few to have been bounded", n)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	l.remove(a.ID)
}
