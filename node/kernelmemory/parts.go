package kernelmemory

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
)

// Parts of netfilter that only kernels without security modules of eBPF let elements use (see node/control/sockets).

// Of linux/netfilter/nfnetlink.h, ipset/ip_set.h, nfnetlink_acct.h, nfnetlink_cttimeout.h.
const (
	netfilterMsg = 4 // sizeof(struct nfgenmsg)

	ipset        = 6 << 8 // NFNL_SUBSYS_IPSET
	setProtocol  = 7
	createSet    = ipset | 2
	destroySet   = ipset | 3
	flushSets    = ipset | 4
	swapSets     = ipset | 6
	listSets     = ipset | 7
	setVersion   = 1  // IPSET_ATTR_PROTOCOL
	setLabel     = 2  // IPSET_ATTR_SETNAME
	setType      = 3  // IPSET_ATTR_TYPENAME
	setOther     = 3  // IPSET_ATTR_SETNAME2
	setRevision  = 4  // IPSET_ATTR_REVISION
	setFamily    = 5  // IPSET_ATTR_FAMILY
	setFlags     = 6  // IPSET_ATTR_FLAGS
	setData      = 7  // IPSET_ATTR_DATA
	setHashes    = 18 // IPSET_ATTR_HASHSIZE
	setMemory    = 26 // IPSET_ATTR_MEMSIZE
	withoutItems = 4  // IPSET_FLAG_LIST_HEADER
	// Of what is in IPSET_ATTR_DATA when a set is made, in network byte order (NLA_F_NET_BYTEORDER).
	setFirst     = 1 // IPSET_ATTR_IP
	setLast      = 2 // IPSET_ATTR_IP_TO
	setFirstPort = 4 // IPSET_ATTR_PORT
	setLastPort  = 5 // IPSET_ATTR_PORT_TO
	setAddress   = 1 // IPSET_ATTR_IPADDR_IPV4

	setInUse = unix.Errno(4100) // IPSET_ERR_BUSY, of linux/netfilter/ipset/ip_set.h

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

	// smallSet is what a set that a rule refers to may keep.
	smallSet = 4096
	// destroyedAtOnce is how many sets are destroyed before the time is looked at: the kernel may wait for all readers
	// with each.
	destroyedAtOnce = 8
)

// parts of netfilter, by the modules that have them. remove is the request that removes all that no rule uses.
var parts = []struct {
	module string
	get    uint16
	remove uint16
	size   func(attributes []byte) int64
}{
	{"ip_set", listSets, 0, sizeOfSet},
	{"nfnetlink_acct", getCounters, deleteCounters, func([]byte) int64 { return counterBytes }},
	{"nfnetlink_cttimeout", getTimes, deleteTimes, func([]byte) int64 { return timesBytes }},
}

// askParts begins a request to a part of netfilter.
func askParts(b *linux.Batch, kind uint16) {
	b.Request(kind, 0)
	b.Raw(make([]byte, netfilterMsg))
	if kind&0xff00 == ipset {
		b.Uint8(setVersion, setProtocol)
	}
	if kind == listSets { // without their elements
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
		return dumpPart(c, i, func(m []byte) error { return each(parts[i].size(m), nil) })
	})
}

// dumpPart calls each with the attributes of each object.
func dumpPart(c *linux.Rtnetlink, i int, each func(attributes []byte) error) error {
	var b linux.Batch
	askParts(&b, parts[i].get)
	return c.Dump(&b, func(_ uint16, m []byte) error {
		if len(m) < netfilterMsg {
			return nil
		}
		return each(m[netfilterMsg:])
	})
}

// flushParts removes all. What a rule refers to stays; such a set becomes an empty one.
func flushParts(s *space, until time.Time) (emptied int, left bool, err error) {
	err = s.ofParts(func(c *linux.Rtnetlink, i int) (err error) {
		if parts[i].get == listSets {
			emptied, left, err = destroySets(c, until)
			return err
		}
		var b linux.Batch
		askParts(&b, parts[i].remove)
		return errors.Join(c.Do(&b)...)
	})
	return emptied, left, err
}

// namedSet is a set of ipset.
type namedSet struct {
	name, kind, revision, family []byte
	size                         int64
}

// destroySets destroys all sets at once, or, since one that a rule refers to keeps them all then, one after another,
// beginning with the largest, as far as time allows. First they are emptied: a set of sets refers to others.
func destroySets(c *linux.Rtnetlink, until time.Time) (emptied int, left bool, err error) {
	var b linux.Batch
	askParts(&b, flushSets)
	askParts(&b, destroySet)
	if err := errors.Join(c.Do(&b)...); !errors.Is(err, setInUse) {
		return 0, false, err
	}
	var all []namedSet
	err = dumpPart(c, 0, func(attributes []byte) error {
		set := namedSet{size: sizeOfSet(attributes)}
		for kind, v := range linux.Attrs(attributes) {
			switch kind {
			case setLabel:
				set.name = bytes.Clone(v)
			case setType:
				set.kind = bytes.Clone(v)
			case setRevision:
				set.revision = bytes.Clone(v)
			case setFamily:
				set.family = bytes.Clone(v)
			}
		}
		all = append(all, set)
		return nil
	})
	if err != nil && !errors.Is(err, linux.ErrDumpInterrupted) || len(all) == 0 {
		return 0, false, err
	}
	slices.SortFunc(all, func(a, b namedSet) int { return cmp.Compare(b.size, a.size) })
	var errs []error
	for some := range slices.Chunk(all, destroyedAtOnce) {
		if left = time.Now().After(until); left {
			break
		}
		b.Reset()
		for _, set := range some {
			askParts(&b, destroySet)
			b.Attr(setLabel, set.name)
		}
		for i, err := range c.Do(&b) {
			switch {
			case errors.Is(err, setInUse) && some[i].size > smallSet:
				errs = append(errs, some[i].renew(c))
				emptied++
			case err != nil && !errors.Is(err, setInUse) && !errors.Is(err, unix.ENOENT):
				errs = append(errs, err)
			}
		}
	}
	return emptied, left, errors.Join(errs...)
}

// renew puts a new, small set in the place of one that a rule refers to. An empty one still has all of its hash values
// or its whole map.
func (n *namedSet) renew(c *linux.Rtnetlink) error {
	const another = "polyplane-renewed" // while this goes on, the element's processes are held
	var b linux.Batch
	destroy := func() {
		askParts(&b, destroySet)
		b.String(setLabel, another)
	}
	destroy() // of somebody who was stopped in between
	askParts(&b, createSet)
	b.String(setLabel, another)
	b.Attr(setType, n.kind)
	b.Attr(setRevision, n.revision)
	b.Attr(setFamily, n.family)
	b.Begin(setData | unix.NLA_F_NESTED)
	switch kind := unix.ByteSliceToString(n.kind); {
	case kind == "bitmap:port":
		for _, k := range []uint16{setFirstPort, setLastPort} {
			b.Attr(k|unix.NLA_F_NET_BYTEORDER, []byte{0, 1})
		}
	case strings.HasPrefix(kind, "bitmap:"):
		for _, k := range []uint16{setFirst, setLast} {
			b.Begin(k | unix.NLA_F_NESTED)
			b.Attr(setAddress|unix.NLA_F_NET_BYTEORDER, []byte{0, 0, 0, 1})
			b.End()
		}
	case strings.HasPrefix(kind, "hash:"):
		b.Attr(setHashes|unix.NLA_F_NET_BYTEORDER, []byte{0, 0, 0, 64})
	}
	b.End()
	askParts(&b, swapSets)
	b.Attr(setLabel, n.name)
	b.String(setOther, another)
	destroy()
	errs := c.Do(&b)
	if len(errs) > 0 {
		errs[0] = nil
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("put an empty set in the place of %q of ipset: %w", unix.ByteSliceToString(n.name), err)
	}
	return nil
}

// ofParts does something with each part that the kernel has. One that fails does not keep it from the others.
func (s *space) ofParts(do func(c *linux.Rtnetlink, i int) error) error {
	var c *linux.Rtnetlink
	var errs []error
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
		err := do(c, i)
		if errors.Is(err, linux.ErrEnough) { // the rest of the answer is in the socket
			return err
		}
		if err != nil && !errors.Is(err, linux.ErrDumpInterrupted) && !refused(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
