package kernelmemory

import (
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
)

// Of linux/pkt_sched.h, rtnetlink.h and gen_stats.h.
const (
	tcMsg      = 20 // sizeof(struct tcmsg)
	tcaKind    = 1
	tcaOptions = 2
	tcaStab    = 8

	atRoot    = 0xffffffff // TC_H_ROOT
	atIngress = 0xfffffff1 // TC_H_INGRESS, TC_H_CLSACT

	fqCodelFlows = 5 // TCA_FQ_CODEL_FLOWS
	fqBuckets    = 8 // TCA_FQ_BUCKETS_LOG
)

// traffic is a struct tcmsg, and those of its attributes that are used here.
type traffic struct {
	index          []byte
	handle, parent uint32
	kind           string
	options        []byte
	table          bool // it has a table of sizes
}

func parseTraffic(p []byte) (t traffic, ok bool) {
	if len(p) < tcMsg {
		return t, false
	}
	t = traffic{index: p[4:8], handle: binary.NativeEndian.Uint32(p[8:]), parent: binary.NativeEndian.Uint32(p[12:])}
	for kind, v := range linux.Attrs(p[tcMsg:]) {
		switch kind {
		case tcaKind:
			t.kind = unix.ByteSliceToString(v)
		case tcaOptions:
			t.options = v
		case tcaStab:
			t.table = true
		}
	}
	return t, true
}

func trafficRequest(b *linux.Batch, kind uint16, index []byte, parent uint32) {
	b.Request(kind, 0)
	m := make([]byte, tcMsg)
	copy(m[4:8], index)
	binary.NativeEndian.PutUint32(m[12:], parent)
	b.Raw(m)
}

// queueBytes is what a queueing discipline takes beside its packets and classes: tables that are allocated as a whole.
// length is how long its device's queue may be.
func (t *traffic) queueBytes(length int64) int64 {
	size := int64(0)
	if t.table {
		size = 64 << 10
	}
	return size + t.tables(length)
}

func (t *traffic) tables(length int64) int64 {
	switch t.kind {
	case "noqueue":
		return 0
	case "fq_codel":
		flows := int64(1024)
		for kind, v := range linux.Attrs(t.options) {
			if kind == fqCodelFlows && len(v) >= 4 {
				flows = int64(binary.NativeEndian.Uint32(v))
			}
		}
		return queueSize.bytes() + flows*72
	case "fq":
		buckets := uint32(10)
		for kind, v := range linux.Attrs(t.options) {
			if kind == fqBuckets && len(v) >= 4 {
				buckets = min(18, binary.NativeEndian.Uint32(v))
			}
		}
		return queueSize.bytes() + 8<<buckets
	case "cake":
		return 3 << 20
	case "hhf", "choke":
		return 1 << 20
	case "netem": // it does not tell whether it has distributions, which take so much
		return 64 << 10
	case "taprio":
		return 256 << 10
	case "sfq", "gred", "sfb", "fq_pie", "dualpi2":
		return 128 << 10
	case "pfifo_fast":
		return queueSize.bytes() + 3*8*length
	}
	return queueSize.bytes()
}

// usualQueue is how many packets a device may have waiting unless somebody sets another number.
const usualQueue = 1000

// queueLengths says, by the devices' indices, how many packets they may have waiting: some disciplines have room for
// all of them.
func (s *space) queueLengths() (map[uint32]int64, error) {
	all, err := s.devices()
	lengths := make(map[uint32]int64, len(all))
	for _, d := range all {
		lengths[uint32(d.index)] = d.queue
	}
	return lengths, err
}

// beyondUsual is what a filter or an action takes beyond what usual ones take, by how long its description is: packet
// filters are listed with their instructions, and take that much twice, and again as much compiled.
func beyondUsual(description []byte) int64 { return 4 * max(0, int64(len(description))-512) }

// ofClsact are the two places where a clsact discipline has filters.
var ofClsact = []uint32{0xfffffff2, 0xfffffff3}

// readTrafficControl reads in its first pass what can be removed: disciplines and actions. Everything else goes with
// its discipline.
func readTrafficControl(s *space, pass int, each visit) error {
	type place struct {
		index  [4]byte
		parent uint32
	}
	var places []place // of classes and filters
	devices := map[[4]byte]bool{}
	lengths, err := s.queueLengths()
	if err != nil {
		return err
	}
	var b linux.Batch
	trafficRequest(&b, unix.RTM_GETQDISC, nil, 0)
	err = s.dump(&b, func(p []byte) error {
		t, ok := parseTraffic(p)
		if !ok {
			return nil
		}
		at := [4]byte(t.index)
		switch {
		case t.handle == 0: // the kernel's own, which has no classes and filters
		case t.kind == "clsact":
			for _, parent := range ofClsact {
				places = append(places, place{at, parent})
			}
		default:
			devices[at] = true
			places = append(places, place{at, t.handle})
		}
		if pass > 0 {
			return nil
		}
		remove := func(b *linux.Batch) { trafficRequest(b, unix.RTM_DELQDISC, at[:], t.parent) }
		length := lengths[binary.NativeEndian.Uint32(at[:])]
		switch {
		case t.kind == "pfifo_fast" && length > usualQueue: // the kernel's own cannot be removed, but gets shorter
			remove = func(b *linux.Batch) {
				b.Request(unix.RTM_NEWLINK, 0)
				b.Link(int(binary.NativeEndian.Uint32(at[:])), 0, 0)
				b.Uint32(unix.IFLA_TXQLEN, usualQueue)
			}
		case t.handle == 0 || t.parent != atRoot && t.parent != atIngress:
			remove = nil
		}
		return each(t.queueBytes(length), remove)
	})
	if err != nil {
		return err
	}
	if pass == 0 {
		return readActions(s, each)
	}
	for at := range devices {
		b.Reset()
		trafficRequest(&b, unix.RTM_GETTCLASS, at[:], 0)
		err := s.dump(&b, func(p []byte) error {
			t, ok := parseTraffic(p)
			if !ok {
				return nil
			}
			places = append(places, place{at, t.handle})
			return each(classBytes, nil)
		})
		if err != nil && !missing(err) {
			return err
		}
	}
	for _, p := range places {
		for _, kind := range []uint16{unix.RTM_GETTFILTER, unix.RTM_GETCHAIN} {
			b.Reset()
			trafficRequest(&b, kind, p.index[:], p.parent)
			err := s.dump(&b, func(p []byte) error { return each(filterSize.bytes()+beyondUsual(p), nil) })
			if err != nil && !missing(err) {
				return err
			}
		}
	}
	return nil
}

// actionKinds are all kinds in Linux 6.18. An action may exist without a filter.
var actionKinds = []string{"gact", "mirred", "police", "bpf", "connmark", "csum", "ct", "ctinfo", "gate", "ife",
	"mpls", "nat", "pedit", "sample", "simple", "skbedit", "skbmod", "tunnel_key", "vlan"}

const (
	tcaActTab  = 1 // TCA_ACT_TAB
	tcaActKind = 1 // TCA_ACT_KIND
	tcaMsg     = 4 // sizeof(struct tcamsg)
)

func actionRequest(b *linux.Batch, kind, flags uint16, action string) {
	b.Request(kind, flags)
	b.Raw(make([]byte, tcaMsg))
	b.Begin(tcaActTab)
	b.Begin(1)
	b.String(tcaActKind, action)
	b.End()
	b.End()
}

// readActions reads actions of the kinds that the kernel has loaded. For others it would write a message into its log.
func readActions(s *space, each visit) error {
	for _, action := range actionKinds {
		if _, err := os.Stat("/sys/module/act_" + action); err != nil {
			continue
		}
		var b linux.Batch
		actionRequest(&b, unix.RTM_GETACTION, 0, action)
		first := true
		err := s.dump(&b, func(p []byte) error {
			for kind, table := range linux.Attrs(p[min(tcaMsg, len(p)):]) {
				if kind != tcaActTab {
					continue
				}
				for _, one := range linux.Attrs(table) {
					var remove func(*linux.Batch)
					if first { // one request removes all that no filter uses
						remove = func(b *linux.Batch) { actionRequest(b, unix.RTM_DELACTION, unix.NLM_F_ROOT, action) }
					}
					first = false
					if err := each(actionSize.bytes()+beyondUsual(one), remove); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil && !missing(err) {
			return err
		}
	}
	return nil
}
