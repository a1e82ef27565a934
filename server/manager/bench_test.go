package manager

import (
	"fmt"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
)

// BenchmarkApply1000 is a whole apply: validate, resolve, embed, store (with its fsync), publish.
func BenchmarkApply1000(b *testing.B) {
	f := start(b, b.TempDir(), substrateOf(1))
	net := line("line", 1000)
	b.ResetTimer()
	for i := 0; b.Loop(); i++ {
		// The first is a new network, every later one changes one link.
		net.Links[len(net.Links)/2].Bandwidth = model.Bandwidth(i+1) * 1e6
		f.apply(b, net, model.ApplyOptions{})
	}
}

// BenchmarkNoChange1000 is an apply that finds nothing to do.
func BenchmarkNoChange1000(b *testing.B) {
	f := start(b, b.TempDir(), substrateOf(1))
	f.apply(b, line("line", 1000), model.ApplyOptions{})
	for b.Loop() {
		if r := f.apply(b, line("line", 1000), model.ApplyOptions{}); r.Changed {
			b.Fatal("changed")
		}
	}
}

// TestApplyOf1000IsQuick holds the budget with much room for a busy machine; the benchmark tells the figure.
func TestApplyOf1000IsQuick(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(1))
	best := time.Hour
	for i := range 5 {
		net := line(fmt.Sprintf("line%d", i), 1000)
		begin := time.Now()
		f.apply(t, net, model.ApplyOptions{})
		best = min(best, time.Since(begin))
	}
	t.Logf("best of 5: %v", best)
	if best > 2*time.Second {
		t.Errorf("an apply of 1,000 routers took %v at best; the budget is 150 ms on a quiet machine", best)
	}
}
