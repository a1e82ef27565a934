package companion

import (
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/node/mirror"
)

// newKernel returns what writes into a new network namespace.
func newKernel(t *testing.T) *Routes {
	t.Helper()
	own, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(own)
	var c *linux.Rtnetlink
	err = linux.Inside(own, func() error {
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err != nil {
			return err
		}
		if c, err = linux.DialRtnetlink(); err != nil {
			return err
		}
		var b linux.Batch
		b.Request(unix.RTM_SETLINK, 0)
		b.Link(1, unix.IFF_UP, unix.IFF_UP) // lo: next hops that drop lead there
		if errs := c.Do(&b); errs != nil {
			return errs[0]
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r := newRoutes(c)
	t.Cleanup(func() {
		if err := r.close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// snapshot has one next hop and a route of each family; it is the beginning of one if it does not end.
func snapshot(ends bool) *mirror.Batch {
	return &mirror.Batch{Reset: true, Synced: ends, NextHops: []mirror.NextHop{{ID: 1, Kind: mirror.KindBlackhole}},
		Routes: []mirror.Route{{Prefix: netip.MustParsePrefix("192.0.2.0/24"), NextHop: 1},
			{Prefix: netip.MustParsePrefix("2001:db8::/64"), NextHop: 1}}}
}

func tell(r *Routes, b *mirror.Batch) error {
	if err := r.Before(b); err != nil {
		return err
	}
	return r.After(b)
}

func (r *Routes) settled() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.young.empty() && r.old.empty()
}

// TestSnapshotsThatNeverEnd begins more snapshots than there are generations, as a router does whose routes change
// faster than they can be read, also over processes that died meanwhile.
func TestSnapshotsThatNeverEnd(t *testing.T) {
	r := newKernel(t)
	for i := range 3 * generations {
		if err := tell(r, snapshot(false)); err != nil {
			t.Fatalf("snapshot %d: %v", i+1, err)
		}
	}
	again := newRoutes(r.c) // nothing is remembered
	for i := range 2 {      // the first goes on with a generation, of which the second leaves nothing
		if err := tell(again, snapshot(true)); err != nil {
			t.Fatalf("snapshot %d of the next process: %v", i+1, err)
		}
		for !again.settled() {
			time.Sleep(time.Millisecond)
			again.Settle()
		}
	}
	objects, err := again.objects()
	if err != nil {
		t.Fatal(err)
	}
	if want := 2 * len(families); len(objects) != want { // the hop's, and nowhere's
		t.Errorf("%d next-hop objects are left, not %d: %x", len(objects), want, objects)
	}
	for range 2 { // what is wrong counts when it is seen twice
		if !again.right(func() (int, bool) { return 2, true }) {
			t.Error("what the kernel has is not held for right")
		}
	}
}

// TestCloseWhileItIsTold closes it, as a change of planes does, while the router's changes are told.
func TestCloseWhileItIsTold(t *testing.T) {
	r := newKernel(t)
	if err := tell(r, snapshot(true)); err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	began := make(chan struct{})
	wait.Go(func() {
		b := snapshot(true)
		b.Reset = false
		for i := range 1000 {
			if i == 10 {
				close(began)
			}
			if err := tell(r, b); err != nil {
				t.Errorf("told after %d others: %v", i, err)
				return
			}
		}
	})
	<-began
	if err := r.close(); err != nil {
		t.Error(err)
	}
	wait.Wait()
}
