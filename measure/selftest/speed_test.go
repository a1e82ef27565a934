package selftest

import (
	"context"
	"testing"
	"time"
)

func TestSpeedOnly(t *testing.T) {
	rep, err := Run(context.Background(), Options{Duration: 500 * time.Millisecond, Repeat: 5, Sizes: []int{64, 1518}, Rates: []float64{1e4}})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range rep.Speeds {
		t.Logf("%d bytes: %.2f Mp/s closed (%.2f a CPU second), %.2f open (%.2f arrive), bare %.2f: %.0f %%", s.Size, s.Closed/1e6, s.Full/1e6, s.Open/1e6, s.Got/1e6, s.Bare/1e6, 100*s.Share())
	}
	t.Logf("floor %v steal %v", rep.Floor, rep.Steal)
}
