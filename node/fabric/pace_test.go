package fabric

import (
	"fmt"
	"testing"
	"time"
)

// TestPace lets a router have few packets a second, whoever forwards for it, with queues and without: what is beyond is
// dropped and counted, what passes the router in the fast path is not its kernel's work, and it ends without a trace,
// also by a restart.
func TestPace(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"guest", "queues"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			l := newRouted(t)
			if how == "queues" {
				l.port("r:left").Shape.Bandwidth, l.port("r:right").Shape.Bandwidth = 100e6, 100e6
			}
			l.steer(false)
			l.a.ping(t, "10.1.0.1")
			id := portID("net/r:x").ID
			devices := []int{l.port("r:left").Index, l.port("r:right").Index}
			// answered of 400 packets that come within a second or a little more. Where most are dropped, the last
			// answer is waited for less long: nothing depends on it.
			answered := func(wait string) (n int) {
				t.Helper()
				out, _ := l.a.run("ping", "-q", "-c", "400", "-i", "0.002", "-W", wait, "10.1.0.1")
				var sent int
				for i := range out {
					if _, err := fmt.Sscanf(out[i:], "%d packets transmitted, %d received", &sent, &n); err == nil {
						return n
					}
				}
				t.Fatalf("ping says %s", out)
				return 0
			}
			dropped := func() (n uint64) {
				for _, c := range l.counters() {
					n += c.Drops[TooCostly]
				}
				return n
			}
			if n := answered("5"); n < 390 {
				t.Fatalf("%d of 400 were answered before", n)
			}
			// A hundred answers a second at most: each is four times at a port. With much less none would come through
			// at all: it needs its turn four times, beside so many that come for the first time.
			if err := l.fabric.Pace(id, devices, 400); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if n := answered("0.2"); n > 200 || n == 0 {
					t.Errorf("with 400 packets a second, %d of 400 pings were answered", n)
				}
				if again := l.apply(); len(again) != 0 { // it stays
					t.Errorf("a pass changes %q", again)
				}
			}
			if dropped() < 400 {
				t.Errorf("%d drops are counted", dropped())
			}
			if err := l.fabric.Pace(id, devices, -1); err != nil {
				t.Fatal(err)
			}
			before := dropped()
			if n := answered("5"); n < 390 || dropped() != before {
				t.Errorf("when it was over, %d of 400 were answered, and %d were dropped", n, dropped()-before)
			}
			if err := l.fabric.Pace(id, devices, 0); err != nil {
				t.Fatal(err)
			}
			l.restart()
			l.apply()
			l.a.pingSoon(t, "10.1.0.1")
			if n := answered("5"); n < 390 {
				t.Errorf("after a restart, which knows of nothing, %d of 400 were answered", n)
			}
		})
	}
	t.Run("fast", func(t *testing.T) {
		t.Parallel()
		l := newRouted(t)
		l.steer(true)
		l.a.ping(t, "10.1.0.1")
		if err := l.fabric.Pace(portID("net/r:x").ID,
			[]int{l.port("r:left").Index, l.port("r:right").Index}, 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
		l.a.ping(t, "10.1.0.1")
		if _, err := l.a.run("ping", "-c", "1", "-W", "0.5", "10.0.0.2"); err == nil {
			t.Error("a router that may have no packets answers")
		}
	})
}
