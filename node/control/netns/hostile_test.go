package netns

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/system/attack"
)

// TestFilesAreGivenWithinTheElement has an element change the owner of its root and plant links, then moves its network
// to other user IDs: nothing outside changes hands, and a move that was cut short is completed.
func TestFilesAreGivenWithinTheElement(t *testing.T) {
	n := newNode(t)
	jobs := lineOf("lab", 7, 2)[:1]
	id := jobs[0].ID
	n.apply(t, jobs)
	n.run(t, id, "sh", "-c", "chown 5 / && touch /root/own && chown 300:301 /root/own")
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// What the element did with its own is its own business, as long as the IDs are its network's.
	n.run(t, id, "true")
	base, moved := int(model.UIDBase(7)), int(model.UIDBase(9))
	n.mountFiles(t, jobs[0])
	if uid := uidAt(t, filepath.Join(n.rootfs(id), "root/own")); uid != base+300 {
		t.Errorf("a file's owner is %d, want %d: another owner of / must not move the others", uid, base+300)
	}
	if err := n.Remove(context.Background(), []model.ID{id}, true); err != nil {
		t.Fatal(err)
	}
	n.mountFiles(t, jobs[0])
	// Links as the element could plant them, and a file that a move which was cut short has reached.
	for _, link := range []string{"srv/out", "home/out"} {
		if err := os.Symlink(outside, filepath.Join(n.rootfs(id), link)); err != nil {
			t.Fatal(err)
		}
	}
	early := filepath.Join(n.rootfs(id), "opt/early")
	if err := os.WriteFile(early, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(early, moved+300, moved+301); err != nil {
		t.Fatal(err)
	}
	jobs[0].Index = 9
	n.apply(t, jobs)
	n.run(t, id, "true")
	n.mountFiles(t, jobs[0])
	for path, want := range map[string]int{filepath.Join(n.rootfs(id), "root/own"): moved + 300, early: moved + 300,
		n.rootfs(id): moved + 5, filepath.Join(outside, "file"): 0, outside: 0} {
		if uid := uidAt(t, path); uid != want {
			t.Errorf("the owner of %s is %d: want %d", path, uid, want)
		}
	}
}

// mountFiles mounts the disk of an element in which nothing runs.
func (n *testNode) mountFiles(t testing.TB, job control.Job) {
	t.Helper()
	if _, err := n.ensureDisk(&job, false); err != nil {
		t.Fatal(err)
	}
}

func uidAt(t *testing.T, path string) int {
	t.Helper()
	var s unix.Stat_t
	if err := unix.Lstat(path, &s); err != nil {
		t.Fatal(err)
	}
	return int(s.Uid)
}

// TestPipesHoldNobodyUp plants pipes where runc reads an element's users: the next start must not wait for a writer.
func TestPipesHoldNobodyUp(t *testing.T) {
	attack.Tell(t, "an element's root plants pipes in the place of its list of users", "nobody waits for a writer")
	n := newNode(t)
	jobs := lineOf("lab", 7, 2)
	id := jobs[0].ID
	n.apply(t, jobs)
	n.run(t, id, "sh", "-c", "for f in passwd group; do rm /etc/$f && mkfifo /etc/$f; done")
	if got := n.run(t, id, "id", "-un"); got != "root\n" {
		t.Errorf("after pipes were planted, the user is %q", got)
	}
}

// TestCutShort does what an agent leaves that was killed at the wrong moment, and looks at what the next one makes of
// it.
func TestCutShort(t *testing.T) {
	n := newNode(t)
	jobs := frrLine("lab", 7, 2)[:1]
	id := jobs[0].ID
	n.apply(t, jobs)
	n.untilRuns(t, id, "10.0.0.0/31", "vtysh", "-c", "show interface brief")
	pid := n.pidOf(t, id)

	// The new configuration was written and not yet loaded.
	route := func(to string) {
		jobs[0].Element.Routes = []model.Route{{To: netip.MustParsePrefix(to),
			Via: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}}
	}
	bundle := filepath.Join(n.dirs.Bundle(id), "config.json")
	before, err := os.ReadFile(bundle)
	if err != nil {
		t.Fatal(err)
	}
	route("192.0.2.0/24")
	n.apply(t, jobs)
	n.run(t, id, "vtysh", "-c", "configure", "-c", "no ip route 192.0.2.0/24 10.0.0.1")
	if err := os.WriteFile(bundle, before, 0o600); err != nil {
		t.Fatal(err)
	}
	n.restart(t)
	if got := changes(n.apply(t, jobs)); !slices.Equal(got, []string{"r0: configuration loaded"}) {
		t.Errorf("apply after a configuration was written and not loaded said %q", got)
	}
	if running := n.run(t, id, "vtysh", "-c", "show running-config"); !strings.Contains(running, "192.0.2.0/24") {
		t.Errorf("the software runs\n%s\nwant the new route", running)
	}
	if now := n.pidOf(t, id); now != pid {
		t.Error("the container was started again")
	}
	if got := changes(n.apply(t, jobs)); len(got) != 0 {
		t.Errorf("the next apply said %q", got)
	}

	// runc was killed on its way: a directory and a process, and no state.
	first, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(first)
	if err := os.Remove(filepath.Join(n.dirs.Runc(), containerID(id), "state.json")); err != nil {
		t.Fatal(err)
	}
	// And what was made for one command.
	for _, container := range []string{shellID(id), checkID(id)} {
		if err := os.MkdirAll(filepath.Join(n.dirs.Runc(), container), 0o711); err != nil {
			t.Fatal(err)
		}
	}
	n.restart(t)
	r := n.apply(t, jobs)[0]
	if left, err := os.ReadDir(n.dirs.Runc()); err != nil || len(left) != 1 {
		t.Errorf("runc knows %v, %v: want the one container", left, err)
	}
	if now := n.pidOf(t, id); now == pid {
		t.Error("the container is the one that runc did not finish")
	}
	if !ended(first) {
		t.Error("a process of the container that runc did not finish still runs")
	}
	if r.Restarts != 0 {
		t.Errorf("it counts as started again %d times", r.Restarts)
	}

	// The driver itself had begun a container and does not know.
	n.elements[id].process.forget()
	n.elements[id].process.next = n.elements[id].process.began
	n.elements[id].verified = false
	n.apply(t, jobs)
	n.untilRuns(t, id, "10.0.0.0/31", "vtysh", "-c", "show interface brief")

	jobs[0].Element.Restarts++
	for range 2 {
		if r := n.apply(t, jobs)[0]; r.Restarts != 1 {
			t.Errorf("it was started again %d times: want once", r.Restarts)
		}
	}
	// What was given is noted in a file that the machine's power took.
	if err := os.WriteFile(n.seedsPath(id), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	route("198.51.100.0/24")
	if r := n.apply(t, jobs)[0]; r.Phase != model.PhaseRunning || !strings.Contains(r.Warning.Message, "--overwrite") {
		t.Errorf("an unknown configuration gave %s, %+v: want running, and a warning that names --overwrite", r.Phase,
			r.Warning)
	}
}

// TestRemovalIsRepeated fails a removal: what is left is still found, and goes the next time.
func TestRemovalIsRepeated(t *testing.T) {
	n := newNode(t)
	jobs := frrLine("lab", 7, 2)
	ids := []model.ID{jobs[0].ID, jobs[1].ID}
	n.apply(t, jobs)
	state := filepath.Join(n.dirs.Runc(), containerID(ids[0]), "state.json")
	whole, err := os.ReadFile(state)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(state, whole[:len(whole)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if err := n.Remove(context.Background(), ids, false); err == nil ||
		!strings.Contains(err.Error(), ids[0].String()) {
		t.Errorf("removing what runc cannot gave %v: want an error that names %s", err, ids[0])
	}
	found, err := n.List(context.Background())
	if err != nil || len(found) != 1 || found[0].ID != ids[0] {
		t.Errorf("found %v, %v: want %s, which is still there, and not the other", found, err, ids[0])
	}
	if err := os.WriteFile(state, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := n.Remove(context.Background(), ids, false); err != nil {
		t.Error(err)
	}
	if found, err := n.List(context.Background()); err != nil || len(found) != 0 {
		t.Errorf("found %v, %v after the second removal: want nothing", found, err)
	}
}

// TestPortsDoNotReachTheNode sends packets to the node's own address before there is a fabric, as an element's root can
// whenever its port is made anew.
func TestPortsDoNotReachTheNode(t *testing.T) {
	n := newNode(t)
	jobs := lineOf("lab", 7, 2)
	id := jobs[0].ID
	n.apply(t, jobs)
	port := n.dirs.PortDevice(model.PortID{ID: id, Interface: "r1"})
	sh(t, "ip link set lo up && ip address add 203.0.113.1/32 dev lo")
	_, mac, _ := strings.Cut(sh(t, "ip -o link show "+port), "link/ether ")
	n.in(t, id, "ip route add 203.0.113.1 dev r1 && ip neighbour add 203.0.113.1 dev r1 nud permanent lladdr "+
		strings.Fields(mac)[0])
	// Each packet either is for a closed port of the node's, or fails the reverse path filter.
	send := func() (arrived bool) {
		t.Helper()
		closed, filtered := counter(t, "snmp", "Udp", "NoPorts"), counter(t, "netstat", "TcpExt", "IPReversePathFilter")
		n.in(t, id, "bash -c 'echo x > /dev/udp/203.0.113.1/9'")
		for t.Context().Err() == nil {
			if counter(t, "snmp", "Udp", "NoPorts") > closed {
				return true
			}
			if counter(t, "netstat", "TcpExt", "IPReversePathFilter") > filtered {
				return false
			}
		}
		t.Fatal("the packet was neither taken nor refused")
		return false
	}
	if send() {
		t.Error("an element reached the node through its port")
	}
	sh(t, "sysctl -qw net.ipv4.conf."+port+".rp_filter=0")
	if !send() {
		t.Error("the packets do not reach the node even where they may: this test shows nothing")
	}
	if got := changes(n.apply(t, jobs)); !slices.Equal(got, []string{"r0: port r1 put right"}) {
		t.Errorf("apply said %q", got)
	}
	if send() {
		t.Error("an element reached the node through its port after that was put right")
	}
}

// counter reads one counter of the thread's network namespace, from /proc/net.
func counter(t *testing.T, file, group, name string) (value int) {
	t.Helper()
	data, err := os.ReadFile("/proc/thread-self/net/" + file)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if f[0] != group+":" {
			continue
		}
		if names == nil {
			names = f
			continue
		}
		value, err := strconv.Atoi(f[slices.Index(names, name)])
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	t.Fatalf("/proc/net/%s has no %s", file, group)
	return 0
}
