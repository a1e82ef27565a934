package sockets

import (
	"errors"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/system/attack"
)

// enter moves the test's thread into a new network namespace, with a guard that bounds it.
func enter(t *testing.T, rings uint64) (*Guard, uint64) {
	t.Helper()
	dir := t.TempDir()
	g, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(g.Close(), Destroy(dir)); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s is left", dir)
		}
	})
	again, err := Open(dir) // as the next agent does
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
	runtime.LockOSThread() // never unlocked
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	cookie, err := Cookie()
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Bound(cookie, rings); err != nil {
		t.Fatal(err)
	}
	return g, cookie
}

// another is the guard of another instance of the machine, whose program runs as well.
func another(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	g, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(g.Close(), Destroy(dir)); err != nil {
			t.Error(err)
		}
	})
}

// others counts the programs at setsockopt that are not of this version.
func others(t *testing.T) (n int) {
	t.Helper()
	root, err := groups()
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	all, err := link.QueryPrograms(link.QueryOptions{Target: int(root.Fd()), Attach: ebpf.AttachCGroupSetsockopt})
	if err != nil {
		t.Fatal(err)
	}
	tags := map[string]int{}
	for _, is := range all.Programs {
		p, err := ebpf.NewProgramFromID(is.ID)
		if err != nil {
			continue // gone by now
		}
		if info, err := p.Info(); err == nil {
			tags[info.Tag]++
		}
		p.Close()
	}
	var own programObjects
	if err := loadProgramObjects(&own, nil); err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	info, err := own.SetOption.Info()
	if err != nil || tags[info.Tag] < 3 {
		t.Fatalf("of this version there are %d programs of %d (%v)", tags[info.Tag], len(all.Programs), err)
	}
	return len(all.Programs) - tags[info.Tag]
}

func packetSocket(t *testing.T) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// ring asks for one of so many MiB.
func ring(fd, name, size int) error {
	const block = 1 << 20
	return unix.SetsockoptTpacketReq(fd, unix.SOL_PACKET, name,
		&unix.TpacketReq{Block_size: block, Block_nr: uint32(size), Frame_size: 2048,
			Frame_nr: uint32(size) * block / 2048})
}

func TestRingsAreBounded(t *testing.T) {
	attack.Tell(t, "rings of packet sockets beyond the bound",
		"refused")
	g, cookie := enter(t, 8<<20)
	first, second := packetSocket(t), packetSocket(t)
	if err := ring(first, unix.PACKET_RX_RING, 5); err != nil {
		t.Fatalf("a ring of 5 MiB of 8: %v", err)
	}
	if err := ring(second, unix.PACKET_TX_RING, 4); err != unix.ENOMEM {
		t.Errorf("9 MiB of 8: %v, want ENOMEM", err)
	}
	if err := ring(second, unix.PACKET_TX_RING, 3); err != nil {
		t.Errorf("8 MiB of 8: %v", err)
	}
	settle := func() Account {
		t.Helper()
		a, err := g.Account(cookie)
		if err != nil {
			t.Fatal(err)
		}
		seen, err := Look()
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Settle(cookie, a, seen); err != nil {
			t.Fatal(err)
		}
		if a, err = g.Account(cookie); err != nil {
			t.Fatal(err)
		}
		return a
	}
	if a := settle(); a.Rings != 8<<20 || a.RingsRefused != 1 {
		t.Errorf("the account says %+v: want 8 MiB and one refusal", a)
	}
	// What is given back may be taken again, once somebody has looked.
	unix.Close(first)
	if a := settle(); a.Rings != 3<<20 {
		t.Errorf("after a ring of 5 MiB was closed the account says %+v", a)
	}
	first = packetSocket(t)
	if err := ring(first, unix.PACKET_RX_RING, 5); err != nil {
		t.Errorf("a ring of 5 MiB after another was closed: %v", err)
	}
	if err := ring(packetSocket(t), unix.PACKET_RX_RING, 1); err != unix.ENOMEM {
		t.Errorf("9 MiB of 8: %v, want ENOMEM", err)
	}
	// A ring that was on its way when somebody looked is counted at the next look.
	a, err := g.Account(cookie)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Settle(cookie, a, Seen{}); err != nil {
		t.Fatal(err)
	}
	if a := settle(); a.Rings != 8<<20 {
		t.Errorf("rings of 8 MiB that were not seen at first: the account says %+v", a)
	}
	if err := ring(packetSocket(t), unix.PACKET_RX_RING, 1); err != unix.ENOMEM {
		t.Errorf("9 MiB of 8, of which 8 were not seen at first: %v, want ENOMEM", err)
	}
	// More than 64 bits of it.
	err = unix.SetsockoptTpacketReq(packetSocket(t), unix.SOL_PACKET, unix.PACKET_RX_RING,
		&unix.TpacketReq{Block_size: 1 << 31, Block_nr: 1<<32 - 1, Frame_size: 2048, Frame_nr: 1})
	if err != unix.ENOMEM {
		t.Errorf("a ring without end: %v, want ENOMEM", err)
	}
}

func TestFiltersAreBounded(t *testing.T) {
	attack.Tell(t, "packet filters without end",
		"refused beyond the bound")
	g, cookie := enter(t, 0)
	attachTo := func(fd, length int) error {
		program := make([]unix.SockFilter, length)
		for i := range program {
			program[i] = unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 1}
		}
		return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
			&unix.SockFprog{Len: uint16(length), Filter: &program[0]})
	}
	attach := func(length int) (int, error) {
		fd := packetSocket(t)
		return fd, attachTo(fd, length)
	}
	udp, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := attachTo(udp, 32); err != nil {
		t.Errorf("a small filter of a UDP socket: %v", err)
	}
	if err := attachTo(udp, 33); err != unix.ENOMEM {
		t.Errorf("a large filter of a UDP socket: %v, want ENOMEM", err)
	}
	for range 2 * Filters {
		if _, err := attach(32); err != nil {
			t.Fatalf("a small filter: %v", err)
		}
	}
	var large []int
	for range Filters {
		fd, err := attach(33)
		if err != nil {
			t.Fatalf("filter %d: %v", len(large), err)
		}
		large = append(large, fd)
	}
	if _, err := attach(33); err != unix.ENOMEM {
		t.Errorf("filter %d: %v, want ENOMEM", Filters+1, err)
	}
	if a, err := g.Account(cookie); err != nil || a.Filters != Filters || a.FiltersRefused != 2 {
		t.Errorf("the account says %+v (%v)", a, err)
	}
	for _, fd := range large {
		unix.Close(fd)
	}
}

// Whoever is not bounded is not touched, however odd what he asks for.
func TestOthersAreFree(t *testing.T) {
	g, cookie := enter(t, 0)
	if err := ring(packetSocket(t), unix.PACKET_RX_RING, 1); err != unix.ENOMEM {
		t.Fatalf("a ring where none may be: %v", err)
	}
	g.Forget(cookie)
	fd := packetSocket(t)
	if err := ring(fd, unix.PACKET_RX_RING, 64); err != nil {
		t.Errorf("a ring of 64 MiB: %v", err)
	}
	// A value of more than a page, which an iptables rule set is.
	if err := unix.SetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE,
		string(make([]byte, 10000))); err != nil && err != unix.EINVAL {
		t.Errorf("a value of 10,000 bytes: %v", err)
	}
	if known, err := g.Known(); err != nil || len(known) != 0 {
		t.Errorf("accounts left: %v (%v)", known, err)
	}
}

// The kernel takes pages for a ring's block by powers of two: one of 33 pages keeps 64 from others (255 MiB so took 497
// of the machine's memory).
func TestRingsAreCountedAsTheyAre(t *testing.T) {
	g, cookie := enter(t, 8<<20)
	page := uint32(os.Getpagesize())
	odd := func(blocks uint32) error {
		return unix.SetsockoptTpacketReq(packetSocket(t), unix.SOL_PACKET, unix.PACKET_RX_RING,
			&unix.TpacketReq{Block_size: 33 * page, Block_nr: blocks, Frame_size: page, Frame_nr: 33 * blocks})
	}
	if err := odd(32); err != nil {
		t.Fatalf("a ring that takes 8 MiB: %v", err)
	}
	if err := odd(1); err != unix.ENOMEM {
		t.Errorf("more than 8 MiB: %v, want ENOMEM", err)
	}
	a, err := g.Account(cookie)
	if err != nil {
		t.Fatal(err)
	}
	seen, err := Look()
	if err != nil || a.Rings != 8<<20 || seen.Rings != a.Rings {
		t.Errorf("the account says %d, and seen are %d, want both 8 MiB (%v)", a.Rings, seen.Rings, err)
	}
}

// TestValueStaysAsItWasLookedAt: a thread that changes what another asks for, between the look and the kernel's
// reading, gets no more than what was looked at, whatever the programs of other instances let go.
func TestValueStaysAsItWasLookedAt(t *testing.T) {
	another(t)
	g, cookie := enter(t, 4<<20)
	another(t)
	if n := others(t); n > 0 {
		t.Logf("the machine has %d programs of other versions, which may say that the kernel shall look again: "+
			"nothing is tried", n)
		return
	}
	attack.Tell(t, "what is asked for is changed while it is looked at: rings and filters of none become large ones",
		"the kernel takes what was looked at")
	const block = 1 << 20
	const few = 3000
	race := func(change func(bool), ask func() bool) {
		t.Helper()
		var stop atomic.Bool
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := 0; !stop.Load(); i++ {
				change(i%2 == 0)
			}
		}()
		for range few {
			if !ask() {
				break
			}
		}
		stop.Store(true)
		<-done
	}
	request := &unix.TpacketReq{Block_size: block, Frame_size: 2048}
	blocks := (*atomic.Uint32)(unsafe.Pointer(&request.Block_nr))
	frames := (*atomic.Uint32)(unsafe.Pointer(&request.Frame_nr))
	fd := packetSocket(t)
	race(func(large bool) {
		if large {
			frames.Store(16 * block / 2048)
			blocks.Store(16)
		} else {
			frames.Store(0)
			blocks.Store(0)
		}
	}, func() bool {
		unix.SetsockoptTpacketReq(fd, unix.SOL_PACKET, unix.PACKET_RX_RING, request) //nolint:errcheck // most fail
		if seen, err := Look(); err != nil || seen.Rings > 4<<20 {
			t.Errorf("of 4 MiB that it may have it has %d (%v)", seen.Rings, err)
			return false
		}
		return true
	})
	unix.Close(fd)
	program := make([]unix.SockFilter, 4000)
	for i := range program {
		program[i] = unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 1}
	}
	filter := &unix.SockFprog{Len: 1, Filter: &program[0]}
	length := (*uint16)(unsafe.Pointer(filter))
	var sockets []int
	defer func() {
		for _, fd := range sockets {
			unix.Close(fd)
		}
	}()
	race(func(large bool) {
		to := uint16(1)
		if large {
			to = 4000
		}
		*(*uint16)(unsafe.Pointer(length)) = to
	}, func() bool {
		fd := packetSocket(t)
		unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, filter) //nolint:errcheck // some fail
		size, _ := filterLength(fd)
		if size <= 32 {
			unix.Close(fd)
			return true
		}
		sockets = append(sockets, fd)
		if a, err := g.Account(cookie); err != nil || a.Filters < uint64(len(sockets)) {
			t.Errorf("%d sockets have large filters, counted are %d (%v)", len(sockets), a.Filters, err)
			return false
		}
		return true
	})
}

// filterLength is how many instructions a socket's filter has.
func filterLength(fd int) (int, error) {
	n := uint32(0)
	_, _, e := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_GET_FILTER, 0,
		uintptr(unsafe.Pointer(&n)), 0)
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}

// TestNothingHoldsRings: what would keep pages of a ring when its socket is closed, and it is counted no more, is
// refused.
func TestNothingHoldsRings(t *testing.T) {
	attack.Tell(t, "pages of rings that are closed are held by what is sent without a copy",
		"it is refused")
	g, cookie := enter(t, 0)
	for _, kind := range []int{unix.AF_INET, unix.AF_INET6, unix.AF_UNIX, unix.AF_PACKET} {
		fd, err := unix.Socket(kind, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ZEROCOPY, 1); err != unix.ENOPROTOOPT {
			t.Errorf("SO_ZEROCOPY of a socket of family %d: %v, want ENOPROTOOPT", kind, err)
		}
	}
	g.Forget(cookie)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ZEROCOPY, 1); err != nil {
		t.Errorf("SO_ZEROCOPY of who is not bounded: %v", err)
	}
}

// TestFlowLabelsAreRefused: the machine has 4,096 of them, of all namespaces together. One namespace's root got 3,073,
// and then nobody another one.
func TestFlowLabelsAreRefused(t *testing.T) {
	attack.Tell(t, "IPv6 flow labels, of which the machine has 4,096",
		"none: they are refused")
	g, cookie := enter(t, 0)
	const flowLabelManager = 32 // IPV6_FLOWLABEL_MGR
	lease := func() error {
		fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		// struct in6_flowlabel_req: the destination, any label, IPV6_FL_A_GET, IPV6_FL_F_CREATE and IPV6_FL_S_EXCL
		request := append(net.ParseIP("2001:db8::1"), 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0)
		return unix.SetsockoptString(fd, unix.IPPROTO_IPV6, flowLabelManager, string(request))
	}
	if err := lease(); err != unix.EPERM {
		t.Errorf("a flow label: %v, want EPERM", err)
	}
	g.Forget(cookie)
	if err := lease(); err != nil {
		t.Errorf("who is not bounded: %v", err)
	}
}

// TestMulticastTablesAreRefused: a socket that names a table of multicast routes makes it. It is charged to nobody, and
// nothing takes it away but the end of the namespace.
func TestMulticastTablesAreRefused(t *testing.T) {
	attack.Tell(t, "tables of multicast routes, which stay as long as the namespace", "none: they are refused")
	g, cookie := enter(t, 0)
	const multicastTable = 209 // MRT_TABLE, MRT6_TABLE
	for _, f := range []struct{ family, protocol, level int }{
		{unix.AF_INET, unix.IPPROTO_IGMP, unix.IPPROTO_IP}, {unix.AF_INET6, unix.IPPROTO_ICMPV6, unix.IPPROTO_IPV6}} {
		name := func(table int) error {
			fd, err := unix.Socket(f.family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, f.protocol)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			return unix.SetsockoptInt(fd, f.level, multicastTable, table)
		}
		if err := g.Bound(cookie, 0); err != nil {
			t.Fatal(err)
		}
		if err := name(7); err != unix.EPERM {
			t.Errorf("family %d: a table of its own: %v, want EPERM", f.family, err)
		}
		g.Forget(cookie)
		if err := name(7); err != nil {
			t.Errorf("family %d: who is not bounded: %v", f.family, err)
		}
	}
}
