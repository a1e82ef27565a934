package netns

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/control"
)

// sh runs a shell command in the calling thread's network namespace.
func sh(t testing.TB, command string) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", command).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return strings.TrimSpace(string(out))
}

// in runs a shell command in an element's network namespace, with the machine's files.
func (n *testNode) in(t testing.TB, id model.ID, command string) string {
	t.Helper()
	return sh(t, fmt.Sprintf("nsenter --net=%s sh -c %q", n.dirs.Namespace(id), command))
}

// here takes a subtest's thread into the node's namespace.
func (n *testNode) here(t testing.TB) {
	t.Helper()
	runtime.LockOSThread() // never unlocked, as in newNode
	if err := unix.Setns(n.home, unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
}

// TestChangesAreTyped: what happens to an element is told by its kind.
func TestChangesAreTyped(t *testing.T) {
	n := newNode(t)
	jobs := lineOf("red", 74, 3)
	kinds := func(what string, want ...change.Kind) {
		t.Helper()
		var got []change.Kind
		changed := n.apply(t, jobs[1:2])[0].Changed
		for _, c := range changed {
			got = append(got, c.Kind)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %+v, want %q", what, changed, want)
		}
		n.settled(t, jobs[1:2]) // else the next apply tells of a link-local address as well
	}
	kinds("a new element", change.ElementCreated)
	kinds("nothing")
	id := jobs[1].ID
	n.in(t, id, "ip link del r0")
	kinds("a deleted port", change.PortRestored)
	sh(t, "ip link set "+n.dirs.PortDevice(model.PortID{ID: id, Interface: "r0"})+" mtu 1400")
	kinds("another MTU", change.PortMended)
	all := jobs[1].Element.Interfaces
	jobs[1].Element.Interfaces = all[:1]
	kinds("an interface less", change.PortRemoved)
	jobs[1].Element.Interfaces = all
	kinds("an interface more", change.PortAdded)
}

// portState is what must not change when something else is put right: indices stay, counters do not start anew.
type portState struct {
	index, peer int
	packets     uint64
}

func (n *testNode) state(t testing.TB) map[string]portState {
	t.Helper()
	there, _, err := n.findPorts()
	if err != nil {
		t.Fatal(err)
	}
	var links []struct {
		Index int `json:"ifindex"`
		Stats struct {
			Rx struct{ Packets uint64 }
		} `json:"stats64"`
	}
	if err := json.Unmarshal([]byte(sh(t, "ip -j -s link show")), &links); err != nil {
		t.Fatal(err)
	}
	packets := map[int]uint64{}
	for _, l := range links {
		packets[l.Index] = l.Stats.Rx.Packets
	}
	state := map[string]portState{}
	for key, l := range there {
		state[key] = portState{l.Index, l.Peer, packets[l.Index]}
	}
	return state
}

// untouched compares with an earlier state; ports in except may differ, appear and go.
func (n *testNode) untouched(t testing.TB, before map[string]portState, except ...string) {
	t.Helper()
	after := n.state(t)
	for key, b := range before {
		a, ok := after[key]
		if slices.Contains(except, key) {
			continue
		}
		if !ok || a.index != b.index || a.peer != b.peer || a.packets < b.packets {
			t.Errorf("port %s was %+v and is %+v (there: %t)", key, b, a, ok)
		}
	}
	for key := range after {
		if _, ok := before[key]; !ok && !slices.Contains(except, key) {
			t.Errorf("port %s appeared", key)
		}
	}
}

func job(jobs []control.Job, name string) *control.Job {
	for i := range jobs {
		if jobs[i].ID.Element == name {
			return &jobs[i]
		}
	}
	return nil
}

// TestDriftIsPutRight alters each kind of object behind the driver's back.
func TestDriftIsPutRight(t *testing.T) {
	n := newNode(t)
	jobs := lineOf("lab", 1, 5)
	r2 := job(jobs, "r2")
	r2.Element.Gateways = []netip.Addr{netip.MustParseAddr("10.0.2.0")}
	r2.Element.Routes = []model.Route{
		{To: netip.MustParsePrefix("192.0.2.0/24"), Via: []netip.Addr{netip.MustParseAddr("10.0.2.0"),
			netip.MustParseAddr("10.0.4.1")}},
		{To: netip.MustParsePrefix("198.51.100.0/24"), Type: model.RouteBlackhole},
		{To: netip.MustParsePrefix("2001:db8::/32"),
			Via: []netip.Addr{netip.MustParseAddr("fd00:1:0:1::")}, Metric: 50},
		{To: netip.MustParsePrefix("203.0.113.0/24"), Interface: "r3"},
	}
	first := n.apply(t, jobs)
	if len(changes(first)) != len(jobs) {
		t.Errorf("the first apply changed %v", changes(first))
	}
	if again := n.apply(t, jobs); len(changes(again)) != 0 {
		t.Errorf("the second apply changed %v", changes(again))
	}
	n.settled(t, jobs) // the kernel makes link-local addresses when it takes note of a carrier
	id := r2.ID
	port := n.dirs.PortDevice(model.PortID{ID: id, Interface: "r3"})
	tests := []struct {
		name   string
		do     func(t *testing.T)
		seen   bool   // by Apply, without an audit's help
		want   string // in what Apply says it did
		except string // a port that may change
	}{
		{"port deleted", func(t *testing.T) { sh(t, "ip link del "+port) }, true, "port r3 restored", "lab/r2:r3"},
		{"element end deleted", func(t *testing.T) { n.in(t, id, "ip link del r3") }, true,
			"port r3 restored", "lab/r2:r3"},
		{"port renamed", func(t *testing.T) {
			sh(t, "ip link set "+port+" down && ip link set "+port+" name other && ip link set other up")
		}, true, "port r3 put right", ""},
		{"port's alias lost", func(t *testing.T) { sh(t, "ip link set "+port+" alias ''") }, true,
			"port r3 put right", ""},
		{"port's MTU changed", func(t *testing.T) { sh(t, "ip link set "+port+" mtu 1400") }, true,
			"port r3 put right", ""},
		{"element end renamed", func(t *testing.T) { n.in(t, id, "ip link set r3 down; ip link set r3 name x") }, false,
			"device r3 renamed from x", ""},
		{"element end taken away",
			func(t *testing.T) { n.in(t, id, "ip link set r3 netns "+n.dirs.Namespace(jobs[0].ID)) }, false,
			"port r3 restored", "lab/r2:r3"},
		{"element end down", func(t *testing.T) { n.in(t, id, "ip link set r3 down") }, false,
			"device r3 taken up", ""},
		{"element end's segmentation", func(t *testing.T) { n.in(t, id, "ip link set r3 gso_max_segs 1") }, false,
			"segmentation of r3 set", ""},
		{"element end's MTU", func(t *testing.T) { n.in(t, id, "ip link set r3 mtu 1300") }, false,
			"MTU of r3 set", ""},
		{"element end's MAC", func(t *testing.T) { n.in(t, id, "ip link set r3 address 02:00:00:00:00:99") }, false,
			"MAC address of r3 set", ""},
		{"lo down", func(t *testing.T) { n.in(t, id, "ip link set lo down") }, false, "device lo taken up", ""},
		{"IPv4 address deleted", func(t *testing.T) { n.in(t, id, "ip addr del 10.0.2.1/31 dev r1") }, false,
			"address 10.0.2.1/31 added to r1", ""},
		{"IPv6 address deleted", func(t *testing.T) { n.in(t, id, "ip addr flush dev r1 scope global") }, false,
			"address fd00:1:0:1::1/127 added to r1", ""},
		{"link-local address deleted", func(t *testing.T) { n.in(t, id, "ip -6 addr flush dev r1 scope link") }, false,
			"link-local address added to r1", ""},
		{"loopback deleted", func(t *testing.T) { n.in(t, id, "ip addr del 10.255.0.2/32 dev lo") }, false,
			"address 10.255.0.2/32 added to lo", ""},
		{"default route deleted", func(t *testing.T) { n.in(t, id, "ip route del default") }, false,
			"route to 0.0.0.0/0 added", ""},
		{"multipath route deleted", func(t *testing.T) { n.in(t, id, "ip route del 192.0.2.0/24") }, false,
			"route to 192.0.2.0/24 added", ""},
		{"blackhole route deleted", func(t *testing.T) { n.in(t, id, "ip route del blackhole 198.51.100.0/24") }, false,
			"route to 198.51.100.0/24 added", ""},
		{"IPv6 route deleted", func(t *testing.T) { n.in(t, id, "ip -6 route del 2001:db8::/32") }, false,
			"route to 2001:db8::/32 added", ""},
		{"device route deleted", func(t *testing.T) { n.in(t, id, "ip route del 203.0.113.0/24") }, false,
			"route to 203.0.113.0/24 added", ""},
		{"sysctl changed", func(t *testing.T) { n.in(t, id, "echo 0 > /proc/sys/net/ipv4/ip_forward") }, false,
			"sysctl net.ipv4.ip_forward set to 1", ""},
		{"namespace unmounted", func(t *testing.T) { sh(t, "umount "+n.dirs.Namespace(id)) }, true,
			"namespace mounted again", ""},
		{"namespace's file deleted",
			func(t *testing.T) { sh(t, "umount "+n.dirs.Namespace(id)+" && rm "+n.dirs.Namespace(id)) }, true,
			"namespace mounted again", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n.here(t)
			before := n.state(t)
			test.do(t)
			if !test.seen {
				n.auditAll(t, id)
			}
			got := changes(n.apply(t, jobs))
			if !slices.ContainsFunc(got, func(c string) bool { return c == "r2: "+test.want }) {
				t.Errorf("apply said %q: want %q", got, "r2: "+test.want)
			}
			n.untouched(t, before, test.except)
			n.settled(t, []control.Job{*r2})
			n.auditAll(t)
			if more := changes(n.apply(t, jobs)); len(more) != 0 {
				t.Errorf("the next apply still changed %v", more)
			}
		})
	}
	t.Run("user namespace unmounted", func(t *testing.T) {
		n.here(t)
		was := sh(t, "stat -c %i "+n.dirs.UserNamespace("lab"))
		sh(t, "umount "+n.dirs.UserNamespace("lab"))
		if got := changes(n.apply(t, jobs)); len(got) != 1 ||
			!strings.HasSuffix(got[0], "user namespace of network lab mounted again") {
			t.Errorf("apply said %q", got)
		}
		if now := sh(t, "stat -c %i "+n.dirs.UserNamespace("lab")); now != was {
			t.Errorf("the namespace is %s and was %s", now, was)
		}
	})
	t.Run("what others made stays", func(t *testing.T) {
		n.here(t)
		n.in(t, id, "ip addr add 172.16.0.1/24 dev r1 && ip route add 100.64.0.0/10 dev r1 && ip link set lo mtu 1500")
		n.restart(t)
		if got := changes(n.apply(t, jobs)); len(got) != 0 {
			t.Errorf("apply changed %v", got)
		}
		if out := n.in(t, id, "ip addr show dev r1; ip route"); !strings.Contains(out, "172.16.0.1/24") ||
			!strings.Contains(out, "100.64.0.0/10") {
			t.Errorf("an address or a route that somebody added is gone:\n%s", out)
		}
	})
}

// auditAll audits until every element was looked into, and expects exactly these to differ.
func (n *testNode) auditAll(t testing.TB, want ...model.ID) {
	t.Helper()
	if differ := n.audited(t); !slices.Equal(differ, want) {
		t.Errorf("the audit found %v: want %v", differ, want)
	}
}

// untilAuditFinds audits until exactly these differ.
func (n *testNode) untilAuditFinds(t testing.TB, want ...model.ID) {
	t.Helper()
	for differ := n.audited(t); !slices.Equal(differ, want); differ = n.audited(t) {
		if err := t.Context().Err(); err != nil {
			t.Fatalf("the audit still finds %v: want %v: %v", differ, want, err)
		}
	}
}

func (n *testNode) audited(t testing.TB) (differ []model.ID) {
	t.Helper()
	for range len(n.elements) {
		for _, e := range n.elements {
			e.rest = time.Time{} // a look may take long on a busy machine
		}
		n.looked = time.Time{} // while others are being started, looks are rare
		ids, err := n.Audit(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		differ = append(differ, ids...)
	}
	return differ
}

// TestRestartKeepsEverything is the agent's restart: nothing is made anew, and what changed meanwhile is found.
func TestRestartKeepsEverything(t *testing.T) {
	n := newNode(t)
	jobs := lineOf("lab", 1, 200)
	n.apply(t, jobs)
	n.settled(t, jobs)
	before := n.state(t)
	n.restart(t)
	if got := changes(n.apply(t, jobs)); len(got) != 0 {
		t.Errorf("apply after a restart changed %v", got)
	}
	n.untouched(t, before)
	// A wish that changed while the agent was away: the old address goes, others stay.
	changed := job(jobs, "r7")
	changed.Element.Interfaces[0].Addresses = []netip.Prefix{netip.MustParsePrefix("10.99.0.1/24")}
	changed.Element.Interfaces = append(changed.Element.Interfaces, lineInterface(500, 0, 500, 1))
	n.restart(t)
	got := changes(n.apply(t, jobs))
	want := []string{"r7: address 10.0.12.1/31 removed from r6", "r7: address fd00:1:0:6::1/127 removed from r6",
		"r7: address 10.99.0.1/24 added to r6", "r7: port r500 restored"}
	slices.Sort(got)
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("apply said\n%q: want\n%q", got, want)
	}
	changed.Element.Interfaces = changed.Element.Interfaces[:2]
	if got := changes(n.apply(t, jobs)); !slices.Equal(got, []string{"r7: port r500 removed"}) {
		t.Errorf("apply said %q", got)
	}
	n.untouched(t, before)
}

// TestRemoveLeavesNothing removes some elements, then all.
func TestRemoveLeavesNothing(t *testing.T) {
	n := newNode(t)
	jobs := append(lineOf("a", 1, 20), lineOf("b", 2, 20)...)
	n.apply(t, jobs)
	keep := n.state(t)
	gone := job(jobs, "r3")
	fd, err := unix.Open(n.dirs.Namespace(gone.ID), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := n.Remove(context.Background(), []model.ID{gone.ID, {Network: "a", Element: "never"}}, false); err != nil {
		t.Fatal(err)
	}
	n.untouched(t, keep, "a/r3:r2", "a/r3:r4")
	found, err := n.List(context.Background())
	if err != nil || len(found) != len(jobs)-1 {
		t.Errorf("%d elements are listed (%v): want %d", len(found), err, len(jobs)-1)
	}
	if got := changes(n.apply(t, jobs)); !slices.Equal(got, []string{"r3: created"}) {
		t.Errorf("apply after a removal said %q", got)
	}
	var ids []model.ID
	for _, j := range jobs {
		ids = append(ids, j.ID)
	}
	if err := n.Remove(context.Background(), ids, false); err != nil {
		t.Fatal(err)
	}
	there, _, err := n.findPorts()
	if err != nil || len(there) != 0 {
		t.Errorf("%d ports are left (%v)", len(there), err)
	}
	for _, dir := range []string{n.dirs.Run, n.dirs.Data} {
		if out := sh(t, "find "+dir+"/networks 2>/dev/null || true"); out != "" && out != dir+"/networks" {
			t.Errorf("files are left: %s", out)
		}
	}
}

// TestLossySegmentation gives a running element's link a loss and takes it away.
func TestLossySegmentation(t *testing.T) {
	n := newNode(t)
	for _, yes := range []bool{true, false, true, false} {
		jobs := lineOf("lab", 1, 3)
		for i := range jobs {
			for k := range jobs[i].Element.Interfaces {
				if yes {
					jobs[i].Element.Interfaces[k].Shape = &model.Shape{Loss: 0.01}
				}
			}
		}
		n.apply(t, jobs)
		r1 := job(jobs, "r1").ID
		if out := n.in(t, r1, "ip -d link show dev r2"); strings.Contains(out, "gso_max_segs 1 ") != yes {
			t.Errorf("with loss %v: %s", yes, out)
		}
		if again := n.apply(t, jobs); len(changes(again)) != 0 {
			t.Errorf("applied again, it changes %v", changes(again))
		}
	}
}
