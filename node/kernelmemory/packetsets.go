package kernelmemory

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

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
	getTables      = nftables<<8 | 1
	deleteTable    = nftables<<8 | 2
	getSets        = nftables<<8 | 10
	getElements    = nftables<<8 | 13
	deleteElements = nftables<<8 | 14
	beginBatch     = 0x10 // NFNL_MSG_BATCH_BEGIN
	endBatch       = 0x11

	setTable = 1 // NFTA_SET_TABLE, and of its elements; NFTA_TABLE_NAME
	setName  = 2 // NFTA_SET_NAME, and of its elements
	setKind  = 3 // NFTA_SET_FLAGS
	elements = 3 // NFTA_SET_ELEM_LIST_ELEMENTS

	tableOwner = 7 // NFTA_TABLE_OWNER

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
	if err != nil || len(sets) == 0 {
		return err
	}
	c, err := linux.DialNetlinkOf(s.fd, unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer c.Close()
	for i := range sets {
		if err := sets[i].read(c, each); err != nil {
			return err
		}
	}
	return nil
}

// read reads the set's elements. After an error nothing more can be asked of the connection.
func (p *packetSet) read(c *linux.Rtnetlink, each visit) error {
	var b linux.Batch
	p.request(&b, getElements)
	err := c.Dump(&b, func(_ uint16, p []byte) error {
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

// emptiedAtOnce is how many sets one batch empties. The answers to all of them must fit into a socket's buffer.
const emptiedAtOnce = 64

// flushPacketSets empties these sets; they stay, and so do the rules that fill them. The kernel makes all changes of a
// batch or none. So where one set cannot be emptied, each is emptied by itself, and of those that cannot the tables go.
// It begins anywhere: where there are more sets than the time allows, each has its turn, and nobody can choose the
// last.
func flushPacketSets(s *space, until time.Time) (_ int, left bool, err error) {
	sets, err := s.packetSets()
	if err != nil {
		return 0, false, err
	}
	if len(sets) > 0 {
		first := rand.IntN(len(sets))
		sets = slices.Concat(sets[first:], sets[:first])
	}
	var errs []error
	removed := map[string]bool{} // tables, or who had them was ended
	for k := 0; k < len(sets); k += emptiedAtOnce {
		if left = k > 0 && time.Now().After(until); left {
			break
		}
		some := sets[k:min(k+emptiedAtOnce, len(sets))]
		if s.emptySets(some) == nil {
			continue
		}
		for i := range some {
			err := s.emptySets(some[i : i+1])
			table := string(append([]byte{some[i].family}, some[i].table...))
			if err != nil && !errors.Is(err, unix.ENOENT) && !removed[table] {
				errs = append(errs, s.removeTable(&some[i], err))
				removed[table] = true
			}
		}
	}
	return 0, left, errors.Join(errs...)
}

func (s *space) emptySets(sets []packetSet) error {
	return s.change(func(b *linux.Batch) {
		for i := range sets {
			sets[i].request(b, deleteElements)
		}
	})
}

// removeTable removes the table with a set that could not be emptied, such as one without a name, which lives as long
// as its rule. A table may belong to a process, and then only that one changes it. So the process is ended.
func (s *space) removeTable(set *packetSet, why error) error {
	err := s.change(func(b *linux.Batch) {
		b.Request(deleteTable, 0)
		b.Raw([]byte{set.family, 0, 0, 0})
		b.Attr(setTable, set.table)
	})
	if errors.Is(err, unix.EPERM) {
		ended := 0
		if ended, err = s.endOwner(set); err == nil && ended == 0 {
			err = errors.New("the process that it belongs to is not found")
		}
	}
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return fmt.Errorf("empty the set %q of nftables: %w; remove its table %q: %w", unix.ByteSliceToString(set.name),
		why, unix.ByteSliceToString(set.table), err)
}

// endOwner ends the processes that have the socket to which a set's table belongs.
func (s *space) endOwner(set *packetSet) (ended int, err error) {
	c, err := linux.DialNetlinkOf(s.fd, unix.NETLINK_NETFILTER)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	owner := uint32(0)
	var b linux.Batch
	b.Request(getTables, 0)
	b.Raw([]byte{set.family, 0, 0, 0})
	err = c.Dump(&b, func(_ uint16, p []byte) error {
		found, of := false, uint32(0)
		for kind, v := range linux.Attrs(p[min(netfilterMsg, len(p)):]) {
			switch {
			case kind == setTable:
				found = bytes.Equal(v, set.table) && p[0] == set.family
			case kind == tableOwner && len(v) >= 4:
				of = binary.BigEndian.Uint32(v)
			}
		}
		if found {
			owner = of
		}
		return nil
	})
	if err != nil && !errors.Is(err, linux.ErrDumpInterrupted) || owner == 0 {
		return 0, err
	}
	of := map[uint64]int64{}
	err = linux.Inside(s.fd, func() error {
		return eachSocket("netlink", netlinkInode, func(fields []string, inode uint64) {
			if fields[netlinkProtocol] == strconv.Itoa(unix.NETLINK_NETFILTER) &&
				fields[netlinkPort] == strconv.FormatUint(uint64(owner), 10) {
				of[inode] = 1
			}
		})
	})
	if err != nil {
		return 0, err
	}
	all, err := s.holders(of)
	if err != nil {
		return 0, err
	}
	defer closeAll(all)
	for _, h := range all {
		if h.has > 0 && unix.PidfdSendSignal(h.fd, unix.SIGKILL, nil, 0) == nil {
			ended++
		}
	}
	return ended, nil
}

// change has nftables make all that write asks for, or nothing. The kernel has answered each request, or refused the
// whole, before sending returns; it acknowledges no end of the batch.
func (s *space) change(write func(*linux.Batch)) error {
	var b linux.Batch
	edge := func(kind uint16) {
		b.Request(kind, 0)
		b.Raw([]byte{unix.AF_UNSPEC, 0, 0, nftables})
	}
	edge(beginBatch)
	write(&b)
	edge(endBatch)
	data, wanted := b.Bytes(), b.Len()-2
	for at, i := 0, 0; at < len(data); i++ {
		if i > 0 && i <= wanted {
			flags := binary.NativeEndian.Uint16(data[at+6:])
			binary.NativeEndian.PutUint16(data[at+6:], flags|unix.NLM_F_ACK)
		}
		at += int(binary.NativeEndian.Uint32(data[at:])+3) &^ 3
	}
	return linux.Inside(s.fd, func() error {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
			unix.NETLINK_NETFILTER)
		if err != nil {
			return fmt.Errorf("open a netlink socket: %w", err)
		}
		defer unix.Close(fd)
		if err := unix.Sendto(fd, data, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return fmt.Errorf("send a batch of changes to nftables: %w", err)
		}
		buf := make([]byte, 64<<10)
		for answers := 0; answers < wanted; {
			n, _, err := unix.Recvfrom(fd, buf, 0)
			if err != nil {
				return fmt.Errorf("nftables answered %d of %d changes: %w", answers, wanted, err)
			}
			for kind, p := range linux.Messages(buf[:n]) {
				if kind != unix.NLMSG_ERROR || len(p) < 4 {
					continue
				}
				if code := int32(binary.NativeEndian.Uint32(p)); code != 0 {
					return unix.Errno(-code)
				}
				answers++
			}
		}
		return nil
	})
}
