package agent

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
)

// links watches the devices of the node's namespace by rtnetlink's notifications. If a port is no longer as the last
// pass left it, it signals changed.
type links struct {
	changed chan struct{} // has room for one: several changes are one pass's work
	monitor *linux.Monitor

	mu     sync.Mutex       // guards all below
	buf    []byte           // for one reading
	ends   []int            // of the datagrams in it
	now    map[int32]device // ports, by index
	wanted map[int32]device // as they must be
	xdp    map[int32]uint32 // IDs of the programs in the drivers' hooks, by device
	others map[int32]other  // devices that are no ports

	othersChanged func() // called when one of these has changed; may be nil
}

// device is what is watched of a port.
type device struct {
	name    string
	mtu     uint32
	master  uint32
	up      bool
	running bool // has carrier; not compared
}

// linkBuffer is the socket's receive buffer, in bytes. A notification takes about 4 KiB of it, and making a network
// causes thousands. If it overflows all the same, all devices are read anew.
const linkBuffer = 32 << 20

func watchLinks() (*links, error) {
	m, err := linux.DialMonitor(linkBuffer, unix.RTNLGRP_LINK, unix.RTNLGRP_TC)
	if err != nil {
		return nil, fmt.Errorf("watch the node's devices: %w", err)
	}
	l := &links{changed: make(chan struct{}, 1), monitor: m, buf: make([]byte, linux.MonitorDatagram),
		now: map[int32]device{}, wanted: map[int32]device{}, xdp: map[int32]uint32{}, others: map[int32]other{}}
	if err := l.dump(); err != nil {
		m.Close() //nolint:errcheck // nothing was read from it
		return nil, fmt.Errorf("watch the node's devices: list them: %w", err)
	}
	return l, nil
}

// run reads notifications until the context ends.
func (l *links) run(ctx context.Context) error {
	m := l.monitor
	stop := context.AfterFunc(ctx, m.Interrupt)
	defer stop()
	for {
		err := m.Wait()
		if err == nil {
			l.mu.Lock()
			err = l.drain()
			l.mu.Unlock()
		}
		if ctx.Err() != nil {
			return l.close()
		}
		if err != nil {
			return errors.Join(fmt.Errorf("watch the node's devices: %w", err), l.close())
		}
	}
}

// close ends the watch. Later calls of drain find nothing.
func (l *links) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.monitor
	l.monitor = nil
	return m.Close()
}

// drain handles all waiting notifications. The caller holds the lock.
func (l *links) drain() error {
	for l.monitor != nil {
		var r linux.Received
		var err error
		if r, l.ends, err = l.monitor.Read(l.buf, l.ends[:0]); err != nil {
			return err
		}
		start := 0
		for _, end := range l.ends {
			for kind, payload := range linux.Messages(l.buf[start:end]) {
				l.message(kind, payload)
			}
			start = end
		}
		if r.Overrun { // something was missed, and the notifications read so far are older than a dump
			l.dump() //nolint:errcheck // the pass that follows finds out anyway
			l.signal()
		}
		if r.Bytes == 0 {
			return nil
		}
	}
	return nil
}

// message takes in one notification.
func (l *links) message(kind uint16, payload []byte) {
	if len(payload) < unix.SizeofIfInfomsg { // tcmsg is longer
		return
	}
	index := int32(binary.NativeEndian.Uint32(payload[4:]))
	want, expected := l.wanted[index]
	switch kind {
	case unix.RTM_NEWLINK:
		d, ours := parseDevice(payload)
		if id, told := parseXDP(payload); told && id != l.xdp[index] {
			l.hooked(index, id)
			l.signal()
		}
		if !ours {
			if payload[0] == unix.AF_BRIDGE { // what it is as a port of a bridge, without the rest
				return
			}
			if o := parseOther(payload); o != l.others[index] {
				l.others[index] = o
				l.otherwise()
			}
			if !expected {
				return
			}
		}
		l.now[index] = d
		if expected && !d.same(want) {
			l.signal()
		}
	case unix.RTM_DELLINK:
		if payload[0] == unix.AF_BRIDGE { // it has only left a bridge
			return
		}
		delete(l.now, index)
		delete(l.xdp, index)
		if _, there := l.others[index]; there {
			delete(l.others, index)
			l.otherwise()
		}
		if _, ours := parseDevice(payload); ours || expected { // a port, or the fabric's own device
			l.signal()
		}
	case unix.RTM_NEWQDISC, unix.RTM_DELQDISC, unix.RTM_DELTFILTER:
		if _, there := l.others[index]; there && kind != unix.RTM_DELTFILTER {
			l.otherwise() // its rate may be another one
		}
		if kind == unix.RTM_NEWQDISC {
			return
		}
		if expected || index == sharedBlock {
			l.signal()
		}
	}
}

// sharedBlock stands in place of an interface index where a filter is of a block that many devices share, as the ports'
// own filter is (TCM_IFINDEX_MAGIC_BLOCK of linux/rtnetlink.h).
const sharedBlock = -1

func (d device) same(o device) bool {
	return d.name == o.name && d.mtu == o.mtu && d.master == o.master && d.up == o.up
}

// parseDevice reads an RTM_NEWLINK and returns whether the device's name is a port's.
func parseDevice(payload []byte) (d device, ours bool) {
	flags := binary.NativeEndian.Uint32(payload[8:])
	d.up, d.running = flags&unix.IFF_UP != 0, flags&unix.IFF_UP != 0 && flags&unix.IFF_LOWER_UP != 0
	for kind, v := range linux.Attrs(payload[unix.SizeofIfInfomsg:]) {
		switch kind {
		case unix.IFLA_IFNAME:
			d.name = unix.ByteSliceToString(v)
		case unix.IFLA_MTU:
			d.mtu = binary.NativeEndian.Uint32(v)
		case unix.IFLA_MASTER:
			d.master = binary.NativeEndian.Uint32(v)
		}
	}
	return d, strings.HasPrefix(d.name, instance.PortDevicePrefix)
}

// hooked notes the program in a device's driver.
func (l *links) hooked(index int32, id uint32) {
	if id == 0 {
		delete(l.xdp, index)
	} else {
		l.xdp[index] = id
	}
}

// parseXDP reads from an RTM_NEWLINK which program is in the device's driver, if the message says so.
func parseXDP(payload []byte) (id uint32, told bool) {
	const program = 4 // IFLA_XDP_PROG_ID
	for kind, v := range linux.Attrs(payload[unix.SizeofIfInfomsg:]) {
		if kind != unix.IFLA_XDP {
			continue
		}
		told = true
		for k, v := range linux.Attrs(v) {
			if k == program {
				id = binary.NativeEndian.Uint32(v)
			}
		}
	}
	return id, told
}

// dump reads all devices anew. The caller holds the lock, or no other goroutine uses l yet.
func (l *links) dump() error {
	c, err := linux.DialRtnetlink()
	if err != nil {
		return err
	}
	defer c.Close()
	now := map[int32]device{}
	err = linux.Undisturbed(func() error {
		clear(now)
		clear(l.xdp)
		clear(l.others)
		return c.Links(0, func(payload []byte) {
			index := int32(binary.NativeEndian.Uint32(payload[4:]))
			if d, ours := parseDevice(payload); ours {
				now[index] = d
			} else {
				l.others[index] = parseOther(payload)
			}
			id, _ := parseXDP(payload)
			l.hooked(index, id)
		})
	})
	if err != nil {
		return err
	}
	l.now = now
	l.otherwise()
	return nil
}

func (l *links) signal() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// settled clears the signal: the caller is about to look at everything.
func (l *links) settled() {
	select {
	case <-l.changed:
	default:
	}
}

// expect says how the ports must be from now on. It signals if one of them is already different.
func (l *links) expect(outcomes map[model.ID]*outcome) {
	expected := make(map[int32]device, 2*len(outcomes))
	for _, o := range outcomes {
		for i, d := range o.devices {
			if d.Index == 0 || i >= len(o.job.Element.Interfaces) {
				continue
			}
			ifc := &o.job.Element.Interfaces[i]
			expected[int32(d.Index)] = device{name: d.Name, mtu: uint32(ifc.MTU), up: ifc.Far == nil || !ifc.Far.Down}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	// The kernel queues a notification before it answers the request that caused it. So after this, what is known is up
	// to date.
	l.drain() //nolint:errcheck // whoever waits meets the same, and ends the agent
	l.wanted = expected
	// What was signalled meanwhile came from the pass itself.
	l.settled()
	for index, want := range expected {
		if d, there := l.now[index]; !there || !d.same(want) {
			l.signal()
			return
		}
	}
}

// running tells whether a port is up and has carrier.
func (l *links) running(index int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now[int32(index)].running
}
