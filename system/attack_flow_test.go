package system

import (
	order "encoding/binary"
	"net"
	"net/netip"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// steady is 10,000 numbered datagrams a second, ten each millisecond, from one element to another. What a starved
// sender could not send in time is left out, and not made up for in a burst: the flow must not be what overruns a
// queue.
type steady struct {
	p             *platform
	send, receive *net.UDPConn
	last          atomic.Uint64 // the last mark that came
	marks         uint64
	results       chan uint64
}

const (
	steadyRate  = 10_000
	steadyBurst = steadyRate / 1000
	// overtaken is how long a packet may wait in a processor's queue, and not count as lost.
	overtaken = 2 * time.Second
)

// steady prepares one; its packets have the size of a small call's.
func (p *platform) steady(network, from, to, address string) *steady {
	p.t.Helper()
	f := &steady{p: p, results: make(chan uint64)}
	at := net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(address), 0))
	within(p.t, p.namespace(network, to), func() (err error) {
		if f.receive, err = net.ListenUDP("udp", at); err != nil {
			return err
		}
		return onSocket(f.receive, func(fd int) error {
			// A receiver that gets no processor for a while must not be what loses packets.
			return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 256<<20)
		})
	})
	within(p.t, p.namespace(network, from), func() (err error) {
		f.send, err = net.DialUDP("udp", nil, f.receive.LocalAddr().(*net.UDPAddr))
		return err
	})
	p.t.Cleanup(func() { f.send.Close(); f.receive.Close() })
	go f.count()
	f.mark()
	return f
}

func onSocket(c *net.UDPConn, do func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = do(int(fd)) }); err != nil {
		return err
	}
	return failed
}

// A datagram is its number, or – with the top bit – a mark, which asks for the count of all since the mark before.
const markBit = 1 << 63

func (f *steady) count() {
	packet := make([]byte, 128)
	var received uint64
	for {
		n, err := f.receive.Read(packet)
		if err != nil {
			return
		}
		switch number := order.BigEndian.Uint64(packet); {
		case n < 8:
		case number&markBit == 0:
			received++
		case number&^markBit > f.last.Load():
			f.last.Store(number &^ markBit)
			f.results <- received
			received = 0
		}
	}
}

// mark tells how many came since the last mark. All packets take one way: when the mark has come, so has all before it.
func (f *steady) mark() (received uint64) {
	f.p.t.Helper()
	f.marks++
	packet := order.BigEndian.AppendUint64(nil, f.marks|markBit)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	end := time.After(generous)
	for {
		f.send.Write(packet) //nolint:errcheck // the next one
		select {
		case received = <-f.results:
			return received
		case <-tick.C:
		case <-end:
			f.p.t.Fatalf("no packet of the flow arrives any more")
		}
	}
}

// run sends for so long, and on until a quarter of a second's packets are sent where it was kept from the processor,
// and returns how many were sent, and how many of them were lost.
func (f *steady) run(length time.Duration) (sent, lost uint64) {
	f.p.t.Helper()
	done := make(chan uint64)
	go func() {
		runtime.LockOSThread() // not given back
		// The sender measures, and is not what is judged: it has the processor before all others.
		priority := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}
		if unix.SchedSetAttr(0, &priority, 0) != nil {
			unix.Setpriority(unix.PRIO_PROCESS, 0, -20) //nolint:errcheck // then it sends less
		}
		packet := make([]byte, 64)
		var sent uint64
		next := time.Now()
		for end := next.Add(length); next.Before(end) || sent < steadyRate/4; {
			for range steadyBurst {
				order.BigEndian.PutUint64(packet, sent)
				if _, err := f.send.Write(packet); err == nil {
					sent++
				}
			}
			if now := time.Now(); now.Sub(next) > 2*time.Millisecond {
				next = now
			}
			next = next.Add(time.Millisecond)
			pause := unix.NsecToTimespec(int64(time.Until(next)))
			unix.Nanosleep(&pause, nil) //nolint:errcheck // an early end is a burst's beginning
		}
		done <- sent
	}()
	sent = <-done
	received := f.mark()
	// What waits in the queue of a processor that does something else is overtaken by a mark sent on another one. It is
	// late, not lost.
	for late := time.Now().Add(overtaken); received < sent && time.Now().Before(late); {
		time.Sleep(20 * time.Millisecond)
		received += f.mark()
	}
	return sent, sent - received
}

// flowIsMeasured holds the meter of the attacks' tests to a network that loses one packet in a hundred, and to one
// that loses none.
func flowIsMeasured(t *testing.T, p *platform) {
	f := p.steady("victim", "v1", "v2", "192.168.2.2")
	sent, lost := f.run(time.Second)
	t.Logf("undisturbed: %d of %d packets lost", lost, sent)
	if lost != 0 {
		t.Errorf("%d of %d packets are lost without any attack", lost, sent)
	}
	router := p.namespace("victim", "r1")
	in(t, router, "nft", "add table inet loss; add chain inet loss f { type filter hook forward priority 0; }; "+
		"add rule inet loss f udp length 72 numgen inc mod 50 == 0 drop")
	defer in(t, router, "nft", "delete", "table", "inet", "loss")
	sent, lost = f.run(time.Second)
	if want := (sent + 49) / 50; lost != want {
		t.Errorf("the router dropped %d of %d packets, and the meter counts %d", want, sent, lost)
	}
}
