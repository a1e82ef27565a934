package mirror

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
)

// filters follows the packet filter of a network namespace. It finds out whether nftables (or iptables-nft, which uses
// them) have chains that forwarded packets pass: then only the namespace's own stack may forward. nftables tell of
// changes, so following them costs nothing while nothing changes.
type filters struct {
	monitor *linux.Monitor // nil where this kernel has no netfilter
}

const (
	filterBuffer = 256 << 10 // bytes of messages that may wait
	// filterSettle is how long a rule set may go on changing before it is looked at.
	filterSettle = 10 * time.Millisecond
)

// Of linux/netfilter/nf_tables.h and linux/netfilter.h.
const (
	nftNewChain  = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWCHAIN
	nftGetChain  = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETCHAIN
	hookLocalIn  = 1
	hookLocalOut = 3
)

// watchFilters opens the connection in the calling thread's network namespace.
func watchFilters() (*filters, error) {
	m, err := linux.DialFilterMonitor(filterBuffer, unix.NFNLGRP_NFTABLES)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return &filters{}, nil
	}
	if err != nil {
		return nil, err
	}
	return &filters{monitor: m}, nil
}

func (x *filters) close() error {
	if x.monitor == nil {
		return nil
	}
	return x.monitor.Close()
}

func (x *filters) resume() {
	if x.monitor != nil {
		x.monitor.Resume()
	}
}

func (x *filters) interrupt() {
	if x.monitor != nil {
		x.monitor.Interrupt()
	}
}

// follow tells what is there whenever it has changed, until it is interrupted.
func (x *filters) follow(tell func([2]string, error) error) error {
	var took time.Duration
	for x.monitor != nil {
		err := x.monitor.Wait()
		if err == nil {
			time.Sleep(min(max(filterSettle, lookShare*took), time.Second))
			began := time.Now()
			err = tell(x.look())
			took = time.Since(began)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// look tells why packets of each family must pass the filter, "" if they need not. What changes meanwhile is looked at
// again.
func (x *filters) look() (why [2]string, err error) {
	if x.monitor == nil {
		return why, nil
	}
	for {
		var b linux.Batch
		b.Request(nftGetChain, 0)
		b.Raw([]byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0}) // struct nfgenmsg
		seq, err := x.monitor.Dump(&b)
		if err != nil {
			return why, err
		}
		var again bool
		if why, again, err = x.answer(seq); err != nil || !again {
			return why, err
		}
	}
}

// answer reads the dump's answer. again is true if something changed since the dump was asked for.
func (x *filters) answer(seq uint32) (why [2]string, again bool, err error) {
	c := chunks.Get().(*chunk)
	defer chunks.Put(c)
	for {
		if err = x.monitor.Wait(); err != nil {
			return why, false, err
		}
		if c.Received, c.ends, err = x.monitor.Read(c.buf, c.ends[:0]); err != nil {
			return why, false, err
		}
		if c.Overrun { // the answer may be among what was lost
			return why, true, nil
		}
		start := 0
		for _, end := range c.ends {
			data := c.buf[start:end]
			start = end
			switch {
			case len(data) < unix.SizeofNlMsghdr:
			case !x.monitor.Own(data):
				again = true
			case x.monitor.Answers(data, seq):
				done, disturbed, err := chains(data, &why)
				if again = again || disturbed; done || err != nil {
					return why, again, err
				}
			}
		}
	}
}

// chains enters what a datagram of a dump's answer says of chains.
func chains(data []byte, why *[2]string) (done, disturbed bool, err error) {
	for len(data) >= unix.SizeofNlMsghdr {
		n := int(binary.NativeEndian.Uint32(data))
		if n < unix.SizeofNlMsghdr || n > len(data) {
			break
		}
		kind, flags := binary.NativeEndian.Uint16(data[4:]), binary.NativeEndian.Uint16(data[6:])
		payload := data[unix.SizeofNlMsghdr:n]
		disturbed = disturbed || flags&unix.NLM_F_DUMP_INTR != 0
		switch kind {
		case nftNewChain:
			chain(payload, why)
		case unix.NLMSG_DONE, unix.NLMSG_ERROR:
			done = true
			if len(payload) < 4 {
				break
			}
			switch errno := unix.Errno(-int32(binary.NativeEndian.Uint32(payload))); errno {
			case 0, unix.EINVAL, unix.ENOENT, unix.EOPNOTSUPP: // this kernel has no nftables, and so no chains
			case unix.EAGAIN, unix.EINTR:
				disturbed = true
			default:
				return true, false, fmt.Errorf("read the chains of its packet filter: %w", errno)
			}
		}
		data = data[min((n+3)&^3, len(data)):]
	}
	return done, disturbed, nil
}

// chain looks at one chain. Only base chains count, to which the kernel itself gives forwarded packets: other chains
// are reached only from these.
func chain(p []byte, why *[2]string) {
	const header = 4 // struct nfgenmsg
	if len(p) < header {
		return
	}
	for kind, v := range linux.Attrs(p[header:]) {
		if kind != unix.NFTA_CHAIN_HOOK {
			continue
		}
		hook := uint32(0)
		for kind, v := range linux.Attrs(v) {
			if kind == unix.NFTA_HOOK_HOOKNUM && len(v) >= 4 {
				hook = binary.BigEndian.Uint32(v)
			}
		}
		four, six := false, false
		switch p[0] {
		case unix.NFPROTO_IPV4:
			four = true
		case unix.NFPROTO_IPV6:
			six = true
		case unix.NFPROTO_INET:
			four, six = true, true
		case unix.NFPROTO_NETDEV: // of a device, where the numbers are others: what comes in or goes out there
			four, six, hook = true, true, 0
		}
		if hook == hookLocalIn || hook == hookLocalOut {
			continue
		}
		const reason = "its packet filter (nftables) has chains that forwarded packets pass"
		if four {
			why[IPv4] = reason
		}
		if six {
			why[IPv6] = reason
		}
	}
}
