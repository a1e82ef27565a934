package linux

import (
	"errors"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

func TestOffloads(t *testing.T) {
	runtime.LockOSThread() // never unlocked: the thread ends with the test, and its namespace with it
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	c, err := DialRtnetlink()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var b Batch
	b.AddVeth("a", "b", 1500)
	if errs := c.Do(&b); errs != nil {
		t.Fatal(errs)
	}
	for _, on := range []bool{true, false, true} {
		if err := c.SetGRO("a", on); err != nil {
			t.Fatal(err)
		}
		if o, err := c.Offloads("a"); err != nil || o.GRO != on {
			t.Errorf("GRO is %v after SetGRO(%v): %v", o.GRO, on, err)
		}
	}
	for _, device := range []string{"nobody", "a-name-longer-than-Linux-takes"} {
		if err := c.SetGRO(device, true); err == nil {
			t.Errorf("GRO of %s was set", device)
		}
	}
	usual, err := c.Offloads("a")
	if err != nil || !usual.Checksum || !usual.TxVLAN || !usual.RxVLAN {
		t.Fatalf("the offloads of a new veth: %+v, %v", usual, err)
	}
	for _, to := range []Offloads{{GRO: true}, {}, {Checksum: true, RxVLAN: true}, {TxVLAN: true}, usual} {
		if err := c.ChangeOffloads("a", func(o *Offloads) error { *o = to; return nil }); err != nil {
			t.Fatal(err)
		}
		if is, err := c.Offloads("a"); err != nil || is != to {
			t.Errorf("the offloads are %+v, not %+v: %v", is, to, err)
		}
	}
	none := func(*Offloads) error { return nil }
	if err := c.ChangeOffloads("nobody", none); err == nil {
		t.Error("the offloads of nobody were set")
	}
	refused := errors.New("refused")
	if err := c.ChangeOffloads("a", func(o *Offloads) error { *o = Offloads{}; return refused }); err != refused {
		t.Errorf("a change that fails gave %v", err)
	}
	if is, err := c.Offloads("a"); err != nil || is != usual {
		t.Errorf("after a change that failed the offloads are %+v, not %+v: %v", is, usual, err)
	}
}
