package search_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/polyplane/polyplane/measure/search"
	"github.com/polyplane/polyplane/measure/search/simulated"
)

type spec struct {
	Min, Max float64
	Goals    []search.Goal
	Devices  []simulated.Device `json:"devices"`
}

type recorded struct {
	Device  string
	Seed    uint64
	Trials  int
	Seconds float64
	Goals   []struct {
		Goal                     string
		Lower, Upper, Throughput float64
	}
}

func load(t *testing.T, path string, into any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// The bounds that MLRsearch 1.2.1 found on the same devices (testdata/record.sh) and ours must agree within the
// search's width. A noisy device answers the same question the same way to both, so nothing has to be allowed for that.
func TestAgreesWithMLRsearch(t *testing.T) {
	var sp spec
	var want []recorded
	load(t, "testdata/devices.json", &sp)
	load(t, "testdata/mlrsearch.json", &want)
	ours, theirs := 0.0, 0.0
	compared := map[string]int{}
	for _, w := range want {
		i := slices.IndexFunc(sp.Devices,
			func(d simulated.Device) bool { return d.Name == w.Device && d.Seed == w.Seed })
		if i < 0 {
			t.Fatalf("%s/%d was recorded and is not described: run testdata/record.sh", w.Device, w.Seed)
		}
		d := sp.Devices[i] // a copy, which nobody has asked anything
		o := search.MLROptions{Range: search.Range{Min: sp.Min, Max: sp.Max}, Limit: 24 * time.Hour}
		for _, g := range w.Goals {
			o.Goals = append(o.Goals,
				sp.Goals[slices.IndexFunc(sp.Goals, func(s search.Goal) bool { return s.Name == g.Goal })])
		}
		res, err := search.MultipleLossRatio(context.Background(), &d, o)
		if err != nil {
			t.Fatalf("%s: %v", d.Name, err)
		}
		seconds := 0.0
		for _, tr := range res.Trials {
			seconds += tr.Duration.Seconds()
		}
		ours += seconds
		theirs += w.Seconds
		for j, r := range res.Goals {
			g := w.Goals[j]
			compared[d.Name]++
			t.Logf("%s/%d %s: %.0f…%.0f (%.0f), MLRsearch %.0f…%.0f (%.0f); %d trials %.0f s, MLRsearch %d %.0f s",
				d.Name, d.Seed, r.Goal.Name,
				r.Bounds.Lower, r.Bounds.Upper, r.Throughput, g.Lower, g.Upper, g.Throughput, len(res.Trials), seconds,
				w.Trials, w.Seconds)
			if (g.Lower == 0) != (r.Bounds.Lower == 0) || (g.Upper == 0) != (r.Bounds.Upper == 0) {
				t.Errorf("%s %s: a bound is missing on one side only", d.Name, r.Goal.Name)
				continue
			}
			near := func(what string, got, want float64) {
				if want > 0 && math.Abs(got/want-1) > r.Goal.Width*(1+1e-9) {
					t.Errorf("%s/%d %s: %s %.0f, MLRsearch %.0f: apart by %.2f %%", d.Name, d.Seed, r.Goal.Name, what,
						got, want, 100*(got/want-1))
				}
			}
			near("lower bound", r.Bounds.Lower, g.Lower)
			near("upper bound", r.Bounds.Upper, g.Upper)
			near("throughput", r.Throughput, g.Throughput)
			if r.Bounds.Lower > 0 && r.Bounds.Upper > 0 &&
				r.Bounds.Upper-r.Bounds.Lower > r.Goal.Width*r.Bounds.Upper*(1+1e-9) {
				t.Errorf("%s %s: bounds %v are wider than asked for", d.Name, r.Goal.Name, r.Bounds)
			}
		}
	}
	for _, d := range sp.Devices {
		if compared[d.Name] == 0 {
			t.Errorf("%s was not recorded: run testdata/record.sh", d.Name)
		}
	}
	t.Logf("trial time in all: %.0f s, MLRsearch %.0f s", ours, theirs)
	if ours > 2*theirs {
		t.Errorf("our searches take %.0f s of trials, MLRsearch's %.0f s", ours, theirs)
	}
}

func TestRFC2544(t *testing.T) {
	for _, capacity := range []float64{12_345, 900_000, 8_800_000} {
		d := &simulated.Device{Capacity: capacity}
		r, err := search.RFC2544(context.Background(), d, search.RFC2544Options{
			Range: search.Range{Min: 10_000, Max: 1e7}, Duration: 60 * time.Second, Width: 0.005})
		if err != nil {
			t.Fatal(err)
		}
		if r.Throughput > capacity*1.0001 || r.Throughput < capacity*0.995 || r.Short {
			t.Errorf("capacity %v: throughput %v, short %v", capacity, r.Throughput, r.Short)
		}
		if len(r.Trials) > 14 {
			t.Errorf("capacity %v: %d trials", capacity, len(r.Trials))
		}
	}
	fast, err := search.RFC2544(context.Background(), &simulated.Device{Capacity: 1e9}, search.RFC2544Options{
		Range: search.Range{Min: 1000, Max: 1e6}, Duration: time.Second, Width: 0.01})
	if err != nil || fast.Throughput != 1e6 || len(fast.Trials) != 1 || !fast.Short {
		t.Errorf("a device faster than the source: %+v, %v", fast, err)
	}
	// One frame in a million lost at any rate: RFC 2544 proper finds nothing. That is what it means.
	lossy, err := search.RFC2544(context.Background(), &simulated.Device{Capacity: 1e9, Floor: 1e-4},
		search.RFC2544Options{
			Range: search.Range{Min: 20000, Max: 1e6}, Duration: time.Second, Width: 0.01})
	if err != nil || lossy.Throughput != 0 {
		t.Errorf("a device that always loses: throughput %v, %v", lossy.Throughput, err)
	}
}

func TestConfirmation(t *testing.T) {
	goal := search.NDR
	res, err := search.MultipleLossRatio(context.Background(), &simulated.Device{Capacity: 1e6, Noise: 0.01,
		Seed: 5}, search.MLROptions{
		Range: search.Range{Min: 1000, Max: 1e7}, Goals: []search.Goal{goal}, Confirm: 60 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	g := res.Goals[0]
	if g.Confirm == nil || g.Confirm.Duration != 60*time.Second ||
		g.Confirmed != (g.Confirm.LossRatio() <= goal.LossRatio) {
		t.Errorf("%+v", g)
	}
}

type broken struct{ error }

func (b broken) Trial(context.Context, float64, time.Duration) (search.Trial, error) {
	return search.Trial{}, b.error
}

func TestErrors(t *testing.T) {
	ctx, boom := context.Background(), errors.New("the cable is out")
	o := search.MLROptions{Range: search.Range{Min: 1000, Max: 1e6}, Goals: []search.Goal{search.NDR}}
	if _, err := search.MultipleLossRatio(ctx, broken{boom}, o); !errors.Is(err, boom) {
		t.Errorf("%v", err)
	}
	o.Limit = time.Second
	if _, err := search.MultipleLossRatio(ctx, &simulated.Device{Capacity: 1e5}, o); !errors.Is(err, search.ErrLimit) {
		t.Errorf("%v", err)
	}
	o.Range = search.Range{Min: 5, Max: 2}
	if _, err := search.MultipleLossRatio(ctx, &simulated.Device{}, o); err == nil {
		t.Error("a reversed range was accepted")
	}
	if _, err := search.RFC2544(ctx, broken{boom}, search.RFC2544Options{
		Range: search.Range{Min: 1, Max: 2}, Duration: time.Second, Width: 0.1}); !errors.Is(err, boom) {
		t.Errorf("%v", err)
	}
}

func TestLossRatioCountsWhatWasNotSent(t *testing.T) {
	if got := (search.Trial{Intended: 100, Sent: 90, Received: 80}).LossRatio(); got != 0.2 {
		t.Errorf("%v", got)
	}
	if got := (search.Trial{Intended: 100, Sent: 100, Received: 100}).LossRatio(); got != 0 {
		t.Errorf("%v", got)
	}
	if got := (search.Trial{}).LossRatio(); got != 0 {
		t.Errorf("%v", got)
	}
}
