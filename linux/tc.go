package linux

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// Numbers of linux/pkt_sched.h, linux/pkt_cls.h and linux/rtnetlink.h that x/sys/unix does not have.
const (
	sizeofTcmsg     = 20
	clsactParent    = 0xfffffff1
	clsactHandle    = 0xffff0000
	ingressParent   = 0xfffffff2
	egressParent    = 0xfffffff3
	blockIndexMagic = 0xffffffff // stands for an interface index: the parent is a block's number

	tcaKind         = 1
	tcaOptions      = 2
	tcaIngressBlock = 13

	bpfFD        = 6
	bpfName      = 7
	bpfFlags     = 8
	bpfID        = 11
	bpfActDirect = 1
)

// Attachment is where filters are attached: the ingress of a device, or a block that the clsact of many devices share.
type Attachment struct {
	Index  int    // of the device
	Block  uint32 // not zero: this block, and Index has no meaning
	Egress bool   // of the device instead of the ingress
}

// Filter is a cls_bpf filter in direct-action mode for all protocols.
type Filter struct {
	Priority uint16 // 1…65535, lower ones run first
	Handle   uint32
	Name     string // shown by `tc filter show`
	Program  int    // file descriptor of the program, when made
	ID       uint32 // of the program, when read
}

func (b *Batch) tcmsg(index int, handle, parent, info uint32) {
	m := make([]byte, 4, sizeofTcmsg)
	m = binary.NativeEndian.AppendUint32(m, uint32(index))
	m = binary.NativeEndian.AppendUint32(m, handle)
	m = binary.NativeEndian.AppendUint32(m, parent)
	b.Raw(binary.NativeEndian.AppendUint32(m, info))
}

// AddClsact requests a clsact qdisc on a device that has no ingress qdisc. With a block number it uses the ingress
// filters of that block, which is created with its first device.
func (b *Batch) AddClsact(index int, block uint32) int {
	i := b.Request(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	b.tcmsg(index, clsactHandle, clsactParent, 0)
	b.String(tcaKind, "clsact")
	if block != 0 {
		b.Uint32(tcaIngressBlock, block)
	}
	return i
}

// RemoveClsact requests the removal of a device's clsact or ingress qdisc with its filters.
func (b *Batch) RemoveClsact(index int) int {
	i := b.Request(unix.RTM_DELQDISC, 0)
	b.tcmsg(index, clsactHandle, clsactParent, 0)
	return i
}

func (b *Batch) filter(kind, flags uint16, at Attachment, handle, info uint32) int {
	i := b.Request(kind, flags)
	index, parent := at.Index, uint32(ingressParent)
	switch {
	case at.Block != 0:
		index, parent = blockIndexMagic, at.Block
	case at.Egress:
		parent = egressParent
	}
	b.tcmsg(index, handle, parent, info)
	return i
}

// ReplaceFilter requests a filter. It replaces the one with the same priority and handle; every packet sees either the
// old or the new one.
func (b *Batch) ReplaceFilter(at Attachment, f Filter) int {
	i := b.filter(unix.RTM_NEWTFILTER, unix.NLM_F_CREATE, at, f.Handle, filterInfo(f.Priority))
	b.String(tcaKind, "bpf")
	b.Begin(tcaOptions)
	b.Uint32(bpfFD, uint32(f.Program))
	b.String(bpfName, f.Name)
	b.Uint32(bpfFlags, bpfActDirect)
	b.End()
	return i
}

// RemoveFilter requests the removal of one filter.
func (b *Batch) RemoveFilter(at Attachment, priority uint16, handle uint32) int {
	i := b.filter(unix.RTM_DELTFILTER, 0, at, handle, filterInfo(priority))
	b.String(tcaKind, "bpf")
	return i
}

func filterInfo(priority uint16) uint32 {
	all := binary.NativeEndian.Uint16([]byte{unix.ETH_P_ALL >> 8, unix.ETH_P_ALL}) // in network order
	return uint32(priority)<<16 | uint32(all)
}

// Ingress is a device's clsact or ingress qdisc.
type Ingress struct {
	Kind  string
	Block uint32 // shared ingress block, 0: none
}

// Qdiscs are the queueing disciplines of a namespace that concern the fabric, by interface index.
type Qdiscs struct {
	Ingress map[int]Ingress   // clsact and ingress
	Queues  map[int]QueueInfo // made by ReplaceQueue
}

// Qdiscs lists them.
func (c *Rtnetlink) Qdiscs() (Qdiscs, error) {
	var b Batch
	b.Request(unix.RTM_GETQDISC, 0)
	b.tcmsg(0, 0, 0, 0)
	found := Qdiscs{Ingress: map[int]Ingress{}, Queues: map[int]QueueInfo{}}
	err := c.Dump(&b, func(_ uint16, payload []byte) error {
		if len(payload) < sizeofTcmsg {
			return nil
		}
		index := int(int32(binary.NativeEndian.Uint32(payload[4:])))
		handle, parent := binary.NativeEndian.Uint32(payload[8:]), binary.NativeEndian.Uint32(payload[12:])
		if parent == rootParent && (handle == tbfHandle || handle == netemHandle) {
			found.Queues[index] = parseQueue(handle == netemHandle, payload[sizeofTcmsg:])
		}
		if parent != clsactParent {
			return nil
		}
		var q Ingress
		for kind, value := range Attrs(payload[sizeofTcmsg:]) {
			switch {
			case kind == tcaKind:
				q.Kind = unix.ByteSliceToString(value)
			case kind == tcaIngressBlock && len(value) >= 4:
				q.Block = binary.NativeEndian.Uint32(value)
			}
		}
		found.Ingress[index] = q
		return nil
	})
	if err != nil {
		return Qdiscs{}, fmt.Errorf("list queueing disciplines: %w", err)
	}
	return found, nil
}

// Filters lists the cls_bpf filters at a place. The list is empty if the device or block has none or does not exist.
// others counts filters of other kinds.
func (c *Rtnetlink) Filters(at Attachment) (filters []Filter, others int, err error) {
	var b Batch
	b.filter(unix.RTM_GETTFILTER, 0, at, 0, 0)
	err = c.Dump(&b, func(_ uint16, payload []byte) error {
		if len(payload) < sizeofTcmsg {
			return nil
		}
		f := Filter{Handle: binary.NativeEndian.Uint32(payload[8:]),
			Priority: uint16(binary.NativeEndian.Uint32(payload[16:]) >> 16)}
		var kind string
		for k, value := range Attrs(payload[sizeofTcmsg:]) {
			switch k {
			case tcaKind:
				kind = unix.ByteSliceToString(value)
			case tcaOptions:
				for o, v := range Attrs(value) {
					switch {
					case o == bpfName:
						f.Name = unix.ByteSliceToString(v)
					case o == bpfID && len(v) >= 4:
						f.ID = binary.NativeEndian.Uint32(v)
					}
				}
			}
		}
		switch {
		case kind != "bpf":
			others++
		case f.ID != 0: // the first message of a priority names no filter
			filters = append(filters, f)
		}
		return nil
	})
	if err != nil {
		return nil, 0, fmt.Errorf("list filters: %w", err)
	}
	return filters, others, nil
}
