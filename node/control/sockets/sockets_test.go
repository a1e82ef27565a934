package sockets

import (
	"errors"
	"os"
	"runtime"
	"testing"

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
		&unix.TpacketReq{Block_size: block, Block_nr: uint32(size), Frame_size: 2048, Frame_nr: uint32(size) * block / 2048})
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
	if err := unix.SetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE, string(make([]byte, 10000))); err != nil && err != unix.EINVAL {
		t.Errorf("a value of 10,000 bytes: %v", err)
	}
	if known, err := g.Known(); err != nil || len(known) != 0 {
		t.Errorf("accounts left: %v (%v)", known, err)
	}
}
