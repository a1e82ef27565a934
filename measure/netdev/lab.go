package netdev

import (
	"fmt"
	"net"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// Namespace is a network namespace of our own; it is gone once closed and empty.
type Namespace struct{ handle netns.NsHandle }

// NewNamespace makes one, with its loopback up.
func NewNamespace() (*Namespace, error) {
	type made struct {
		h   netns.NsHandle
		err error
	}
	done := make(chan made, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		h, err := netns.New()
		if err == nil {
			var lo netlink.Link
			if lo, err = netlink.LinkByName("lo"); err == nil {
				err = netlink.LinkSetUp(lo)
			}
		}
		done <- made{h, err}
	}()
	m := <-done
	if m.err != nil {
		return nil, fmt.Errorf("make a network namespace: %w", m.err)
	}
	return &Namespace{m.h}, nil
}

// Path is what Ref.Namespace wants.
func (n *Namespace) Path() string { return fmt.Sprintf("/proc/self/fd/%d", int(n.handle)) }

// Close lets go of the namespace; devices in it go with it.
func (n *Namespace) Close() error { return n.handle.Close() }

// NewVeth makes a veth pair, both ends up and with GRO on (so that their NAPI runs, which XDP frames need), without
// addresses and without IPv6's own chatter. MACs are 02:00:00:00:00:0N with N first and first + 1. Both namespaces must
// be ones of NewNamespace.
func NewVeth(a, b Ref, first byte) error {
	if err := In(a.Namespace, func() error {
		target, err := netns.GetFromPath(b.Namespace)
		if err != nil {
			return err
		}
		defer target.Close()
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.HardwareAddr, attrs.MTU = a.Name, MAC(first), 1500
		attrs.NumTxQueues, attrs.NumRxQueues = 1, 1
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: b.Name, PeerHardwareAddr: MAC(first + 1),
			PeerNamespace: netlink.NsFd(int(target)), PeerNumTxQueues: 1, PeerNumRxQueues: 1})
	}); err != nil {
		return fmt.Errorf("make the veth pair %v and %v: %w", a, b, err)
	}
	// GRO last: only when a running veth gets it does the kernel make the *other* end one that XDP may send out of.
	for _, step := range []func(Ref) error{up, receiveQueue} {
		for _, r := range []Ref{a, b} {
			if err := step(r); err != nil {
				return fmt.Errorf("set up %v: %w", r, err)
			}
		}
	}
	return nil
}

// MAC is 02:00:00:00:00:n.
func MAC(n byte) net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 0, n} }

func up(r Ref) error {
	return In(r.Namespace, func() error {
		l, err := netlink.LinkByName(r.Name)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetIP6AddrGenMode(l, 1); err != nil { // none
			return err
		}
		return netlink.LinkSetUp(l)
	})
}

func receiveQueue(r Ref) error {
	return In(r.Namespace, func() error { return setGRO(r.Name) })
}
