package netns

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
)

func TestMain(m *testing.M) {
	ChildMain()
	os.Exit(m.Run())
}

// testNode is a node of an instance of its own, in a network namespace of its own.
type testNode struct {
	*Driver
	dirs instance.NodeDirs
}

// newNode moves the test's thread into a new network namespace and makes a driver there. All is removed at the end.
func newNode(t testing.TB) *testNode {
	t.Helper()
	return newNodeWith(t, "")
}

// newNodeWith has the node's data on a disk of this size, like 300m; on the machine's where it is empty.
func newNodeWith(t testing.TB, size string) *testNode {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("needs root: namespaces are made for real")
	}
	runtime.LockOSThread() // never unlocked: the thread's namespace is of no use to others
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	word := make([]byte, 4)
	rand.Read(word)
	name := "test" + hex.EncodeToString(word)
	dirs := instance.NewDirs(name)
	n := &testNode{dirs: dirs.Node("n1")}
	if size != "" {
		if err := os.MkdirAll(dirs.Data, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("tmpfs", dirs.Data, "tmpfs", 0, "mode=755,size="+size); err != nil {
			t.Fatal(err)
		}
	}
	n.restart(t)
	t.Cleanup(func() {
		found, err := n.List(context.Background())
		if err != nil {
			t.Error(err)
		}
		var ids []model.ID
		for _, f := range found {
			ids = append(ids, f.ID)
		}
		if err := n.Remove(context.Background(), ids, false); err != nil {
			t.Error(err)
		}
		n.Close()
		os.RemoveAll(dirs.Run)
		if size != "" {
			unix.Unmount(dirs.Data, 0)
		}
		os.RemoveAll(dirs.Data)
		mounts, _ := os.ReadFile("/proc/self/mountinfo")
		if strings.Contains(string(mounts), name) {
			t.Errorf("mounts of %s are left behind", name)
		}
	})
	return n
}

// restart makes a new driver, as the agent's restart does.
func (n *testNode) restart(t testing.TB) {
	t.Helper()
	if n.Driver != nil {
		n.Close()
	}
	var err error
	if n.Driver, err = New(n.dirs, Options{Rooms: linux.NewRooms(n.dirs.Rooms())}); err != nil {
		t.Fatal(err)
	}
}

// apply applies and expects no error; it returns the results.
func (n *testNode) apply(t testing.TB, jobs []control.Job) []control.Result {
	t.Helper()
	results := n.Apply(context.Background(), jobs)
	for _, r := range results {
		if r.Err != nil {
			t.Fatalf("apply %s: %v", r.ID, r.Err)
		}
	}
	return results
}

// changes are what results tell to have changed, one line each.
func changes(results []control.Result) []string {
	var all []string
	for _, r := range results {
		for _, c := range r.Changed {
			all = append(all, r.ID.Element+": "+c.String())
		}
	}
	return all
}

// lineOf is a network of n static routers r0 – r1 – …; interface names are the neighbours'.
func lineOf(network string, index uint32, n int) []control.Job {
	jobs := make([]control.Job, n)
	for i := range jobs {
		id := model.ID{Network: network, Element: fmt.Sprintf("r%d", i)}
		el := model.PlacedElement{Name: id.Element, Kind: model.Router, Control: model.ControlNetns,
			Forwarding: model.ForwardGuest, Software: model.SoftwareStatic,
			Loopback: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 255, byte(i >> 8), byte(i)}), 32)}}
		if i > 0 {
			el.Interfaces = append(el.Interfaces, lineInterface(i-1, 1, i-1, index))
		}
		if i < n-1 {
			el.Interfaces = append(el.Interfaces, lineInterface(i, 0, i+1, index))
		}
		jobs[i] = control.Job{ID: id, Index: index, Element: model.NodeElement{PlacedElement: el}}
	}
	return jobs
}

func lineInterface(link, end, far int, index uint32) model.PlacedInterface {
	a4 := netip.AddrFrom4([4]byte{10, byte(link >> 7), byte(link << 1), byte(end)})
	a6 := netip.AddrFrom16([16]byte{0xfd, 0, 0, byte(index), 0, 0, byte(link >> 8), byte(link), 15: byte(end)})
	mac := func(end int) string { return fmt.Sprintf("02:00:%02x:%02x:%02x:%02x", index, link>>8, link&255, end) }
	other4, other6 := netip.PrefixFrom(a4, 31).Masked().Addr(), netip.PrefixFrom(a6, 127).Masked().Addr()
	if end == 0 {
		other4, other6 = other4.Next(), other6.Next()
	}
	return model.PlacedInterface{
		ResolvedInterface: model.ResolvedInterface{Name: fmt.Sprintf("r%d", far), MAC: mac(end), MTU: 1500,
			Addresses: []netip.Prefix{netip.PrefixFrom(a4, 31), netip.PrefixFrom(a6, 127)}},
		Far: &model.PlacedFar{Far: model.Far{Peers: []model.LinkPeer{{MAC: mac(1 - end),
			Addresses: []netip.Addr{other4, other6}}}}}}
}
