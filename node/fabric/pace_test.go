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
			// answered of 400 packets, and the seconds that they took: one or a little more, and more on a busy
			// machine. Where most are dropped, the last answer is waited for less long: nothing depends on it.
			answered := func(wait string) (n int, seconds float64) {
				t.Helper()
				began := time.Now()
				out, _ := l.a.run("ping", "-q", "-c", "400", "-i", "0.002", "-W", wait, "10.1.0.1")
				seconds = time.Since(began).Seconds()
				var sent int
				for i := range out {
					if _, err := fmt.Sscanf(out[i:], "%d packets transmitted, %d received", &sent, &n); err == nil {
						return n, seconds
					}
				}
				t.Fatalf("ping says %s", out)
				return 0, 0
			}
			dropped := func() (n uint64) {
				for _, c := range l.counters() {
					n += c.Drops[TooCostly]
				}
				return n
			}
			if n, _ := answered("5"); n < 390 {
				t.Fatalf("%d of 400 were answered before", n)
			}
			// A hundred answers a second at most: each is four times at a port. With much less none would come through
			// at all: it needs its turn four times, beside so many that come for the first time.
			if err := l.fabric.Pace(id, devices, 400); err != nil {
				t.Fatal(err)
			}
			silent := 0
			for range 2 {
				n, seconds := answered("0.2")
				if float64(n) > 100*(seconds+0.25) || n == 0 {
					t.Errorf("with 400 packets a second, %d of 400 pings were answered in %.2f s", n, seconds)
				}
				silent += 400 - n
				if again := l.apply(); len(again) != 0 { // it stays
					t.Errorf("a pass changes %q", again)
				}
			}
			if n := dropped(); n < uint64(silent) {
				t.Errorf("%d drops are counted, and %d pings had no answer", n, silent)
			}
			if err := l.fabric.Pace(id, devices, -1); err != nil {
				t.Fatal(err)
			}
			before := dropped()
			if n, _ := answered("5"); n < 390 || dropped() != before {
				t.Errorf("when it was over, %d of 400 were answered, and %d were dropped", n, dropped()-before)
			}
			if err := l.fabric.Pace(id, devices, 0); err != nil {
				t.Fatal(err)
			}
			l.restart()
			l.apply()
			l.a.pingSoon(t, "10.1.0.1")
			if n, _ := answered("5"); n < 390 {
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
