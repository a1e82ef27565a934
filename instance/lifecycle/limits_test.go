package lifecycle

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// limitsFixture is a host whose limits are files.
type limitsFixture struct {
	hostLimits
	t *testing.T
}

func newLimitsFixture(t *testing.T) *limitsFixture {
	f := &limitsFixture{hostLimits{dir: t.TempDir(), sysctl: t.TempDir(), boot: "one"}, t}
	for _, family := range []string{"ipv4", "ipv6"} {
		if err := os.MkdirAll(filepath.Join(f.sysctl, "net", family, "neigh/default"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	f.admin("ipv4", 128, 512, 1024)
	f.admin("ipv6", 128, 512, 1024)
	return f
}

func limitKey(family string, i int) string {
	return filepath.Join("net", family, "neigh/default", []string{"gc_thresh1", "gc_thresh2", "gc_thresh3"}[i])
}

// admin sets limits by hand.
func (f *limitsFixture) admin(family string, values ...uint64) {
	f.t.Helper()
	for i, v := range values {
		path := filepath.Join(f.sysctl, limitKey(family, i))
		if err := os.WriteFile(path, []byte("0"), 0o644); err != nil {
			f.t.Fatal(err)
		}
		if err := f.set(limitKey(family, i), v); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f *limitsFixture) want(family string, values ...uint64) {
	f.t.Helper()
	for i, want := range values {
		if got, err := f.get(limitKey(family, i)); err != nil || got != want {
			f.t.Errorf("%s is %d (%v), want %d", limitKey(family, i), got, err, want)
		}
	}
}

func (f *limitsFixture) up(instance string) {
	f.t.Helper()
	if err := os.MkdirAll(filepath.Join(f.dir, instance), 0o700); err != nil {
		f.t.Error(err)
	}
	if err := f.raise(); err != nil {
		f.t.Error(err)
	}
}

func (f *limitsFixture) down(instance string) {
	f.t.Helper()
	if err := os.RemoveAll(filepath.Join(f.dir, instance)); err != nil {
		f.t.Error(err)
	}
	if err := f.putBack(); err != nil {
		f.t.Error(err)
	}
}

func TestLimitsAreRaisedAndPutBackByTheLast(t *testing.T) {
	f := newLimitsFixture(t)
	f.up("a")
	f.want("ipv4", 65536, 131072, 262144)
	f.up("b")
	f.up("a") // again
	f.down("a")
	f.want("ipv6", 65536, 131072, 262144)
	f.down("b")
	f.want("ipv4", 128, 512, 1024)
	f.want("ipv6", 128, 512, 1024)
	if left, err := os.ReadDir(f.dir); err != nil || len(left) != 0 {
		t.Errorf("left are %v (%v)", left, err)
	}
	f.down("b") // of nothing
}

// What somebody changes meanwhile is theirs; what was large enough is not touched.
func TestLimitsThatAnAdministratorChangedStay(t *testing.T) {
	f := newLimitsFixture(t)
	f.admin("ipv6", 1_000_000, 1_000_000, 1_000_000)
	f.up("a")
	f.want("ipv6", 1_000_000, 1_000_000, 1_000_000)
	f.admin("ipv4", 256, 131072, 500_000)
	f.down("a")
	f.want("ipv4", 256, 512, 500_000)
	f.want("ipv6", 1_000_000, 1_000_000, 1_000_000)

	// Lowered while an instance ran, and raised again by the next: the new value is what is put back.
	f.up("a")
	f.admin("ipv4", 300, 600, 1200)
	f.up("b")
	f.want("ipv4", 65536, 131072, 262144)
	f.down("a")
	f.down("b")
	f.want("ipv4", 300, 600, 1200)
}

// Whoever dies between the note and the deed, or amid several, leaves what can be put right.
func TestLimitsSurviveCrashes(t *testing.T) {
	f := newLimitsFixture(t)
	note, err := f.read()
	if err != nil {
		t.Fatal(err)
	}
	note.Limits[limitKey("ipv4", 2)] = raised{Found: 1024, Set: 262144} // noted and not done
	if err := f.write(note); err != nil {
		t.Fatal(err)
	}
	f.down("a")
	f.want("ipv4", 128, 512, 1024)
	if err := f.write(note); err != nil {
		t.Fatal(err)
	}
	f.up("a")
	f.down("a")
	f.want("ipv4", 128, 512, 1024)

	// Another version raised less.
	note.Limits[limitKey("ipv4", 2)] = raised{Found: 1024, Set: 2048}
	if err := f.write(note); err != nil {
		t.Fatal(err)
	}
	f.admin("ipv4", 128, 512, 2048)
	f.up("a")
	f.down("a")
	f.want("ipv4", 128, 512, 1024)

	// A note of another boot, or half a note, says nothing.
	f.up("a")
	f.boot = "two"
	f.down("a")
	f.want("ipv4", 65536, 131072, 262144)
	f.admin("ipv4", 128, 512, 1024)
	if err := os.WriteFile(f.file(), []byte(`{"boot":"tw`), 0o600); err != nil {
		t.Fatal(err)
	}
	f.up("a")
	f.down("a")
	f.want("ipv4", 128, 512, 1024)
}

// Where they are not seen, in a network namespace, they are not forgotten.
func TestLimitsAreKeptInMindWhereTheyAreNotSeen(t *testing.T) {
	f := newLimitsFixture(t)
	f.up("a")
	host := f.sysctl
	f.sysctl = t.TempDir()
	f.up("b")
	f.down("a")
	f.down("b")
	f.sysctl = host
	f.want("ipv4", 65536, 131072, 262144)
	f.up("a")
	f.down("a")
	f.want("ipv4", 128, 512, 1024)
}

func TestInstancesRaiseLimitsAtOnce(t *testing.T) {
	f := newLimitsFixture(t)
	var wg sync.WaitGroup
	for _, name := range []string{"a", "b", "c", "d"} {
		wg.Go(func() {
			for range 20 {
				f.up(name)
				f.want("ipv4", 65536, 131072, 262144)
				f.down(name)
			}
		})
	}
	wg.Wait()
	f.want("ipv4", 128, 512, 1024)
	f.want("ipv6", 128, 512, 1024)
}

// A limit that is one number of three leaves the others as they are; one that cannot be raised is no failure where
// nothing depends on it, and nothing is noted of it; more than the kernel has room for is followed by less.
func TestOtherLimitsOfTheMachine(t *testing.T) {
	f := newLimitsFixture(t)
	write := func(key, text string) {
		t.Helper()
		path := filepath.Join(f.sysctl, key)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want := func(key, text string) {
		t.Helper()
		if got, err := os.ReadFile(filepath.Join(f.sysctl, key)); err != nil || string(got) != text {
			t.Errorf("%s is %q (%v), want %q", key, got, err, text)
		}
	}
	write("net/ipv4/udp_mem", "1\t2\t999999999999\n")
	write("kernel/pid_max", "32768\n")
	write("net/core/netdev_max_backlog", "1000\n")
	write("kernel/pty/max", "4096\n")
	// The file of a limit that may be read and not written, as in a container: a full device says so whoever writes.
	if err := os.Remove(filepath.Join(f.sysctl, "kernel/pty/max")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/proc/sys/kernel/random/uuid", filepath.Join(f.sysctl, "kernel/pty/max")); err != nil {
		t.Fatal(err)
	}
	f.up("a")
	want("kernel/pid_max", "4194304")
	want("net/core/netdev_max_backlog", "32768")
	if third, err := f.get("net/ipv4/udp_mem#2"); err != nil || third != 999999999999 {
		t.Errorf("a limit that was high enough is %d (%v)", third, err)
	}
	if first, err := f.get("net/ipv4/udp_mem#0"); err != nil || first < 1000 {
		t.Errorf("the first number of three is %d (%v) after it was raised", first, err)
	}
	note, err := f.read()
	if _, noted := note.Limits["kernel/pty/max"]; err != nil || noted {
		t.Errorf("what could not be raised is noted: %v (%v)", note.Limits, err)
	}
	f.down("a")
	want("kernel/pid_max", "32768")
	want("net/core/netdev_max_backlog", "1000")
	want("net/ipv4/udp_mem", "1\t2\t999999999999")
}
