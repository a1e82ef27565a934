package tools

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/measure/frame"
	"github.com/polyplane/polyplane/measure/hist"
	"github.com/polyplane/polyplane/measure/netdev"
)

// PingOptions describe a series of ICMP echoes.
type PingOptions struct {
	Namespace string
	Address   netip.Addr
	Count     int
	Interval  time.Duration // between sends; 0: the next one follows the answer
	Timeout   time.Duration // for an answer; 0: 1 s
	Size      int           // bytes of payload; 0: 56
}

// Ping is what came back.
type Ping struct {
	Sent     int                  `json:"sent"`
	Received int                  `json:"received"`
	RTT      hist.Digest          `json:"rtt"`
	Jitter   hist.VariationDigest `json:"jitter"` // between consecutive round trips
	Series   []time.Duration      `json:"series"` // in order of answers
}

// RunPing sends echoes one after the other, and times each from just before it is sent until its answer is read.
func RunPing(ctx context.Context, o PingOptions) (Ping, error) {
	if o.Count < 1 || !o.Address.IsValid() {
		return Ping{}, fmt.Errorf("ping %v: %d echoes; an address and at least one are needed", o.Address, o.Count)
	}
	o.Timeout = cmp.Or(o.Timeout, time.Second)
	o.Size = cmp.Or(o.Size, 56)
	var p Ping
	err := netdev.In(o.Namespace, func() error {
		runtime.LockOSThread()
		e, err := newEcho(o)
		if err != nil {
			return err
		}
		defer unix.Close(e.fd)
		return e.run(ctx, o, &p)
	})
	if err != nil {
		return p, fmt.Errorf("ping %v: %w", o.Address, err)
	}
	return p, nil
}

// echo is a raw ICMP socket that speaks to one address.
type echo struct {
	fd             int
	request, reply byte
	skip           int // bytes of IP header in front of what is read
	id             uint16
}

func newEcho(o PingOptions) (*echo, error) {
	e := &echo{request: 8, reply: 0, skip: 20, id: uint16(unix.Gettid())}
	domain, protocol := unix.AF_INET, unix.IPPROTO_ICMP
	var to unix.Sockaddr = &unix.SockaddrInet4{Addr: [4]byte(o.Address.AsSlice()[:4])}
	if o.Address.Is6() {
		*e = echo{request: 128, reply: 129, id: e.id}
		domain, protocol = unix.AF_INET6, unix.IPPROTO_ICMPV6
		to = &unix.SockaddrInet6{Addr: o.Address.As16()}
	}
	var err error
	if e.fd, err = unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol); err != nil {
		return nil, fmt.Errorf("open a raw socket: %w", err)
	}
	if err := unix.Connect(e.fd, to); err != nil {
		unix.Close(e.fd)
		return nil, err
	}
	return e, nil
}

func (e *echo) run(ctx context.Context, o PingOptions, p *Ping) error {
	var rtts hist.Histogram
	var variation hist.Variation
	next := time.Now()
	for seq := range o.Count {
		if wait := time.Until(next); wait > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(wait):
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		next = next.Add(o.Interval)
		rtt, err := e.once(uint16(seq), o)
		p.Sent++
		if errors.Is(err, unix.ETIMEDOUT) {
			continue
		}
		if err != nil {
			return err
		}
		p.Received++
		p.Series = append(p.Series, rtt)
		rtts.Add(uint64(rtt))
		variation.Add(int64(rtt))
	}
	p.RTT, p.Jitter = rtts.Digest(), variation.Digest()
	return nil
}

// once sends one echo and waits for its answer; ETIMEDOUT when there is none.
func (e *echo) once(seq uint16, o PingOptions) (time.Duration, error) {
	b := make([]byte, 8+o.Size)
	b[0] = e.request
	binary.BigEndian.PutUint16(b[4:], e.id)
	binary.BigEndian.PutUint16(b[6:], seq)
	binary.BigEndian.PutUint16(b[2:], ^frame.Sum(b)) // for IPv6 the kernel writes its own
	start := time.Now()
	if _, err := unix.Write(e.fd, b); err != nil {
		return 0, fmt.Errorf("send an echo: %w", err)
	}
	in := make([]byte, 65536)
	for {
		left := o.Timeout - time.Since(start)
		if left <= 0 {
			return 0, unix.ETIMEDOUT
		}
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(e.fd), Events: unix.POLLIN}}, int(left/time.Millisecond)+1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return 0, fmt.Errorf("wait for the answer: %w", err)
		}
		if ready <= 0 {
			continue
		}
		n, err := unix.Read(e.fd, in)
		rtt := time.Since(start)
		if err != nil {
			return 0, fmt.Errorf("read the answer: %w", err)
		}
		if a := in[min(e.skip, n):n]; len(a) >= 8 && a[0] == e.reply && binary.BigEndian.Uint16(a[4:]) == e.id &&
			binary.BigEndian.Uint16(a[6:]) == seq {
			return rtt, nil
		}
	}
}
