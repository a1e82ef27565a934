package feed_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/polyplane/polyplane/node/fib"
	"github.com/polyplane/polyplane/node/mirror"
)

// TestRoutesThatTheKernelDoesNotList looks at tables in which a route is between the hops of another: the kernel's dump
// goes on after the last hop, and its look-up finds the route once the hops have no carrier.
func TestRoutesThatTheKernelDoesNotList(t *testing.T) {
	t.Parallel()
	l := newRouter(t)
	l.start(mirror.Options{}, fib.Quota{}, 100)
	l.waitSynced()
	ip(t, l.router, false, "route add 2001:db9:1::/48 via 2001:db8:1::3 dev e1",
		"route append blackhole 2001:db9:1::/48 metric 1024",
		"route append 2001:db9:1::/48 via 2001:db8:1::2 dev e1")
	l.settled(0)
	k := newKernel(t, l.router)
	addresses := []netip.Addr{netip.MustParseAddr("2001:db9:1::1")}
	for round, state := range []string{"up", "down", "up"} {
		ip(t, l.peer, false, "link set p1 "+state)
		looks := l.mirror.Usage().Resyncs
		l.mirror.Resync()
		for l.mirror.Usage().Resyncs == looks {
			l.settled(1 + round)
		}
		l.compare(k, addresses, []string{fmt.Sprintf("the peer's link is %s", state)})
	}
	ip(t, l.router, false, "route del blackhole 2001:db9:1::/48")
	l.settled(9)
	if punted, _ := l.compare(k, addresses, nil); punted > 0 {
		t.Error("the route is punted, though nothing is between its hops")
	}
}
