package bridge_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/node/control/netns"
	"github.com/polyplane/polyplane/node/forward"
	"github.com/polyplane/polyplane/node/forward/bridge"
	"github.com/polyplane/polyplane/node/forward/forwardtest"
	"github.com/polyplane/polyplane/system/attack"
)

func TestMain(m *testing.M) {
	netns.ChildMain()
	os.Exit(m.Run())
}

func sh(t *testing.T, command string) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", command).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}

func id(name string) model.ID { return model.ID{Network: "lab", Element: name} }

// newNode moves the test's thread into a node's network namespace, with a driver whose elements are removed at the end.
func newNode(t *testing.T, ids []model.ID) (instance.NodeDirs, *netns.Driver) {
	t.Helper()
	runtime.LockOSThread() // never unlocked: its namespace is of no use to others
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	word := make([]byte, 4)
	rand.Read(word)
	all := instance.NewDirs("test" + hex.EncodeToString(word))
	driver, err := netns.New(all.Node("n1"), netns.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := driver.Remove(context.Background(), ids, false); err != nil {
			t.Error(err)
		}
		driver.Close()
		os.RemoveAll(all.Run)
		os.RemoveAll(all.Data)
	})
	return all.Node("n1"), driver
}

func TestConforms(t *testing.T) {
	ids := []model.ID{id("s1"), id("s2")}
	dirs, driver := newNode(t, ids)
	s := forwardtest.Subject{Restart: func() forward.Plane { return bridge.New(dirs, driver.Enter) },
		Spoil: func(j *forward.Job) { j.Element.Kind = model.Host }}
	for i := range ids {
		job := control.Job{ID: ids[i], Index: 1,
			Element: model.NodeElement{PlacedElement: model.PlacedElement{Name: ids[i].Element, Kind: model.Switch,
				Interfaces: []model.PlacedInterface{{
					ResolvedInterface: model.ResolvedInterface{Name: "h1"}}, {
					ResolvedInterface: model.ResolvedInterface{Name: "h2"}}}}}}
		r := driver.Apply(t.Context(), []control.Job{job})[0]
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		s.Jobs[i] = forward.Job{ID: job.ID, Element: job.Element, Devices: r.Devices}
	}
	forwardtest.Conforms(t, s)
}

// TestSwitchJoinsHosts makes a switch with two hosts whose ports are joined by the node's own bridges, in the fabric's
// place.
func TestSwitchJoinsHosts(t *testing.T) {
	attack.Tell(t, "frames from more addresses than a switch may learn",
		"it forgets what it learnt, and the next frames go their way")
	ctx := context.Background()
	ids := []model.ID{id("s"), id("h1"), id("h2")}
	dirs, driver := newNode(t, ids)
	jobs := []control.Job{{ID: ids[0], Index: 1,
		Element: model.NodeElement{PlacedElement: model.PlacedElement{Name: "s", Kind: model.Switch,
			Interfaces: []model.PlacedInterface{{
				ResolvedInterface: model.ResolvedInterface{Name: "h1"}}, {
				ResolvedInterface: model.ResolvedInterface{Name: "h2"}}}}}}}
	for i := 1; i <= 2; i++ {
		prefix := netip.MustParsePrefix(fmt.Sprintf("192.0.2.%d/24", i))
		jobs = append(jobs, control.Job{ID: ids[i], Index: 1,
			Element: model.NodeElement{PlacedElement: model.PlacedElement{
				Name: ids[i].Element, Kind: model.Host,
				Interfaces: []model.PlacedInterface{{
					ResolvedInterface: model.ResolvedInterface{Name: "s", Addresses: []netip.Prefix{prefix}}}}}}})
	}
	var devices []control.Device
	for _, r := range driver.Apply(ctx, jobs) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		devices = append(devices, r.Devices...)
	}
	for i := range 2 {
		name := fmt.Sprintf("link%d", i)
		sh(t, fmt.Sprintf("ip link add %[1]s type bridge mcast_snooping 0 && ip link set %[1]s up && ip link set "+
			"%[2]s master %[1]s && ip link set %[3]s master %[1]s",
			name, devices[i].Name, devices[2+i].Name))
	}
	plane := bridge.New(dirs, driver.Enter)
	lacks := plane.Offers(ctx).Lacks()
	for what := range lacks { // VLANs a kernel may lack
		if !strings.HasPrefix(string(what), string(model.FeatureVLANs)) {
			t.Fatal(lacks)
		}
	}
	ping := func() error {
		var out bytes.Buffer
		status, err := driver.Exec(ctx, ids[1], control.Command{Args: []string{"ping", "-c1", "-W5", "192.0.2.2"}},
			control.Stdio{Out: &out})
		if err == nil && status != 0 {
			err = fmt.Errorf("status %d: %s", status, out.String())
		}
		return err
	}
	work := []forward.Job{{ID: ids[0], Element: jobs[0].Element}, {ID: ids[1], Element: jobs[1].Element}}
	results := plane.Prepare(ctx, work)
	if results[0].Err != nil {
		t.Fatal(results[0].Err)
	}
	if err := results[1].Err; err == nil || !strings.Contains(err.Error(), "switches only") {
		t.Errorf("a host on this plane gave %v: want a refusal", err)
	}
	if err := ping(); err != nil {
		t.Error(err)
	}
	inside := "nsenter --net=" + dirs.Namespace(ids[0]) + " "
	first := sh(t, inside+"ip -d link show pp-bridge")
	for _, want := range []string{"stp_state 0", "mcast_snooping 0"} {
		if !strings.Contains(first, want) {
			t.Errorf("the bridge has no %s:\n%s", want, first)
		}
	}
	macFlood(t, dirs.Namespace(ids[1]), "s")
	if n := strings.Count(sh(t, inside+"bridge fdb show br pp-bridge dynamic"), "\n"); n > 16384 &&
		!before67(t) || n < 1000 {
		t.Errorf("after frames from 30,000 addresses the bridge knows %d", n)
	} else {
		t.Logf("after frames from 30,000 addresses the bridge knows %d", n)
	}
	if err := ping(); err != nil {
		t.Errorf("with the bridge's table full: %v", err)
	}
	// A new plane, as after a restart, puts right what was altered and keeps the bridge.
	sh(t, inside+"ip link set h1 nomaster && "+inside+"ip link set pp-bridge type bridge mcast_snooping 1")
	plane = bridge.New(dirs, driver.Enter)
	if results := plane.Prepare(ctx, work[:1]); results[0].Err != nil {
		t.Fatal(results[0].Err)
	}
	again := sh(t, inside+"ip -d link show pp-bridge")
	if index := strings.SplitN(first, ":", 2)[0]; !strings.HasPrefix(again, index+":") ||
		!strings.Contains(again, "mcast_snooping 0") {
		t.Errorf("the bridge was\n%s\nand is\n%s", first, again)
	}
	if err := ping(); err != nil {
		t.Error(err)
	}
	// With a spanning tree it is a part of one, and a port that was taken away comes back; without it passes at once.
	for _, c := range []struct {
		stp  model.STP
		want string
	}{{"4096", "forward_delay 400 hello_time 100 max_age 600 ageing_time 30000 stp_state 1 priority 4096 "},
		{model.STPUsual, "stp_state 1 priority 32768 "}, {"", "stp_state 0 "}} {
		work[0].Element.STP = c.stp
		for _, spoil := range []string{"true", inside + "ip link set pp-bridge type bridge priority 8192 max_age 700 " +
			map[bool]string{true: "stp_state 0", false: "stp_state 1"}[c.stp != ""]} {
			sh(t, spoil)
			plane = bridge.New(dirs, driver.Enter)
			if results := plane.Prepare(ctx, work[:1]); results[0].Err != nil {
				t.Fatal(results[0].Err)
			}
			if out := sh(t, inside+"ip -d link show pp-bridge"); !strings.Contains(out, c.want) {
				t.Errorf("with stp %q after %s the bridge is\n%s", c.stp, spoil, out)
			}
			looksAtTree(t, plane, &work[0])
		}
	}
	if err := ping(); err != nil {
		t.Errorf("without a spanning tree again: %v", err)
	}
	boundElsewhere(t, inside, dirs.Namespace(ids[1]), bridge.New(dirs, driver.Enter), work[:1])
	if err := ping(); err != nil {
		t.Errorf("with the bridge's table emptied: %v", err)
	}
	if list, err := plane.List(ctx); err != nil || len(list) != 1 || list[0] != ids[0] {
		t.Errorf("listed %v, %v: want %s", list, err, ids[0])
	}
	if err := plane.Retire(ctx, ids[:1]); err != nil {
		t.Fatal(err)
	}
	if out := sh(t, inside+"ip link"); strings.Contains(out, "pp-bridge") {
		t.Errorf("the bridge is still there:\n%s", out)
	}
	if list, err := plane.List(ctx); err != nil || len(list) != 0 {
		t.Errorf("listed %v, %v after all were retired", list, err)
	}
	// A switch that is gone takes its bridge along.
	if results := plane.Prepare(ctx, work[:1]); results[0].Err != nil {
		t.Fatal(results[0].Err)
	}
	if err := driver.Remove(ctx, ids[:1], false); err != nil {
		t.Fatal(err)
	}
	if err := plane.Retire(ctx, ids[:1]); err != nil {
		t.Error(err)
	}
}

// boundElsewhere has a plane bound what a bridge learns whose kernel does not, as before Linux 6.7.
func boundElsewhere(t *testing.T, inside, sender string, plane *bridge.Plane, work []forward.Job) {
	t.Helper()
	known := func() int { return strings.Count(sh(t, inside+"bridge fdb show br pp-bridge dynamic"), "\n") }
	trim := func() []control.Trimmed {
		t.Helper()
		trimmed, err := plane.Trim(context.Background())
		if err != nil {
			t.Error(err)
		}
		return trimmed
	}
	sh(t, inside+"ip link delete pp-bridge")
	plane.Older()
	if r := plane.Prepare(context.Background(), work); r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
	if got := trim(); len(got) != 0 {
		t.Errorf("of a switch that has learnt nothing were trimmed %v", got)
	}
	macFlood(t, sender, "s")
	if n := known(); n < 20000 {
		t.Fatalf("after frames from 30,000 addresses the unbounded bridge knows %d: nothing is tried", n)
	}
	if got := trim(); len(got) != 1 || got[0].ID != work[0].ID || got[0].Table != control.Addresses ||
		got[0].Had <= got[0].Limit {
		t.Errorf("trimmed was %v", got)
	}
	if n := known(); n > 100 {
		t.Errorf("trimmed, the bridge knows %d addresses", n)
	}
	if got := trim(); len(got) != 0 {
		t.Errorf("of a switch that has forgotten were trimmed %v", got)
	}
}

// macFlood sends a frame from each of 30,000 addresses.
func macFlood(t *testing.T, namespace, device string) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked
		done <- func() error {
			ns, err := os.Open(namespace)
			if err != nil {
				return err
			}
			defer ns.Close()
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
				return err
			}
			fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			d, err := net.InterfaceByName(device)
			if err != nil {
				return err
			}
			for i := range 30000 {
				frame := append([]byte{2, 9, 9, 9, 9, 9, 2, 7, 0, byte(i >> 16), byte(i >> 8), byte(i), 0x88, 0xb5},
					make([]byte, 50)...)
				if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: d.Index}); err != nil &&
					err != unix.ENOBUFS {
					return err
				}
			}
			return nil
		}()
	}()
	if err := <-done; err != nil {
		t.Fatalf("send from many addresses: %v", err)
	}
}

// before67 tells that the kernel is older than Linux 6.7, whose bridges learn without bound.
func before67(t *testing.T) bool {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		t.Fatal(err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(uts.Release[:]), "%d.%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	return major < 6 || major == 6 && minor < 7
}

// looksAtTree asks for a switch's spanning tree, which has no other bridges in it.
func looksAtTree(t *testing.T, plane *bridge.Plane, job *forward.Job) {
	t.Helper()
	tree, err := plane.Tree(job.ID)
	priority, on := job.Element.STP.Priority()
	if !on {
		if !errors.Is(err, forward.ErrNotForwarded) {
			t.Errorf("without a spanning tree: %+v, %v", tree, err)
		}
		return
	}
	mac := model.BridgeMAC(job.ID)
	own := model.BridgeID{Priority: priority, MAC: net.HardwareAddr(mac[:]).String()}
	if err != nil || tree.Bridge != own || tree.Root != own || tree.Cost != 0 ||
		len(tree.Ports) != len(job.Element.Interfaces) {
		t.Fatalf("the tree of a switch alone is %+v, %v", tree, err)
	}
	for i, p := range tree.Ports {
		if p.Interface != job.Element.Interfaces[i].Name || p.Role != model.TreeDesignated || p.Cost == 0 ||
			p.State == model.TreeDisabled || p.State == model.TreeBlocking {
			t.Errorf("its port %s is %+v", job.Element.Interfaces[i].Name, p)
		}
	}
}
