package kerneltime

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
)

// twoBridges are joined twice, and frames go round on them for ever.
const twoBridges = `set -e; ip link add b1 type bridge; ip link add b2 type bridge
ip link add x1 type veth peer name x2; ip link add y1 type veth peer name y2
for d in x1 y1; do ip link set $d master b1 up; done; for d in x2 y2; do ip link set $d master b2 up; done
ip link set b1 up; ip link set b2 up
exec perl -e 'open my $f, "<", "/sys/class/net/b1/ifindex"; my $index = <$f>;
	socket my $s, 17, 3, 0 or die; bind $s, pack "SnlSCCa8", 17, 3, $index, 0, 0, 0, "" or die;
	send $s, "\xff" x 6 . "\x02\0\0\0\0\x01" . "\x88\xb5" . "x" x 46, 0 for 1..256'`

// linked joins two elements with a link.
func linked(t *testing.T, elements map[string]Element, a, b string) {
	t.Helper()
	run := func(name, script string) string {
		out, err := exec.Command("nsenter", "--net="+elements[name].Path, "sh", "-c", script).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return strings.TrimSpace(string(out))
	}
	run(a, "ip link add p type veth peer name p netns "+elements[b].Path+" && ip link set p up")
	run(b, "ip link set p up")
	index := func(name string) int {
		n, err := strconv.Atoi(strings.Split(run(name, "ip -o link show p"), ":")[0])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, pair := range [][2]string{{a, b}, {b, a}} {
		e := elements[pair[0]]
		e.Ports, e.Inner = []int{index(pair[1])}, []int{index(pair[0])}
		elements[pair[0]] = e
	}
}

// TestPeek holds what is learnt without the kernel's lock to what netlink says.
func TestPeek(t *testing.T) {
	elements := map[string]Element{}
	for _, name := range []string{"a", "b"} {
		path := filepath.Join(t.TempDir(), name)
		if _, err := linux.MountNamespace(path); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
		elements[name] = Element{Path: path}
	}
	linked(t, elements, "a", "b")
	e := elements["a"]
	e.Outer = e.Ports
	if out, err := exec.Command("nsenter", "--net="+e.Path, "sh", "-c", `ip link set lo up; ip link add b1 type bridge; ip link set b1 up
		ip link add x1 type veth peer name x2; ip link set x1 up; ip link set x2 up
		ip address add 10.0.0.1/24 dev p; ip address add 10.1.0.1/24 dev x1
		ping -qc3 -i0.01 -W0.1 127.0.0.1; ping -qc2 -W0.1 10.0.0.2; ping -qc2 -W0.1 10.1.0.2; true`).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var says []Device
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		var before, after unix.Stat_t
		unix.Stat("/proc/thread-self/ns/net", &before)
		h, err := newHere()
		if err != nil {
			t.Error(err)
			return
		}
		defer h.home.Close()
		if err := in(e.Path, func(c *linux.Rtnetlink) (err error) {
			says,
				err = devices(c, &e)
			return err
		}); err != nil {
			t.Error(err)
			return
		}
		indices := map[int]float64{}
		for _, d := range says {
			indices[d.Index] = 1
		}
		got, err := h.peek(&e, maps.Keys(indices))
		if err != nil {
			t.Error(err)
		}
		for i := range says {
			says[i].Up = false // which is not learnt so
		}
		byName := func(a, b Device) int { return strings.Compare(a.Name, b.Name) }
		slices.SortFunc(says, byName)
		slices.SortFunc(got, byName)
		if !slices.Equal(got, says) || len(got) != 4 || got[1].Name != "p" || !got[1].Outer || got[1].Packets == 0 {
			t.Errorf("it learns %+v, netlink says %+v", got, says)
		}
		if _, err := h.peek(&Element{Path: e.Path, Ports: []int{3}, Inner: []int{0}},
			none); !errors.Is(err, errUnknownEnds) {
			t.Errorf("with an end that is not known: %v", err)
		}
		if _, err := h.peek(&Element{Path: e.Path + "x", Ports: []int{3}, Inner: []int{3}},
			none); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("of an element that has gone: %v", err)
		}
		if unix.Stat("/proc/thread-self/ns/net", &after); before.Ino != after.Ino {
			t.Error("the thread has not come back")
		}
	}()
	<-done
}

// TestWatcherEndsALoop: the work is charged to the namespace that it is done for, not to another, and ends.
func TestWatcherEndsALoop(t *testing.T) {
	dir := t.TempDir()
	elements := map[string]Element{}
	for _, name := range []string{"loop", "peace"} {
		path := filepath.Join(dir, name)
		if _, err := linux.MountNamespace(path); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
		// an emulated machine samples few of its timers' ticks
		elements[name] = Element{Path: path, CPU: leastAllowance}
	}
	linked(t, elements, "loop", "peace")
	verdicts := make(chan Verdict[string], 16)
	w := &Watcher[string]{Elements: func() map[string]Element { return elements }, Log: slog.New(slog.DiscardHandler),
		Tell: func(v Verdict[string]) { verdicts <- v }, Pace: func(string, Element, int) error { return nil }}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })

	inside := func(script string) string {
		t.Helper()
		out, err := exec.Command("nsenter", "--net="+elements["loop"].Path, "sh", "-c", script).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	devices := func() (names []string) { // their names alone: MAC addresses contain "b1" now and then
		t.Helper()
		for line := range strings.Lines(inside("ip -br link")) {
			name, _, _ := strings.Cut(strings.Fields(line)[0], "@")
			names = append(names, name)
		}
		return names
	}
	for _, again := range []bool{false, true} {
		inside(twoBridges)
		select {
		case v := <-verdicts:
			t.Logf("%+v", v)
			if v.ID != "loop" || v.Err != nil || strings.Join(v.Devices, " ") != "b1 b2 x1 x2 y1 y2" ||
				v.Removed != 6 || v.Barred != again {
				t.Errorf("the verdict is %+v", v)
			}
		case <-time.After(time.Minute):
			t.Fatal("the loop goes on")
		}
		if times := w.Times(); times["loop"].Taken < leastAllowance/2 || times["peace"].Taken > leastAllowance {
			t.Errorf("it is charged to %v", times)
		}
		if left := devices(); slices.Contains(left, "x1") || slices.Contains(left, "b1") {
			t.Errorf("devices are left: %v", left)
		}
	}
	// Whoever has done it twice has no device that is up and sends anything.
	inside("ip link add x1 type veth peer name x2; ip link set x2 up; ip link set x1 up; ip address add 192.0.2.1/24 " +
		"dev x1; " +
		"ping -c 3 -i 0.2 -W 1 192.0.2.2; true")
	for end := time.Now().Add(time.Minute); slices.Contains(devices(), "x1"); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it may make devices")
		}
	}
}
