package bridge

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
)

type link struct {
	index, master int
	flags         uint32
	mac           [6]byte
	plain         bool // a bridge without spanning tree and multicast snooping
	limited       bool // a bridge of a kernel that bounds what it learns
	limit         uint32
}

// readLinks reads the devices of c's namespace, by name.
func readLinks(c *linux.Rtnetlink) (map[string]link, error) {
	var links map[string]link
	var err error
	for range 20 {
		links = map[string]link{}
		var b linux.Batch
		b.Request(unix.RTM_GETLINK, 0)
		b.Link(0, 0, 0)
		err = c.Dump(&b, func(kind uint16, p []byte) error {
			if kind == unix.RTM_NEWLINK && len(p) >= unix.SizeofIfInfomsg {
				name, l := parse(p)
				links[name] = l
			}
			return nil
		})
		if !errors.Is(err, linux.ErrDumpInterrupted) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read its devices: %w", err)
	}
	return links, nil
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
	stp, snooping := true, true
	for kind, data := range linux.Attrs(info) {
		if kind != unix.IFLA_INFO_DATA {
			continue
		}
		for k, v := range linux.Attrs(data) {
			switch {
			case k == iflaBrSTPState && len(v) >= 4:
				stp = binary.NativeEndian.Uint32(v) != 0
			case k == iflaBrMcastSnooping && len(v) >= 1:
				snooping = v[0] != 0
			case k == iflaBrFDBMaxLearned && len(v) >= 4:
				l.limited, l.limit = true, binary.NativeEndian.Uint32(v)
			}
		}
	}
	l.plain = !stp && !snooping
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
