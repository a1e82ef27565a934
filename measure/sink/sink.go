// Package sink receives measured frames: an XDP program on the device where they arrive counts them per stream – whole,
// lost, reordered, duplicated, corrupted – and keeps histograms of their delay and delay variation, for every frame, in
// the kernel.
package sink

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"net"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"

	"github.com/polyplane/polyplane/measure/frame"
	"github.com/polyplane/polyplane/measure/hist"
	"github.com/polyplane/polyplane/measure/netdev"
)

// MaxStreams is how many streams a sink tells apart.
const MaxStreams = 64

// maxQueues is the same as MAX_QUEUES in C.
const maxQueues = 64

// noRun is NO_RUN in C: what no frame can be of.
const noRun = 0x10000

// Options describe a sink.
type Options struct {
	Device netdev.Ref
	// the other end of the device's veth, if it is one: a full ring shows only in that one's counters
	Sender  netdev.Ref
	Streams int // 1…64
	// TimeEvery says which frames are timed: only those whose sequence number is a multiple of it, since reading the
	// clock is a quarter of what a frame costs here. It is a power of two; 0 means 1, every frame. Delay variation is
	// then that between consecutive timed frames (RFC 3393 calls this the selection function).
	TimeEvery int
	// CheckEvery says whose payload is summed up whole: frames whose sequence number is a multiple of it. Of the others
	// only the tag is checked, and the payload is believed. It is a power of two; 0 means 1, every frame. Headers are
	// not part of the payload.
	CheckEvery int
	// Window is how many sequence numbers back a late frame is still told from a duplicate; a power of two, 0 means
	// 65,536. Frames further behind make the result say that it is not exact.
	Window    int
	EtherType uint16 // of raw streams; 0 means 0x88b5
	// Generic attaches behind the driver instead of in it. It costs more, but also sees frames that never pass the
	// driver's ring, as those that bpf_redirect_peer delivers. State is then kept per CPU instead of per queue.
	Generic bool
	// Flows are those of each stream, within which order is expected. Where there are none, it is expected of the
	// stream as a whole: all its frames are one flow.
	Flows []frame.Flows
}

// MaxFlows is how many flows, of all streams, a sink tells apart; the same as MAX_FLOWS in C.
const MaxFlows = 1 << 16

// Sink is attached to its device until Close.
type Sink struct {
	o       Options
	queues  int
	objects programObjects
	link    link.Link
	before  drops
}

// drops are the devices' counters of what no program sees. A trial's drops are the difference of two readings.
type drops struct{ device, sender netdev.Drops }

// Open loads the program and attaches it, in the driver, to the device.
func Open(o Options) (*Sink, error) {
	o.TimeEvery = cmp.Or(o.TimeEvery, 1)
	o.CheckEvery = cmp.Or(o.CheckEvery, 1)
	o.Window = cmp.Or(o.Window, 1<<16)
	o.EtherType = cmp.Or(o.EtherType, 0x88b5)
	switch {
	case o.Streams < 1 || o.Streams > MaxStreams:
		return nil, fmt.Errorf("sink: %d streams; 1 to %d are possible", o.Streams, MaxStreams)
	case o.TimeEvery < 0 || bits.OnesCount(uint(o.TimeEvery)) != 1 || o.TimeEvery > 1<<20:
		return nil, fmt.Errorf("sink: every %dth frame timed; it must be a power of two", o.TimeEvery)
	case o.CheckEvery < 0 || bits.OnesCount(uint(o.CheckEvery)) != 1 || o.CheckEvery > 1<<20:
		return nil, fmt.Errorf("sink: every %dth payload checked; it must be a power of two", o.CheckEvery)
	case len(o.Flows) > o.Streams:
		return nil, fmt.Errorf("sink: flows of %d streams, and there are %d", len(o.Flows), o.Streams)
	case o.flows() > MaxFlows:
		return nil, fmt.Errorf("sink: %d flows; at most %d can be told apart", o.flows(), MaxFlows)
	case o.Window < 1024 || o.Window > 1<<28 || bits.OnesCount(uint(o.Window)) != 1:
		return nil, fmt.Errorf("sink: a window of %d; a power of two between 1,024 and 268,435,456 is needed", o.Window)
	}
	queues, err := netdev.Queues(o.Device)
	if err != nil {
		return nil, fmt.Errorf("sink: %w", err)
	}
	if o.Generic {
		if queues, err = ebpf.PossibleCPU(); err != nil {
			return nil, fmt.Errorf("sink: count the CPUs: %w", err)
		}
	}
	if queues > maxQueues {
		return nil, fmt.Errorf("sink: %v would need %d receive queues or CPUs counted apart, at most %d are possible",
			o.Device, queues, maxQueues)
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("sink: lift the locked-memory limit: %w", err)
	}
	s := &Sink{o: o, queues: queues}
	if err := s.load(); err != nil {
		return nil, err
	}
	if err := netdev.In(o.Device.Namespace, func() error {
		d, err := net.InterfaceByName(o.Device.Name)
		if err != nil {
			return err
		}
		mode := link.XDPDriverMode
		if o.Generic {
			mode = link.XDPGenericMode
		}
		s.link, err = link.AttachXDP(link.XDPOptions{Program: s.objects.Sink, Interface: d.Index, Flags: mode})
		return err
	}); err != nil {
		s.objects.Close()
		return nil, fmt.Errorf("sink: attach to %v: %w", o.Device, err)
	}
	return s, nil
}

// flows is how many are told apart.
func (o Options) flows() int {
	n := 0
	for _, f := range o.Flows {
		n += f.Count()
	}
	return n
}

// orders are the streams' flows as the program has them.
func (o Options) orders() (all [MaxStreams]programOrder) {
	at := 0
	for i, f := range o.Flows {
		all[i] = programOrder{Dst: f.First, Dsts: uint32(f.Destinations), Port: uint32(f.Port), Ports: uint32(f.Ports),
			At: uint32(at)}
		at += f.Count()
	}
	return all
}

// words is how many words of 32 sequence numbers a stream's window has.
func (s *Sink) words() int { return s.o.Window / 32 }

// load gives the program its constants and its maps their sizes, and loads it. What is a constant costs the program
// nothing: the verifier leaves out the code that it rules out.
func (s *Sink) load() error {
	spec, err := loadProgram()
	if err != nil {
		return fmt.Errorf("sink: read the program: %w", err)
	}
	byCPU, quick := uint32(0), uint32(0)
	if s.o.Generic {
		byCPU = 1
	}
	if s.quick() {
		quick = 1
	}
	for name, v := range map[string]any{
		"by_cpu":       byCPU,
		"quick":        quick,
		"check_mask":   uint32(max(s.o.CheckEvery, 1) - 1),
		"streams":      uint32(s.o.Streams),
		"queues":       uint32(s.queues),
		"time_mask":    uint32(s.o.TimeEvery - 1),
		"window_shift": uint32(bits.TrailingZeros(uint(s.words()))),
		"raw_type":     networkOrder(s.o.EtherType),
		"orders":       s.o.orders(),
	} {
		if err := spec.Variables[name].Set(v); err != nil {
			return fmt.Errorf("sink: set %s: %w", name, err)
		}
	}
	if err := spec.Variables["filler_sum"].Set(frame.FillerSums()); err != nil {
		return fmt.Errorf("sink: write the filler's sums: %w", err)
	}
	spec.Maps["flows"].MaxEntries = uint32(s.queues * s.o.Streams)
	spec.Maps["windows"].MaxEntries = uint32(s.o.Streams * s.words())
	if err := spec.LoadAndAssign(&s.objects, nil); err != nil {
		return fmt.Errorf("sink: load the program: %w", err)
	}
	return nil
}

// quickEvery is one more than QUICK_MASK in C.
const quickEvery = 64

// quick tells whether frames that come one after the other can be counted by moving the end of a run.
func (s *Sink) quick() bool {
	return s.queues == 1 && s.o.TimeEvery >= quickEvery && s.o.CheckEvery >= quickEvery
}

func networkOrder(v uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], v)
	return binary.NativeEndian.Uint16(b[:])
}

// Close detaches the sink.
func (s *Sink) Close() error { return errors.Join(s.link.Close(), s.objects.Close()) }

// Program is what the kernel runs, for its run-time statistics.
func (s *Sink) Program() *ebpf.Program { return s.objects.Sink }

// Start clears everything and counts frames of the given run (not 0) from now on. The order matters: first no run
// counts, then everything is cleared, and the run is set last. So no late frame of the run before is counted in this
// one.
func (s *Sink) Start(run uint16) error {
	if run == 0 {
		return errors.New("sink: run 0 is no run; number them from 1")
	}
	if err := s.setRun(noRun); err != nil { // nothing counts while the rest is cleared
		return err
	}
	if err := s.objects.Runs.Set([MaxStreams]programRun{}); err != nil {
		return fmt.Errorf("sink: clear the runs: %w", err)
	}
	for i := range s.queues * s.o.Streams {
		if err := s.objects.Flows.Put(uint32(i), new(programFlow)); err != nil {
			return fmt.Errorf("sink: clear stream %d: %w", i%s.o.Streams, err)
		}
	}
	n := s.o.Streams * s.words()
	keys := make([]uint32, n)
	for i := range keys {
		keys[i] = uint32(i)
	}
	if _, err := s.objects.Windows.BatchUpdate(keys, make([]uint64, n), nil); err != nil {
		return fmt.Errorf("sink: clear the windows: %w", err)
	}
	if err := s.objects.Heads.Set(make([]uint32, MaxFlows)); err != nil {
		return fmt.Errorf("sink: clear the flows: %w", err)
	}
	var err error
	if s.before, err = s.drops(); err != nil {
		return err
	}
	return s.setRun(uint32(networkOrder(run)))
}

// setRun sets the run that counts, and clears the totals in the same write.
func (s *Sink) setRun(run uint32) error {
	var all [maxQueues]programTotals
	for q := range all {
		all[q].Run = run
	}
	if err := s.objects.TotalsOf.Set(all); err != nil {
		return fmt.Errorf("sink: clear the totals: %w", err)
	}
	return nil
}

func (s *Sink) drops() (d drops, err error) {
	if d.device, err = netdev.ReadDrops(s.o.Device); err != nil {
		return d, fmt.Errorf("sink: %w", err)
	}
	if s.o.Sender.Name != "" {
		if d.sender, err = netdev.ReadDrops(s.o.Sender); err != nil {
			return d, fmt.Errorf("sink: %w", err)
		}
	}
	return d, nil
}

// count reads a stream of one queue, and adds what a run of it still holds. The run is read after the flow: what moves
// from one to the other in between is missed, and never counted twice.
func (s *Sink) count(queue, stream int, f *programFlow) error {
	if err := s.objects.Flows.Lookup(uint32(queue*s.o.Streams+stream), f); err != nil {
		return fmt.Errorf("sink: read stream %d: %w", stream, err)
	}
	if !s.quick() {
		return nil
	}
	var runs [MaxStreams]programRun
	if err := s.objects.Runs.Get(&runs); err != nil {
		return fmt.Errorf("sink: read the run of stream %d: %w", stream, err)
	}
	r := runs[stream]
	n := r.Next - uint64(r.Start)
	if r.Start == 0 || n == 0 {
		return nil
	}
	f.Frames += n
	f.Bytes += r.Bytes + n*frame.FCS
	f.Next = r.Next
	return nil
}

// arrived is every measured frame so far, whatever its fate.
func (s *Sink) arrived() (uint64, error) {
	n := uint64(0)
	f := new(programFlow)
	for q := range s.queues {
		for i := range s.o.Streams {
			if err := s.count(q, i, f); err != nil {
				return 0, err
			}
			n += f.Frames + f.Corrupted
		}
	}
	return n, nil
}

// Settle waits until as many frames arrived as were sent, or until none came for the quiet time: what is still missing
// then is lost.
func (s *Sink) Settle(ctx context.Context, sent uint64, quiet time.Duration) error {
	last, since := uint64(0), time.Now()
	for {
		n, err := s.arrived()
		if err != nil || n >= sent {
			return err
		}
		if n != last {
			last, since = n, time.Now()
		} else if time.Since(since) >= quiet {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(quiet/8, 20*time.Millisecond)):
		}
	}
}

// Stream is what arrived of one stream.
type Stream struct {
	Frames     uint64               `json:"frames"` // whole ones, duplicates included
	Bytes      uint64               `json:"bytes"`  // of these, check sequences included
	Unique     uint64               `json:"unique"` // whole ones, each counted once
	Duplicated uint64               `json:"duplicated"`
	Reordered  uint64               `json:"reordered"` // RFC 4737: arrived after one of its flow that was sent later
	Extent     uint64               `json:"extent"`    // how many frames of the stream behind the furthest of these came
	Strange    uint64               `json:"strange"`   // with an address or port that was not sent: order unknown
	Corrupted  uint64               `json:"corrupted"` // the payload's checksum fails
	TooOld     uint64               `json:"too_old"`   // further behind than the window
	Early      uint64               `json:"early"`     // arrived before they were sent, by the clocks
	Next       uint64               `json:"next"`      // the sequence number after the highest that arrived
	Spread     time.Duration        `json:"spread"`    // from the first timed frame to the last
	Delay      *hist.Histogram      `json:"-"`
	Variation  hist.VariationDigest `json:"variation"`
}

// Lost is how many of the frames sent are accounted for in no other way. A corrupted frame is not lost.
func (s Stream) Lost(sent uint64) uint64 {
	if got := s.Unique + s.Corrupted + s.TooOld; got < sent {
		return sent - got
	}
	return 0
}

// Report is what a sink saw.
type Report struct {
	Streams   []Stream `json:"streams"`
	Foreign   uint64   `json:"foreign"`   // frames that are not of this run; they went on to the network stack
	Corrupted uint64   `json:"corrupted"` // measured frames too damaged to tell their stream
	// frames that reached the sink's device and had no room in it: its fault, not the path's
	Overrun uint64 `json:"overrun"`
	// receive queues (CPUs in the generic hook); with several, order is only known within each
	Queues int `json:"queues"`
	// Doubts says in words why the counts may be wrong; empty when they are exact.
	Doubts []string `json:"doubts,omitempty"`
}

// Report reads everything that was counted since Start.
func (s *Sink) Report() (Report, error) {
	r := Report{Queues: s.queues}
	failed := uint64(0)
	var totals [maxQueues]programTotals
	if err := s.objects.TotalsOf.Get(&totals); err != nil {
		return r, fmt.Errorf("sink: read the totals: %w", err)
	}
	for _, t := range totals[:s.queues] {
		r.Foreign += t.Foreign
		r.Corrupted += t.Corrupted
		failed += t.Failed
	}
	var old, early, strange uint64
	for i := range s.o.Streams {
		st, err := s.stream(i)
		if err != nil {
			return r, err
		}
		old += st.TooOld
		early += st.Early
		strange += st.Strange
		r.Streams = append(r.Streams, st)
	}
	now, err := s.drops()
	if err != nil {
		return r, err
	}
	r.Overrun = now.device.Sub(s.before.device).Received + now.sender.Sub(s.before.sender).Sent
	doubt := func(n uint64, format string) {
		if n > 0 {
			r.Doubts = append(r.Doubts, fmt.Sprintf(format, n))
		}
	}
	doubt(r.Overrun, "the sink was overrun: %d frames reached its device and had no room in its ring")
	doubt(old, "%d frames came later than the window of sequence numbers reaches back; some may be duplicates")
	doubt(strange, "%d frames arrived with another address or port than they were sent with: whether they were "+
		"reordered is not known")
	doubt(early, "%d frames arrived before they were sent: the clocks of source and sink differ")
	doubt(failed, "the sink could not look at %d frames")
	return r, nil
}

// stream merges one stream over the queues.
func (s *Sink) stream(i int) (Stream, error) {
	st := Stream{Delay: new(hist.Histogram)}
	var v hist.Variation
	var first, last uint64
	for q := range s.queues {
		f := new(programFlow)
		if err := s.count(q, i, f); err != nil {
			return st, err
		}
		st.Frames += f.Frames
		st.Bytes += f.Bytes
		st.Unique += f.Frames - f.Duplicated - f.TooOld
		st.Duplicated += f.Duplicated
		st.Reordered += f.Reordered
		st.Corrupted += f.Corrupted
		st.TooOld += f.TooOld
		st.Early += f.Early
		st.Strange += f.Strange
		st.Extent = max(st.Extent, f.Extent)
		st.Next = max(st.Next, f.Next)
		if f.First > 0 && (first == 0 || f.First < first) {
			first = f.First
		}
		last = max(last, f.Last)
		delay, err := histogram(&f.Delay)
		if err != nil {
			return st, fmt.Errorf("sink: delays of stream %d: %w", i, err)
		}
		st.Delay.Merge(delay)
		abs, err := histogram(&f.Ipdv)
		if err != nil {
			return st, fmt.Errorf("sink: delay variation of stream %d: %w", i, err)
		}
		v.Merge(hist.Variation{Abs: *abs, Sum: f.IpdvSum, Longer: f.Longer, Shorter: f.Shorter,
			Jitter: f.Jitter, MaxJ: f.MaxJitter})
	}
	st.Spread = time.Duration(last - first)
	st.Variation = v.Digest()
	return st, nil
}

func histogram(h *programHistogram) (*hist.Histogram, error) {
	return hist.Load(hist.Sums{Count: h.Count, Over: h.Over, Min: h.Min - min(h.Min, 1), Max: h.Max, Sum: h.Sum,
		SquareL: h.SquareLow, SquareH: h.SquareHigh}, h.Bucket[:])
}

var _ = [1]struct{}{}[len(programHistogram{}.Bucket)-hist.Buckets] // the two layouts have as many buckets
