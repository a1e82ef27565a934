package source

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/measure/frame"
	"github.com/polyplane/polyplane/measure/netdev"
)

// Packet is the source that writes to a packet socket, one system call a frame: slower and less exact, but it works on
// any device and kernel.
type Packet struct{ o Options }

// OpenPacket makes a packet socket source.
func OpenPacket(o Options) (*Packet, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &Packet{o}, nil
}

// Close implements Source.
func (p *Packet) Close() error { return nil }

// Run implements Source.
func (p *Packet) Run(ctx context.Context) (Report, error) {
	rep := Report{Method: "packet-socket"}
	err := netdev.In(p.o.Device.Namespace, func() error {
		runtime.LockOSThread()
		if p.o.CPU >= 0 {
			if err := netdev.Pin(p.o.CPU); err != nil {
				return err
			}
		}
		if err := netdev.First(0); err != nil {
			return err
		}
		d, err := net.InterfaceByName(p.o.Device.Name)
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open a packet socket: %w", err)
		}
		defer unix.Close(fd)
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1) // a little faster; fine without
		before, wait := netdev.ThreadTime(), netdev.ThreadWait()
		defer func() { rep.CPU, rep.Waited = netdev.ThreadTime()-before, netdev.ThreadWait()-wait }()
		return p.send(ctx, fd, &unix.SockaddrLinklayer{Ifindex: d.Index}, &rep)
	})
	if err != nil {
		return rep, fmt.Errorf("source: send from %v: %w", p.o.Device, err)
	}
	return rep, ctx.Err()
}

// sender is the state of one stream.
type sender struct {
	Stream
	id       uint16
	template []byte
	first    time.Duration // when its first frame is due
	due      time.Duration
	gap      float64 // ns
	rng      *rand.Rand
	StreamReport
}

func (p *Packet) send(ctx context.Context, fd int, to unix.Sockaddr, rep *Report) error {
	streams := make([]*sender, len(p.o.Streams))
	for i, s := range p.o.Streams {
		streams[i] = &sender{Stream: s, id: uint16(i), template: s.Headers.Template(),
			rng: rand.New(rand.NewPCG(p.o.Seed, uint64(i)))}
		if s.Rate > 0 {
			streams[i].gap = 1e9 / s.Rate
			streams[i].first = time.Duration(streams[i].gap * float64(i) / float64(len(p.o.Streams)))
			streams[i].due = streams[i].first
		}
	}
	rep.Start = clock()
	giveUp := p.o.Duration + p.o.Duration/100 + time.Millisecond
	next := 0
	for ctx.Err() == nil {
		elapsed := time.Duration(clock() - rep.Start)
		if elapsed >= giveUp {
			break
		}
		s, wait := pick(streams, &next, elapsed, p.o.Duration)
		if s == nil {
			if wait < 0 {
				break
			}
			rep.Idle++
			continue
		}
		if err := s.send(fd, to, p.o.Run, elapsed); err != nil {
			return err
		}
	}
	rep.Elapsed = max(time.Duration(clock()-rep.Start), 1)
	for _, s := range streams {
		s.Intended = intended(s.Stream, s.Sent, s.due, p.o.Duration)
		rep.Streams = append(rep.Streams, s.StreamReport)
	}
	return nil
}

// pick finds the next stream that is due; without one, wait tells how long until there is, or −1 when there never will
// be.
func pick(streams []*sender, next *int, elapsed, until time.Duration) (*sender, time.Duration) {
	wait := time.Duration(-1)
	for range streams {
		s := streams[*next]
		*next = (*next + 1) % len(streams)
		switch {
		case s.Count > 0 && s.Sent >= s.Count, s.due >= until, s.gap == 0 && elapsed >= until:
		case s.due <= elapsed:
			return s, 0
		case wait < 0 || s.due-elapsed < wait:
			wait = s.due - elapsed
		}
	}
	return nil, wait
}

func (s *sender) send(fd int, to unix.Sockaddr, run uint16, elapsed time.Duration) error {
	size := s.Sizes.Draw(s.rng)
	var dst netip.Addr
	port := s.firstPort()
	if n := uint64(len(s.Destinations)); n > 0 {
		flow := s.Sent
		if !s.InOrder {
			flow = s.rng.Uint64()
		}
		dst = s.Destinations[flow%n]
		port += uint16(flow / n % uint64(s.ports()))
	}
	b := frame.Build(s.template, s.Headers.Kind, frame.Tag{Run: run, Stream: s.id, Seq: uint32(s.Sent),
		Time: clock()}, dst, port, size)
	switch err := unix.Sendto(fd, b, 0, to); {
	case errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return nil // the device is full: this frame is tried again
	case err != nil:
		return err
	}
	if behind := elapsed - s.due; s.gap > 0 && behind > late {
		s.Late++
		s.LateMax = max(s.LateMax, behind)
	}
	s.Sent++
	s.Bytes += uint64(size)
	switch {
	case s.gap == 0:
	case s.Poisson:
		s.due += time.Duration(s.gap * s.rng.ExpFloat64())
	default:
		s.due = s.first + time.Duration(s.gap*float64(s.Sent))
	}
	return nil
}

// clock is CLOCK_MONOTONIC, the clock of bpf_ktime_get_ns.
func clock() uint64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic("CLOCK_MONOTONIC cannot be read: " + err.Error()) // it exists on every Linux
	}
	return uint64(t.Nano())
}
