package feed_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/node/fib"
	"github.com/polyplane/polyplane/node/mirror"
)

// TestOverrun writes more than the receive buffer holds, again and again, and finds the fast path equal to the kernel.
func TestOverrun(t *testing.T) {
	t.Parallel()
	l := newRouter(t)
	l.start(mirror.Options{ReceiveBuffer: 8 << 10}, fib.Quota{}, 100)
	l.waitSynced()
	k := newKernel(t, l.router)
	var addresses []netip.Addr
	for i := range 4 {
		for j := range byte(200) {
			addresses = append(addresses, netip.AddrFrom4([4]byte{30, byte(i), j, 1}))
		}
	}
	for round := 0; round < 20 || l.mirror.Usage().Overruns == 0 && round < 200; round++ {
		var lines []string
		for i := range 4 {
			for j := range 200 {
				if (i+j+round)%3 == 0 {
					lines = append(lines, fmt.Sprintf("route del 30.%d.%d.0/24", i, j))
				} else {
					lines = append(lines, fmt.Sprintf("route replace 30.%d.%d.0/24 via 10.0.%d.2", i,
						j, (i+round)%links))
				}
			}
		}
		ip(t, l.router, true, lines...)
		l.settled(round)
		if round%5 == 0 {
			l.compare(k, addresses, nil)
		}
	}
	l.compare(k, addresses, nil)
	u := l.mirror.Usage()
	t.Logf("%+v", u)
	if u.Overruns == 0 || u.Resyncs < 2 {
		t.Errorf("no overrun was forced: %+v", u)
	}
}

// TestFull gives the fast path too little of everything: what does not fit is punted, never wrong, and comes back.
func TestFull(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		quota fib.Quota
	}{{"routes", fib.Quota{Routes: 60}}, {"memory", fib.Quota{Bytes: 2 << 10}}, {"next hops", fib.Quota{NextHops: 3}}} {
		t.Run(c.name, func(t *testing.T) {
			l := newRouter(t)
			l.start(mirror.Options{}, c.quota, 100)
			l.waitSynced()
			k := newKernel(t, l.router)
			var addresses []netip.Addr
			var lines, gone []string
			for i := range byte(100) {
				addresses = append(addresses, netip.AddrFrom4([4]byte{30, 0, i, 1}))
				lines = append(lines, fmt.Sprintf("route replace 30.0.%d.0/24 via 10.0.%d.%d", i, i%links, 2+i%20))
				gone = append(gone, fmt.Sprintf("route del 30.0.%d.0/24", i))
			}
			ip(t, l.router, false, lines...)
			l.settled(1)
			punted, _ := l.compare(k, addresses, nil)
			s := l.feed.Status()
			if punted == 0 || !errors.Is(s.Full, fib.ErrFull) {
				t.Errorf("with a quota of %+v: %d punted, %+v", c.quota, punted, s)
			}
			ip(t, l.router, false, gone[2:]...)
			l.settled(2)
			for try := 0; l.feed.Status().Full != nil && try < 5; try++ {
				if l.feed.Retry() {
					l.mirror.Restart()
					l.settled(3 + try)
				}
			}
			if punted, _ = l.compare(k, addresses, nil); punted > 0 || l.feed.Status().Full != nil {
				t.Errorf("after most routes are gone %d of 100 are punted: %+v", punted, l.feed.Status())
			}
		})
	}
}

// TestAnewInAFullQuota tells everything anew to a router that has all of its quota: it keeps what it had, each time.
func TestAnewInAFullQuota(t *testing.T) {
	t.Parallel()
	l := newRouter(t)
	l.start(mirror.Options{}, fib.Quota{}, 100)
	l.waitSynced()
	k := newKernel(t, l.router)
	var addresses []netip.Addr
	var lines []string
	for i := range byte(60) {
		addresses = append(addresses, netip.AddrFrom4([4]byte{30, 0, i, 1}))
		lines = append(lines, fmt.Sprintf("route replace 30.0.%d.0/24 via 10.0.%d.%d", i, i%links, 2+i%20))
	}
	ip(t, l.router, false, lines...)
	l.settled(1)
	used := l.slice.Usage()
	for try, quota := range []fib.Quota{{NextHops: used.NextHops}, {NextHops: used.NextHops}, {Routes: used.Routes + 1},
		{Routes: used.Routes + 1}} {
		l.slice.SetQuota(quota)
		l.mirror.Restart()
		l.settled(2 + try)
		punted, _ := l.compare(k, addresses, nil)
		if s := l.feed.Status(); punted > 0 || s.Full != nil || l.slice.Usage().NextHops != used.NextHops {
			t.Errorf("anew with %+v: %d punted, %+v, %+v in use of what were %+v", quota, punted, s,
				l.slice.Usage(), used)
		}
	}
}

// TestRulesAndLimits has all packets punted while they must be, and no longer.
func TestRulesAndLimits(t *testing.T) {
	t.Parallel()
	l := newRouter(t)
	l.start(mirror.Options{}, fib.Quota{}, 100)
	l.waitSynced()
	a := netip.MustParseAddr("10.0.1.77")
	is := func(family int, punted bool) func() bool {
		return func() bool { return (l.feed.Status().Punted[family] != "") == punted && l.synced }
	}
	ip(t, l.router, false, "rule add from 10.0.0.0/24 lookup 100 pref 50")
	l.wait("IPv4 is punted", is(0, true))
	if got := l.fastAnswer(a).String(); !strings.Contains(got, "punt") {
		t.Errorf("with a policy rule the fast path answers %s", got)
	}
	if l.feed.Status().Punted[1] != "" {
		t.Error("IPv6 is punted for an IPv4 rule")
	}
	ip(t, l.router, false, "rule del pref 50")
	l.wait("IPv4 is no longer punted", is(0, false))
	if got := l.fastAnswer(a).String(); !strings.Contains(got, "connected") {
		t.Errorf("without policy rules the fast path answers %s", got)
	}
}
