package linux

import (
	"errors"
	"fmt"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// inNamespace gives the test a network namespace of its own; its thread dies with it.
func inNamespace(t testing.TB) {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the runtime ends the thread with the goroutine
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("unshare a network namespace: %v", err)
	}
}

func dial(t testing.TB) *Rtnetlink {
	t.Helper()
	c, err := DialRtnetlink()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func bridge(b *Batch, name string) int {
	i := b.Request(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	b.Link(0, 0, 0)
	b.String(unix.IFLA_IFNAME, name)
	b.Begin(unix.IFLA_LINKINFO)
	b.String(unix.IFLA_INFO_KIND, "bridge")
	b.End()
	return i
}

func TestBatchErrorsStandWhereTheyBelong(t *testing.T) {
	inNamespace(t)
	c := dial(t)
	var b Batch
	const n = 2*batchMessages + 7
	for i := range n {
		switch {
		case i%3 == 1:
			bridge(&b, "lo") // exists
		default:
			bridge(&b, fmt.Sprintf("b%d", i))
		}
	}
	errs := c.Do(&b)
	if len(errs) != n {
		t.Fatalf("%d errors for %d requests", len(errs), n)
	}
	made := 1 // lo
	for i, err := range errs {
		if want := i%3 == 1; want != errors.Is(err, unix.EEXIST) || !want && err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		if err == nil {
			made++
		}
	}
	b.Reset()
	b.Request(unix.RTM_GETLINK, 0)
	b.Link(0, 0, 0)
	seen := map[string]bool{}
	err := c.Dump(&b, func(kind uint16, payload []byte) error {
		for k, v := range Attrs(payload[unix.SizeofIfInfomsg:]) {
			if k == unix.IFLA_IFNAME {
				seen[unix.ByteSliceToString(v)] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(seen) != made {
		t.Errorf("the dump has %d links, %d were made", len(seen), made)
	}
}

func TestBatchSucceedsInSilence(t *testing.T) {
	inNamespace(t)
	c := dial(t)
	var b Batch
	if errs := c.Do(&b); errs != nil {
		t.Fatalf("an empty batch: %v", errs)
	}
	for i := range 5 {
		if at := bridge(&b, fmt.Sprintf("b%d", i)); at != i {
			t.Fatalf("request %d stands at %d", i, at)
		}
	}
	if errs := c.Do(&b); errs != nil {
		t.Fatal(errs)
	}
}

func TestKernelErrorHasTheKernelsWords(t *testing.T) {
	inNamespace(t)
	c := dial(t)
	var b Batch
	b.Request(unix.RTM_NEWLINK, unix.NLM_F_CREATE)
	b.Link(0, 0, 0)
	b.Begin(unix.IFLA_LINKINFO)
	b.String(unix.IFLA_INFO_KIND, "no-such-kind")
	b.End()
	errs := c.Do(&b)
	var kernel *KernelError
	if errs == nil || !errors.As(errs[0], &kernel) || kernel.Errno != unix.EOPNOTSUPP || kernel.Message == "" {
		t.Fatalf("an unknown kind of link: %v", errs)
	}
}

func TestDumpStopsAtTheFirstError(t *testing.T) {
	inNamespace(t)
	c := dial(t)
	var b Batch
	for i := range 100 {
		bridge(&b, fmt.Sprintf("b%d", i))
	}
	if errs := c.Do(&b); errs != nil {
		t.Fatal(errs)
	}
	stop := errors.New("enough")
	for range 2 { // the second finds the connection in order
		calls := 0
		b.Reset()
		b.Request(unix.RTM_GETLINK, 0)
		b.Link(0, 0, 0)
		if err := c.Dump(&b, func(uint16, []byte) error { calls++; return stop }); err != stop || calls != 1 {
			t.Fatalf("%d calls, then %v", calls, err)
		}
	}
}
