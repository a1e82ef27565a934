package kernelmemory

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
)

// What somebody puts into a set of nftables is charged. What a packet puts there is not: rules may ask for that of sets
// that are dynamic, and of sets whose elements have a time limit (nft_dynset.c, nft_dynset_init).

// packetElementBytes is an element with a time limit and a counter.
const packetElementBytes = 256

// Of linux/netfilter/nf_tables.h and nfnetlink.h.
const (
	nftables       = 10 // NFNL_SUBSYS_NFTABLES
	getSets        = nftables<<8 | 10
	getElements    = nftables<<8 | 13
	deleteElements = nftables<<8 | 14
	beginBatch     = 0x10 // NFNL_MSG_BATCH_BEGIN
	endBatch       = 0x11

	setTable = 1 // NFTA_SET_TABLE, and of its elements
	setName  = 2 // NFTA_SET_NAME, and of its elements
	setKind  = 3 // NFTA_SET_FLAGS
	elements = 3 // NFTA_SET_ELEM_LIST_ELEMENTS
	// NFT_SET_TIMEOUT, NFT_SET_EVAL
	timeLimited = 1 << 4
	dynamic     = 1 << 5
)

// packetSet is a set that packets fill.
type packetSet struct {
	family      uint8
	table, name []byte
}

// packetSets are those of a namespace.
func (s *space) packetSets() (all []packetSet, err error) {
	if !mayBe("nf_tables") {
		return nil, nil
	}
	c, err := linux.DialNetlinkOf(s.fd, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var b linux.Batch
	b.Request(getSets, 0)
	b.Raw(make([]byte, netfilterMsg))
	err = c.Dump(&b, func(_ uint16, p []byte) error {
		if len(p) < netfilterMsg {
			return nil
		}
		set, fills := packetSet{family: p[0]}, false
		for kind, v := range linux.Attrs(p[netfilterMsg:]) {
			switch kind {
			case setTable:
				set.table = append([]byte(nil), v...)
			case setName:
				set.name = append([]byte(nil), v...)
			case setKind:
				fills = len(v) >= 4 && binary.BigEndian.Uint32(v)&(dynamic|timeLimited) != 0
			}
		}
		if fills {
			all = append(all, set)
		}
		return nil
	})
	if err != nil && refused(err) {
		err = nil
	}
	return all, err
}

func (p *packetSet) request(b *linux.Batch, kind uint16) {
	b.Request(kind, 0)
	b.Raw([]byte{p.family, 0, 0, 0})
	b.Attr(setTable, p.table)
	b.Attr(setName, p.name)
}

func readPacketSets(s *space, _ int, each visit) error {
	sets, err := s.packetSets()
	if err != nil {
		return err
	}
	for i := range sets {
		if err := s.elementsOf(&sets[i], each); err != nil {
			return err
		}
	}
	return nil
}

func (s *space) elementsOf(set *packetSet, each visit) error {
	c, err := linux.DialNetlinkOf(s.fd, unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer c.Close()
	var b linux.Batch
	set.request(&b, getElements)
	err = c.Dump(&b, func(_ uint16, p []byte) error {
		for kind, list := range linux.Attrs(p[min(netfilterMsg, len(p)):]) {
			if kind != elements {
				continue
			}
			for range linux.Attrs(list) {
				if err := each(packetElementBytes, nil); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err == linux.ErrDumpInterrupted || err != nil && refused(err) {
		return nil
	}
	return err
}

// flushPacketSets empties these sets; they stay, and so do the rules that fill them. Changes of nftables come in a
// batch, of which the kernel acknowledges no end.
func flushPacketSets(s *space) error {
	sets, err := s.packetSets()
	if err != nil || len(sets) == 0 {
		return err
	}
	var b linux.Batch
	edge := func(kind uint16) {
		b.Request(kind, 0)
		b.Raw([]byte{unix.AF_UNSPEC, 0, 0, nftables})
	}
	edge(beginBatch)
	for i := range sets {
		sets[i].request(&b, deleteElements)
	}
	edge(endBatch)
	return linux.Inside(s.fd, func() error {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
		if err != nil {
			return fmt.Errorf("open a netlink socket: %w", err)
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, b.Bytes(), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	})
}
