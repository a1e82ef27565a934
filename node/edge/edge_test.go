package edge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
)

// Two networks with the same addresses reach the world at once, and nothing else: not each other, not the machine.
func TestTwoNetworksWithTheSameAddresses(t *testing.T) {
	l := newLab(t)
	l.serve("world", 80)
	l.serve("machine", 8080)
	a, b := l.element("net-a"), l.element("net-b")
	l.serve("net-b", 80)
	before := l.state()
	l.must(l.apply(a, b))
	for _, from := range []string{"net-a", "net-b"} {
		l.reaches(from, "tcp", server4+":80", "world "+machine4+":")
		l.reaches(from, "udp", server4+":80", "world "+machine4+":")
		l.reaches(from, "tcp", "["+server6+"]:80", "world ["+machine6+"]:")
		l.reaches(from, "udp", "["+server6+"]:80", "world ["+machine6+"]:")
		l.sh(from, "ping -c1 -W10 "+server4)
		l.sh(from, "ping -c1 -W10 "+server6)
		l.sh(from, "ping -c1 -W10 -M do -s 1472 "+server4)
		l.sh(from, "ping -c1 -W10 -s 4000 "+server4) // in fragments, there and back
		l.sh(from, "ping -c1 -W10 -s 4000 "+server6)
		l.sh(from, "ping -c1 -W10 10.0.0.1") // its gateway
	}
	v4, v6 := transitAddresses(firstNumber + 1) // b's gateway, towards the outlet
	for _, to := range []string{machine4, other4, "10.0.0.1", outlet4.String(), v4.String(), "[" + machine6 + "]",
		"[" + v6.String() + "]"} {
		for _, port := range []string{"8080", "80"} {
			l.blocked("net-a", "tcp", to+":"+port)
		}
	}
	// An address that the network does not have does not leave; one that it has beyond a router does.
	l.sh("net-a", "ip addr add 198.18.0.1/32 dev lo")
	if out, err := l.try("net-a", "ping -c1 -W1 -I 198.18.0.1 "+server4); err == nil {
		t.Errorf("a made-up source address passes:\n%s", out)
	}
	l.sh("net-a", "ping -c1 -W10 -I 10.1.0.1 "+server4)
	// The machine's own pings and connections are its own.
	l.sh("machine", "ping -c1 -W10 -e 61005 "+server4)
	l.reaches("machine", "tcp", server4+":80", "world "+machine4+":")

	if l.d.Audit() {
		t.Error("the audit finds fault with what was just made")
	}
	if r := l.must(l.apply(a, b)); len(r.Changed[a.ID])+len(r.Changed[b.ID]) != 0 {
		t.Errorf("applied again, something changes: %v", r.Changed)
	}
	l.remove(a.ID)
	l.reaches("net-b", "tcp", server4+":80", "world "+machine4+":")
	l.remove(b.ID)
	same(t, "after the last edge", before, l.state())
	if _, err := os.Stat(l.dirs.Outlet()); !os.IsNotExist(err) {
		t.Error("the outlet is still there")
	}
}

// Nothing leaves that other nodes would take for the machine's own: not to the ports of tunnels and probes, as a
// request or as a reply, and nothing at all to their addresses. Nor does anything reach a cloud's metadata service.
func TestWhatMustNotLeave(t *testing.T) {
	l := newLab(t)
	l.sh("world", "ip addr add 100.100.100.200/32 dev lo; ip addr add fd00:ec2::254/128 dev lo")
	for _, port := range []int{80, model.TunnelPort, model.LinkProbePort} {
		l.serve("world", port)
	}
	a := l.element("net-a", model.Forward{Protocol: model.UDP, Port: 5353, Element: "h", To: 53})
	l.serve("net-a", 53)
	l.must(l.apply(a))
	l.reaches("net-a", "udp", server4+":80", "world ")
	for _, to := range []string{server4, "[" + server6 + "]"} {
		for _, port := range []int{model.TunnelPort, model.LinkProbePort} {
			l.blocked("net-a", "udp", fmt.Sprint(to, ":", port))
		}
	}
	l.reaches("net-a", "tcp", fmt.Sprint(server4, ":", model.TunnelPort), "world ")
	for _, to := range []string{"100.100.100.200:80", "[fd00:ec2::254]:80"} {
		l.blocked("net-a", "tcp", to)
	}

	answered := func(port int) (yes bool) {
		l.within("world", func() error {
			c, err := net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP("192.0.2.1"), Port: port},
				&net.UDPAddr{IP: net.ParseIP(machine4), Port: 5353})
			if err != nil {
				return err
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(blocked))
			if _, err := c.Write([]byte("who?")); err != nil {
				return err
			}
			n, _ := c.Read(make([]byte, 100))
			yes = n > 0
			return nil
		})
		return yes
	}
	await(t, "a forwarded port answers", func() bool { return answered(5000) })
	// The world's own server has the address server4, so that this one is free.
	if answered(model.TunnelPort) {
		t.Error("a reply leaves for the port of tunnels")
	}

	l.reaches("net-a", "tcp", "192.0.2.1:80", "world ")
	l.nodes = addresses("192.0.2.1", "2001:db8:2::1")
	l.must(l.apply(a))
	l.blocked("net-a", "tcp", "192.0.2.1:80")
	l.blocked("net-a", "tcp", "[2001:db8:2::1]:80")
	l.reaches("net-a", "tcp", server4+":80", "world ")
	l.remove(a.ID)
}

func (l *lab) remove(ids ...ID) {
	l.t.Helper()
	if err := l.d.Remove(context.Background(), ids); err != nil {
		l.t.Fatal(err)
	}
}

// state is everything of the machine that an edge could change; link-local addresses the kernel makes in its own time.
func (l *lab) state() string {
	return l.sh("machine", `ip -br link | cut -d' ' -f1; ip addr | grep inet | grep -v fe80; ip route show table all; ip -6 route show table all | grep -v fe80
nft list ruleset; tc qdisc show dev eth0; tc filter show dev eth0 ingress
for f in /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv4/conf/*/forwarding /proc/sys/net/ipv6/conf/*/forwarding; do echo $f $(cat $f); done`)
}

// Forwarded ports lead in from outside, and from the machine itself; connections go on when the agent ends.
func TestForwards(t *testing.T) {
	l := newLab(t)
	a := l.element("net-a", model.Forward{Port: 2222, Element: "h", To: 22},
		model.Forward{Protocol: model.UDP, Port: 5353, Element: "h", To: 22},
		model.Forward{Address: netip.MustParseAddr("127.0.0.1"), Port: 2223, Element: "h", To: 22})
	l.serve("net-a", 22)
	l.serve("machine", 2224)
	l.must(l.apply(a))
	for _, x := range []struct{ from, network, to, who string }{
		{"world", "tcp", machine4 + ":2222", "net-a 192.0.2.1:"},
		{"world", "tcp", "[" + machine6 + "]:2222", "net-a [2001:db8:2::1]:"},
		{"world", "udp", machine4 + ":5353", "net-a 192.0.2.1:"},
		{"machine", "tcp", "127.0.0.1:2222", "net-a 10.0.0.1:"},
		{"machine", "tcp", "[::1]:2222", "net-a 10.0.0.1:"},
		{"machine", "tcp", machine4 + ":2222", "net-a 10.0.0.1:"},
		{"machine", "tcp", other4 + ":2222", "net-a 10.0.0.1:"},
		{"machine", "udp", "127.0.0.1:5353", "net-a 10.0.0.1:"},
		{"machine", "tcp", "127.0.0.1:2223", "net-a 10.0.0.1:"},
		{"world", "tcp", machine4 + ":2224", "machine "},
	} {
		l.reaches(x.from, x.network, x.to, x.who)
	}
	l.blocked("world", "tcp", machine4+":2223")
	l.blocked("world", "tcp", machine4+":22")

	// A connection by the uplink needs no agent.
	l.within("world", func() error {
		c, err := net.Dial("tcp", machine4+":2222")
		if err != nil {
			return err
		}
		defer c.Close()
		echo := func() error {
			_, err := c.Write([]byte("still there\n"))
			if err == nil {
				_, err = c.Read(make([]byte, 100))
			}
			return err
		}
		if err := echo(); err != nil {
			return err
		}
		l.d.Close()
		l.d = nil
		if err := echo(); err != nil {
			return fmt.Errorf("without the agent: %w", err)
		}
		l.open()
		l.must(l.apply(a))
		return echo()
	})
	l.reaches("machine", "tcp", "127.0.0.1:2222", "net-a 10.0.0.1:")

	// A port that is taken away leads nowhere.
	a.Internet.Forwards = a.Internet.Forwards[1:]
	l.must(l.apply(a))
	l.blocked("world", "tcp", machine4+":2222")
	l.reaches("world", "udp", machine4+":5353", "net-a 192.0.2.1:")

	// One that somebody else listens on is refused with its name, and stays that one's.
	a.Internet.Forwards = append(a.Internet.Forwards, model.Forward{Port: 2224, Element: "h", To: 22})
	r := l.apply(a)
	if err := r.Failed[a.ID]; err == nil || !strings.Contains(err.Error(), "is taken by edge.test (process") {
		t.Errorf("a port that is taken: %v", err)
	}
	l.reaches("world", "tcp", machine4+":2224", "machine ")
	l.remove(a.ID)
}

// A port that a service had when it was asked for is not taken while the service is restarted.
func TestTakenPortStaysTheServices(t *testing.T) {
	l := newLab(t)
	a := l.element("net-a", model.Forward{Port: 2225, Element: "h", To: 22})
	l.serve("net-a", 22)
	var service net.Listener
	l.within("machine", func() (err error) {
		service, err = net.Listen("tcp", ":2225")
		return err
	})
	for _, when := range []string{"while the service runs", "once it has ended"} {
		if r := l.apply(a); r.Failed[a.ID] == nil || !strings.Contains(r.Failed[a.ID].Error(),
			"port 2225 of the machine is taken by edge.test") {
			t.Errorf("%s: %v", when, r.Failed[a.ID])
		}
		service.Close()
	}
	l.within("machine", func() (err error) {
		service, err = net.Listen("tcp", ":2225")
		return err
	})
	service.Close()
	// Asked for anew, it is given.
	forwards := a.Internet.Forwards
	a.Internet.Forwards = nil
	l.must(l.apply(a))
	a.Internet.Forwards = forwards
	l.must(l.apply(a))
	l.reaches("world", "tcp", machine4+":2225", "net-a ")
	l.remove(a.ID)
}

// Whatever somebody takes away comes back.
func TestRepair(t *testing.T) {
	l := newLab(t)
	l.serve("world", 80)
	a := l.element("net-a", model.Forward{Port: 2222, Element: "h", To: 22})
	l.serve("net-a", 22)
	r := l.must(l.apply(a))
	device := r.Devices[a.ID]
	gateway := l.dirs.Gateway("net-a", "uplink") + "/net"
	for _, x := range []struct{ what, where, how string }{
		{"the outlet's rules", l.dirs.Outlet(), "nft flush ruleset"},
		{"the gateway's rules", gateway, "nft flush ruleset"},
		{"the filter at the uplink", l.path("machine"), "tc qdisc del dev eth0 clsact"},
		{"the device towards the outlet", gateway, "ip link del out"},
		{"the device towards the network", l.path("machine"), "ip link del " + device},
		{"the way from the outlet", l.dirs.Outlet(), "ip link del dev up"},
		{"the gateway's namespace", l.path("machine"), "umount -l " + gateway},
		{"the outlet's namespace", l.path("machine"), "umount -l " + l.dirs.Outlet()},
	} {
		l.sh(x.where, x.how)
		if x.what != "the device towards the network" && !l.d.Audit() { // of that the agent is told
			t.Errorf("the audit does not notice that %s went", x.what)
		}
		r := l.must(l.apply(a))
		if len(r.Changed[a.ID]) == 0 && x.what != "the outlet's rules" {
			t.Errorf("nothing is told of %s having been restored", x.what)
		}
		l.reaches("net-a", "tcp", server4+":80", "world "+machine4+":")
		l.reaches("world", "tcp", machine4+":2222", "net-a ")
		if l.d.Audit() {
			t.Errorf("the audit still finds fault after %s was restored", x.what)
		}
	}

	// Another uplink, another address: the way follows.
	l.sh("machine", "ip addr add 192.0.2.3/24 dev eth0; ip route replace default via 192.0.2.1 src 192.0.2.3")
	if !l.d.Audit() {
		t.Error("the audit does not notice the uplink's new address")
	}
	l.must(l.apply(a))
	l.reaches("net-a", "tcp", server4+":80", "world 192.0.2.3:")
	l.sh("machine", "ip route del default")
	if r := l.must(l.apply(a)); r.Warning != "" {
		t.Errorf("with IPv6 alone it leads nowhere: %s", r.Warning)
	}
	if _, err := l.ask("net-a", "tcp", server4+":80", wait); err == nil ||
		!strings.Contains(err.Error(), "no route to host") {
		t.Errorf("without a default route IPv4 is answered with: %v; want: no route to host", err)
	}
	l.reaches("net-a", "tcp", "["+server6+"]:80", "world ["+machine6+"]:")
	l.sh("machine", "ip -6 route del default")
	if r := l.must(l.apply(a)); !strings.Contains(r.Warning, "no default route") {
		t.Errorf("without an uplink the warning is %q", r.Warning)
	}
	l.sh("machine", "ip route add default via 192.0.2.1")
	if !l.d.Audit() {
		t.Error("the audit does not notice that there is an uplink again")
	}
	l.must(l.apply(a))
	l.reaches("net-a", "tcp", server4+":80", "world ")
	l.remove(a.ID)
}

// The rule sets of Docker and firewalld, both of which drop what the machine would forward, are in nobody's way, and
// stay as they are.
func TestOthersRules(t *testing.T) {
	l := newLab(t)
	l.serve("world", 80)
	a := l.element("net-a", model.Forward{Port: 2222, Element: "h", To: 22})
	l.serve("net-a", 22)
	for name, rules := range map[string]string{"Docker": dockerRules, "firewalld": firewalldRules} {
		script := l.dir + "/rules"
		if err := os.WriteFile(script, []byte(rules), 0o600); err != nil {
			t.Fatal(err)
		}
		l.sh("machine", "nft flush ruleset; nft -f "+script)
		before := l.state()
		l.must(l.apply(a))
		l.reaches("net-a", "tcp", server4+":80", "world "+machine4+":")
		l.reaches("net-a", "udp", server4+":80", "world "+machine4+":")
		l.reaches("world", "tcp", machine4+":2222", "net-a ")
		if now := l.sh("machine", "nft list ruleset"); !strings.Contains(before, now) {
			t.Errorf("%s's rules changed to:\n%s", name, now)
		}
		l.remove(a.ID)
		same(t, "beside "+name+"'s rules", before, l.state())
	}
}

// dockerRules are what Docker 27 makes by iptables-nft, for a bridge with a published port.
const dockerRules = `table ip filter {
 chain INPUT { type filter hook input priority filter; policy accept; }
 chain DOCKER { iifname != "docker0" oifname "docker0" ip daddr 172.17.0.2 tcp dport 80 counter accept; }
 chain DOCKER-ISOLATION-STAGE-1 { iifname "docker0" oifname != "docker0" counter jump DOCKER-ISOLATION-STAGE-2; counter return; }
 chain DOCKER-ISOLATION-STAGE-2 { oifname "docker0" counter drop; counter return; }
 chain DOCKER-USER { counter return; }
 chain FORWARD { type filter hook forward priority filter; policy drop;
  counter jump DOCKER-USER
  counter jump DOCKER-ISOLATION-STAGE-1
  oifname "docker0" ct state related,established counter accept
  oifname "docker0" counter jump DOCKER
  iifname "docker0" counter accept; }
}
table ip nat {
 chain DOCKER { iifname "docker0" counter return; iifname != "docker0" tcp dport 8080 counter dnat to 172.17.0.2:80; }
 chain PREROUTING { type nat hook prerouting priority dstnat; policy accept; fib daddr type local counter jump DOCKER; }
 chain OUTPUT { type nat hook output priority -100; policy accept; ip daddr != 127.0.0.0/8 fib daddr type local counter jump DOCKER; }
 chain POSTROUTING { type nat hook postrouting priority srcnat; policy accept; oifname != "docker0" ip saddr 172.17.0.0/16 counter masquerade; }
}
`

// firewalldRules are the skeleton of what firewalld 1.3 makes for the zone public.
const firewalldRules = `table inet firewalld {
 chain filter_INPUT { type filter hook input priority filter + 10; policy accept;
  ct state { established, related } accept
  ct status dnat accept
  iifname "lo" accept
  ct state invalid drop
  jump filter_INPUT_ZONES
  reject with icmpx admin-prohibited; }
 chain filter_FORWARD { type filter hook forward priority filter + 10; policy accept;
  ct state { established, related } accept
  ct status dnat accept
  iifname "lo" accept
  ct state invalid drop
  jump filter_FORWARD_ZONES
  reject with icmpx admin-prohibited; }
 chain filter_OUTPUT { type filter hook output priority filter + 10; policy accept; }
 chain filter_INPUT_ZONES { iifname "eth0" goto filter_IN_public; goto filter_IN_public; }
 chain filter_FORWARD_ZONES { goto filter_FWD_public; }
 chain filter_IN_public { tcp dport 22 accept; meta l4proto { icmp, 58 } accept; }
 chain filter_FWD_public { reject with icmpx admin-prohibited; }
}
`

// Two instances on one machine speak from different ports.
func TestTwoInstances(t *testing.T) {
	l := newLab(t)
	l.serve("world", 80)
	a, b := l.element("net-a"), l.element("net-b")
	l.must(l.apply(a))
	first, ours := l.d, l.dirs
	defer first.Close()
	l.dirs.Instance += "-2"
	l.dirs.Run = strings.Replace(ours.Run, "/run/test/", "/run/test2/", 1)
	if err := os.MkdirAll(l.dirs.Run, 0o700); err != nil {
		t.Fatal(err)
	}
	l.d = nil
	l.open()
	l.must(l.apply(b))
	port := func(from string) string {
		answer, err := l.ask(from, "tcp", server4+":80", wait)
		if err != nil {
			t.Fatal(err)
		}
		return answer[strings.LastIndex(answer, ":")+1:]
	}
	p, q := port("net-a"), port("net-b")
	if p < "61000" || p > "62023" || q < "62024" || q > "63047" {
		t.Errorf("the instances speak from the ports %s and %s; want one of 61000 to 62023 and one of 62024 to 63047",
			p, q)
	}
	l.remove(b.ID)
	l.reaches("net-a", "tcp", server4+":80", "world ")
	if err := first.Remove(context.Background(), []ID{a.ID}); err != nil {
		t.Fatal(err)
	}
	if out := l.sh("machine", "tc qdisc show dev eth0"); strings.Contains(out, "clsact") {
		t.Errorf("the uplink's queueing disciplines are left as\n%s", out)
	}
}

// Of two nodes that share the outlet, both notice that their rules there went, whichever is the first to restore its
// own.
func TestTwoNodesRestoreTheOutlet(t *testing.T) {
	l := newLab(t)
	a := l.element("net-a", model.Forward{Protocol: model.UDP, Port: 5353, Element: "h", To: 53})
	b := l.element("net-b", model.Forward{Protocol: model.UDP, Port: 5354, Element: "h", To: 53})
	l.serve("net-a", 53)
	l.must(l.apply(a))
	first, ours := l.d, l.dirs
	defer first.Close()
	l.dirs.Node = "m"
	l.dirs.Run = strings.TrimSuffix(ours.Run, "/n") + "/m"
	l.d = nil
	l.open()
	l.must(l.apply(b))
	if first.Audit() || l.d.Audit() {
		t.Fatal("an audit finds fault with what was just made")
	}
	l.sh(l.dirs.Outlet(), "nft flush ruleset")
	l.must(l.apply(b))
	if l.d.Audit() {
		t.Error("the audit of the node that has restored its rules finds fault")
	}
	if !first.Audit() {
		t.Error("the other node's audit does not notice that its rules went")
	}
	l.must(first.Apply(context.Background(), []Edge{a}, nil))
	l.reaches("world", "udp", machine4+":5353", "net-a ")
	if first.Audit() || l.d.Audit() {
		t.Error("an audit finds fault with what was restored")
	}
	l.remove(b.ID)
	if first.Audit() {
		t.Error("the audit finds fault with the other node's edge having gone")
	}
	if err := first.Remove(context.Background(), []ID{a.ID}); err != nil {
		t.Fatal(err)
	}
}

// What was made is taken away without the driver: when the instance ends.
func TestRelease(t *testing.T) {
	l := newLab(t)
	a := l.element("net-a")
	before := l.state()
	l.must(l.apply(a))
	l.d.Close()
	l.d = nil
	l.within("machine", func() error {
		ns, err := openNamespace("/proc/thread-self/ns/net")
		if err != nil {
			return err
		}
		defer ns.close()
		return release(ns, l.dirs.Instance)
	})
	for _, m := range []string{l.dirs.Gateway("net-a", "uplink") + "/net", l.dirs.Outlet(), l.dirs.Outlet() + ".bpf"} {
		if err := unix.Unmount(m, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", m, err)
		}
	}
	await(t, "the machine is as before", func() bool { return l.state() == before })
}

func TestProbe(t *testing.T) {
	if err := Probe(); err != nil {
		t.Fatalf("internet edges are refused on this machine: %v", err)
	}
	if err := linux.Inside(-1, func() error { return nil }); err == nil {
		t.Error("a namespace that is none can be entered")
	}
}

// A relay that waits for an element which does not answer ends when it is told to.
func TestRelayEndsWhileItDials(t *testing.T) {
	l := newLab(t)
	l.sh("world", "nft 'add table ip t; add chain ip t c { type filter hook input priority 0; }; add rule ip t c tcp "+
		"dport 9 drop'")
	ns, err := openNamespace(l.path("machine"))
	if err != nil {
		t.Fatal(err)
	}
	defer ns.close()
	r := relay{inside: ns.fd, targets: []netip.AddrPort{netip.MustParseAddrPort(server4 + ":9"),
		netip.MustParseAddrPort(server4 + ":9")}}
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := r.dial(ctx, "tcp"); !errors.Is(err, context.Canceled) {
		t.Errorf("the dial ends with: %v; want: %v", err, context.Canceled)
	}
}
