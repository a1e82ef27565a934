package trial_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/polyplane/polyplane/measure/frame"
	"github.com/polyplane/polyplane/measure/impair"
	"github.com/polyplane/polyplane/measure/netdev"
	"github.com/polyplane/polyplane/measure/search"
	"github.com/polyplane/polyplane/measure/source"
	"github.com/polyplane/polyplane/measure/stats"
	"github.com/polyplane/polyplane/measure/trial"
)

// bed is source – faulty device – sink, each in a namespace of its own.
type bed struct {
	path   trial.Path
	in     netdev.Ref
	device *impair.Device
}

func newBed(t *testing.T) bed {
	t.Helper()
	var ns [3]string
	for i := range ns {
		n, err := netdev.NewNamespace()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { n.Close() })
		ns[i] = n.Path()
	}
	b := bed{path: trial.Path{From: netdev.Ref{Namespace: ns[0], Name: "ts"},
		To:     netdev.Ref{Namespace: ns[2], Name: "tk"},
		Before: netdev.Ref{Namespace: ns[1], Name: "tout"}}, in: netdev.Ref{Namespace: ns[1], Name: "tin"}}
	detour := [2]netdev.Ref{{Namespace: ns[1], Name: "tx0"}, {Namespace: ns[1], Name: "tx1"}}
	for i, pair := range [][2]netdev.Ref{{b.path.From, b.in}, {b.path.Before, b.path.To}, detour} {
		if err := netdev.NewVeth(pair[0], pair[1], byte(1+2*i)); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if b.device, err = impair.Open(b.in, b.path.Before, detour, impair.Faults{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.device.Close() })
	return b
}

func (b bed) open(t *testing.T, change func(*trial.Options)) *trial.Bench {
	t.Helper()
	o := trial.Options{Label: "faulty", Path: b.path, Placement: trial.Placement{Source: 0},
		Streams: []source.Stream{{
			Headers: frame.Headers{Kind: frame.IPv4, SourceMAC: netdev.MAC(1), DestMAC: netdev.MAC(2),
				Source: netip.MustParseAddr("10.0.0.1")},
			Sizes: frame.Fixed(64), Destinations: source.Destinations(netip.MustParseAddr("10.1.0.0"), 4096),
		}}}
	if change != nil {
		change(&o)
	}
	bench, err := trial.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bench.Close() })
	return bench
}

// apart puts the device's reception on another CPU than the source.
func (b bed) apart(o *trial.Options) {
	o.Placement.Polled = []trial.Polled{{Device: b.in, CPU: 1 % runtime.NumCPU()}}
}

func TestTrial(t *testing.T) {
	b := newBed(t)
	if err := b.device.Set(impair.Faults{Loss: 0.1, Seed: 3}); err != nil {
		t.Fatal(err)
	}
	bench := b.open(t, func(o *trial.Options) {
		o.Warmup = 50 * time.Millisecond
		o.Streams = append(o.Streams, o.Streams[0])
		o.Streams[0].Rate, o.Streams[1].Rate = 3, 1 // shares
	})
	r, err := bench.Run(context.Background(), trial.Load{Rate: 20_000, Duration: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("sent %d, received %d, loss %.4f, delay %v, marks %q", r.Sent, r.Received, r.LossRatio, r.Delay, r.Marks)
	if len(r.Streams) != 2 || r.Intended != 20_000 {
		t.Fatalf("%d streams, %d intended", len(r.Streams), r.Intended)
	}
	if a, b := float64(r.Streams[0].Sent), float64(r.Streams[1].Sent); math.Abs(a/b-3) > 0.05 {
		t.Errorf("shares 3 : 1 became %.0f : %.0f", a, b)
	}
	if r.Received+r.Lost+r.Corrupted != r.Sent || r.Streams[0].Lost+r.Streams[1].Lost != r.Lost {
		t.Errorf("%d sent, %d received, %d lost", r.Sent, r.Received, r.Lost)
	}
	// 5 standard deviations
	if lost := float64(r.Lost) / float64(r.Sent); math.Abs(lost-0.1) > 0.012 && r.Refused == 0 {
		t.Errorf("%.4f lost of what was sent, 0.1 expected", lost)
	}
	if len(r.Usage.Cores) == 0 || r.Usage.Wall < time.Second/2 || r.SourceCPU <= 0 || r.Histogram.Count != r.Received {
		t.Errorf("usage %+v, source %v, %d delays", r.Usage, r.SourceCPU, r.Histogram.Count)
	}
}

// undisturbed is a bench whose trials are repeated until no more than 1 % of the frames were lost in a full ring,
// outside the device: on a busy machine either side may pause, and a trial in which one did tells nothing of the
// device.
type undisturbed struct {
	*trial.Bench
	late time.Duration // the longest that the source was behind
}

func (u *undisturbed) Trial(ctx context.Context, rate float64, duration time.Duration) (search.Trial, error) {
	for {
		r, err := u.Run(ctx, trial.Load{Rate: rate, Duration: duration})
		if err != nil {
			return search.Trial{}, err
		}
		if (r.Refused+r.Overrun)*100 > r.Sent {
			continue
		}
		u.late = max(u.late, r.Streams[0].LateMax)
		return r.Trial(), nil
	}
}

// The search finds the rate limit of a real device. The device itself drops what exceeds it, so the loop need not be
// open, and a closed one loses nothing elsewhere. Its burst absorbs what pauses of up to 40 ms bunch together.
func TestSearchFindsTheRateLimit(t *testing.T) {
	b := newBed(t)
	const limit, burst = 50_000, 2_000
	if err := b.device.Set(impair.Faults{Rate: limit, Burst: burst}); err != nil {
		t.Fatal(err)
	}
	bench := &undisturbed{Bench: b.open(t, nil)}
	goal := search.Goal{Name: "PDR", LossRatio: 0.01, ExceedRatio: 0.5, Width: 0.05, InitialTrial: time.Second / 2,
		FinalTrial: time.Second, Sum: 2 * time.Second}
	res, err := search.MultipleLossRatio(context.Background(), bench,
		search.MLROptions{Range: search.Range{Min: 5_000, Max: 200_000}, Goals: []search.Goal{goal},
			Confirm: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	g := res.Goals[0]
	t.Logf("%v, throughput %.0f, %d trials, late by %v at most, confirmation %+v", g.Bounds, g.Throughput,
		len(res.Trials), bench.late, g.Confirm)
	// A trial of a second may pass the limit and the burst, and lose 1 % more.
	if most := float64(limit+burst) * 1.06; g.Throughput > most {
		t.Errorf("%.0f frames/s found, the device lets at most %.0f through", g.Throughput, most)
	}
	if g.Throughput < 0.9*limit && bench.late < 30*time.Millisecond {
		t.Errorf("%.0f frames/s found of a limit of %d", g.Throughput, limit)
	}
}

// The same search in an open loop: the limit is found, or it is said that others had the cores.
func TestOpenLoopSearch(t *testing.T) {
	openLoopSearch(t)
}

// The same once more, on a machine whose cores all have other work the whole time: the device's receive thread has a
// core of its own by priority, not because nobody else wants it.
func TestOpenLoopSearchOnABusyMachine(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("an open loop needs two CPUs")
	}
	for cpu := range 2 {
		hog := exec.Command("taskset", "-c", strconv.Itoa(cpu), "sh", "-c", "while :; do :; done")
		if err := hog.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := hog.Process.Kill(); err != nil {
				t.Error(err)
			}
			hog.Wait() // it was killed
		}()
	}
	openLoopSearch(t)
}

func openLoopSearch(t *testing.T) {
	t.Helper()
	if runtime.NumCPU() < 2 {
		t.Skip("an open loop needs two CPUs")
	}
	b := newBed(t)
	const limit, burst = 50_000, 2_000
	if err := b.device.Set(impair.Faults{Rate: limit, Burst: burst}); err != nil {
		t.Fatal(err)
	}
	bench := b.open(t, func(o *trial.Options) {
		b.apart(o)
		o.Quiet = 50 * time.Millisecond
	})
	goal := search.Goal{Name: "PDR", LossRatio: 0.05, ExceedRatio: 0.5, Width: 0.1, InitialTrial: time.Second / 4,
		FinalTrial: time.Second / 4, Sum: time.Second / 2}
	res, err := bench.Throughput(context.Background(), search.MLROptions{Range: search.Range{Min: 20_000, Max: 150_000},
		Goals: []search.Goal{goal}})
	if err != nil {
		t.Fatal(err)
	}
	g := res.Goals[0]
	t.Logf("%v, throughput %.0f, %d trials, %d of them disturbed", g.Bounds, g.Throughput,
		len(res.Trials), bench.Disturbed())
	// A trial of a quarter of a second passes the limit, the burst, and 5 % more.
	if most := float64(limit+4*burst) * 1.06; g.Throughput > most {
		t.Errorf("%.0f frames/s found, the device lets at most %.0f through", g.Throughput, most)
	}
	// Undisturbed it finds at least the limit, within the width.
	if g.Throughput < limit*(1-goal.Width) && bench.Disturbed() == 0 {
		t.Errorf("%.0f frames/s found of a limit of %d, and not a word of a disturbance", g.Throughput, limit)
	}
	r, err := bench.Run(context.Background(), trial.Load{Rate: limit / 2, Duration: time.Second / 2})
	if err != nil {
		t.Fatal(err)
	}
	used := time.Duration(0)
	for _, th := range r.Usage.Threads {
		if strings.HasPrefix(th.Name, "napi/") {
			used += th.Time
		}
	}
	if len(bench.Watch().Threads) == 0 {
		t.Error("a search's CPU time would leave the receive thread out")
	}
	if used == 0 || !r.Placement.Open() {
		t.Errorf("the device was not received by its own thread: %+v", r.Usage.Threads)
	}
}

func TestClosedLoopsAreNotSearched(t *testing.T) {
	b := newBed(t)
	bench := b.open(t, nil)
	if _, err := bench.Throughput(context.Background(), search.MLROptions{Range: search.Range{Min: 1, Max: 2},
		Goals: []search.Goal{search.NDR}}); !errors.Is(err, trial.ErrClosed) {
		t.Errorf("%v", err)
	}
	if _, err := bench.RFC2544(context.Background(),
		search.RFC2544Options{Range: search.Range{Min: 1, Max: 2}}); !errors.Is(err, trial.ErrClosed) {
		t.Errorf("%v", err)
	}
}

func TestLimits(t *testing.T) {
	b := newBed(t)
	limits := &trial.Limits{Rate: 1000}
	refusing := b.open(t, func(o *trial.Options) { o.Limits = limits })
	if _, err := refusing.Run(context.Background(),
		trial.Load{Rate: 2000, Duration: 100 * time.Millisecond}); !errors.Is(err, trial.ErrBeyond) {
		t.Errorf("%v", err)
	}
	if r, err := refusing.Run(context.Background(),
		trial.Load{Rate: 500, Duration: 100 * time.Millisecond}); err != nil || r.Sent > 50 ||
		r.Sent < 50 && len(r.Marks) == 0 { // a busy machine may have no time for the last ones, and says so
		t.Errorf("%d sent, %v, %q", r.Sent, err, r.Marks)
	}
	if err := refusing.Close(); err != nil {
		t.Fatal(err)
	}
	marking := b.open(t, func(o *trial.Options) { o.Limits, o.Mark = limits, true })
	r, err := marking.Run(context.Background(), trial.Load{Rate: 2000, Duration: 100 * time.Millisecond})
	if err != nil || len(r.Marks) == 0 {
		t.Errorf("%q, %v", r.Marks, err)
	}
}

// Threaded reception is enforced, accounted for, and taken back.
func TestPlacement(t *testing.T) {
	b := newBed(t)
	bench := b.open(t, func(o *trial.Options) {
		b.apart(o)
		o.Watch.Programs = map[string]*ebpf.Program{}
	})
	r, err := bench.Run(context.Background(), trial.Load{Rate: 50_000, Duration: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, th := range r.Usage.Threads {
		found = found || len(th.Name) > 5 && th.Name[:5] == "napi/" && th.Time > 0
	}
	if !found {
		t.Errorf("no receive thread used any time: %+v", r.Usage.Threads)
	}
	if err := bench.Close(); err != nil {
		t.Fatal(err)
	}
	if pids, err := netdev.NAPIThreads(b.in.Name); err != nil || len(pids) > 0 {
		t.Errorf("threads %v are still there, %v", pids, err)
	}
}

func TestCurveLatencyAndBursts(t *testing.T) {
	b := newBed(t)
	bench := b.open(t, nil)
	ctx := context.Background()
	curve, err := bench.Curve(ctx, []float64{1000, 5000}, 200*time.Millisecond)
	if err != nil || len(curve) != 2 || curve[0].Intended != 200 || curve[1].Intended != 1000 {
		t.Errorf("%+v, %v", curve, err)
	}
	l, err := bench.Latency(ctx, 10_000, 0.5, 200*time.Millisecond)
	if err != nil || l.Intended != 1000 || l.Delay.Count == 0 {
		t.Errorf("%+v, %v", l.Delay, err)
	}
	if _, err := bench.Latency(ctx, 10_000, 1.5, time.Second); err == nil {
		t.Error("150 % of the throughput was accepted")
	}
	// One frame in the bucket, and a new one every 100 ms: no burst of two is whole.
	if err := b.device.Set(impair.Faults{Rate: 10, Burst: 1}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(150 * time.Millisecond) // the bucket fills by time alone
	burst, err := bench.BackToBack(ctx, 16, 1)
	if err != nil || burst.Longest > 1 {
		t.Errorf("%+v, %v", burst, err)
	}
	if err := b.device.Set(impair.Faults{}); err != nil {
		t.Fatal(err)
	}
	if burst, err = bench.BackToBack(ctx, 8, 1); err != nil || burst.Longest != 8 {
		t.Errorf("%+v, %v", burst, err)
	}
}

func TestCompare(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 9))
	drift := 1.0
	system := func(name string, speed float64) trial.System {
		return trial.System{Name: name, Measure: func(context.Context) (float64, error) {
			drift *= 0.9995
			return speed * drift * (1 + 0.01*rng.NormFloat64()), nil
		}}
	}
	c, err := trial.Compare(context.Background(), trial.Plan{Systems: []trial.System{system("a", 100), system("b", 130),
		system("same", 100)}, Blocks: 30, Seed: 4})
	if err != nil {
		t.Fatal(err)
	}
	if r := c.Ratios["b"]; math.Abs(r.Median-1.3) > 0.02 || !c.Differs["b"] { // six standard errors of the median
		t.Errorf("b: %+v, differs %v", r, c.Differs["b"])
	}
	if c.Differs["same"] || c.Noise.Floor <= 0 || c.Noise.Floor > 0.02 {
		t.Errorf("same: %+v, noise %+v", c.Ratios["same"], c.Noise)
	}
	if c.Verdict.Stable {
		t.Errorf("a drift of %.1f %% was not seen: %+v", 100*(1-drift), c.Verdict)
	}
	orders := map[string]bool{}
	for _, o := range c.Order {
		if len(o) != 4 {
			t.Fatalf("block %v", o)
		}
		orders[o[0]+o[1]+o[2]+o[3]] = true
	}
	if len(orders) < 10 {
		t.Errorf("%d different orders in 30 blocks of 24 possible", len(orders))
	}
	stop := &stats.StopRule{Level: 0.95, Width: 0.05, Pilot: 6, Max: 30}
	if c, err = trial.Compare(context.Background(), trial.Plan{Systems: []trial.System{system("a", 100)}, Blocks: 30,
		Stop: stop}); err != nil || len(c.Order) != 6 {
		t.Errorf("%d blocks, %v", len(c.Order), err)
	}
	boom := errors.New("boom")
	if _, err := trial.Compare(context.Background(),
		trial.Plan{Blocks: 3, Systems: []trial.System{{Name: "x", Measure: func(context.Context) (float64,
			error) {
			return 0, boom
		}}}}); !errors.Is(err, boom) {
		t.Errorf("%v", err)
	}
	if _, err := trial.Compare(context.Background(), trial.Plan{}); err == nil {
		t.Error("nothing to compare was accepted")
	}
}

// Two independent runs of the same curve agree: the interval of the difference of their means holds zero. A 95 %
// interval misses it in one of twenty points by itself, so the test asks for 90 % of the points at 99 %, and tells how
// many hold at 95 %.
func TestTwoRunsAgree(t *testing.T) {
	b := newBed(t)
	if err := b.device.Set(impair.Faults{Loss: 0.2, Seed: 8}); err != nil {
		t.Fatal(err)
	}
	// The device is a few microseconds long: what has not come long after the last frame was dropped.
	bench := b.open(t, func(o *trial.Options) { o.Quiet = 40 * time.Millisecond })
	rates := []float64{1000, 2000, 5000, 10_000, 15_000, 20_000, 25_000, 30_000, 35_000, 40_000}
	var runs [2][][]float64 // run → point → received share
	for r := range runs {
		runs[r] = make([][]float64, len(rates))
		for range 5 {
			results, err := bench.Curve(context.Background(), rates, 100*time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			for i, res := range results {
				runs[r][i] = append(runs[r][i], float64(res.Received)/float64(res.Sent))
			}
		}
	}
	at95, at99 := 0, 0
	for i := range rates {
		for level, n := range map[float64]*int{0.95: &at95, 0.99: &at99} {
			iv, err := stats.DifferenceInterval(runs[0][i], runs[1][i], level)
			if err != nil {
				t.Fatal(err)
			}
			if iv.Contains(0) {
				*n++
			}
		}
	}
	t.Logf("of %d points, %d hold zero at 95 %%, %d at 99 %%", len(rates), at95, at99)
	if at99*10 < len(rates)*9 {
		t.Errorf("two runs of the same differ at %d of %d points", len(rates)-at99, len(rates))
	}
}
