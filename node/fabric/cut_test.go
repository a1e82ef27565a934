package fabric

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
)

// TestCut takes a router and a host into quarantine and out again, whoever forwards for the router, with queues and
// without, also over a restart: nothing passes, in no direction, at once; their own carriers stay, and what they send
// is still captured.
func TestCut(t *testing.T) {
	t.Parallel()
	for _, how := range []struct {
		name      string
		on        bool
		bandwidth model.Bandwidth
	}{{"guest", false, 0}, {"fast", true, 0}, {"queues", true, 100e6}} {
		t.Run(how.name, func(t *testing.T) {
			t.Parallel()
			l := newRouted(t)
			l.port("r:left").Shape.Bandwidth, l.port("r:right").Shape.Bandwidth = how.bandwidth, how.bandwidth
			l.steer(how.on)
			l.a.ping(t, "10.1.0.1")
			passed := func(e *element, to string) bool {
				_, err := e.run("ping", "-c", "2", "-i", "0.01", "-W", "0.2", to)
				return err == nil
			}
			for _, victim := range []string{"r", "a"} {
				id := portID("net/" + victim + ":x").ID
				cut := func(on bool) {
					t.Helper()
					set := map[model.ID]bool{}
					if on {
						set[id] = true
					}
					if err := l.fabric.Cut(set, nil); err != nil {
						t.Fatal(err)
					}
				}
				cut(true)
				seen := l.capture(t, map[string]string{"r": "r:left", "a": "a:eth0"}[victim])
				for _, when := range []string{"at once", "after a pass", "after a restart",
					"after a pass of the next process"} {
					switch when {
					case "after a restart":
						seen.cancel()
						l.restart()
					case "at once":
					default:
						l.apply()
					}
					var way sync.WaitGroup // all ways at once: each waits for an answer that must not come
					for _, w := range []struct {
						from *element
						to   string
					}{{l.a, "10.1.0.1"}, {l.b, "10.0.0.1"}, {l.a, "10.0.0.2"}, {l.r, "10.0.0.1"}} {
						way.Go(func() {
							if passed(w.from, w.to) {
								t.Errorf("%s: %s is in quarantine and something passed from %s to %s", when,
									victim, w.from.name, w.to)
							}
						})
					}
					way.Wait()
				}
				n := map[string]uint64{}
				for id, c := range l.counters() {
					n[id.Element] += c.Drops[Quarantined]
				}
				if n["a"] == 0 || victim == "r" && n["r"] == 0 {
					t.Errorf("%s in quarantine: drops are counted at %v", victim, n)
				}
				if len(seen.packets(t)) == 0 {
					t.Errorf("a capture shows nothing of what %s sends", victim)
				}
				if e := map[string]*element{"r": l.r, "a": l.a}[victim]; !carrier(e) {
					t.Errorf("%s in quarantine has lost its own carrier", victim)
				}
				// What cannot be read any more stays as it is.
				if err := l.fabric.Cut(map[model.ID]bool{}, []string{"net"}); err != nil {
					t.Fatal(err)
				}
				if passed(l.a, "10.1.0.1") {
					t.Error("a network on hold has lost its quarantine")
				}
				cut(false)
				l.a.pingSoon(t, "10.1.0.1") // some neighbour may just have been given up for the time
				l.b.pingSoon(t, "10.0.0.1")
				if again := l.apply(); len(again) != 0 {
					t.Errorf("applied again, it changes %q", again)
				}
			}
		})
	}
}

func carrier(e *element) bool {
	out, err := e.run("ip", "-o", "link")
	for line := range strings.Lines(out) {
		if err == nil && (strings.Contains(line, ": left@") || strings.Contains(line, ": eth0@")) {
			return strings.Contains(line, "LOWER_UP") && !strings.Contains(line, "NO-CARRIER")
		}
	}
	return false
}

// pingSoon is ping, and again for some seconds when it is not answered.
func (e *element) pingSoon(t testing.TB, to string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		if _, err := e.run("ping", "-c", "1", "-W", "1", to); err == nil {
			return
		}
	}
	e.ping(t, to)
}
