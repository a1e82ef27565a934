package feed_test

import (
	"net/netip"
	"testing"

	"github.com/polyplane/polyplane/node/fib"
	"github.com/polyplane/polyplane/node/mirror"
)

func TestSmoke(t *testing.T) {
	l := newRouter(t)
	ip(t, l.router, false, "neigh add 10.0.1.2 lladdr 02:00:0a:00:01:02 dev e1 nud permanent", "route add 192.0.2.0/24 via 10.0.1.2")
	l.start(mirror.Options{}, fib.Quota{}, 100)
	l.waitSynced()
	for _, a := range []string{"192.0.2.1", "10.0.1.2", "10.0.1.3", "10.0.1.1", "10.0.1.255", "8.8.8.8", "2001:db8::1", "2001:db8:1::5", "fe80::1"} {
		addr := netip.MustParseAddr(a)
		f := 0
		if addr.Is6() {
			f = 1
		}
		id, n := l.tables[f].Lookup(addr)
		t.Log(a, id, n, l.pool.Resolve(id, 0))
	}
	l.settled(1)
	ip(t, l.router, false, "route replace 192.0.2.0/24 via 10.0.2.2", "route add default via 10.0.1.2")
	l.settled(2)
	for _, a := range []string{"192.0.2.1", "8.8.8.8"} {
		id, n := l.tables[0].Lookup(netip.MustParseAddr(a))
		t.Log(a, id, n, l.pool.Resolve(id, 0))
	}
	t.Logf("%+v %+v", l.mirror.Usage(), l.feed.Status())
}
