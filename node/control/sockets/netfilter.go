package sockets

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// boundNetfilter attaches the program that sees messages to netfilter, in place of an earlier one, and checks that the
// kernel runs it. A kernel that was built with such programs may have been started without them (lsm= on its command
// line). Then the program runs in front of the function that asks the security modules.
func boundNetfilter(pins string, limits *ebpf.Map) error {
	err := boundNetfilterBy(netfilterProgSends, pins, limits)
	if err != nil {
		if failed := boundNetfilterBy(netfilterProgSendsBefore, pins, limits); failed != nil {
			return errors.Join(err, failed)
		}
	}
	return nil
}

// boundNetfilterBy does so with one of the two programs.
func boundNetfilterBy(name, pins string, limits *ebpf.Map) error {
	spec, err := loadNetfilter()
	if err != nil {
		return err
	}
	for other := range spec.Programs { // a kernel that lacks the place of one would refuse both
		if other != name {
			delete(spec.Programs, other)
		}
	}
	all, err := ebpf.NewCollectionWithOptions(spec,
		ebpf.CollectionOptions{MapReplacements: map[string]*ebpf.Map{netfilterMapLimits: limits}})
	if err != nil {
		return err
	}
	defer all.Close()
	var l link.Link
	if name == netfilterProgSends {
		l, err = link.AttachLSM(link.LSMOptions{Program: all.Programs[name]})
	} else {
		l, err = link.AttachTracing(link.TracingOptions{Program: all.Programs[name]})
	}
	if err != nil {
		return err
	}
	defer l.Close()
	if err := runs(all.Maps[netfilterMapMessages]); err != nil {
		return err
	}
	// The program of such a link cannot be replaced. The old link goes when nothing refers to it any more, and by then
	// the new one works.
	pin, next := filepath.Join(pins, "netfilter"), filepath.Join(pins, "next-netfilter") // no dots: a bpffs takes none
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := l.Pin(next); err != nil {
		return err
	}
	return os.Rename(next, pin)
}

// runs sends netfilter a message that asks for nothing, and checks whether the program counted it.
func runs(messages *ebpf.Map) error {
	count := func() (n uint64, err error) { err = messages.Lookup(uint32(0), &n); return n, err }
	before, err := count()
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	nothing := make([]byte, unix.NLMSG_HDRLEN)
	binary.NativeEndian.PutUint32(nothing, unix.NLMSG_HDRLEN)
	binary.NativeEndian.PutUint16(nothing[4:], unix.NLMSG_NOOP)
	if err := unix.Sendto(fd, nothing, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	after, err := count()
	if err == nil && after == before {
		err = errors.New("this kernel has no security module of eBPF programs at work (\"bpf\" in lsm= on its " +
			"command line)")
	}
	return err
}
