package mirror

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// anything makes messages of any kind about few enough objects that they bear on one another.
type anything struct {
	*world
	r *rapid.T
}

func (a anything) int(from, to int) int { return rapid.IntRange(from, to).Draw(a.r, "n") }

func (a anything) one(of ...string) string { return rapid.SampledFrom(of).Draw(a.r, "of") }

func (a anything) link() int { return a.int(2, 4) }

func (a anything) route() {
	r := rt{metric: uint32(a.int(0, 2)), table: unix.RT_TABLE_MAIN}
	six := a.int(0, 2) == 0
	if six {
		r.prefix = a.one("::/0", "2001:db8::/32", "2001:db8::/64", "2001:db8::4/128", "2001:db9::/48")
	} else {
		r.prefix = a.one("0.0.0.0/0", "10.0.0.0/8", "10.0.0.0/24", "10.0.0.4/32", "10.0.0.5/32", "20.0.0.0/8")
	}
	gateway := func() string {
		if six {
			return fmt.Sprintf("2001:db8::%d", a.int(2, 5))
		}
		return fmt.Sprintf("10.0.0.%d", a.int(2, 5))
	}
	switch a.int(0, 9) {
	case 0:
		r.kind = unix.RTN_PROHIBIT
	case 1:
		r.kind, r.index = unix.RTN_LOCAL, a.link()
	case 2, 3:
		r.index = a.link()
	case 4:
		r.object = uint32(a.int(1, 4))
	case 5:
		r.hops = []string{fmt.Sprintf("2 %s 1", gateway()), fmt.Sprintf("%d %s 2", a.link(), gateway())}
	case 6:
		r.via, r.index, r.source = gateway(), a.link(), gateway()
	default:
		r.via, r.index = gateway(), a.link()
	}
	switch a.int(0, 5) {
	case 0, 1:
		r.table = unix.RT_TABLE_LOCAL
	case 2:
		r.table = unix.RT_TABLE_DEFAULT
	}
	if a.int(0, 2) == 0 {
		a.del(r)
	} else {
		a.add(rapid.SampledFrom([]uint16{excl, create, appends, replace}).Draw(a.r, "flags"), r)
	}
}

func (a anything) other() {
	switch a.int(0, 6) {
	case 0, 1:
		m := neigh(a.one("10.0.0.4", "10.0.0.5", "2001:db8::4"), a.link(),
			rapid.SampledFrom([]uint16{unix.NUD_REACHABLE, unix.NUD_STALE, unix.NUD_FAILED}).Draw(a.r, "state"))
		if a.int(0, 3) == 0 {
			binary.NativeEndian.PutUint16(m[4:], unix.RTM_DELNEIGH)
		}
		a.view.Notify(m)
	case 2:
		m := linkAs(a.link(), rapid.SampledFrom([]uint32{0, unix.IFF_UP,
			unix.IFF_UP | unix.IFF_RUNNING | unix.IFF_LOWER_UP}).Draw(a.r, "flags"))
		if a.int(0, 5) == 0 {
			binary.NativeEndian.PutUint16(m[4:], unix.RTM_DELLINK)
		}
		a.view.Notify(m)
	case 3:
		parts := gatewayOf(a.one("10.0.0.4", "2001:db8::4"), a.link())
		switch a.int(0, 3) {
		case 0:
			parts = attr(nhaBlackhole, nil)
		case 1:
			parts = attr32(nhaOIF, uint32(a.link()))
		}
		a.view.Notify(objectOf(unix.RTM_NEWNEXTHOP, uint32(a.int(1, 3)), parts))
	case 4:
		a.view.Notify(objectOf(unix.RTM_NEWNEXTHOP, 4, groupOf(uint32(a.int(1, 3)), uint32(a.int(1, 3)))))
	case 5:
		a.view.Notify(objectOf(unix.RTM_DELNEXTHOP, uint32(a.int(1, 4))))
	case 6:
		var list []Neighbour
		for range a.int(0, 2) {
			list = append(list, Neighbour{a.link(), netip.MustParseAddr(a.one("10.0.0.4", "10.0.0.5", "2001:db8::4")),
				MAC{2, 9}})
		}
		a.view.SetNeighbours(list)
	}
}

// known is all that a consumer knows, in words.
func (w *world) known() map[string]string {
	m := map[string]string{}
	for p, id := range w.routes {
		m[p.String()] = w.hop(id)
	}
	return m
}

// TestTold takes in batches of any size at any time: none names a next hop that was not told or was dropped (world's
// takeOne looks at that), and in the end what was told as changes is what is told anew.
func TestTold(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := newWorld(r)
		a := anything{w, r}
		w.view.most = rapid.SampledFrom([]int{1, 2, 3, 7, maxRoutes}).Draw(r, "most")
		for range rapid.IntRange(0, 60).Draw(r, "steps") {
			switch a.int(0, 20) {
			case 0:
				w.view.Restart()
			case 1:
				for _, d := range Dumps { // with which nearly all is gone
					w.whole(d)
				}
			case 2, 3, 4:
				w.takeOne()
			case 5:
				w.take()
			case 6, 7, 8, 9, 10, 11:
				a.other()
			default:
				a.route()
			}
		}
		w.take()
		if told := w.view.Usage().NextHops; told != len(w.hops) {
			r.Errorf("%d next hops are told and not dropped; the consumer has %d", told, len(w.hops))
		}
		changed := w.known()
		w.view.Restart()
		w.take()
		if anew := w.known(); !maps.Equal(changed, anew) {
			r.Errorf("as changes, %v was told; anew, %v", changed, anew)
		}
	})
}
