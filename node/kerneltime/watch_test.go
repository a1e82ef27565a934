package kerneltime

import (
	"context"
	"log/slog"
	"os/exec"
	"path/filepath"
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
		elements[name] = Element{Path: path, CPU: leastAllowance} // an emulated machine samples few of its timers' ticks
	}
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
	for _, again := range []bool{false, true} {
		inside(twoBridges)
		select {
		case v := <-verdicts:
			t.Logf("%+v", v)
			if v.ID != "loop" || v.Err != nil || strings.Join(v.Devices, " ") != "b1 b2 x1 x2 y1 y2" || v.Removed != 6 || v.Barred != again {
				t.Errorf("the verdict is %+v", v)
			}
		case <-time.After(time.Minute):
			t.Fatal("the loop goes on")
		}
		if times := w.Times(); times["loop"].Taken < leastAllowance/2 || times["peace"].Taken > leastAllowance {
			t.Errorf("it is charged to %v", times)
		}
		if left := inside("ip -o link"); strings.Contains(left, "x1") || strings.Contains(left, "b1") {
			t.Errorf("devices are left:\n%s", left)
		}
	}
	// Whoever has done it twice has no device that is up.
	inside("ip link add x1 type veth peer name x2; ip link set x1 up; true")
	for end := time.Now().Add(time.Minute); strings.Contains(inside("ip -o link"), "x1"); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it may make devices")
		}
	}
}
