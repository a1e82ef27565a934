package fast_test

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/forward"
	"github.com/polyplane/polyplane/node/forward/forwardtest"
	"github.com/polyplane/polyplane/node/forward/guest"
	"github.com/polyplane/polyplane/node/forward/kernel"
)

// planes are the ways that a router's packets can take, as an agent has them.
func (l *lab) planes() map[model.Forwarding]forward.Plane {
	l.Helper()
	all := map[model.Forwarding]forward.Plane{model.ForwardXDP: l.plane, model.ForwardGuest: guest.Plane{}}
	for _, way := range []model.Forwarding{model.ForwardRouter, model.ForwardBridge} {
		k, err := kernel.New(l.dirs, l.plane, way)
		if err != nil {
			l.Fatal(err)
		}
		l.Cleanup(func() { k.Close() })
		all[way] = k
	}
	return all
}

// change has routers forward in a way.
func (l *lab) change(planes map[model.Forwarding]forward.Plane, way model.Forwarding, names ...string) {
	l.Helper()
	ways := map[string]model.Forwarding{}
	for _, name := range names {
		ways[name] = way
	}
	l.pass(planes, ways)
}

// pass is an agent's: all planes are told of their routers, the fabric steers, and planes retire what they have of
// others.
func (l *lab) pass(planes map[model.Forwarding]forward.Plane, ways map[string]model.Forwarding) {
	l.Helper()
	clear(l.steering)
	for name, plane := range planes {
		var jobs []forward.Job
		for _, j := range l.jobs {
			if ways[j.ID.Element] == name {
				jobs = append(jobs, l.job(&j))
			}
		}
		l.take(plane, name, jobs)
	}
	l.apply()
	for name, plane := range planes {
		found, err := plane.List(ctx)
		if err != nil {
			l.Fatal(err)
		}
		found = slices.DeleteFunc(found, func(id model.ID) bool { return ways[id.Element] == name })
		if len(found) > 0 {
			forwardtest.Retire(l, plane, found...)
		}
	}
}

// inCompanion runs a command there.
func (l *lab) inCompanion(router string, way model.Forwarding, command string) string {
	l.Helper()
	out, err := exec.Command("nsenter", "--net="+l.dirs.Companion(id(router), way), "sh", "-c",
		command).CombinedOutput()
	if err != nil {
		l.Fatalf("%s's companion: %s: %v\n%s", router, command, err, out)
	}
	return string(out)
}

// byCompanion tells how many packets a companion's kernel forwarded.
func (l *lab) byCompanion(router string, way model.Forwarding) (n int) {
	l.Helper()
	return l.kernelForwarded(l.inCompanion(router, way, "nstat -asz IpForwDatagrams Ip6OutForwDatagrams"))
}

func (l *lab) kernelForwarded(nstat string) (n int) {
	for line := range strings.Lines(nstat) {
		var k int
		if f := strings.Fields(line); len(f) > 1 && f[0][0] == 'I' {
			fmt.Sscanf(f[1], "%d", &k)
			n += k
		}
	}
	return n
}

func TestKernel(t *testing.T) {
	for _, way := range []model.Forwarding{model.ForwardRouter, model.ForwardBridge} {
		t.Run(string(way), func(t *testing.T) {
			l := newLab(t)
			planes := l.planes()
			if lacks := planes[way].Offers(ctx).Lacks(); len(lacks) > 0 {
				t.Fatal(lacks)
			}
			l.ping()
			l.change(planes, way, "r1", "r2")
			l.ping()
			fast, guest, companion := l.forwarded("r1"), l.byGuest("r1")+l.byGuest("r2"), l.byCompanion("r1", way)+
				l.byCompanion("r2", way)
			l.ping()
			if f := l.forwarded("r1"); f.Packets-fast.Packets != 80 || f.Companion-fast.Companion != 80 {
				t.Errorf("of 80 packets r1 forwarded %d, its companion %d: %v", f.Packets-fast.Packets,
					f.Companion-fast.Companion, f)
			}
			if n := l.byGuest("r1") + l.byGuest("r2") - guest; n != 0 {
				t.Errorf("the guests forwarded %d", n)
			}
			if n := l.byCompanion("r1", way) + l.byCompanion("r2", way) - companion; n != 160 {
				t.Errorf("of 160 packets the companions' kernels forwarded %d", n)
			}
			if list, err := planes[way].List(ctx); err != nil || len(list) != 2 {
				t.Errorf("listed %v, %v", list, err)
			}
			if tr, err := l.trace("r1",
				model.TraceRequest{Destination: netip.MustParseAddr("10.0.2.2")}); err != nil ||
				tr.Verdict != model.Forwarded || tr.By != way || tr.Kernel != "r2" || tr.Way.Interface != "r2" {
				t.Errorf("a packet's way is %+v: %v", tr, err)
			}
			// Every hop is seen, with its own address, and who asks a router gets an answer from it.
			if out := l.in("h1", "traceroute -n -q1 -w5 10.0.2.2"); !strings.Contains(out, "10.0.0.1") ||
				!strings.Contains(out, "10.0.1.2") {
				t.Error(out)
			}
			l.in("h1", "ping -c1 -W10 10.0.0.1; ping -c1 -W10 10.0.1.2; ping -c1 -W10 2001:db8:1::2; ping -c1 -W10 "+
				"-s 4000 10.0.2.2")

			// The companions follow the routers' tables.
			l.in("r1", "ip route replace unreachable 10.0.2.2/32")
			l.await("a new route to count", func() bool {
				out, _ := l.try("h1", "ping -c1 -W1 10.0.2.2")
				return strings.Contains(out, "Unreachable")
			})
			l.in("r1", "ip route del unreachable 10.0.2.2/32")
			l.in("h1", "ping -c3 -i0.2 -W20 10.0.2.2")
			l.in("r2", "ip link set r1 down")
			l.await("an interface that is down to take nothing", func() bool {
				_, err := l.try("h1", "ping -c1 -W1 10.0.2.2")
				return err != nil
			})
			l.in("r2", "ip link set r1 up; ip -6 addr replace 2001:db8:1::2/64 dev r1 nodad")
			l.routes()
			l.in("h1", "ping -c3 -i0.2 -W20 10.0.2.2; ping -c1 -W20 2001:db8:2::2")
			l.ping()

			// Nothing is left of them.
			l.change(planes, model.ForwardGuest)
			for name, plane := range planes {
				if list, err := plane.List(ctx); err != nil || len(list) != 0 {
					t.Errorf("%s lists %v, %v after all were retired", name, list, err)
				}
			}
			if out, err := exec.Command("ip", "-o", "link").CombinedOutput(); err != nil ||
				strings.Contains(string(out), "companion") {
				t.Errorf("devices are left: %v\n%s", err, out)
			}
			guest = l.byGuest("r2")
			l.ping()
			if n := l.byGuest("r2") - guest; n != 80 {
				t.Errorf("of 80 packets the guest forwarded %d", n)
			}
		})
	}
}

// flood pings from h1 in the background until the answer is asked for: how many were sent, and how many came back. It
// is h1's kernel that counts the answers: ping ends at once when it is told to, and does not see those that are on their
// way then. Other pings of that family from h1 must be answered too, and there is one flood for each.
func (l *lab) flood(to string) (end func() (sent, received int)) {
	l.Helper()
	file, asked, answered := "snmp", "IcmpMsg: OutType8", "IcmpMsg: InType0"
	if strings.Contains(to, ":") {
		file, asked, answered = "snmp6", "Icmp6OutEchos", "Icmp6InEchoReplies"
	}
	missing := func() (missing, all int) {
		counters := l.counters("h1", file)
		return counters[asked] - counters[answered], counters[asked]
	}
	missed, all := missing()
	var out strings.Builder
	cmd := exec.Command("nsenter", "--net="+l.dirs.Namespace(id("h1")), "ping", "-q", "-i0.0005", to)
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		l.Fatal(err)
	}
	return func() (sent, received int) {
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait()
		i := strings.Index(out.String(), "packets transmitted")
		if i < 0 {
			l.Fatal(out.String())
		}
		line := out.String()[strings.LastIndex(out.String()[:i], "\n")+1:]
		if _, err := fmt.Sscanf(line, "%d packets transmitted", &sent); err != nil {
			l.Fatal(line)
		}
		for until := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			lost, count := missing()
			if count < all+sent {
				l.Fatalf("%d packets were sent, and the kernel counts %d", sent, count-all)
			}
			if lost -= missed; lost <= 0 || time.Now().After(until) {
				return sent, sent - lost
			}
		}
	}
}

// counters are those of a file of an element's kernel in /proc/net: "snmp", whose names have their protocol before
// them, or "snmp6".
func (l *lab) counters(element, file string) map[string]int {
	l.Helper()
	counters, names := map[string]int{}, []string{}
	for line := range strings.Lines(l.in(element, "cat /proc/net/"+file)) {
		words := strings.Fields(line)
		switch {
		case file == "snmp6":
			counters[words[0]], _ = strconv.Atoi(words[1])
		case len(names) == 0:
			names = words
		default:
			for i, word := range words[1:] {
				counters[words[0]+" "+names[i+1]], _ = strconv.Atoi(word)
			}
			names = nil
		}
	}
	return counters
}

// TestRound changes who forwards, all ways round, while packets of both families flow.
func TestRound(t *testing.T) {
	l := newLab(t)
	planes := l.planes()
	l.ping()
	ends := []func() (int, int){l.flood("10.0.2.2"), l.flood("2001:db8:2::2")}
	ways := []model.Forwarding{model.ForwardXDP, model.ForwardRouter, model.ForwardBridge, model.ForwardXDP,
		model.ForwardBridge,
		model.ForwardGuest, model.ForwardRouter, model.ForwardGuest, model.ForwardBridge, model.ForwardRouter,
		model.ForwardXDP, model.ForwardGuest}
	for _, way := range ways {
		l.change(planes, way, "r1", "r2")
		fast, guest := l.forwarded("r1"), l.byGuest("r1")
		l.in("h1", "ping -c20 -i0.002 -W10 10.0.2.2")
		f, g := l.forwarded("r1"), l.byGuest("r1")
		packets, companion := f.Packets-fast.Packets, f.Companion-fast.Companion
		kernel := way == model.ForwardRouter || way == model.ForwardBridge
		if way == model.ForwardGuest && (g-guest < 40 || packets != 0) || way != model.ForwardGuest &&
			(g != guest || packets < 40 ||
				kernel && companion != packets || !kernel && companion != 0) {
			t.Errorf("%s: %d packets without the guest, %d of them by the companion, %d by the guest", way,
				packets, companion, g-guest)
		}
	}
	for _, end := range ends {
		if sent, received := end(); sent != received || sent < 500 {
			t.Errorf("of %d packets %d came back", sent, received)
		}
	}
}

// TestKernelRestart ends the agent while companions forward, and begins it again; then with things missing.
func TestKernelRestart(t *testing.T) {
	l := newLab(t)
	planes := l.planes()
	l.change(planes, model.ForwardRouter, "r1", "r2")
	l.ping()
	end := l.flood("10.0.2.2")
	devices := func() string { return l.inCompanion("r1", model.ForwardRouter, "ip -o link | cut -d@ -f1") }
	was, guest := devices(), l.byGuest("r1")
	for range 3 {
		l.end()
		l.ping() // nobody is there
		l.open()
		l.apply()
		l.ping() // not yet told
		planes = l.planes()
		l.change(planes, model.ForwardRouter, "r1", "r2")
		l.ping()
	}
	if sent, received := end(); sent != received {
		t.Errorf("of %d packets %d came back", sent, received)
	}
	if is := devices(); is != was {
		t.Errorf("the companion's devices were\n%s\nand are\n%s", was, is)
	}
	if n := l.byGuest("r1") - guest; n != 0 {
		t.Errorf("the guest forwarded %d packets", n)
	}
	// The new agent follows; what the old one had written and is no longer true is gone.
	l.await("what is left of old snapshots to go", func() bool {
		kept := strings.Fields(l.inCompanion("r1", model.ForwardRouter,
			"ip nexthop | sed 's/.*id \\([0-9]*\\).*/\\1/'"))
		generations := map[int]bool{}
		for _, text := range kept {
			var n int
			fmt.Sscan(text, &n)
			generations[n>>22&7] = true
		}
		return len(generations) == 1
	})
	l.in("r1", "ip route add 10.99.0.0/16 via 10.0.1.2")
	l.await("a new route", func() bool {
		return strings.Contains(l.inCompanion("r1", model.ForwardRouter, "ip route"), "10.99.0.0/16")
	})
	l.in("r1", "ip route del 10.99.0.0/16")
	l.await("it to go again", func() bool {
		return !strings.Contains(l.inCompanion("r1", model.ForwardRouter, "ip route"), "10.99.0.0/16")
	})

	// Somebody takes things away.
	for name, spoil := range map[string]func(){
		"device in the node": func() {
			device := l.dirs.CompanionDevice(model.PortID{ID: id("r1"), Interface: "r2"}, model.ForwardRouter)
			if out, err := exec.Command("ip", "link", "del", device).CombinedOutput(); err != nil {
				t.Fatal(err, string(out))
			}
		},
		"device in the companion": func() {
			device := strings.Split(strings.Fields(l.inCompanion("r1", model.ForwardRouter,
				"ip -o link show type veth"))[1], "@")[0]
			l.inCompanion("r1", model.ForwardRouter, "ip link set "+device+" down")
		},
		"next hops": func() { l.inCompanion("r1", model.ForwardRouter, "ip nexthop flush") },
		"routes": func() {
			l.inCompanion("r1", model.ForwardRouter, "ip route flush proto 112; ip -6 route flush proto 112")
		},
		"neighbours": func() {
			l.inCompanion("r1", model.ForwardRouter, "ip neigh flush nud permanent; ip -6 neigh flush nud permanent")
		},
		"namespace": func() {
			if err := unix.Unmount(l.dirs.Companion(id("r1"), model.ForwardRouter), unix.MNT_DETACH); err != nil {
				t.Fatal(err)
			}
		},
	} {
		spoil()
		l.await("it to be put right", func() bool {
			l.plane.Look()
			l.change(planes, model.ForwardRouter, "r1", "r2")
			_, err := l.try("h1", "ping -c1 -W0.2 10.0.2.2 && ping -c1 -W0.2 2001:db8:2::2")
			return err == nil
		})
		before := l.forwarded("r1").Companion
		l.ping()
		if n := l.forwarded("r1").Companion - before; n != 80 {
			t.Errorf("%s taken away: then of 80 packets the companion got %d", name, n)
		}
	}
	// Also who has closed the planes may take the companions away.
	l.plane.Close()
	for name, plane := range planes {
		list, err := plane.List(ctx)
		if err != nil || len(list) != 2 && name == model.ForwardRouter {
			t.Errorf("%s lists %v: %v", name, list, err)
		}
		forwardtest.Retire(t, plane, list...)
	}
	if left, err := filepath.Glob(filepath.Join(l.dirs.Companions(), "*", "*", "*")); err != nil || len(left) > 0 {
		t.Errorf("%v are left: %v", left, err)
	}
}
