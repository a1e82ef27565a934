package fast_test

import (
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestRunsOfOneProcessor has two threads of one processor send through the routers at the same time, one of them with a
// priority that lets it interrupt the other at any instruction where the kernel allows that. The programs keep the
// packet that they work on in memory of the processor's: were one run interrupted by another, packets would be mixed
// up. It tells something on kernels with PREEMPT_RT (make test-kernel KERNEL_FLAVOUR=rt
// KERNEL_TESTS=node/forward/fast:Processor).
func TestRunsOfOneProcessor(t *testing.T) {
	l := newChain(t, 4)
	l.prepare(l.routerNames()...)
	l.ping()
	const packets, burst = 20_000, 64
	there := l.stream("h1", "h2", "10.0.4.2:7001", unix.SCHED_NORMAL)
	back := l.stream("h2", "h1", "10.0.0.2:7002", unix.SCHED_FIFO)
	done := make(chan string, 2)
	for _, s := range []*stream{there, back} {
		go func() { done <- s.run(packets, burst) }()
	}
	for range 2 {
		if problem := <-done; problem != "" {
			t.Error(problem)
		}
	}
	for _, s := range []*stream{there, back} {
		if n := s.spoilt.Load(); n != 0 {
			t.Errorf("%d packets arrived that were not as they were sent to %s", n, s.to)
		}
	}
	if f := l.forwarded("r2"); f.Packets < 2*packets {
		t.Errorf("the data path forwarded %d packets at r2: want all of %d", f.Packets, 2*packets)
	}
}

// stream is numbered packets with a sum over their content.
type stream struct {
	to           string
	policy       uint32
	send         *net.UDPConn
	came, spoilt atomic.Int64
}

func (l *lab) stream(from, to, address string, policy uint32) *stream {
	l.Helper()
	s := &stream{to: to, policy: policy}
	at, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		l.Fatal(err)
	}
	var receive *net.UDPConn
	if err := l.driver.Enter(id(to),
		func() (err error) { receive, err = net.ListenUDP("udp", at); return err }); err != nil {
		l.Fatal(err)
	}
	if err := l.driver.Enter(id(from),
		func() (err error) { s.send, err = net.DialUDP("udp", nil, at); return err }); err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { s.send.Close(); receive.Close() })
	go func() {
		packet := make([]byte, 2048)
		for next := uint64(0); ; next++ {
			n, err := receive.Read(packet)
			if err != nil {
				return
			}
			if n < 12 || crc32.ChecksumIEEE(packet[4:n]) != binary.BigEndian.Uint32(packet) ||
				binary.BigEndian.Uint64(packet[4:]) != next {
				s.spoilt.Add(1)
			}
			s.came.Add(1)
		}
	}()
	return s
}

// run sends, burst by burst, and waits for each to arrive. It returns what went wrong.
func (s *stream) run(packets, burst int) (problem string) {
	runtime.LockOSThread() // not given back: its processor and its priority are its own
	var one unix.CPUSet
	one.Set(0)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return "go to the first processor: " + err.Error()
	}
	priority := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: s.policy}
	if s.policy == unix.SCHED_FIFO {
		priority.Priority = 50
	}
	if err := unix.SchedSetAttr(0, &priority, 0); err != nil {
		return "get a priority: " + err.Error()
	}
	packet := make([]byte, 1400)
	for sent := 0; sent < packets; {
		for range burst {
			part := packet[:12+rand.IntN(len(packet)-12)]
			for i := range part {
				part[i] = byte(rand.Uint32())
			}
			binary.BigEndian.PutUint64(part[4:], uint64(sent))
			binary.BigEndian.PutUint32(part, crc32.ChecksumIEEE(part[4:]))
			if _, err := s.send.Write(part); err != nil {
				return "send to " + s.to + ": " + err.Error()
			}
			sent++
		}
		for end := time.Now().Add(time.Minute); s.came.Load() < int64(sent); time.Sleep(50 * time.Microsecond) {
			if time.Now().After(end) {
				return "a packet to " + s.to + " never arrived"
			}
		}
	}
	return ""
}
