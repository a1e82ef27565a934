package fast_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/node/control/netns"
	"github.com/polyplane/polyplane/node/fabric"
	"github.com/polyplane/polyplane/node/forward"
	"github.com/polyplane/polyplane/node/forward/fast"
)

func TestMain(m *testing.M) {
	netns.ChildMain()
	os.Exit(m.Run())
}

// lab is a node with routers in a row between two hosts: h1 – r1 – … – h2. Link i has 10.0.i.0/24 and 2001:db8:i::/64,
// .2 at h1 and h2, else .1 to the left and .2 to the right.
type lab struct {
	testing.TB
	dirs    instance.NodeDirs
	driver  *netns.Driver
	fabric  *fabric.Fabric
	plane   *fast.Plane
	jobs    []control.Job
	devices map[model.PortID]control.Device
	routers int
	home    string // the node's namespace
	// What benchmarks change: direct ways by plain veths, and where frames go.
	direct       bool
	destinations []netip.Addr
	slice        model.Slice
	hook         model.Hook    // of the routers
	edge         *fabric.Edge  // where the last link ends instead of at h2
	report       fabric.Report // the last one
	steering     map[model.ID]forward.Steering
}

func (l *lab) quota() model.TableQuota { return l.slice.TableQuota() }

var ctx = context.Background()

func id(element string) model.ID { return model.ID{Network: "lab", Element: element} }

func newLab(t testing.TB) *lab { return newChain(t, 2) }

func (l *lab) name(i int) string {
	switch i {
	case 0:
		return "h1"
	case l.routers + 1:
		return "h2"
	}
	return fmt.Sprintf("r%d", i)
}

// last is h2's interface.
func (l *lab) last() string { return l.name(l.routers) }

func (l *lab) routerNames() (names []string) {
	for i := range l.routers {
		names = append(names, l.name(i+1))
	}
	return names
}

func (l *lab) routerIDs() (ids []model.ID) {
	for _, name := range l.routerNames() {
		ids = append(ids, id(name))
	}
	return ids
}

func newChain(t testing.TB, routers int) *lab {
	t.Helper()
	runtime.LockOSThread() // never unlocked: its namespace is of no use to others
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	word := make([]byte, 4)
	rand.Read(word)
	all := instance.NewDirs("test" + hex.EncodeToString(word))
	l := &lab{TB: t, dirs: all.Node("n1"), devices: map[model.PortID]control.Device{}, routers: routers,
		steering: map[model.ID]forward.Steering{},
		home:     fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())}
	var err error
	if l.driver, err = netns.New(l.dirs, netns.Options{}); err != nil {
		t.Fatal(err)
	}
	for i := range routers + 2 {
		name := l.name(i)
		e := model.PlacedElement{Name: name, Kind: model.Router, Control: model.ControlNetns,
			Software: model.SoftwareStatic}
		if i == 0 || i == routers+1 {
			e.Kind, e.Software = model.Host, ""
		}
		add := func(far string, link, host int) {
			e.Interfaces = append(e.Interfaces, model.PlacedInterface{
				ResolvedInterface: model.ResolvedInterface{Name: far, MTU: 1500,
					MAC: model.MAC(model.PortID{ID: id(name), Interface: far}),
					Addresses: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.0.%d.%d/24", link, host)),
						netip.MustParsePrefix(fmt.Sprintf("2001:db8:%d::%d/64", link, host))}}})
		}
		switch {
		case i == 0:
			add("r1", 0, 2)
		case i == routers+1:
			add(l.last(), routers, 2)
		default:
			add(l.name(i-1), i-1, map[bool]int{true: 1, false: 2}[i == 1])
			add(l.name(i+1), i, 1)
		}
		l.jobs = append(l.jobs, control.Job{ID: id(name), Index: 1, Element: model.NodeElement{PlacedElement: e}})
	}
	t.Cleanup(func() {
		if l.plane != nil {
			l.plane.Close()
		}
		if l.fabric != nil {
			if err := l.fabric.Destroy(); err != nil {
				t.Error(err)
			}
		}
		if err := l.driver.Remove(ctx, append(l.routerIDs(), id("h1"), id("h2")), false); err != nil {
			t.Error(err)
		}
		l.driver.Close()
		left, _ := filepath.Glob(filepath.Join(l.dirs.Companions(), "*", "*", "*")) // the pattern is right
		for _, path := range left {
			if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		}
		os.RemoveAll(all.Run)
		os.RemoveAll(all.Data)
	})
	l.open()
	l.elements()
	l.in("h1", "ip route add default via 10.0.0.1; ip -6 route add default via 2001:db8:0::1")
	l.in("h2", fmt.Sprintf("ip route add default via 10.0.%[1]d.1; ip -6 route add default via 2001:db8:%[1]d::1",
		routers))
	l.routes()
	return l
}

// elements makes them, and joins them.
func (l *lab) elements() {
	l.Helper()
	for _, r := range l.driver.Apply(ctx, l.jobs) {
		if r.Err != nil {
			l.Fatal(r.Err)
		}
		for _, d := range r.Devices {
			l.devices[model.PortID{ID: r.ID, Interface: d.Interface}] = d
		}
	}
	l.apply()
}

// routes are the routers' static ones.
func (l *lab) routes() {
	for _, name := range l.routerNames() {
		if commands := l.routesOf(name); commands != "" {
			l.in(name, commands)
		}
	}
}

func (l *lab) routesOf(router string) string {
	i := slices.Index(l.routerNames(), router) + 1
	var commands []string
	for link := range l.routers + 1 {
		if link == i || link == i-1 {
			continue
		}
		via, host := i, 2 // to the right
		if link < i-1 {
			via, host = i-1, 1
		}
		commands = append(commands, fmt.Sprintf("ip route replace 10.0.%[1]d.0/24 via 10.0.%[2]d.%[3]d; "+
			"ip -6 route replace 2001:db8:%[1]d::/64 via 2001:db8:%[2]d::%[3]d", link, via, host))
	}
	return strings.Join(commands, ";")
}

// open is what an agent does when it starts.
func (l *lab) open() {
	l.Helper()
	var err error
	if l.fabric, err = fabric.New(l.dirs, netip.Addr{}); err != nil {
		l.Fatal(err)
	}
	l.plane = fast.New(l.fabric.Tables(), nil)
	clear(l.steering)
}

// end is what happens when an agent dies.
func (l *lab) end() {
	l.Helper()
	l.plane.Close()
	if err := l.fabric.Close(); err != nil {
		l.Fatal(err)
	}
}

func (l *lab) apply() {
	l.Helper()
	s := fabric.State{Steering: l.steering}
	for _, j := range l.jobs {
		for _, ifc := range j.Element.Interfaces {
			p := fabric.Port{ID: model.PortID{ID: j.ID, Interface: ifc.Name}}
			p.Index, p.Behind = l.devices[p.ID].Index, l.devices[p.ID].Behind
			p.MAC, _ = net.ParseMAC(ifc.MAC)
			p.Local = model.PortID{ID: id(ifc.Name), Interface: j.ID.Element}
			if j.Element.Kind == model.Router {
				p.Hook = l.hook
			}
			if l.edge != nil && ifc.Name == "h2" {
				p.Edge, p.Local = l.edge, model.PortID{}
			}
			s.Ports = append(s.Ports, p)
		}
	}
	l.report = l.fabric.Apply(ctx, s)
	if l.report.Problem != nil || len(l.report.Failed) > 0 {
		l.Fatal(l.report.Problem, l.report.Failed)
	}
}

func (l *lab) in(element, command string) string {
	l.Helper()
	out, err := l.try(element, command)
	if err != nil {
		l.Fatalf("%s: %s: %v\n%s", element, command, err, out)
	}
	return out
}

func (l *lab) try(element, command string) (string, error) {
	out, err := exec.Command("nsenter", "--net="+l.dirs.Namespace(id(element)), "sh", "-c", command).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (l *lab) ping() {
	l.Helper()
	for _, to := range []string{"10.0.2.2", "2001:db8:2::2"} {
		l.in("h1", "ping -c20 -i0.002 -W10 "+to)
	}
}

// job is what the agent tells planes of an element.
func (l *lab) job(j *control.Job) forward.Job {
	return forward.Job{ID: j.ID, Element: j.Element, Routes: l.driver.Routes(j.ID), Quota: l.quota(),
		Place: l.fabric.Place(j.ID)}
}

// trace asks what becomes of a packet, as the agent does.
func (l *lab) trace(router string, q model.TraceRequest) (model.Trace, error) {
	return l.plane.Trace(id(router), l.fabric.Steered()[id(router)], q)
}

// prepare has the plane take the routers.
func (l *lab) prepare(names ...string) {
	l.Helper()
	var jobs []forward.Job
	for _, j := range l.jobs {
		for _, name := range names {
			if j.ID.Element == name {
				jobs = append(jobs, l.job(&j))
			}
		}
	}
	l.take(l.plane, model.ForwardXDP, jobs)
	l.apply()
}

// take asks a plane until it waits for nobody, and notes what it has ready.
func (l *lab) take(plane forward.Plane, way model.Forwarding, jobs []forward.Job) {
	l.Helper()
	for waits, end := true, time.Now().Add(2*time.Minute); waits; {
		waits = false
		for _, r := range plane.Prepare(ctx, jobs) {
			if r.Err != nil && strings.Contains(r.Err.Error(), "not yet known") && time.Now().Before(end) {
				waits = true // a busy machine; nobody need wait so long for it, the next pass asks again
				continue
			}
			if r.Err != nil {
				l.Fatal(r.Err)
			}
			if waits = waits || r.Waits; r.Steering != nil {
				r.Steering.Owner = way
				l.steering[r.ID] = *r.Steering
			}
		}
		if waits {
			time.Sleep(time.Millisecond)
		}
	}
}

// retire gives routers' packets to their own stacks.
func (l *lab) retire(ids ...model.ID) {
	l.Helper()
	for _, id := range ids {
		l.steering[id] = forward.Steering{}
	}
	l.apply()
	if err := l.plane.Retire(ctx, ids); err != nil {
		l.Fatal(err)
	}
}

func (l *lab) forwarded(router string) fabric.Forwarded {
	l.Helper()
	all, err := l.fabric.Forwarded(ctx)
	if err != nil {
		l.Fatal(err)
	}
	return all[id(router)]
}

// byGuest is how many packets a router's own stack has forwarded.
func (l *lab) byGuest(router string) (n int) {
	l.Helper()
	for _, name := range []string{"IpForwDatagrams", "Ip6OutForwDatagrams"} {
		var k int
		out := l.in(router, "nstat -asz "+name+" | grep "+name)
		if _, err := fmt.Sscanf(strings.Fields(out)[1], "%d", &k); err != nil {
			l.Fatal(out)
		}
		n += k
	}
	return n
}

// await waits for what must come; a generous time ends a test that hangs.
func (l *lab) await(what string, holds func() bool) {
	l.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			l.Fatalf("waited a minute for %s", what)
		}
	}
}
