package chaos

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/system/sandbox"
)

// flow is packets from one element to another, each with its number, for as long as a run takes.
type flow struct {
	name    string
	send    *net.UDPConn
	receive *net.UDPConn
	end     chan struct{}
	workers sync.WaitGroup
	sent    atomic.Uint64
	arrived atomic.Uint64 // different numbers
	failed  error         // of sending

	mu         sync.Mutex // guards what was received: count writes it, the run reads it
	seen       []uint64   // a bit a number
	duplicated uint64
}

// flowInterval is the time between a flow's packets.
const flowInterval = 4 * time.Millisecond

// startFlow starts one, from a namespace to an address in another.
func startFlow(name, from, to string, address netip.Addr) (*flow, error) {
	f := &flow{name: name, end: make(chan struct{})}
	err := sandbox.Within(to, func() (err error) {
		if f.receive, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(address, 0))); err != nil {
			return err
		}
		raw, err := f.receive.SyscallConn()
		if err != nil {
			return err
		}
		var failed error
		// Packets must not be lost because the receiver gets no processor for a while.
		err = raw.Control(func(fd uintptr) {
			failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)
		})
		return errors.Join(err, failed)
	})
	if err != nil {
		return nil, fmt.Errorf("flow %s: %w", name, err)
	}
	err = sandbox.Within(from, func() (err error) {
		f.send, err = net.DialUDP("udp", nil, f.receive.LocalAddr().(*net.UDPAddr))
		return err
	})
	if err != nil {
		f.receive.Close()
		return nil, fmt.Errorf("flow %s: %w", name, err)
	}
	f.workers.Go(f.run)
	go f.count()
	return f, nil
}

// run sends packets with rising numbers until the flow ends. A packet that cannot be sent ends it: the sender is on
// this machine, so that must not happen.
func (f *flow) run() {
	packet := make([]byte, 8)
	tick := time.Tick(flowInterval)
	for n := uint64(0); ; n++ {
		binary.BigEndian.PutUint64(packet, n)
		if _, err := f.send.Write(packet); err != nil {
			f.failed = fmt.Errorf("packet %d: %w", n, err)
			return
		}
		f.sent.Store(n + 1)
		select {
		case <-f.end:
			return
		case <-tick:
		}
	}
}

func (f *flow) count() {
	packet := make([]byte, 64)
	for {
		n, err := f.receive.Read(packet)
		if err != nil {
			return
		}
		if n == 8 {
			f.note(binary.BigEndian.Uint64(packet))
		}
	}
}

// note marks a number as come. A number that comes twice is counted.
func (f *flow) note(k uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for uint64(len(f.seen)) <= k/64 {
		f.seen = append(f.seen, 0)
	}
	if bit := uint64(1) << (k % 64); f.seen[k/64]&bit == 0 {
		f.seen[k/64] |= bit
		f.arrived.Add(1)
	} else {
		f.duplicated++
	}
}

// flowing waits until a packet that is sent from now on has arrived.
func (f *flow) flowing(ctx context.Context) error {
	next := f.arrived.Load() + 2
	return eventually(ctx, "packets of the flow "+f.name, func() error {
		if f.arrived.Load() < next {
			return errors.New("none arrive")
		}
		return nil
	})
}

// stop ends the flow and tells what was lost.
func (f *flow) stop(ctx context.Context) (sent, lost, duplicated uint64, err error) {
	close(f.end)
	f.workers.Wait()
	f.send.Close()
	sent = f.sent.Load()
	// All packets take the same path, so when the last one has come, the missing ones will not. If the last one is
	// lost, nothing comes any more.
	const quiet = 5 * time.Second
	for count, since := uint64(0), time.Now(); time.Since(since) < quiet && !f.came(sent-1) && ctx.Err() == nil; {
		if now := f.arrived.Load(); now != count {
			count, since = now, time.Now()
		}
		time.Sleep(10 * time.Millisecond)
	}
	f.receive.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	return sent, sent - f.arrived.Load(), f.duplicated, f.failed
}

func (f *flow) came(k uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.has(k)
}

// lostSoFar tells how many packets are certainly lost, and which: those that were sent before the latest that came.
func (f *flow) lostSoFar() (lost uint64, which string) {
	highest, arrived := f.highest()
	if lost = highest - arrived; lost > 0 {
		which = f.gaps(highest)
	}
	return lost, which
}

// highest returns the number behind the last packet that came, and how many came until then.
func (f *flow) highest() (highest, arrived uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := len(f.seen) - 1; i >= 0; i-- {
		if word := f.seen[i]; word != 0 {
			return uint64(i*64 + bits.Len64(word)), f.arrived.Load()
		}
	}
	return 0, f.arrived.Load()
}
