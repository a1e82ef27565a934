package fast_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/fabric/pipeline"
	"github.com/polyplane/polyplane/node/forward"
)

// TestPlane takes two routers through their life.
func TestPlane(t *testing.T) {
	l := newLab(t)
	if lacks := l.plane.Offers(ctx).Lacks(); len(lacks) > 0 {
		t.Fatal(lacks)
	}
	l.ping()
	if n := l.byGuest("r1"); n < 80 {
		t.Errorf("the guest forwarded %d packets", n)
	}
	l.prepare("r1", "r2")
	l.ping() // whatever of neighbours was not known is known now
	before1, before2, guest := l.forwarded("r1"), l.forwarded("r2"), l.byGuest("r1")+l.byGuest("r2")
	l.ping()
	if n1, n2 := l.forwarded("r1").Packets-before1.Packets,
		l.forwarded("r2").Packets-before2.Packets; n1 != 80 || n2 != 80 {
		t.Errorf("of 80 packets each r1 forwarded %d and r2 %d", n1, n2)
	}
	if n := l.byGuest("r1") + l.byGuest("r2"); n != guest {
		t.Errorf("the guests forwarded %d", n-guest)
	}
	if list, err := l.plane.List(ctx); err != nil || len(list) != 2 {
		t.Errorf("listed %v, %v", list, err)
	}
	job := forward.Job{ID: id("h1"), Element: l.jobs[0].Element}
	if r := l.plane.Prepare(ctx, []forward.Job{job}); r[0].Err == nil ||
		!strings.Contains(r[0].Err.Error(), "for routers") {
		t.Errorf("a host on this plane gave %v", r[0].Err)
	}

	// What is switched off in the namespace is off in the data path.
	off := func(router string) uint64 { return l.forwarded(router).Punted["interface does not forward"] }
	l.in("r1", "sysctl -qw net.ipv4.conf.h1.forwarding=0")
	l.await("IPv4 to be forwarded no more", func() bool {
		_, err := l.try("h1", "ping -c1 -W1 10.0.2.2")
		return err != nil && off("r1") > 0
	})
	l.in("h1", "ping -c1 -W10 2001:db8:2::2")
	l.in("r1", "sysctl -qw net.ipv4.conf.h1.forwarding=1")
	l.in("r2", "ip link set r1 down")
	l.await("an interface that is down to take nothing", func() bool {
		_, err := l.try("h1", "ping -c1 -W1 10.0.2.2")
		return err != nil
	})
	l.in("r2", "ip link set r1 up; ip -6 addr replace 2001:db8:1::2/64 dev r1 nodad")
	l.routes()
	l.in("h1", "ping -c3 -i0.2 -W20 10.0.2.2; ping -c1 -W20 2001:db8:2::2")
	l.ping()

	// A table that is full of something else than routes.
	l.in("r2", "ip route replace blackhole 10.0.2.2/32")
	l.await("a blackhole to be one", func() bool {
		l.try("h1", "ping -c1 -W1 10.0.2.2")
		return l.forwarded("r2").Blackholed > 0
	})
	l.in("r2", "ip route del blackhole 10.0.2.2/32")
	l.in("h1", "ping -c3 -i0.2 -W20 10.0.2.2")

	// Back to the guests, and here again.
	l.retire(id("r1"), id("r2"))
	if list, err := l.plane.List(ctx); err != nil || len(list) != 0 {
		t.Errorf("listed %v, %v after all were retired", list, err)
	}
	guest = l.byGuest("r2")
	l.ping()
	if n := l.byGuest("r2") - guest; n != 80 {
		t.Errorf("of 80 packets the guest forwarded %d", n)
	}
	l.prepare("r2")
	l.ping()
	if n := l.forwarded("r2").Packets; n < 80 {
		t.Errorf("of 80 packets r2 forwarded %d", n)
	}
}

// TestRestart ends the agent and starts it anew: packets are forwarded meanwhile, and what is found is taken over. With
// tables that are damaged the guests forward until there are new ones.
func TestRestart(t *testing.T) {
	l := newLab(t)
	l.prepare("r1", "r2")
	l.ping()
	fast := func() uint64 { return l.forwarded("r1").Packets + l.forwarded("r2").Packets }
	before, guest := fast(), l.byGuest("r1")+l.byGuest("r2")
	l.end()
	l.ping() // nobody is there
	l.open()
	l.apply()
	l.ping() // the tables are not yet fed
	if n := fast() - before; n != 320 {
		t.Errorf("%d of 320 packets were forwarded without an agent", n)
	}
	l.prepare("r1", "r2")
	l.ping()
	if n := fast() - before; n != 480 {
		t.Errorf("%d of 480 packets were forwarded until the agent was there again", n)
	}
	if n := l.byGuest("r1") + l.byGuest("r2") - guest; n != 0 {
		t.Errorf("the guests forwarded %d", n)
	}
	l.in("r1", "ip route replace unreachable 10.0.2.2/32")
	l.await("a new route to count", func() bool {
		out, _ := l.try("h1", "ping -c1 -W1 10.0.2.2")
		return strings.Contains(out, "Unreachable")
	})
	l.in("r1", "ip route del unreachable 10.0.2.2/32")

	// Tables that say nothing sensible, and a router whose namespace was made anew while nobody looked.
	l.plane.Close()
	tables := l.fabric.Tables().Tables()
	for n := range tables {
		if tables[n] != 0 {
			tables[n] |= 1<<56 - 1
		}
	}
	if err := l.fabric.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.driver.Remove(ctx, []model.ID{id("r2")}, false); err != nil {
		t.Fatal(err)
	}
	l.open()
	l.elements()
	l.routes()
	l.prepare("r1", "r2")
	l.await("the new tables to forward", func() bool {
		before := fast()
		_, err := l.try("h1", "ping -c1 -W1 10.0.2.2 && ping -c1 -W1 2001:db8:2::2")
		return err == nil && fast()-before == 8 // two packets there and back, through two routers
	})
	before = fast()
	l.ping()
	if n := fast() - before; n != 160 {
		t.Errorf("%d of 160 packets were forwarded by the new tables", n)
	}
	if n := l.fabric.Tables().Tables()[pipeline.Table(1, false)] & (1<<24 - 1); n != 0 {
		t.Errorf("a default route %d came from nowhere", n)
	}
}

// TestDriverHook has the hosts' ports use the driver's hook, and gives it up again: TCP, UDP in fragments, ping and
// traceroute work the same, and the hosts have their offloads back.
func TestDriverHook(t *testing.T) {
	l := newLab(t)
	l.prepare("r1", "r2")
	l.ping()
	features := func() string {
		return l.in("h1", "ethtool -k r1 | grep -E "+
			"'^(tx-checksumming|tx-vlan-offload|generic-receive-offload|tcp-segmentation-offload):'")
	}
	usual := features()
	for _, hook := range []model.Hook{model.HookXDP, model.HookAuto, model.HookTC} {
		on := hook == model.HookXDP
		l.hook = hook
		l.apply()
		for _, device := range []string{l.port("h1", "r1"), l.port("h2", "r2")} {
			out, err := exec.Command("ip", "link", "show", device).CombinedOutput()
			if err != nil || strings.Contains(string(out), " xdp ") != on {
				t.Errorf("hook %v: %v\n%s", hook, err, out)
			}
		}
		if use := l.report.Hooks[model.PortID{ID: id("r1"), Interface: "h1"}]; (use.Hook == model.HookXDP) != on ||
			use.Why == "" {
			t.Errorf("hook %s: %+v is reported", hook, use)
		}
		if is := features(); (is == usual) == on {
			t.Errorf("hook %s: the host has\n%s", hook, is)
		}
		before, guest := l.forwarded("r1"), l.byGuest("r1")
		l.ping()
		l.in("h1", "ping -c3 -i0.01 -W10 -s 4000 10.0.2.2") // in fragments
		is := l.forwarded("r1")
		if n := is.Packets - before.Packets; n != 80+18 {
			t.Errorf("hook %v: of 98 packets %d were forwarded", hook, n)
		}
		if n := is.Driver - before.Driver; n != map[bool]uint64{true: 98}[on] {
			t.Errorf("hook %v: %d of 98 packets took the driver's", hook, n)
		}
		if n := l.byGuest("r1") - guest; n != 0 {
			t.Errorf("hook %v: the guest forwarded %d", hook, n)
		}
		if out, err := l.try("h1", "traceroute -n -q1 -w5 10.0.2.2"); err != nil ||
			!strings.Contains(out, "10.0.0.1") || !strings.Contains(out, "10.0.1.2") {
			t.Errorf("hook %v: %v\n%s", hook, err, out)
		}
		if on {
			l.transfer()
		}
	}
}

// transfer sends a few megabytes from h1 to h2 by TCP, over both families.
func (l *lab) transfer() {
	l.Helper()
	for _, to := range []string{"10.0.2.2", "2001:db8:2::2"} {
		server := exec.Command("nsenter", "--net="+l.dirs.Namespace(id("h2")), "iperf3", "-s", "-1")
		if err := server.Start(); err != nil {
			l.Fatal(err)
		}
		l.await("iperf3 to listen", func() bool { out, _ := l.try("h2", "ss -Hltn sport = 5201"); return out != "" })
		out, err := l.try("h1", "iperf3 -n 4M -c "+to)
		if err != nil {
			l.Errorf("TCP to %s: %v\n%s", to, err, out)
			server.Process.Kill() //nolint:errcheck // it may have ended
		}
		server.Wait() //nolint:errcheck // the client tells
	}
}

// TestNeighboursAreConfirmed gives a router a neighbour's wrong MAC address, of long ago: its own stack would find out
// when it sends there, and does so although it does not.
func TestNeighboursAreConfirmed(t *testing.T) {
	l := newChain(t, 1)
	l.in("r1", "for f in 4 6; do sysctl -qw net.ipv$f.neigh.h2.delay_first_probe_time=1 "+
		"net.ipv$f.neigh.h2.retrans_time_ms=50; done")
	l.prepare("r1")
	for _, to := range []string{"10.0.1.2", "2001:db8:1::2"} {
		l.in("h1", "ping -c3 -i0.1 -W10 "+to)
		l.in("r1", "ip neigh replace "+to+" lladdr 02:00:00:00:00:99 nud stale extern_learn dev h2")
		l.await("the wrong address to be used", func() bool {
			_, err := l.try("h1", "ping -c1 -W0.1 "+to)
			return err != nil
		})
		guest := l.byGuest("r1")
		l.await("the right address to be found out", func() bool {
			l.plane.Confirm(ctx, map[model.ID]uint64{id("r1"): l.forwarded("r1").Packets})
			_, err := l.try("h1", "ping -c1 -W0.1 "+to)
			return err == nil
		})
		l.in("h1", "ping -c20 -i0.01 -W10 "+to)
		if n := l.byGuest("r1") - guest; n > 20 {
			t.Errorf("the guest forwarded %d packets to %s", n, to)
		}
		// The mark keeps it when the table is full.
		if out := l.in("r1", "ip neigh show "+to); !strings.Contains(out, "extern_learn") {
			t.Errorf("asking it changed the entry to %q", out)
		}
	}
}

// TestGuestForwardsWithoutAMirror has what follows a router's routes fail: tables that nobody keeps right are not used.
func TestGuestForwardsWithoutAMirror(t *testing.T) {
	l := newChain(t, 1)
	l.prepare("r1")
	l.in("h1", "ping -c3 -i0.1 -W10 10.0.1.2")
	l.plane.Break(id("r1"))
	before, guest := l.forwarded("r1").Packets, l.byGuest("r1")
	l.in("h1", "ping -c5 -i0.01 -W10 10.0.1.2; ping -c5 -i0.01 -W10 2001:db8:1::2")
	if n, g := l.forwarded("r1").Packets-before, l.byGuest("r1")-guest; n != 0 || g < 20 {
		t.Errorf("of 20 packets the tables forwarded %d, the guest %d", n, g)
	}
	l.prepare("r1")
	before = l.forwarded("r1").Packets
	l.in("h1", "ping -c5 -i0.01 -W10 10.0.1.2")
	if n := l.forwarded("r1").Packets - before; n < 8 {
		t.Errorf("of 10 packets the new tables forwarded %d", n)
	}
}
