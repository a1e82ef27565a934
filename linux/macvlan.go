package linux

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Of linux/if_link.h.
const (
	macvlanMode   = 1 // IFLA_MACVLAN_MODE
	macvlanBridge = 4 // MACVLAN_MODE_BRIDGE
)

// AddMacvlan continues a request for a new device with what makes it a macvlan above another one, with a MAC address of
// its own. It is down.
func (b *Batch) AddMacvlan(name string, parent int, mac [6]byte) {
	b.Link(0, 0, 0)
	b.String(unix.IFLA_IFNAME, name)
	b.Uint32(unix.IFLA_LINK, uint32(parent))
	b.Attr(unix.IFLA_ADDRESS, mac[:])
	b.Begin(unix.IFLA_LINKINFO)
	b.String(unix.IFLA_INFO_KIND, "macvlan")
	b.Begin(unix.IFLA_INFO_DATA)
	b.Uint32(macvlanMode, macvlanBridge)
	b.End()
	b.End()
}

// ProbeMacvlan says why this kernel makes no macvlan devices, in words that begin with "its kernel". It returns nil if
// it does.
func ProbeMacvlan() error {
	return inScratch(func(c *Rtnetlink) error {
		var b Batch
		b.AddVeth("a", "b", 1500)
		for _, err := range c.Do(&b) {
			if err != nil {
				return fmt.Errorf("its kernel %s could not be tried: %w", release(), err)
			}
		}
		index, err := numberOf(c, "a")
		if err != nil {
			return fmt.Errorf("its kernel %s could not be tried: %w", release(), err)
		}
		b.Reset()
		b.Request(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
		b.AddMacvlan("c", index, [6]byte{2})
		return refused(c.Do(&b), "macvlan devices", "CONFIG_MACVLAN, the module macvlan")
	})
}

// refused is what a kernel lacks that refused the only request of a batch.
func refused(errs []error, what, option string) error {
	switch {
	case errs == nil || errs[0] == nil:
		return nil
	case errors.Is(errs[0], unix.EOPNOTSUPP):
		return fmt.Errorf("its kernel %s has no %s (%s)", release(), what, option)
	}
	return fmt.Errorf("its kernel %s refuses %s: %w", release(), what, errs[0])
}

// inScratch calls f in a network namespace that is then removed.
func inScratch(f func(c *Rtnetlink) error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and the namespace with it
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("its kernel %s could not be tried: make a network namespace: %w", release(), err)
			}
			c, err := DialRtnetlink()
			if err != nil {
				return fmt.Errorf("its kernel %s could not be tried: %w", release(), err)
			}
			defer c.Close()
			return f(c)
		}()
	}()
	return <-done
}

// numberOf is the number of a device.
func numberOf(c *Rtnetlink, name string) (int, error) {
	index := 0
	var b Batch
	b.Request(unix.RTM_GETLINK, 0)
	b.Link(0, 0, 0)
	err := c.Dump(&b, func(_ uint16, p []byte) error {
		if len(p) < unix.SizeofIfInfomsg {
			return nil
		}
		for kind, v := range Attrs(p[unix.SizeofIfInfomsg:]) {
			if kind == unix.IFLA_IFNAME && unix.ByteSliceToString(v) == name {
				index = int(Uint32Of(p[4:8]))
			}
		}
		return nil
	})
	if err == nil && index == 0 {
		err = fmt.Errorf("there is no device %s", name)
	}
	return index, err
}
