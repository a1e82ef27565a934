package cli

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/measure/machine"
	"github.com/polyplane/polyplane/measure/netdev"
	results "github.com/polyplane/polyplane/measure/result"
	"github.com/polyplane/polyplane/measure/stats"
	"github.com/polyplane/polyplane/measure/tools"
	"github.com/polyplane/polyplane/measure/trial"
	"github.com/polyplane/polyplane/model"
)

// trafficReport is everything that was measured, as -o json prints it.
type trafficReport struct {
	results.File
	Mode        trafficMode     `json:"mode"`
	Paths       []trafficPath   `json:"paths,omitempty"`
	Traffic     trafficShape    `json:"traffic"`
	Floor       time.Duration   `json:"floor_ns,omitempty"` // the self-test's median delay
	Burst       *trial.Burst    `json:"burst,omitempty"`
	TCP         []tools.TCP     `json:"tcp,omitempty"`
	Ping        []tools.Ping    `json:"ping,omitempty"`
	Connections []tools.Connect `json:"connections,omitempty"`
	Usage       machine.Usage   `json:"usage"` // of the first trial's time
	Verdict     *stats.Verdict  `json:"verdict,omitempty"`
	Warnings    []string        `json:"warnings,omitempty"`
}

// trafficShape is what was asked to be sent.
type trafficShape struct {
	Kind       string          `json:"kind"`
	Sizes      string          `json:"sizes"` // bytes, check sequences included
	Flows      int             `json:"flows"` // of each stream
	Streams    int             `json:"streams"`
	Rate       float64         `json:"rate"` // frames/s of all pairs; 0: as fast as possible
	Poisson    bool            `json:"poisson"`
	Duration   time.Duration   `json:"duration_ns"`
	Repeat     int             `json:"repeat"`
	Confidence float64         `json:"confidence"`
	Placement  trial.Placement `json:"placement"` // of the first pair
	Open       bool            `json:"open"`
	TimeEvery  int             `json:"time_every"`  // one of so many frames was timed
	CheckEvery int             `json:"check_every"` // one of so many frames had its whole payload checked
}

// trafficRun is one command under way.
type trafficRun struct {
	c        *CLI
	plan     *trafficPlan
	paths    []trafficPath
	bench    *trafficLock
	programs map[string]*ebpf.Program
	groups   []string // cgroups of the networks' elements
	limits   *trial.Limits
	report   trafficReport
}

// exactUpTo is the rate, in frames/s, up to which frames are sent one by one. So none waits for others of its batch.
const exactUpTo = 200_000

// prepare reads the environment and the self-test's limits, and wakes the way up.
func (t *trafficRun) prepare(ctx context.Context, dirs instance.Dirs) error {
	p, r := t.plan, &t.report
	var devices []netdev.Ref
	for _, path := range t.paths {
		devices = append(devices, path.Device, path.Port, path.SinkDevice)
	}
	var err error
	if r.Environment, err = machine.Describe(devices...); err != nil {
		return err
	}
	r.Format, r.Mode, r.Paths = results.Format, p.mode, t.paths
	r.Traffic = trafficShape{Kind: p.kind.String(), Sizes: p.sizes.String(), Flows: p.flows, Streams: p.streams,
		Rate: p.fps, Poisson: p.poisson,
		Duration: p.duration, Repeat: p.repeat, Confidence: p.level, Placement: t.placement(0), TimeEvery: p.timeEvery,
		CheckEvery: p.check}
	r.Traffic.Open = r.Traffic.Placement.Open()
	if !p.closed && !netdev.ThreadsVisible() {
		t.warn("this runs in a process namespace of its own (a container?), where receive threads cannot be placed: " +
			"the loop is closed")
	}
	if t.limits, err = readLimits(dirs, r.Environment); err != nil {
		t.warn("%v", err)
	}
	if t.limits != nil {
		r.Limits, r.Floor = t.limits, t.limits.Floor
	} else if err == nil && p.mode != modePing && p.mode != modeTCP && p.mode != modeConnections {
		t.warn("what source and sink can do here is not known: `polyplane traffic --self-test` finds out")
	}
	if p.programs {
		if t.programs, err = fabricPrograms(); err != nil {
			return err
		}
	}
	for _, path := range t.paths {
		for _, id := range []model.ID{path.From.ID, path.To.ID} {
			t.groups = append(t.groups, elementGroups(cgroups, dirs, p.named.key(id.Network))...)
		}
	}
	slices.Sort(t.groups)
	t.groups = slices.Compact(t.groups)
	for _, path := range t.paths {
		if err := t.wake(ctx, path); err != nil {
			return err
		}
	}
	return nil
}

// wake makes all neighbours on the way known. Frames that had to wait for that would be lost.
func (t *trafficRun) wake(ctx context.Context, path trafficPath) error {
	for range 3 {
		p, err := tools.RunPing(ctx, tools.PingOptions{Namespace: path.Device.Namespace,
			Address: path.Destination, Count: 1})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil && p.Received > 0 {
			return nil
		}
	}
	t.warn("%s does not answer to a ping from %s: the way may lead elsewhere, or only there", path.To, path.From)
	return nil
}

func (t *trafficRun) warn(format string, a ...any) {
	t.report.Warnings = append(t.report.Warnings, fmt.Sprintf(format, a...))
}

// placement says where the i-th pair sends and receives. A single pair has the last core for its source and the first
// for everything after it. Of several pairs each has a core of its own.
func (t *trafficRun) placement(i int) trial.Placement {
	n := runtime.NumCPU()
	at := 1
	if t.plan.mode == modeTrial {
		at = len(t.paths) // at once
	}
	place := trial.Placement{Source: n - 1 - i%n}
	if !t.plan.closed && n >= 2*at && netdev.ThreadsVisible() {
		place.Polled = []trial.Polled{{Device: t.paths[i].Port, CPU: i % n}}
	}
	return place
}

// open makes the bench of the i-th path.
func (t *trafficRun) open(i int) (*trial.Bench, error) {
	b, err := openPathBench(t.bench, t.paths[i], trial.Options{
		Label: t.paths[i].label(), Placement: t.placement(i), Streams: t.plan.streamsOf(t.paths[i]),
		Warmup: t.plan.warmup,
		Limits: t.limits, Mark: t.plan.beyond, Watch: t.watch(), Seed: t.plan.seed,
		TimeEvery: t.plan.timeEvery, CheckEvery: t.plan.check,
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.paths[i].label(), err)
	}
	return b, nil
}

// measure does what the mode says.
func (t *trafficRun) measure(ctx context.Context) error {
	err := map[trafficMode]func(context.Context) error{
		modeTrial: t.trials, modeSearch: t.searchThroughput, modeBurst: t.backToBack, modeTCP: t.used(t.tcp),
		modePing: t.used(t.ping), modeConnections: t.used(t.connect), modeCompare: t.compare,
	}[t.plan.mode](ctx)
	if errors.Is(err, trial.ErrBeyond) {
		return refused(fmt.Errorf("%w; --beyond measures and marks it", err))
	}
	return err
}

// load is what each of so many pairs is offered.
func (p *trafficPlan) load(pairs int) trial.Load {
	l := trial.Load{Rate: p.fps / float64(pairs), Duration: p.duration}
	l.Exact = l.Rate > 0 && l.Rate <= exactUpTo
	return l
}

// trials sends between all pairs at once, as often as asked.
func (t *trafficRun) trials(ctx context.Context) error {
	benches := make([]*trial.Bench, len(t.paths))
	defer func() {
		for _, b := range benches {
			if b != nil {
				b.Close()
			}
		}
	}()
	for i := range t.paths {
		var err error
		if benches[i], err = t.open(i); err != nil {
			return err
		}
	}
	load := t.plan.load(len(t.paths))
	for n := range t.plan.repeat {
		t.progress("trial %d of %d", n+1, t.plan.repeat)
		got := make([]trial.Result, len(benches))
		errs := make([]error, len(benches))
		var all sync.WaitGroup
		for i, b := range benches {
			all.Go(func() { got[i], errs[i] = b.Run(ctx, load) })
		}
		all.Wait()
		if err := errors.Join(errs...); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return errs[firstError(errs)]
		}
		t.report.Trials = append(t.report.Trials, got...)
	}
	t.report.Usage = t.report.Trials[0].Usage
	return t.figures()
}

func firstError(errs []error) int {
	for i, err := range errs {
		if err != nil {
			return i
		}
	}
	return 0
}

// trialFigures are the quantities of repeated trials.
var trialFigures = []struct {
	name, unit string
	value      func(trial.Result) float64
}{
	{"offered", "frames/s", func(r trial.Result) float64 { return r.Offered }},
	{"received", "frames/s", func(r trial.Result) float64 { return r.Forwarded }},
	{"lost or not sent", "", func(r trial.Result) float64 { return r.LossRatio }},
	{"delay, median", "ns", func(r trial.Result) float64 { return float64(r.Delay.P50) }},
	{"delay, 99 %", "ns", func(r trial.Result) float64 { return float64(r.Delay.P99) }},
	{"delay, 99.99 %", "ns", func(r trial.Result) float64 { return float64(r.Delay.P9999) }},
}

// figures makes each quantity's figure from all trials, with its intervals.
func (t *trafficRun) figures() error {
	if t.plan.repeat < 2 {
		return nil
	}
	for _, path := range t.paths {
		for _, f := range trialFigures {
			own := each.That(t.report.Trials, func(r trial.Result) bool { return r.Label == path.label() })
			if err := t.figure(path.label(), f.name, f.unit, each.Of(own, f.value)); err != nil {
				return err
			}
		}
	}
	var control, steal []float64
	for _, r := range t.report.Trials {
		if r.Label == t.paths[0].label() {
			control, steal = append(control, r.Forwarded), append(steal, r.Usage.Steal())
		}
	}
	v := stats.Judge(control, steal, stats.Limits{})
	t.report.Verdict = &v
	return nil
}

func (t *trafficRun) figure(system, quantity, unit string, samples []float64) error {
	if len(samples) < 2 {
		return nil
	}
	f, err := results.NewFigure(system, quantity, unit, samples)
	if err != nil {
		return err
	}
	t.report.Figures = append(t.report.Figures, f)
	return nil
}
