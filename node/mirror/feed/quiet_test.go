package feed_test

import (
	"testing"

	"github.com/polyplane/polyplane/node/fib"
	"github.com/polyplane/polyplane/node/mirror"
)

// TestInterfaceFlaps takes interfaces down and up in every way, with routes of every kind through them, and wants the
// right answers from the notifications alone, where the kernel takes routes away without a word.
func TestInterfaceFlaps(t *testing.T) {
	t.Parallel()
	l := newRouter(t)
	l.start(mirror.Options{NoLooks: true}, fib.Quota{}, 100)
	l.waitSynced()
	k := newKernel(t, l.router)
	c := newChurn(1, false)
	base := []string{
		"neigh replace 10.0.1.2 lladdr 02:00:00:00:00:12 dev e1",
		"neigh replace 10.0.2.2 lladdr 02:00:00:00:00:22 dev e2",
		"addr replace 10.9.0.1/32 dev e0",
		"nexthop replace id 1 via 10.0.1.2 dev e1", "nexthop replace id 2 via 10.0.2.2 dev e2",
		"nexthop replace id 7 group 1/2",
		"nexthop replace id 101 via 2001:db8:1::2 dev e1", "nexthop replace id 102 via 2001:db8:2::2 dev e2",
		"nexthop replace id 107 group 101/102",
		"route replace 20.0.0.0/8 via 10.0.3.2", "route replace 2001:db9::/32 via 2001:db8:3::2",
		"route replace 20.0.0.0/16 nhid 7", "route replace 20.0.0.0/24 nhid 1", "route replace 2001:db9::/48 nhid 107",
		"route replace 2001:db9::/64 nhid 101",
		"route replace 20.1.0.0/16 nexthop via 10.0.1.2 nexthop via 10.0.2.2 weight 2",
		"route replace 20.1.1.0/24 via 10.0.1.2 metric 10",
		"route replace 20.1.1.0/24 via 10.0.2.2 metric 20", "route replace 20.2.0.0/16 via 10.0.2.2 src 10.9.0.1",
		"route replace 2001:db9:1::/48 nexthop via 2001:db8:1::2 nexthop via 2001:db8:2::2",
		"route replace 20.3.0.0/16 dev e1",
	}
	for i, change := range [][]string{
		{"link set e1 down"}, {"link set e1 up"}, {"link set e2 down", "link set e2 up"},
		{"link set e1 down", "link set e2 down", "link set e1 up"},
		{"addr del 10.9.0.1/32 dev e0"}, {"addr del 10.0.1.1/24 dev e1", "addr add 10.0.1.1/24 dev e1"},
		{"addr del 10.0.2.1/24 dev e2"},
		{"peer link set p1 down"}, {"peer link set p1 up"}, {"peer link set p1 down", "peer link set p2 down"},
		{"peer link set p1 up"},
		{"nexthop del id 1"}, {"nexthop replace id 2 via 10.0.2.3 dev e2"}, {"link set e1 address 02:00:00:00:09:09",
			"link set e2 mtu 1300"},
		{"link del e1"},
	} {
		ip(t, l.router, true, append([]string{"link set e1 up", "link set e2 up", "addr replace 10.0.1.1/24 dev e1",
			"addr replace 10.0.2.1/24 dev e2"}, base...)...)
		l.settled(2 * i)
		l.compare(k, c.addresses(), base)
		for _, line := range change {
			if len(line) > 5 && line[:5] == "peer " {
				ip(t, l.peer, true, line[5:])
			} else {
				ip(t, l.router, true, line)
			}
		}
		l.settled(2*i + 1)
		l.compare(k, c.addresses(), change)
	}
	if u := l.mirror.Usage(); u.Resyncs > 1 {
		t.Errorf("%d looks at all tables were needed", u.Resyncs)
	}
}
