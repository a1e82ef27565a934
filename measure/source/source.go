// Package source sends measured frames: several streams at once, each with its own rate, sizes and destinations, from
// an eBPF program that the kernel runs as live XDP frames (BPF_PROG_TEST_RUN), or from a packet socket where the kernel
// lacks that.
package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/polyplane/polyplane/measure/frame"
	"github.com/polyplane/polyplane/measure/netdev"
)

// The limits of a source.
const (
	MaxStreams = 64
	// MaxFrames is how many frames one stream sends at most: sequence numbers do not wrap.
	MaxFrames = math.MaxUint32
)

// Stream is frames of one shape at one rate.
type Stream struct {
	Headers      frame.Headers
	Sizes        frame.Sizes
	Destinations []netip.Addr // of IP streams; see Destinations
	InOrder      bool         // destinations one after the other instead of at random
	SourcePort   uint16       // first UDP source port; 0 means 1024
	SourcePorts  int          // how many of them; flows are destinations × source ports. 0 means 1
	Rate         float64      // frames/s; 0 means as fast as the CPU goes
	Poisson      bool         // exponential gaps instead of constant ones
	Count        uint64       // stop after so many frames; 0 means when the time is over
}

// Options describe one run.
type Options struct {
	Device   netdev.Ref
	Streams  []Stream
	Duration time.Duration // up to 24 hours
	Run      uint16        // tells this run's frames from strays of another; the sink needs the same
	CPU      int           // the CPU to send from; negative: any
	// frames per kernel batch, 1…256; 0: 256 when a stream is unpaced, else 8. The smaller the more exact in time
	Batch      int
	ClockEvery int // read the clock at least every so many frames; 0: 64 when a stream is unpaced, else 1
	// KeepPayload leaves in a frame the payload that the kernel put into its page when it made the page, instead of
	// writing it again for every frame. Frames of 512 bytes and more then leave up to twice as fast. But pages come
	// back as their last user left them, so damage done to one stays. It needs streams whose headers are of one length,
	// and is ignored for others.
	KeepPayload bool
	// if not nil: called on the thread that sends, before it does; a packet socket's does not call it
	Thread func(tid int)
	Seed   uint64 // of sizes, destinations, and Poisson gaps
}

// Destinations lists n addresses from the first on.
func Destinations(first netip.Addr, n int) []netip.Addr {
	out := make([]netip.Addr, 0, n)
	for a := first; len(out) < n && a.IsValid(); a = a.Next() {
		out = append(out, a)
	}
	return out
}

// Validate names what is wrong with the options.
func (o Options) Validate() error {
	switch {
	case len(o.Streams) == 0 || len(o.Streams) > MaxStreams:
		return fmt.Errorf("source: %d streams; 1 to %d are possible", len(o.Streams), MaxStreams)
	case o.Duration <= 0 || o.Duration > 24*time.Hour:
		return fmt.Errorf("source: a duration of %v; it must be above 0 and at most 24 hours", o.Duration)
	case o.Batch < 0 || o.Batch > 256:
		return fmt.Errorf("source: a batch of %d; 1 to 256 are possible", o.Batch)
	case o.ClockEvery < 0:
		return fmt.Errorf("source: a clock reading every %d frames", o.ClockEvery)
	}
	for i, s := range o.Streams {
		if err := s.validate(o.Duration); err != nil {
			return fmt.Errorf("source: stream %d: %w", i, err)
		}
	}
	return nil
}

func (s Stream) validate(d time.Duration) error {
	if err := s.Headers.Validate(); err != nil {
		return err
	}
	if err := s.Sizes.Validate(s.Headers.Kind); err != nil {
		return err
	}
	if s.Headers.Kind != frame.Raw && len(s.Destinations) == 0 {
		return errors.New("no destination")
	}
	for _, a := range s.Destinations {
		if (s.Headers.Kind == frame.IPv4) != a.Is4() {
			return fmt.Errorf("destination %v of an %v stream", a, s.Headers.Kind)
		}
	}
	if s.SourcePorts < 0 || int(s.firstPort())+s.ports()-1 > 65535 {
		return fmt.Errorf("%d source ports from %d on; ports end at 65535", s.SourcePorts, s.firstPort())
	}
	if !(s.Rate >= 0) || s.Rate > 1e9 {
		return fmt.Errorf("a rate of %v frames/s; 0 (as fast as possible) to 1e9", s.Rate)
	}
	if s.Rate*d.Seconds() > MaxFrames || s.Count > MaxFrames {
		return fmt.Errorf("more than %d frames; sequence numbers would wrap", uint64(MaxFrames))
	}
	return nil
}

func (s Stream) firstPort() uint16 {
	return cmp.Or(s.SourcePort, 1024)
}

func (s Stream) ports() int { return max(s.SourcePorts, 1) }

// Flows are what the stream's frames are sent in. ok is false if its destinations are not in a row: then nobody can say
// of an address which of them it is.
func (s Stream) Flows() (f frame.Flows, ok bool) {
	if s.Headers.Kind == frame.Raw || len(s.Destinations) <= 1 && s.ports() == 1 {
		return frame.Flows{}, true
	}
	first, ok := row(s.Destinations)
	return frame.Flows{First: first, Destinations: len(s.Destinations), Port: s.firstPort(), Ports: s.ports()}, ok
}

func (o Options) paced() bool {
	return !slices.ContainsFunc(o.Streams, func(s Stream) bool { return s.Rate == 0 })
}

// StreamReport is what a stream sent.
type StreamReport struct {
	Intended uint64        `json:"intended"` // frames due within the duration; for unpaced streams what was sent
	Sent     uint64        `json:"sent"`
	Bytes    uint64        `json:"bytes"`    // check sequences included
	Late     uint64        `json:"late"`     // frames that left more than 100 µs after they were due
	LateMax  time.Duration `json:"late_max"` // by how much the worst of these
	// the most of these in a row: they leave at up to four times the rate until it is caught up with
	Burst uint64 `json:"burst"`
}

// Report is what a run sent.
type Report struct {
	Method  string         `json:"method"` // "xdp-live-frames" or "packet-socket"
	Streams []StreamReport `json:"streams"`
	Start   uint64         `json:"start_ns"` // CLOCK_MONOTONIC
	Elapsed time.Duration  `json:"elapsed"`  // from the first frame to the last
	Idle    uint64         `json:"idle"`     // turns in which no frame was due: 0 means that the source was the limit
	CPU     time.Duration  `json:"cpu"`      // time that the sending thread used, receiving in a closed loop included
	Waited  time.Duration  `json:"waited"`   // time that it could have used, and others had
	// frames that the device under test's receive ring had no room for; Sent counts them
	Refused netdev.Drops `json:"refused"`
}

// Sent is the frames of all streams.
func (r Report) Sent() uint64 {
	n := uint64(0)
	for _, s := range r.Streams {
		n += s.Sent
	}
	return n
}

// Intended is the frames that all streams should have sent.
func (r Report) Intended() uint64 {
	n := uint64(0)
	for _, s := range r.Streams {
		n += s.Intended
	}
	return n
}

// Rate is the frames per second really offered.
func (r Report) Rate() float64 {
	if r.Elapsed <= 0 {
		return 0
	}
	return float64(r.Sent()) / r.Elapsed.Seconds()
}

// Source sends. It is made for one run.
type Source interface {
	// Run sends until the duration is over, every count is reached, or the context ends.
	Run(ctx context.Context) (Report, error)
	Close() error
}

// ErrNoLiveFrames says that the kernel cannot run XDP programs as live frames (it needs 5.18).
var ErrNoLiveFrames = errors.New("the kernel has no live XDP frames (they need Linux 5.18)")

// Open makes a source: live XDP frames, or a packet socket where the kernel or the device lacks them.
func Open(o Options) (Source, error) {
	x, err := OpenXDP(o)
	if err == nil {
		return x, nil
	}
	if !errors.Is(err, ErrNoLiveFrames) {
		return nil, err
	}
	return OpenPacket(o)
}

// late is how far behind its due time a frame may leave without being counted as late.
const late = 100 * time.Microsecond

// intended completes a count of frames sent by the ones that were due until the end and never left; due is when the
// next one was to leave.
func intended(s Stream, sent uint64, due, until time.Duration) uint64 {
	if s.Rate == 0 || due >= until {
		return sent
	}
	n := sent + uint64(math.Ceil((until-due).Seconds()*s.Rate-1e-6))
	if s.Count > 0 {
		n = min(n, s.Count)
	}
	return n
}
