package mirror

import (
	"testing"

	"golang.org/x/sys/unix"
)

// FuzzNotify hands a view messages that nobody would send. It must not fail, name what was not told, or keep what is
// gone.
func FuzzNotify(f *testing.F) {
	for _, seed := range [][]byte{
		join(linkUp(2), rt{prefix: "192.0.2.0/24", via: "10.0.0.2", index: 2}.message(unix.RTM_NEWROUTE, excl)),
		rt{prefix: "2001:db8::/32", hops: []string{"2 fe80::1 1", "3 fe80::2 2"}}.message(unix.RTM_NEWROUTE, appends),
		join(objectOf(unix.RTM_NEWNEXTHOP, 1, gatewayOf("10.0.0.2", 2)), objectOf(unix.RTM_NEWNEXTHOP, 2, groupOf(1)),
			rt{prefix: "192.0.2.0/24", object: 2}.message(unix.RTM_NEWROUTE, excl), objectOf(unix.RTM_DELNEXTHOP, 1)),
		join(neigh("10.0.0.2", 2, unix.NUD_STALE), linkAs(2, 0)),
		rule(unix.AF_INET, 100, 7, attr32(unix.FRA_FWMARK, 1)),
		message(unix.RTM_NEWNETCONF, 0, []byte{unix.AF_INET, 0, 0, 0}, attr32(netconfIndex, 2),
			attr32(netconfIgnore, 1)),
		message(unix.RTM_NEWADDR, 0, []byte{unix.AF_INET, 24, 0, 0, 2, 0, 0, 0},
			attr(unix.IFA_LOCAL, []byte{10, 0, 0, 1})),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		w := newWorld(t)
		w.view.Notify(data)
		w.take()
		w.view.Begin(Dump{unix.RTM_GETROUTE, unix.AF_INET, unix.RT_TABLE_MAIN}, 0)
		w.view.Dumped(data)
		w.view.End(true)
		w.take()
		// With every table, object and neighbour gone nothing is left.
		for _, d := range Dumps {
			w.view.Begin(d, 0)
			w.view.End(true)
		}
		w.take()
		if u := w.view.Usage(); u.Routes != 0 || u.NextHops != 0 || u.Neighbours != 0 || w.view.wayCount != 0 {
			t.Errorf("left: %+v, %d ways", u, w.view.wayCount)
		}
	})
}
