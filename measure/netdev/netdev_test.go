package netdev

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

func pairOf(t *testing.T, a, b string) (Ref, Ref) {
	t.Helper()
	var refs [2]Ref
	for i, name := range []string{a, b} {
		n, err := NewNamespace()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { n.Close() })
		refs[i] = Ref{n.Path(), name}
	}
	if err := NewVeth(refs[0], refs[1], 9); err != nil {
		t.Fatal(err)
	}
	return refs[0], refs[1]
}

func TestInIsInsideAndComesBack(t *testing.T) {
	a, _ := pairOf(t, "nda", "ndb")
	if err := In(a.Namespace, func() error {
		l, err := netlink.LinkByName("nda")
		if err == nil && l.Attrs().HardwareAddr.String() != MAC(9).String() {
			t.Errorf("its address is %v", l.Attrs().HardwareAddr)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	if _, err := netlink.LinkByName("nda"); err == nil {
		t.Error("the device is in the test's own namespace")
	}
	boom := errors.New("boom")
	if err := In("", func() error { return boom }); !errors.Is(err, boom) {
		t.Errorf("%v", err)
	}
	if In("/nosuch", func() error { return nil }) == nil {
		t.Error("a namespace that is not there was entered")
	}
}

// sysMounts counts what is mounted on /sys in the process's own mount namespace.
func sysMounts(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(b), " /sys ")
}

// Devices of the same name in different namespaces: each gets its own thread. The process's own /sys stays as it was.
func TestThreadsAreTheDevicesOwn(t *testing.T) {
	before := sysMounts(t)
	a, _ := pairOf(t, "ndthr", "x")
	b, _ := pairOf(t, "ndthr", "x")
	one, err := SetThreaded(a, true)
	if err != nil || len(one) != 1 {
		t.Fatalf("%v, %v", one, err)
	}
	two, err := SetThreaded(b, true)
	if err != nil || len(two) != 1 || slices.Equal(one, two) {
		t.Errorf("%v and %v, %v", one, two, err)
	}
	if again, err := SetThreaded(b, true); err == nil {
		t.Errorf("whose thread %v is cannot be told, yet no error", again)
	}
	if err := errors.Join(PinThread(one[0], 0), First(one[0])); err != nil {
		t.Error(err)
	}
	for _, r := range []Ref{a, b} {
		if _, err := SetThreaded(r, false); err != nil {
			t.Error(err)
		}
	}
	if left, err := NAPIThreads("ndthr"); err != nil || len(left) > 0 {
		t.Errorf("threads %v are left, %v", left, err)
	}
	if after := sysMounts(t); after != before {
		t.Errorf("%d mounts on /sys, before %d", after, before)
	}
}

func TestCountersAndQueues(t *testing.T) {
	a, _ := pairOf(t, "ndq", "x")
	if n, err := Queues(a); err != nil || n != 1 {
		t.Errorf("%d queues, %v", n, err)
	}
	if d, err := ReadDrops(a); err != nil || d != (Drops{}) {
		t.Errorf("%+v, %v", d, err)
	}
	missing := Ref{a.Namespace, "nosuch"}
	if _, err := Queues(missing); err == nil {
		t.Error("queues of a device that is not there")
	}
	if _, err := ReadDrops(missing); err == nil {
		t.Error("counters of a device that is not there")
	}
	if got := (Drops{5, 4, 3}).Sub(Drops{1, 1, 1}); got != (Drops{4, 3, 2}) {
		t.Errorf("%+v", got)
	}
}
