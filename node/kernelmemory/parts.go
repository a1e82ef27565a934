package kernelmemory

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
)

// Parts of netfilter that only kernels without security modules of eBPF let elements use (see node/control/sockets).

// Of linux/netfilter/nfnetlink.h, ipset/ip_set.h, nfnetlink_acct.h, nfnetlink_cttimeout.h.
const (
	netfilterMsg = 4 // sizeof(struct nfgenmsg)

	ipset        = 6 << 8 // NFNL_SUBSYS_IPSET
	setProtocol  = 7
	destroySets  = ipset | 3
	flushSets    = ipset | 4
	listSets     = ipset | 7
	setVersion   = 1  // IPSET_ATTR_PROTOCOL
	setFlags     = 6  // IPSET_ATTR_FLAGS
	setData      = 7  // IPSET_ATTR_DATA
	setHashes    = 18 // IPSET_ATTR_HASHSIZE
	setMemory    = 26 // IPSET_ATTR_MEMSIZE
	withoutItems = 4  // IPSET_FLAG_LIST_HEADER

	getCounters    = 7<<8 | 1 // NFNL_MSG_ACCT_GET
	deleteCounters = 7<<8 | 3
	getTimes       = 8<<8 | 1 // IPCTNL_MSG_TIMEOUT_GET
	deleteTimes    = 8<<8 | 2
)

// Bytes of an object; a set tells how much it has.
const (
	setBytes     = 512
	counterBytes = 128
	timesBytes   = 256
)

// parts of netfilter, by the modules that have them. remove are requests that remove all that no rule uses.
var parts = []struct {
	module string
	get    uint16
	remove []uint16
	ask    func(b *linux.Batch, kind uint16)
	size   func(attributes []byte) int64
}{
	{"ip_set", listSets, []uint16{flushSets, destroySets}, askSets, sizeOfSet},
	{"nfnetlink_acct", getCounters, []uint16{deleteCounters}, nil, func([]byte) int64 { return counterBytes }},
	{"nfnetlink_cttimeout", getTimes, []uint16{deleteTimes}, nil, func([]byte) int64 { return timesBytes }},
}

// askSets writes which version of the protocol is spoken, and that a set's elements are not wanted.
func askSets(b *linux.Batch, kind uint16) {
	b.Uint8(setVersion, setProtocol)
	if kind == listSets {
		b.Attr(setFlags, binary.BigEndian.AppendUint32(nil, withoutItems))
	}
}

func sizeOfSet(attributes []byte) int64 {
	size := int64(setBytes)
	for kind, data := range linux.Attrs(attributes) {
		if kind != setData {
			continue
		}
		for kind, v := range linux.Attrs(data) {
			switch {
			case kind == setMemory && len(v) >= 4:
				size += int64(binary.BigEndian.Uint32(v))
			case kind == setHashes && len(v) >= 4: // which the kernel's sum leaves out
				size += 8 * int64(binary.BigEndian.Uint32(v))
			}
		}
	}
	return size
}

// mayBe tells whether the kernel has a module now. Of one without modules that is not known.
func mayBe(module string) bool {
	if _, err := os.Stat("/sys/module/" + module); err == nil {
		return true
	}
	_, err := os.Stat("/proc/modules")
	return errors.Is(err, fs.ErrNotExist)
}

// refused means that there is nothing: elements, and with them who looks into their namespace, may not ask.
func refused(err error) bool { return missing(err) || errors.Is(err, unix.EPERM) }

func readParts(s *space, _ int, each visit) error {
	return s.ofParts(func(c *linux.Rtnetlink, i int) error {
		p := &parts[i]
		var b linux.Batch
		b.Request(p.get, 0)
		b.Raw(make([]byte, netfilterMsg))
		if p.ask != nil {
			p.ask(&b, p.get)
		}
		return c.Dump(&b, func(_ uint16, m []byte) error {
			if len(m) < netfilterMsg {
				return nil
			}
			return each(p.size(m[netfilterMsg:]), nil)
		})
	})
}

// flushParts removes all. A set or a counter that a rule uses stays, but empty.
func flushParts(s *space) error {
	return s.ofParts(func(c *linux.Rtnetlink, i int) error {
		var b linux.Batch
		for _, kind := range parts[i].remove {
			b.Request(kind, 0)
			b.Raw(make([]byte, netfilterMsg))
			if parts[i].ask != nil {
				parts[i].ask(&b, kind)
			}
		}
		for _, err := range c.Do(&b) {
			if err != nil && !refused(err) && !errors.Is(err, unix.EBUSY) {
				return err
			}
		}
		return nil
	})
}

// ofParts does something with each part that the kernel has.
func (s *space) ofParts(do func(c *linux.Rtnetlink, i int) error) error {
	var c *linux.Rtnetlink
	for i := range parts {
		if !mayBe(parts[i].module) {
			continue
		}
		if c == nil {
			var err error
			if c, err = linux.DialNetlinkOf(s.fd, unix.NETLINK_NETFILTER); err != nil {
				return err
			}
			defer c.Close()
		}
		if err := do(c, i); err != nil && !errors.Is(err, linux.ErrDumpInterrupted) && !refused(err) {
			return err
		}
	}
	return nil
}
