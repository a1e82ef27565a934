package linux

import (
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func TestSetGRO(t *testing.T) {
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
		value := struct{ command, data uint32 }{command: 0x2b} // ETHTOOL_GGRO
		request := struct {
			name [unix.IFNAMSIZ]byte
			data unsafe.Pointer
			_    [16]byte
		}{name: [unix.IFNAMSIZ]byte{'a'}, data: unsafe.Pointer(&value)}
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(c.fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
			t.Fatal(errno)
		}
		if (value.data == 1) != on {
			t.Errorf("GRO is %d after SetGRO(%v)", value.data, on)
		}
	}
	for _, device := range []string{"nobody", "a-name-longer-than-Linux-takes"} {
		if err := c.SetGRO(device, true); err == nil {
			t.Errorf("GRO of %s was set", device)
		}
	}
}
