package fabric

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
)

// A sample shows what passes, both ways, for as long as it was asked to; one of a port that is busy ends when it is
// full, and nothing is copied any more from then on.
func TestSample(t *testing.T) {
	n, a, _ := twoElements(t)
	a.ping(t, "10.0.0.2") // addresses are resolved
	ports := []model.PortID{portID("net/a:eth0"), portID("net/b:eth0"), portID("net/none:eth0")}
	var wg sync.WaitGroup
	wg.Go(func() { a.must("ping", "-c", "10", "-i", "0.02", "10.0.0.2") })
	all, err := n.fabric.Sample(t.Context(), ports, 2*time.Second, 60)
	wg.Wait()
	if err != nil || len(all) != 2 {
		t.Fatalf("%d ports, %v", len(all), err)
	}
	for _, p := range ports[:2] {
		s := all[p]
		if s.Span != 2*time.Second {
			t.Errorf("%s: the sample is of %s", p, s.Span)
		}
		count := [2]int{}
		for _, f := range s.Frames {
			if len(f.Data) != min(60, f.Length) || f.At < 0 || f.At > 2*time.Second+generousSkew {
				t.Errorf("%s: %d of %d bytes at %s", p, len(f.Data), f.Length, f.At)
			}
			if f.ToElement {
				count[1]++
			} else {
				count[0]++
			}
		}
		if count[0] < 10 || count[1] < 10 {
			t.Errorf("%s: %v frames from and to it, want ten at least", p, count)
		}
	}

	var stop atomic.Bool
	wg.Go(func() {
		for !stop.Load() {
			a.must("ping", "-q", "-c", "1000", "-f", "10.0.0.2")
		}
	})
	began := time.Now()
	all, err = n.fabric.Sample(t.Context(), ports[:1], time.Minute, 60)
	took := time.Since(began)
	snap := n.fabric.pipe.Ports[n.fabric.slots[ports[0]]].Snap
	stop.Store(true)
	wg.Wait()
	if s := all[ports[0]]; err != nil || len(s.Frames) != sampled || s.Span > took || s.Span == 0 ||
		took > 50*time.Second {
		t.Errorf("a busy port's: %d frames in %s, after %s, %v", len(s.Frames), s.Span, took, err)
	}
	if snap != 0 {
		t.Error("the sample is full, and frames are still copied")
	}
}

// generousSkew is by how much a frame may come late that passed in time.
const generousSkew = time.Second
