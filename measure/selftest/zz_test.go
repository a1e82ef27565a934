package selftest

import (
	"context"
	"testing"
	"time"
)

func TestZZ(t *testing.T) {
	rep, err := Run(context.Background(), Options{Duration: time.Second, Repeat: 3, Sizes: []int{64, 512, 1518}})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range rep.Speeds {
		t.Logf("%d bytes: %.2f Mp/s closed (%.2f a CPU second), %.2f open (%.2f arrive), bare %.2f: %.0f %%", s.Size, s.Closed/1e6, s.Full/1e6, s.Open/1e6, s.Got/1e6, s.Bare/1e6, 100*s.Share())
	}
	for _, p := range rep.Paces {
		t.Logf("%+v", p)
	}
	t.Logf("floor %v steal %v limits %+v %q", rep.Floor, rep.Steal, rep.Limits, rep.Failures)
}
