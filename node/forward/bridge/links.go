package bridge

import (
	"encoding/binary"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
)

// link is a device in a switch.
type link struct {
	index, master int
	flags         uint32
	mac           [6]byte
	snoops        bool // a bridge that looks at what is for groups
	tree          tree // a bridge's
	knowsVLANs    bool // a bridge of a kernel whose bridges have VLANs
	vlans         bool // it heeds them
	pvid          uint16
	limited       bool // a bridge of a kernel that bounds what it learns
	limit         uint32
}

// readLinks reads the devices of c's namespace, by name.
func readLinks(c *linux.Rtnetlink) (map[string]link, error) {
	var links map[string]link
	err := dumpLinks(c, func() { links = map[string]link{} }, func(p []byte) {
		name, l := parse(p)
		links[name] = l
	})
	return links, err
}

// dumpLinks reads the devices of c's namespace. Where that is disturbed by a change it begins again.
func dumpLinks(c *linux.Rtnetlink, begin func(), each func(p []byte)) error {
	err := linux.Undisturbed(func() error {
		begin()
		return c.Links(0, each)
	})
	if err != nil {
		return fmt.Errorf("read its devices: %w", err)
	}
	return nil
}

func parse(p []byte) (name string, l link) {
	l.index = int(int32(binary.NativeEndian.Uint32(p[4:])))
	l.flags = binary.NativeEndian.Uint32(p[8:])
	for kind, v := range linux.Attrs(p[unix.SizeofIfInfomsg:]) {
		switch kind {
		case unix.IFLA_IFNAME:
			name = unix.ByteSliceToString(v)
		case unix.IFLA_MASTER:
			l.master = int(binary.NativeEndian.Uint32(v))
		case unix.IFLA_ADDRESS:
			copy(l.mac[:], v)
		case unix.IFLA_LINKINFO:
			l.bridge(v)
		}
	}
	return name, l
}

// bridge reads what is particular to bridges.
func (l *link) bridge(info []byte) {
	l.snoops = true
	for kind, data := range linux.Attrs(info) {
		if kind != unix.IFLA_INFO_DATA {
			continue
		}
		for k, v := range linux.Attrs(data) {
			switch {
			case k == iflaBrSTPState && len(v) >= 4:
				l.tree.on = binary.NativeEndian.Uint32(v) != 0
			case k == iflaBrPriority && len(v) >= 2:
				l.tree.priority = binary.NativeEndian.Uint16(v)
			case k == iflaBrForwardDelay && len(v) >= 4:
				l.tree.delay = binary.NativeEndian.Uint32(v)
			case k == iflaBrHelloTime && len(v) >= 4:
				l.tree.hello = binary.NativeEndian.Uint32(v)
			case k == iflaBrMaxAge && len(v) >= 4:
				l.tree.age = binary.NativeEndian.Uint32(v)
			case k == iflaBrVLANFiltering && len(v) >= 1:
				l.knowsVLANs, l.vlans = true, v[0] != 0
			case k == iflaBrVLANDefault && len(v) >= 2:
				l.pvid = binary.NativeEndian.Uint16(v)
			case k == iflaBrMcastSnooping && len(v) >= 1:
				l.snoops = v[0] != 0
			case k == iflaBrFDBMaxLearned && len(v) >= 4:
				l.limited, l.limit = true, binary.NativeEndian.Uint32(v)
			}
		}
	}
	if !l.tree.on {
		l.tree = tree{} // what it would do does not matter
	}
}

// inScratch runs f in a network namespace that is gone afterwards.
func inScratch(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread and its namespace end with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("make a network namespace: %w", err)
			return
		}
		done <- f()
	}()
	return <-done
}
