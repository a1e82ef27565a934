package feed_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/polyplane/polyplane/node/fib"
	"github.com/polyplane/polyplane/node/mirror"
)

// TestLooksBringNothingBack adds and deletes routes while the kernel's tables are looked at, and looks no more after.
// What a look read before it was deleted, and told after, was there for good.
func TestLooksBringNothingBack(t *testing.T) {
	t.Parallel()
	l := newRouter(t)
	l.start(mirror.Options{}, fib.Quota{}, 100)
	l.waitSynced()
	var lines []string
	for i := range 1000 { // behind the others in the dump, whose pieces take longer to fill therefore
		lines = append(lines, fmt.Sprintf("route add blackhole 198.20.%d.%d/32", i/250, i%250))
	}
	ip(t, l.router, false, lines...)
	l.settled(0)
	for round := 1; round <= 80; round++ {
		lines = lines[:0]
		for i := range 400 {
			p := fmt.Sprintf("198.19.%d.%d/32", round, i%250)
			lines = append(lines, "route add blackhole "+p, "route del blackhole "+p)
		}
		l.mirror.Resync()
		ip(t, l.router, false, lines...)
		l.settled(round)
		l.mu.Lock()
		var back []netip.Prefix
		for p, is := range l.seen {
			if is {
				back = append(back, p)
			}
		}
		l.mu.Unlock()
		if len(back) > 0 {
			t.Fatalf("round %d: %v are told, which the kernel has no more", round, back)
		}
	}
}
