package mirror

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
)

// What unix does not name.
const (
	rtaVia  = 18 // RTA_VIA
	rtaPref = 20
	rtaNHID = 30 // RTA_NH_ID

	nhaID        = 1 // NHA_* of linux/nexthop.h
	nhaGroup     = 2
	nhaGroupType = 3
	nhaBlackhole = 4
	nhaOIF       = 5
	nhaGateway   = 6
	nhaEncapType = 7
	nhaEncap     = 8
	nhaFDB       = 11

	netconfIndex   = 1 // NETCONFA_* of linux/netconf.h
	netconfForward = 2
	netconfIgnore  = 6

	sizeofNhmsg  = 8
	sizeofNdmsg  = 12
	sizeofNexthp = 8 // struct rtnexthop

	nudValid = unix.NUD_PERMANENT | unix.NUD_NOARP | unix.NUD_REACHABLE | unix.NUD_PROBE |
		unix.NUD_STALE | unix.NUD_DELAY
)

// gatewayNone and so on are what a hop's gateway is.
const (
	gatewayNone = iota // on the link
	gateway4
	gateway6
)

// hop is one way out, as a route or a next-hop object names it.
type hop struct {
	gateway address
	index   int32
	weight  uint32
	kind    uint8 // gatewayNone, gateway4, gateway6
	dead    bool  // a way's: the kernel does not use it, until the interface comes up or gets an address
}

func (h *hop) setGateway(kind uint8, value []byte) bool {
	a, ok := addressOf(Family(kind-gateway4), value)
	if !ok {
		return false
	}
	h.gateway, h.kind = a, kind
	return true
}

// route is an RTM_NEWROUTE or RTM_DELROUTE. Both have the same form, and the same things in the same places.
type route struct {
	family    Family
	key       key
	table     uint32
	kind      uint8 // RTN_*
	tos       uint8
	scope     uint8
	protocol  uint8
	odd       bool // what the fast path can't do: encapsulation, source-specific, or unknown
	sourceLen uint8
	multipath bool
	mixed     bool // IPv6: one of several joined routes has an MTU of its own, and the kernel does not tell which
	metric    uint32
	object    uint32 // next-hop object
	mtu       uint32
	rest      uint64 // hash of what else tells routes apart
	source    address
	hops      []hop
}

// familyOf is the Family of an AF_* number.
func familyOf(af byte) (f Family, known bool) {
	switch af {
	case unix.AF_INET:
		return IPv4, true
	case unix.AF_INET6:
		return IPv6, true
	}
	return 0, false
}

// parse reads a message into r, whose memory it uses again. It returns false for a message that is about no route of a
// table.
func (r *route) parse(p []byte) bool {
	hops := r.hops[:0]
	*r = route{hops: hops}
	if len(p) < unix.SizeofRtMsg {
		return false
	}
	var known bool
	if r.family, known = familyOf(p[0]); !known {
		return false
	}
	if binary.NativeEndian.Uint32(p[8:])&unix.RTM_F_CLONED != 0 || int(p[1]) > r.family.bits() {
		return false
	}
	r.key.length, r.sourceLen, r.tos, r.table = p[1], p[2], p[3], uint32(p[4])
	r.protocol, r.scope, r.kind = p[5], p[6], p[7]
	r.odd = r.sourceLen != 0
	gateway := uint8(gateway4) + uint8(r.family)
	one := hop{weight: 1}
	hasOne, ok := false, true
	for kind, value := range linux.Attrs(p[unix.SizeofRtMsg:]) {
		if r.object != 0 && ofObject(kind) {
			continue
		}
		switch kind {
		case unix.RTA_DST:
			r.key.address, ok = addressOf(r.family, value)
		case unix.RTA_OIF:
			one.index, hasOne = int32(linux.Uint32Of(value)), true
		case unix.RTA_GATEWAY:
			ok = one.setGateway(gateway, value)
			hasOne = true
		case rtaVia:
			ok = one.setVia(value)
			hasOne = true
		case unix.RTA_PRIORITY:
			r.metric = linux.Uint32Of(value)
		case unix.RTA_TABLE:
			r.table = linux.Uint32Of(value)
		case unix.RTA_PREFSRC:
			r.source, ok = addressOf(r.family, value)
		case rtaNHID:
			r.object = linux.Uint32Of(value)
		case unix.RTA_METRICS:
			r.metrics(value)
		case unix.RTA_MULTIPATH:
			r.multipath = true
			ok = r.paths(value, gateway)
		case unix.RTA_SRC, unix.RTA_FLOW:
			r.hash(value)
		case unix.RTA_CACHEINFO, unix.RTA_PAD, rtaPref, unix.RTA_EXPIRES:
		default: // encapsulations above all
			r.odd = true
			r.hash(value)
		}
		if !ok {
			return false
		}
	}
	switch {
	case r.object != 0:
		r.hops = r.hops[:0]
	case !r.multipath && hasOne:
		r.hops = append(r.hops, one)
	}
	return r.key.address == r.key.first(int(r.key.length))
}

// ofObject tells whether an attribute says what the route's next-hop object says. By nexthop_compat_mode=1, which
// elements have, the kernel writes the object's next hops into each route, behind the object's number. The object
// itself is told as well, and its word counts: a route through it is the same route whatever the object is.
func ofObject(kind uint16) bool {
	switch kind {
	case unix.RTA_OIF, unix.RTA_GATEWAY, rtaVia, unix.RTA_MULTIPATH, unix.RTA_ENCAP, unix.RTA_ENCAP_TYPE:
		return true
	}
	return false
}

// setVia reads an RTA_VIA: a gateway of the other family.
func (h *hop) setVia(value []byte) bool {
	if len(value) < 2 {
		return false
	}
	switch binary.NativeEndian.Uint16(value) {
	case unix.AF_INET:
		return h.setGateway(gateway4, value[2:])
	case unix.AF_INET6:
		return h.setGateway(gateway6, value[2:])
	}
	return false
}

// hash adds a value to the hash of what else tells routes apart (FNV-1a).
func (r *route) hash(value []byte) {
	h := r.rest ^ 0xcbf29ce484222325
	for _, b := range value {
		h = (h ^ uint64(b)) * 0x100000001b3
	}
	r.rest = h ^ uint64(len(value))<<56 | 1
}

// metrics reads an RTA_METRICS. The MTU is followed; the others count only as what tells routes apart.
func (r *route) metrics(value []byte) {
	r.hash(value)
	for kind, v := range linux.Attrs(value) {
		if kind == unix.RTAX_MTU {
			r.mtu = linux.Uint32Of(v)
		}
	}
}

// paths reads an RTA_MULTIPATH.
func (r *route) paths(value []byte, gateway uint8) bool {
	for len(value) >= sizeofNexthp {
		n := int(binary.NativeEndian.Uint16(value))
		if n < sizeofNexthp || n > len(value) {
			return false
		}
		h := hop{index: int32(binary.NativeEndian.Uint32(value[4:])), weight: uint32(value[3]) + 1}
		for kind, v := range linux.Attrs(value[sizeofNexthp:n]) {
			ok := true
			switch kind {
			case unix.RTA_GATEWAY:
				ok = h.setGateway(gateway, v)
			case rtaVia:
				ok = h.setVia(v)
			case unix.RTA_FLOW:
				r.hash(v)
			default:
				r.odd = true
				r.hash(v)
			}
			if !ok {
				return false
			}
		}
		r.hops = append(r.hops, h)
		value = value[min((n+3)&^3, len(value)):]
	}
	return len(r.hops) > 0
}

// objectMessage is an RTM_NEWNEXTHOP or RTM_DELNEXTHOP.
type objectMessage struct {
	id        uint32
	hop       hop
	blackhole bool
	odd       bool // encapsulation, or unknown
	fdb       bool
	group     []objectMember
	grouped   bool
}

// objectMember is one of a group: an object's ID, and its weight from 1 on.
type objectMember struct{ id, weight uint32 }

func (o *objectMessage) parse(p []byte) bool {
	*o = objectMessage{}
	if len(p) < sizeofNhmsg {
		return false
	}
	gateway := uint8(gateway4)
	if p[0] == unix.AF_INET6 {
		gateway = gateway6
	}
	for kind, v := range linux.Attrs(p[sizeofNhmsg:]) {
		switch kind {
		case nhaID:
			o.id = linux.Uint32Of(v)
		case nhaGroup:
			o.grouped = true
			for ; len(v) >= 8; v = v[8:] { // struct nexthop_grp: id, weight - 1, its high byte
				o.group = append(o.group, objectMember{linux.Uint32Of(v), uint32(v[4]) | uint32(v[5])<<8 + 1})
			}
		case nhaGroupType: // hash-threshold or resilient: the same members
		case nhaBlackhole:
			o.blackhole = true
		case nhaOIF:
			o.hop.index = int32(linux.Uint32Of(v))
		case nhaGateway:
			if !o.hop.setGateway(gateway, v) {
				return false
			}
		case nhaFDB:
			o.fdb = true
		case nhaEncapType, nhaEncap:
			o.odd = true
		}
	}
	return o.id != 0
}

// neighbourMessage is an RTM_NEWNEIGH or RTM_DELNEIGH.
type neighbourMessage struct {
	family  Family
	address address
	index   int32
	mac     MAC
	valid   bool // it has a MAC that may be used
}

func (n *neighbourMessage) parse(p []byte) bool {
	*n = neighbourMessage{}
	if len(p) < sizeofNdmsg {
		return false
	}
	var known bool
	if n.family, known = familyOf(p[0]); !known {
		return false
	}
	if p[10]&unix.NTF_PROXY != 0 {
		return false
	}
	n.index = int32(binary.NativeEndian.Uint32(p[4:]))
	state := binary.NativeEndian.Uint16(p[8:])
	has, hasMAC := false, false
	for kind, v := range linux.Attrs(p[sizeofNdmsg:]) {
		switch kind {
		case unix.NDA_DST:
			n.address, has = addressOf(n.family, v)
		case unix.NDA_LLADDR:
			if hasMAC = len(v) == len(n.mac); hasMAC {
				copy(n.mac[:], v)
			}
		}
	}
	n.valid = hasMAC && state&nudValid != 0
	return has && n.index > 0
}

// linkMessage is an RTM_NEWLINK or RTM_DELLINK.
type linkMessage struct {
	index       int32
	name        []byte
	mac         MAC
	hasMAC      bool
	ethernet    bool
	mtu         uint32
	up, carrier bool
	master      uint32 // the bridge, bond or VRF that it belongs to
}

func (l *linkMessage) parse(p []byte) bool {
	*l = linkMessage{}
	if len(p) < unix.SizeofIfInfomsg || p[0] != unix.AF_UNSPEC {
		return false // AF_BRIDGE: a bridge's ports
	}
	flags := binary.NativeEndian.Uint32(p[8:])
	l.index = int32(binary.NativeEndian.Uint32(p[4:]))
	l.up, l.carrier = flags&unix.IFF_UP != 0, flags&(unix.IFF_RUNNING|unix.IFF_LOWER_UP) != 0
	l.ethernet = binary.NativeEndian.Uint16(p[2:]) == unix.ARPHRD_ETHER && flags&unix.IFF_NOARP == 0
	for kind, v := range linux.Attrs(p[unix.SizeofIfInfomsg:]) {
		switch kind {
		case unix.IFLA_IFNAME:
			l.name = v
		case unix.IFLA_ADDRESS:
			if l.hasMAC = len(v) == len(l.mac); l.hasMAC {
				copy(l.mac[:], v)
			}
		case unix.IFLA_MTU:
			l.mtu = linux.Uint32Of(v)
		case unix.IFLA_MASTER:
			l.master = linux.Uint32Of(v)
		}
	}
	return l.index > 0
}

// addressMessage is an RTM_NEWADDR or RTM_DELADDR of IPv4.
type addressMessage struct {
	index   int32
	length  uint8
	address address
}

func (a *addressMessage) parse(p []byte) bool {
	*a = addressMessage{}
	if len(p) < unix.SizeofIfAddrmsg || p[0] != unix.AF_INET {
		return false
	}
	a.length, a.index = p[1], int32(binary.NativeEndian.Uint32(p[4:]))
	has := false
	for kind, v := range linux.Attrs(p[unix.SizeofIfAddrmsg:]) {
		if kind == unix.IFA_LOCAL || kind == unix.IFA_ADDRESS && !has {
			a.address, has = addressOf(IPv4, v)
		}
	}
	return has && a.index > 0
}

// netconfMessage is an RTM_NEWNETCONF: an interface's settings. index is -1 for the settings of all interfaces.
type netconfMessage struct {
	family      Family
	index       int32
	forward     int32 // -1: not said
	ignoresDown int32
}

func (n *netconfMessage) parse(p []byte) bool {
	*n = netconfMessage{forward: -1, ignoresDown: -1}
	if len(p) < 1 || p[0] != unix.AF_INET && p[0] != unix.AF_INET6 {
		return false
	}
	if p[0] == unix.AF_INET6 {
		n.family = IPv6
	}
	for kind, v := range linux.Attrs(p[min(4, len(p)):]) { // struct netconfmsg is one byte
		switch kind {
		case netconfIndex:
			n.index = int32(linux.Uint32Of(v))
		case netconfForward:
			n.forward = int32(linux.Uint32Of(v))
		case netconfIgnore:
			n.ignoresDown = int32(linux.Uint32Of(v))
		}
	}
	return n.index != 0
}

// ruleMessage is an RTM_NEWRULE or RTM_DELRULE.
type ruleMessage struct {
	family Family
	table  uint32 // 0 unless it is one of those that every namespace has at first
	odd    bool
}

func (r *ruleMessage) parse(p []byte) bool {
	*r = ruleMessage{}
	if len(p) < 12 { // struct fib_rule_hdr
		return false
	}
	var known bool
	if r.family, known = familyOf(p[0]); !known {
		return false
	}
	table, priority := uint32(p[4]), uint32(0)
	r.odd = p[1] != 0 || p[2] != 0 || p[3] != 0 || p[7] != unix.FR_ACT_TO_TBL ||
		binary.NativeEndian.Uint32(p[8:])&unix.FIB_RULE_INVERT != 0
	for kind, v := range linux.Attrs(p[12:]) {
		switch kind {
		case unix.FRA_TABLE:
			table = linux.Uint32Of(v)
		case unix.FRA_PRIORITY:
			priority = linux.Uint32Of(v)
		case unix.FRA_SUPPRESS_PREFIXLEN:
			r.odd = r.odd || linux.Uint32Of(v) != 1<<32-1
		case unix.FRA_PROTOCOL, unix.FRA_PAD:
		default:
			r.odd = true
		}
	}
	switch {
	case priority == 0 && table == unix.RT_TABLE_LOCAL, priority == 32766 && table == unix.RT_TABLE_MAIN,
		priority == 32767 && table == unix.RT_TABLE_DEFAULT && r.family == IPv4:
		r.table = table
	default:
		r.odd = true
	}
	return true
}
