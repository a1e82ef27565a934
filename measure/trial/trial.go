// Package trial runs measurements: it places source, receive threads and sink on CPUs, warms up, sends, waits for the
// last frame, and hands back what was offered and received together with everything that could have spoilt it. A Bench
// is a search.Device.
package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/polyplane/polyplane/measure/frame"
	"github.com/polyplane/polyplane/measure/hist"
	"github.com/polyplane/polyplane/measure/machine"
	"github.com/polyplane/polyplane/measure/netdev"
	"github.com/polyplane/polyplane/measure/search"
	"github.com/polyplane/polyplane/measure/sink"
	"github.com/polyplane/polyplane/measure/source"
)

// Path is where frames enter what is measured, and where they come out.
type Path struct {
	From   netdev.Ref `json:"from"`   // the source sends out of this device
	To     netdev.Ref `json:"to"`     // the sink receives on this one
	Before netdev.Ref `json:"before"` // the other end of To's veth, where a full ring shows; empty if To is no veth
}

// Placement says which CPU does what.
type Placement struct {
	Source int      `json:"source"`           // CPU that sends; negative: any
	Polled []Polled `json:"polled,omitempty"` // devices that get a receive thread of their own
}

// Polled is a device whose frames are received by a thread of its own on one CPU. Otherwise they are received on the
// CPU that sends them: a closed loop, in which the source waits for the device under test, and nothing is ever lost.
type Polled struct {
	Device netdev.Ref `json:"device"`
	CPU    int        `json:"cpu"`
}

// Open tells whether the loop is open, so that loss is possible and a throughput search means something.
func (p Placement) Open() bool {
	return slices.ContainsFunc(p.Polled, func(q Polled) bool { return p.Source >= 0 && q.CPU != p.Source })
}

// Limits are what source and sink can do on this machine without anything between them; a self-test finds them.
type Limits struct {
	Rate     float64       `json:"rate"`     // most frames/s, of the smallest frame
	Accuracy float64       `json:"accuracy"` // largest relative error of a paced rate
	Floor    time.Duration `json:"floor"`    // median delay with nothing in between
}

// ErrBeyond says that a trial asks for more than source and sink can do here.
var ErrBeyond = errors.New("beyond what source and sink can do on this machine")

// Options describe a bench.
type Options struct {
	Label     string
	Path      Path
	Placement Placement
	Streams   []source.Stream // their rates are shares of a trial's rate; all 0 means equal shares
	TimeEvery int             // see sink.Options
	// CheckEvery: see sink.Options. Above 1 the source does not write the payload of every frame either. Damage done to
	// a page may then show in several frames, so corruption is found but not counted exactly.
	CheckEvery int
	Generic    bool          // see sink.Options
	Warmup     time.Duration // traffic before every trial that is not counted
	Quiet      time.Duration // how long nothing must arrive before missing frames are lost; 0: 200 ms
	Limits     *Limits       // of a self-test here; nil: unknown
	Mark       bool          // mark trials beyond the limits instead of refusing them
	Watch      machine.Watch // what CPU time to account for besides the cores
	Batch      int           // see source.Options
	Seed       uint64
}

// Bench is a path under measurement; the sink stays attached until Close.
type Bench struct {
	o         Options
	sink      *sink.Sink
	run       uint16
	threaded  []netdev.Ref
	receive   []int // the receive threads
	disturbed int
	unordered string // why order is not counted flow by flow
	stats     io.Closer
}

// Open places the receive threads and attaches the sink.
func Open(o Options) (*Bench, error) {
	if len(o.Streams) == 0 {
		return nil, errors.New("trial: no stream")
	}
	o.Quiet = cmp.Or(o.Quiet, 200*time.Millisecond)
	b := &Bench{o: o}
	var flows []frame.Flows
	var err error
	flows, b.unordered = orders(o.Streams)
	b.sink, err = sink.Open(sink.Options{Device: o.Path.To, Sender: o.Path.Before, Streams: len(o.Streams),
		TimeEvery: o.TimeEvery, CheckEvery: o.CheckEvery, Generic: o.Generic, Flows: flows})
	if err != nil {
		return nil, fmt.Errorf("trial: %w", err)
	}
	if len(o.Watch.Programs) > 0 {
		if b.stats, err = ebpf.EnableStats(0); err != nil { // BPF_STATS_RUN_TIME
			b.Close()
			return nil, fmt.Errorf("trial: switch on run-time statistics of eBPF programs: %w", err)
		}
	}
	for _, p := range o.Placement.Polled {
		pids, err := netdev.SetThreaded(p.Device, true)
		if err != nil {
			b.Close()
			return nil, fmt.Errorf("trial: %w", err)
		}
		b.threaded = append(b.threaded, p.Device)
		if len(pids) == 0 {
			b.Close()
			return nil, fmt.Errorf("trial: %v has no receive thread; its NAPI is not running (switch GRO on)", p.Device)
		}
		for _, pid := range pids {
			if err := errors.Join(netdev.PinThread(pid, p.CPU), netdev.First(pid)); err != nil {
				b.Close()
				return nil, fmt.Errorf("trial: receive thread of %v: %w", p.Device, err)
			}
		}
		b.receive = append(b.receive, pids...)
		b.o.Watch.Threads = append(b.o.Watch.Threads, pids...)
	}
	return b, nil
}

// orders are the streams' flows. If they cannot be told apart, order is that of each stream as a whole, and why says
// so.
func orders(streams []source.Stream) (flows []frame.Flows, why string) {
	all := 0
	for i, s := range streams {
		f, ok := s.Flows()
		if !ok {
			why = fmt.Sprintf("the destinations of stream %d are not in a row", i)
		}
		flows = append(flows, f)
		all += f.Count()
	}
	if all > sink.MaxFlows {
		why = fmt.Sprintf("%d flows are more than the %d that can be told apart", all, sink.MaxFlows)
	}
	if why != "" {
		return nil, "reordered frames are those of all flows together, which say nothing where flows go different " +
			"ways: " + why
	}
	return flows, ""
}

// Close detaches the sink and takes the receive threads back.
func (b *Bench) Close() error {
	var errs []error
	for _, d := range b.threaded {
		_, err := netdev.SetThreaded(d, false)
		errs = append(errs, err)
	}
	if b.stats != nil {
		errs = append(errs, b.stats.Close())
	}
	return errors.Join(append(errs, b.sink.Close())...)
}

// Watch is what CPU time is accounted for, the bench's own receive threads included.
func (b *Bench) Watch() machine.Watch { return b.o.Watch }

// Load is what one trial offers.
type Load struct {
	Rate     float64       // frames/s of all streams together; 0: as fast as the source goes
	Duration time.Duration // of the trial, without warm-up
	Count    uint64        // frames of each stream at most; 0: no limit
	Exact    bool          // send frame by frame: the delay of each is its own, not that of a batch
}

// Stream is one stream of a result.
type Stream struct {
	source.StreamReport
	Got  sink.Stream `json:"got"`
	Lost uint64      `json:"lost"`
	// Delay is in nanoseconds.
	Delay hist.Digest `json:"delay"`
}

// Result is one trial.
type Result struct {
	Label      string        `json:"label,omitempty"`
	Start      time.Time     `json:"start"`
	Rate       float64       `json:"rate"`     // asked for, frames/s; 0: as fast as possible
	Duration   time.Duration `json:"duration"` // asked for
	Elapsed    time.Duration `json:"elapsed"`  // the source's
	Intended   uint64        `json:"intended"`
	Sent       uint64        `json:"sent"`
	Received   uint64        `json:"received"` // whole, each counted once
	Lost       uint64        `json:"lost"`
	Duplicated uint64        `json:"duplicated"`
	Reordered  uint64        `json:"reordered"`
	Corrupted  uint64        `json:"corrupted"`
	Refused    uint64        `json:"refused"`    // of the lost ones, those that the first ring had no room for
	Overrun    uint64        `json:"overrun"`    // of the lost ones, those that the sink itself had no room for
	Offered    float64       `json:"offered"`    // frames/s
	Forwarded  float64       `json:"forwarded"`  // frames/s
	LossRatio  float64       `json:"loss_ratio"` // (lost + not sent) / intended
	BitRate    float64       `json:"bit_rate"`   // received, bit/s, check sequences included
	Delay      hist.Digest   `json:"delay"`      // of all streams
	// time that the sending thread used; in a closed loop all of the path is in it
	SourceCPU time.Duration `json:"source_cpu"`
	// the longest that the sending or a receiving thread could have run while others had its core
	Waited     time.Duration   `json:"waited"`
	Streams    []Stream        `json:"streams"`
	Usage      machine.Usage   `json:"usage"`
	Placement  Placement       `json:"placement"`
	TimeEvery  int             `json:"time_every"`      // frames whose sequence number is a multiple of it were timed
	CheckEvery int             `json:"check_every"`     // … and had their whole payload checked
	Marks      []string        `json:"marks,omitempty"` // why not to trust this trial; empty is good
	Histogram  *hist.Histogram `json:"histogram,omitempty"`
}

// MaxSteal is the share of a core's time that the hypervisor may take before a trial is marked.
const MaxSteal = 0.02

// MaxWait is the share of a trial that its threads may wait for their cores before it is marked.
const MaxWait = 0.05

// Disturbed tells whether others had the cores too long: such a trial says little of what is measured.
func (r Result) Disturbed() bool {
	return r.Elapsed > 0 && float64(r.Waited) > MaxWait*float64(r.Elapsed)
}

// Run does one trial: a warm-up that is not counted, then the load between two readings of CPU time.
func (b *Bench) Run(ctx context.Context, l Load) (Result, error) {
	res := Result{Label: b.o.Label, Start: time.Now().UTC(), Rate: l.Rate, Duration: l.Duration,
		Placement: b.o.Placement, TimeEvery: max(b.o.TimeEvery, 1), CheckEvery: max(b.o.CheckEvery, 1)}
	if err := b.check(l, &res); err != nil {
		return res, err
	}
	if b.o.Warmup > 0 {
		warm := l
		warm.Duration, warm.Count = b.o.Warmup, 0
		if _, _, err := b.send(ctx, warm); err != nil {
			return res, fmt.Errorf("trial: warm-up: %w", err)
		}
	}
	before, err := b.o.Watch.Read()
	if err != nil {
		return res, fmt.Errorf("trial: %w", err)
	}
	sent, got, err := b.send(ctx, l)
	if err != nil {
		return res, fmt.Errorf("trial: %w", err)
	}
	after, err := b.o.Watch.Read()
	if err != nil {
		return res, fmt.Errorf("trial: %w", err)
	}
	res.Usage = after.Sub(before)
	res.fill(sent, got)
	if b.unordered != "" && res.Reordered > 0 {
		res.mark("%s", b.unordered)
	}
	res.Waited = sent.Waited
	for _, t := range res.Usage.Threads {
		if slices.Contains(b.receive, t.PID) {
			res.Waited = max(res.Waited, t.Wait)
		}
	}
	if res.Disturbed() {
		res.mark("others had the cores of source or receiver for %.1f %% of the time",
			100*float64(res.Waited)/float64(res.Elapsed))
	}
	if s := res.Usage.Steal(); s > MaxSteal {
		res.mark("the hypervisor took %.1f %% of a core's time", s*100)
	}
	return res, nil
}

// check refuses or marks a load beyond what the self-test reached.
func (b *Bench) check(l Load, res *Result) error {
	if lim := b.o.Limits; lim != nil && l.Rate > lim.Rate {
		if !b.o.Mark {
			return fmt.Errorf("trial: %.0f frames/s are %w: the self-test reached %.0f", l.Rate, ErrBeyond, lim.Rate)
		}
		res.mark("%.0f frames/s are %v: the self-test reached %.0f", l.Rate, ErrBeyond, lim.Rate)
	}
	return nil
}

func (r *Result) mark(format string, a ...any) { r.Marks = append(r.Marks, fmt.Sprintf(format, a...)) }

// streams gives each stream its share of a rate.
func (b *Bench) streams(l Load) []source.Stream {
	total := 0.0
	for _, s := range b.o.Streams {
		total += s.Rate
	}
	out := make([]source.Stream, len(b.o.Streams))
	for i, s := range b.o.Streams {
		share := 1 / float64(len(out))
		if total > 0 {
			share = s.Rate / total
		}
		s.Rate, s.Count = l.Rate*share, l.Count
		out[i] = s
	}
	return out
}

// send sends a load once, with a run's number of its own, so that late frames of another are not taken for its. The
// sink starts before the source, and is read when it has settled.
func (b *Bench) send(ctx context.Context, l Load) (source.Report, sink.Report, error) {
	b.run = b.run%65535 + 1
	o := source.Options{Device: b.o.Path.From, Streams: b.streams(l), Duration: l.Duration, Run: b.run,
		CPU: b.o.Placement.Source, Batch: b.o.Batch, KeepPayload: b.o.CheckEvery > 1, Seed: b.o.Seed + uint64(b.run)}
	if l.Exact {
		o.Batch, o.ClockEvery = 1, 1
	}
	src, err := source.Open(o)
	if err != nil {
		return source.Report{}, sink.Report{}, err
	}
	defer src.Close()
	if err := b.sink.Start(b.run); err != nil {
		return source.Report{}, sink.Report{}, err
	}
	sent, err := src.Run(ctx)
	if err != nil {
		return sent, sink.Report{}, err
	}
	if err := b.sink.Settle(ctx, sent.Sent()-min(sent.Refused.Sent, sent.Sent()), b.o.Quiet); err != nil {
		return sent, sink.Report{}, err
	}
	got, err := b.sink.Report()
	return sent, got, err
}

// fill puts together what the source and the sink have counted. Every frame is accounted for once: a corrupted one has
// arrived, one that the sink had no room for is its fault and not the path's.
func (r *Result) fill(sent source.Report, got sink.Report) {
	all := new(hist.Histogram)
	bytes := uint64(0)
	for i, s := range sent.Streams {
		g := got.Streams[i]
		all.Merge(g.Delay)
		bytes += g.Bytes
		lost := g.Lost(s.Sent)
		r.Streams = append(r.Streams, Stream{StreamReport: s, Got: g, Lost: lost, Delay: g.Delay.Digest()})
		r.Received += g.Unique
		r.Duplicated += g.Duplicated
		r.Reordered += g.Reordered
		r.Corrupted += g.Corrupted
		r.Lost += lost
	}
	r.Corrupted += got.Corrupted
	r.Lost -= min(got.Corrupted, r.Lost) // these arrived, whatever stream they were of
	r.Intended, r.Sent, r.Elapsed, r.Refused = sent.Intended(), sent.Sent(), sent.Elapsed,
		min(sent.Refused.Sent, r.Lost)
	r.Overrun = min(got.Overrun, r.Lost-r.Refused) // back to back, the first ring is the sink's: counted once
	r.Offered, r.SourceCPU = sent.Rate(), sent.CPU
	if r.Elapsed > 0 {
		r.Forwarded = float64(r.Received) / r.Elapsed.Seconds()
		r.BitRate = float64(bytes) * 8 / r.Elapsed.Seconds()
	}
	r.LossRatio = r.Trial().LossRatio()
	r.Delay, r.Histogram = all.Digest(), all
	r.Marks = append(r.Marks, got.Doubts...)
	if r.Sent*100 < r.Intended*99 {
		r.mark("the source fell short: %d of %d frames were sent", r.Sent, r.Intended)
	}
	if r.Corrupted > 0 && r.CheckEvery > 1 {
		r.mark("the payload of every %dth frame only was checked: some are corrupted, how many is not known",
			r.CheckEvery)
	}
	if sent.Method != "xdp-live-frames" {
		r.mark("sent by a packet socket, which is slower and less exact than live XDP frames")
	}
}

// Trial is the result as a throughput search wants it.
func (r Result) Trial() search.Trial {
	return search.Trial{Rate: r.Rate, Duration: r.Duration, Intended: r.Intended, Sent: r.Sent, Received: r.Received}
}

// Tries is how often a disturbed trial of a search is done at most.
const Tries = 3

// Trial implements search.Device. A trial during which others had the cores is done again; of three such ones the least
// disturbed counts, and is counted by Disturbed.
func (b *Bench) Trial(ctx context.Context, rate float64, d time.Duration) (search.Trial, error) {
	var best Result
	for i := range Tries {
		r, err := b.Run(ctx, Load{Rate: rate, Duration: d})
		if err != nil {
			return r.Trial(), err
		}
		if i == 0 || r.Waited < best.Waited {
			best = r
		}
		if !best.Disturbed() {
			return best.Trial(), nil
		}
	}
	b.disturbed++
	return best.Trial(), nil
}

// Disturbed is how many trials of a search count although others had the cores for more than MaxWait of their time.
func (b *Bench) Disturbed() int { return b.disturbed }

var _ search.Device = (*Bench)(nil)
