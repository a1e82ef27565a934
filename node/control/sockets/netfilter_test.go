package sockets

import (
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/system/attack"
)

// messageTo is one to a part of netfilter, of the least length that is taken.
func messageTo(part, kind int) []byte {
	b := make([]byte, 20) // with a struct nfgenmsg
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], uint16(part<<8|kind))
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	return b
}

// TestPartsOfNetfilterAreRefused: of some parts of netfilter an object is memory that is charged to nobody and bounded
// by nothing. 65,536 groups of its log took up to 256 KiB each, with one packet.
func TestPartsOfNetfilterAreRefused(t *testing.T) {
	attack.Tell(t, "groups of netfilter's log, counters (nfacct), sets (ipset), time limits and helpers of "+
		"connections, fingerprints",
		"none: they are refused")
	g, cookie := enter(t, 0)
	if g.Lacking != nil {
		skipLacking(t, g.Lacking, "netlink_send")
	}
	refuseParts(t, g, cookie)
}

// TestPartsOfNetfilterAreRefusedWithoutSecurityModule: a kernel may have been started without that of eBPF programs.
func TestPartsOfNetfilterAreRefusedWithoutSecurityModule(t *testing.T) {
	attack.Tell(t, "the same parts of netfilter, where the kernel asks no eBPF programs as a security module",
		"none: they are refused")
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
	if err := os.Remove(dir + "/" + layout + "/netfilter"); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	all, err := netfilterHook.attachOne(netfilterHook.before, dir+"/"+layout, g.limits)
	if err != nil {
		skipLackingBefore(t, err, "netlink_send")
	}
	all.Close()
	runtime.LockOSThread() // never unlocked
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	cookie, err := Cookie()
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Bound(cookie, 0); err != nil { // which makes the account
		t.Fatal(err)
	}
	refuseParts(t, g, cookie)
}

// refuseParts sends messages to netfilter from the namespace with this cookie, which the thread is in.
func refuseParts(t *testing.T, g *Guard, cookie uint64) {
	t.Helper()
	send := func(b []byte) error {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	}
	const log, nftables, conntrack, noop = 4, 10, 1, 0
	nothing := messageTo(noop, unix.NLMSG_NOOP)
	batch := messageTo(noop, 0x10) // NFNL_MSG_BATCH_BEGIN
	odd := append(messageTo(noop, unix.NLMSG_NOOP), 1, 0, 0, 0)
	binary.NativeEndian.PutUint32(odd, 21) // the next begins at 24
	none := messageTo(log, 1)
	binary.NativeEndian.PutUint32(none, 8) // shorter than its head: the kernel takes no more
	for _, c := range []struct {
		name    string
		message []byte
		refused bool
	}{
		{"log", messageTo(log, 1), true}, {"fingerprints", messageTo(5, 0), true}, {"ipset", messageTo(6, 2), true},
		{"nfacct", messageTo(7, 0), true},
		{"time limits", messageTo(8, 0), true}, {"helpers", messageTo(9, 0), true},
		{"log, behind something else", slices.Concat(messageTo(conntrack, 1), nothing, messageTo(log, 1)), true},
		{"log, behind an odd length", slices.Concat(odd, messageTo(log, 1)), true},
		{"log, behind more than is looked at", slices.Concat(slices.Repeat(nothing, 64), messageTo(log, 1)), true},
		{"log, as netlink's own", messageTo(0, log), false},
		{"nftables", messageTo(nftables, 1), false}, {"connections", messageTo(conntrack, 1), false},
		{"queues", messageTo(3, 2), false},
		{"a batch of nftables", slices.Concat(batch, slices.Repeat(messageTo(nftables, 1), 100)), false},
		{"a head that says nothing", slices.Concat(none, messageTo(log, 1)), false},
		{"a short one", nothing[:7], false},
	} {
		if err := g.Bound(cookie, 0); err != nil {
			t.Fatal(err)
		}
		if err := send(c.message); errors.Is(err, unix.EPERM) != c.refused || err != nil && !c.refused {
			t.Errorf("%s: %v, refused is wanted: %v", c.name, err, c.refused)
		}
		g.Forget(cookie)
		if err := send(c.message); err != nil {
			t.Errorf("%s, of who is not bounded: %v", c.name, err)
		}
	}
}

// TestNetfilterProgramIsReplaced: the next agent's takes the place of the one before.
func TestNetfilterProgramIsReplaced(t *testing.T) {
	dir := t.TempDir()
	t.Cleanup(func() {
		if err := Destroy(dir); err != nil {
			t.Error(err)
		}
	})
	want := 0
	for range 3 {
		g, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if g.Lacking != nil {
			skipLacking(t, g.Lacking, "netlink_send")
		}
		if want = 5; g.modules != nil {
			want++
		}
		g.Close()
	}
	if left, err := os.ReadDir(dir + "/" + layout); err != nil || len(left) != want {
		t.Errorf("pinned are %v (%v), want the tables, and one link of each program", left, err)
	}
}
