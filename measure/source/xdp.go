package source

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/measure/frame"
	"github.com/polyplane/polyplane/measure/netdev"
)

// XDP is the source that runs as live XDP frames.
type XDP struct {
	o       Options
	objects programObjects
	room    int // bytes of the frames that the kernel hands to the program
}

// OpenXDP loads the program and its streams. The device must be able to transmit XDP frames (a veth whose peer runs
// NAPI: GRO on, or an XDP program there).
func OpenXDP(o Options) (*XDP, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("source: lift the locked-memory limit: %w", err)
	}
	if o.Batch == 0 {
		o.Batch = 8
		if !o.paced() {
			o.Batch = 256
		}
	}
	if o.ClockEvery == 0 {
		o.ClockEvery = 1
		if !o.paced() {
			o.ClockEvery = 64
		}
	}
	spec, err := loadProgram()
	if err != nil {
		return nil, fmt.Errorf("source: read the program: %w", err)
	}
	addresses := 0
	for _, s := range o.Streams {
		addresses += len(s.Destinations)
	}
	spec.Maps["destinations"].MaxEntries = uint32(max(addresses, 1))
	if err := constants(o, spec); err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	x := &XDP{o: o}
	if err := spec.LoadAndAssign(&x.objects, nil); err != nil {
		return nil, fmt.Errorf("source: load the program: %w", err)
	}
	if err := x.fill(); err != nil {
		x.Close()
		return nil, fmt.Errorf("source: %w", err)
	}
	if err := liveFrames(x); err != nil {
		x.Close()
		return nil, fmt.Errorf("source: %w", err)
	}
	return x, nil
}

// live remembers that the kernel can run live frames, since to try it costs a call. The lock is held during that call.
var live struct {
	sync.Mutex
	known bool
}

// liveFrames asks the kernel once whether it can run live frames at all, with a program that has nothing left to do.
func liveFrames(x *XDP) error {
	live.Lock()
	defer live.Unlock()
	if live.known {
		return nil
	}
	if err := x.objects.Done.Set(uint32(1)); err != nil {
		return err
	}
	if err := x.call(1); err != nil {
		return err
	}
	live.known = true
	return x.objects.Done.Set(uint32(0))
}

// Close frees the program and its maps.
func (x *XDP) Close() error { return x.objects.Close() }

func (x *XDP) fill() error {
	v := &x.objects.programVariables
	var keys []uint32
	var addresses []programAddress
	largest := 0
	for i, s := range x.o.Streams {
		st := describe(s, x.o, i)
		if len(s.Destinations) > 0 {
			st.FirstDst = uint32(len(keys))
		}
		for _, a := range s.Destinations {
			keys = append(keys, uint32(len(keys)))
			addresses = append(addresses, address(a.AsSlice()))
		}
		if err := x.objects.Streams.Put(uint32(i), &st); err != nil {
			return fmt.Errorf("write stream %d: %w", i, err)
		}
		largest = max(largest, s.Sizes.Max, slices.Max(append(s.Sizes.Of, 0)))
	}
	x.room = largest - frame.FCS
	if x.o.sprints() {
		state, shapes := sprintOf(x.o)
		if err := errors.Join(v.SprintState.Set(state), v.Shapes.Set(shapes)); err != nil {
			return fmt.Errorf("write the stream: %w", err)
		}
	}
	var filler [2048]uint8
	copy(filler[:], frame.Filler[:])
	until := uint64(x.o.Duration)
	for _, w := range []struct {
		what string
		at   *ebpf.Variable
		to   any
	}{
		{"the table of gaps", v.Exponential, exponentialTable()},
		{"the filler", v.Filler, filler},
		{"the filler's sums", v.FillerSum, frame.FillerSums()},
		{"the schedule", v.Schedule, programControl{
			Until:      until,
			GiveUp:     until + until/100 + uint64(time.Millisecond),
			LateLimit:  uint64(late) << 16,
			ClockEvery: uint32(x.o.ClockEvery),
			Streams:    uint32(len(x.o.Streams)),
			Room:       uint32(x.room),
		}},
	} {
		if err := w.at.Set(w.to); err != nil {
			return fmt.Errorf("write %s: %w", w.what, err)
		}
	}
	if len(keys) > 0 {
		if _, err := x.objects.Destinations.BatchUpdate(keys, addresses, nil); err != nil {
			return fmt.Errorf("write %d destinations: %w", len(keys), err)
		}
	}
	return nil
}

func address(a []byte) programAddress {
	var out programAddress
	for i := range len(a) / 4 {
		out.A[4-len(a)/4+i] = binary.NativeEndian.Uint32(a[4*i:])
	}
	out.Sum = folded(sumNative(a))
	return out
}

// describe turns a stream into what the program reads.
func describe(s Stream, o Options, i int) programStream {
	st := programStream{
		Count:   MaxFrames,
		Kind:    uint32(s.Headers.Kind),
		Sizes:   uint32(len(s.Sizes.Of)),
		SizeMin: uint32(s.Sizes.Min), SizeSpan: uint32(s.Sizes.Max - s.Sizes.Min + 1),
		Dsts: uint32(max(len(s.Destinations), 1)), Sport: s.firstPort(), Sports: uint16(s.ports()),
		Rng: mix(o.Seed*MaxStreams+uint64(i)) | 1,
	}
	binary.BigEndian.PutUint16(unsafe.Slice((*byte)(unsafe.Pointer(&st.Run)), 2), o.Run)
	if s.Count > 0 {
		st.Count = s.Count
	}
	if s.Rate > 0 {
		st.Interval = uint64(math.Round(1e9 / s.Rate * 65536))
		st.Due = st.Interval * uint64(i) / uint64(len(o.Streams)) // streams do not all start at once
	}
	if s.Poisson {
		st.Poisson = 1
	}
	if !s.InOrder {
		st.Random = 1
	}
	for j, v := range s.Sizes.Of {
		st.Size[j] = uint16(v)
	}
	t := s.Headers.Template()
	if len(s.Destinations) > 0 {
		var inRow bool
		if st.Base, inRow = row(s.Destinations); inRow {
			st.InRow = 1
		}
		if inRow && s.Headers.Kind == frame.IPv6 {
			copy(t[38:50], s.Destinations[0].AsSlice())
		}
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&st.Header)), 64), t)
	switch s.Headers.Kind {
	case frame.IPv4:
		st.IpSum = sumNative(t[14:34])
		st.UdpSum = sumNative(t[26:30]) + sumNative(t[34:]) + sumNative([]byte{0, 17})
	case frame.IPv6:
		st.UdpSum = sumNative(t[22:50]) + sumNative(t[54:]) + sumNative([]byte{0, 17})
	}
	return st
}

// sumNative adds 16-bit words as this machine loads them; ones' complement sums do not mind the byte order as long as
// it is always the same.
func sumNative(b []byte) uint32 {
	s := uint32(0)
	for ; len(b) >= 2; b = b[2:] {
		s += uint32(binary.NativeEndian.Uint16(b))
	}
	if len(b) == 1 {
		s += uint32(binary.NativeEndian.Uint16([]byte{b[0], 0}))
	}
	return s
}

func exponentialTable() (at [4097]uint32) {
	for i := 1; i <= 4096; i++ {
		at[i] = uint32(math.Round(-math.Log(float64(i)/4096) * 65536))
	}
	at[0] = at[1]
	return at
}

// mix spreads a seed (splitmix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Run implements Source. The kernel call lasts as long as the run: only a signal ends it, so a watcher sends one to the
// thread (SIGURG, which the Go runtime ignores) once the program says that it is done.
func (x *XDP) Run(ctx context.Context) (Report, error) {
	before, err := netdev.ReadDrops(x.o.Device)
	if err != nil {
		return Report{}, fmt.Errorf("source: %w", err)
	}
	left, err := netdev.Transmitted(x.o.Device)
	if err != nil {
		return Report{}, fmt.Errorf("source: %w", err)
	}
	var tid atomic.Int64
	ended := make(chan struct{})
	go x.watch(ctx, &tid, ended)
	var used, waited time.Duration
	err = netdev.In(x.o.Device.Namespace, func() error {
		runtime.LockOSThread()
		if err := x.prepareThread(); err != nil {
			return err
		}
		tid.Store(int64(unix.Gettid()))
		if x.o.Thread != nil {
			x.o.Thread(unix.Gettid())
		}
		defer tid.Store(0)
		before, wait := netdev.ThreadTime(), netdev.ThreadWait()
		defer func() { used, waited = netdev.ThreadTime()-before, netdev.ThreadWait()-wait }()
		return x.call(math.MaxUint32)
	})
	close(ended)
	if err != nil {
		return Report{}, fmt.Errorf("source: send from %v: %w", x.o.Device, err)
	}
	rep, err := x.report()
	if err != nil {
		return rep, err
	}
	after, err := netdev.ReadDrops(x.o.Device)
	if err != nil {
		return rep, fmt.Errorf("source: %w", err)
	}
	rep.Refused, rep.CPU, rep.Waited = after.Sub(before), used, waited
	if rep.Sent() > 0 && rep.Refused.Sent == 0 {
		if err := x.left(left); err != nil {
			return rep, err
		}
	}
	return rep, ctx.Err()
}

// ErrVanished says that a device took no XDP frame. The kernel tells nobody.
var ErrVanished = errors.New("every frame vanished: the device cannot transmit XDP frames. A veth can when its peer " +
	"is up and GRO was switched on there after that, or when an XDP program is in the peer's driver")

// left makes sure that the device sent anything at all since before; its peer may take a moment.
func (x *XDP) left(before uint64) error {
	for range 50 {
		now, err := netdev.Transmitted(x.o.Device)
		if err != nil {
			return fmt.Errorf("source: %w", err)
		}
		if now > before {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("source: send from %v: %w", x.o.Device, ErrVanished)
}

// prepareThread makes the thread that sends ready: its CPU, its priority, and the device that the program sends out of.
func (x *XDP) prepareThread() error {
	if x.o.CPU >= 0 {
		if err := netdev.Pin(x.o.CPU); err != nil {
			return err
		}
	}
	if err := netdev.First(0); err != nil {
		return err
	}
	d, err := net.InterfaceByName(x.o.Device.Name)
	if err != nil {
		return err
	}
	// A devmap entry belongs to the namespace of the thread that writes it.
	if err := x.objects.Out.Put(uint32(0), uint32(d.Index)); err != nil {
		return fmt.Errorf("it cannot transmit XDP frames: %w", err)
	}
	return nil
}

// call stays in the kernel until the program is done. A stray signal only makes it go back: all state is in the maps.
func (x *XDP) call(repeat uint32) error {
	data := make([]byte, x.room)
	// into every page, when the kernel makes it
	copy(data[x.o.Streams[0].Headers.Kind.HeaderSize()+frame.TagSize:], frame.Filler[:])
	err := netdev.RunLive(x.program(), data, repeat, x.o.Batch, x.done)
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOTSUP):
		return fmt.Errorf("%w: %w", ErrNoLiveFrames, err)
	case err != nil:
		return fmt.Errorf("run the program: %w", err)
	}
	return nil
}

func (x *XDP) done() bool {
	var done uint32
	return x.objects.Done.Get(&done) == nil && done != 0
}

// watch ends the kernel call: when the context ends it tells the program to stop, and when the program says that it is
// done it sends the thread a signal. It may send several, since one that comes just before the call is lost.
func (x *XDP) watch(ctx context.Context, tid *atomic.Int64, ended <-chan struct{}) {
	cancelled := ctx.Done()
	tick := time.Tick(2 * time.Millisecond)
	for {
		select {
		case <-ended:
			return
		case <-cancelled:
			x.objects.Stop.Set(uint32(1)) // memory that OpenXDP already wrote: it cannot fail now
			cancelled = nil
		case <-tick:
			if t := tid.Load(); t != 0 && x.done() {
				unix.Tgkill(unix.Getpid(), int(t), unix.SIGURG)
			}
		}
	}
}

// report reads from the maps what was sent. The frames of an unpaced stream that were due are those that were sent.
func (x *XDP) report() (Report, error) {
	rep := Report{Method: "xdp-live-frames"}
	var c programControl
	if err := x.objects.Schedule.Get(&c); err != nil {
		return rep, fmt.Errorf("source: read the schedule: %w", err)
	}
	rep.Start, rep.Elapsed, rep.Idle = c.Start, time.Duration(min(c.End-c.Start, c.Until)), c.Idle
	if c.End-c.Start > c.Until { // it had to catch up
		rep.Elapsed = time.Duration(c.End - c.Start)
	}
	for i, s := range x.o.Streams {
		var st programStream
		if err := x.objects.Streams.Lookup(uint32(i), &st); err != nil {
			return rep, fmt.Errorf("source: read stream %d: %w", i, err)
		}
		if x.o.sprints() {
			if err := x.sprinted(&st); err != nil {
				return rep, err
			}
		}
		if st.Failed > 0 {
			return rep, fmt.Errorf("source: stream %d: %d frames could not be written", i, st.Failed)
		}
		rep.Streams = append(rep.Streams, StreamReport{
			Intended: intended(s, st.Sent, time.Duration(st.Due>>16), x.o.Duration),
			Sent:     st.Sent, Bytes: st.Bytes, Late: st.Late, LateMax: time.Duration(st.LateMax), Burst: st.Burst,
		})
	}
	return rep, nil
}
