package system

import (
	order "encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// flow is datagrams from one element to another, each with its number: 1,000 a second, or as many times that as each
// says. A sender that got no processor catches up one datagram at a time, so that its own burst overruns no queue.
type flow struct {
	t        *testing.T
	each     uint64
	p        *platform
	send     *net.UDPConn
	receive  *net.UDPConn
	end      chan struct{}
	ended    chan struct{}
	sent     atomic.Uint64
	received chan map[uint64]int // how often each number came
	latest   atomic.Uint64       // one more than the highest number that came
	backlog  uint64              // what the processors' backlogs had dropped at the beginning
}

// flow starts one, from an element of a network to an address of another. With drop, the kernel drops the packet of
// that number before the receiver's socket.
func (p *platform) flow(network, from, to, address string, drop uint32) *flow {
	p.t.Helper()
	return p.flowBetween(p.namespace(network, from), p.namespace(network, to), address, drop, 1)
}

// flowBetween starts one between two namespaces, of each times 1,000 datagrams a second.
func (p *platform) flowBetween(from, to, address string, drop uint32, each uint64) *flow {
	p.t.Helper()
	f := &flow{t: p.t, p: p, each: each, end: make(chan struct{}), ended: make(chan struct{}),
		received: make(chan map[uint64]int, 1), backlog: backlogDrops(p.t)}
	at := net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(address), 0))
	within(p.t, to, func() (err error) {
		if f.receive, err = net.ListenUDP("udp", at); err != nil {
			return err
		}
		raw, err := f.receive.SyscallConn()
		if err != nil {
			return err
		}
		var failed error
		err = raw.Control(func(fd uintptr) {
			// A receiver that gets no processor for a while must not be what loses packets.
			failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)
			if failed == nil && drop != 0 {
				// The socket filter sees UDP's header first, eight bytes; the number's low half follows its high half.
				failed = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
					&unix.SockFprog{Len: 4,
						Filter: &[]unix.SockFilter{
							{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 12},
							{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: drop},
							{Code: unix.BPF_RET | unix.BPF_K, K: 0xffff},
							{Code: unix.BPF_RET | unix.BPF_K, K: 0},
						}[0]})
			}
		})
		if err == nil {
			err = failed
		}
		return err
	})
	within(p.t, from, func() (err error) {
		f.send, err = net.DialUDP("udp", nil, f.receive.LocalAddr().(*net.UDPAddr))
		return err
	})
	p.t.Cleanup(func() { f.send.Close(); f.receive.Close() })
	go f.count()
	go f.run()
	f.reached(1) // the way is known: from here on nothing may be lost
	return f
}

func (f *flow) run() {
	defer close(f.ended)
	start := time.Now()
	packet := make([]byte, 8)
	for n := uint64(0); ; n++ {
		due := start.Add(time.Duration(n/f.each) * time.Millisecond)
		if late := time.Since(due); late > 2*time.Millisecond {
			start, due = start.Add(late), due.Add(late)
		}
		select {
		case <-f.end:
			return
		case <-time.After(time.Until(due)):
		}
		order.BigEndian.PutUint64(packet, n)
		if _, err := f.send.Write(packet); errors.Is(err, net.ErrClosed) {
			return // the test failed
		} else if err != nil {
			f.t.Errorf("packet %d: %v", n, err)
			return
		}
		f.sent.Store(n + 1)
	}
}

func (f *flow) count() {
	seen := map[uint64]int{}
	packet := make([]byte, 64)
	for {
		n, err := f.receive.Read(packet)
		if err != nil {
			f.received <- seen
			return
		}
		if n == 8 {
			k := order.BigEndian.Uint64(packet)
			seen[k]++
			f.latest.Store(max(f.latest.Load(), k+1))
		}
	}
}

// reached waits until so many packets have been sent, and the last of them or a later one has arrived.
func (f *flow) reached(n uint64) {
	f.t.Helper()
	f.p.await("packets of a flow to arrive", func() bool { return f.latest.Load() >= n },
		func() string { return "they do not" })
}

// stop ends the flow and tells how many packets were sent, and how many of them never came or came more than once.
func (f *flow) stop() (sent, lost, duplicated uint64) {
	f.t.Helper()
	close(f.end)
	<-f.ended
	sent = f.sent.Load()
	// All packets take the same path: once the last has come, what has not come will not.
	f.reached(sent)
	inSocket := f.socketDrops()
	f.receive.Close()
	seen := <-f.received
	var gaps []string
	for k := range sent {
		switch seen[k] {
		case 0:
			if lost++; k == 0 || seen[k-1] > 0 {
				gaps = append(gaps, fmt.Sprint(k))
			}
		case 1:
		default:
			duplicated++
		}
	}
	if lost > 0 {
		f.t.Logf("%d of %d packets were lost, from these on: %s; its receiver's socket dropped %d, the backlogs of "+
			"all processors %d",
			lost, sent, strings.Join(gaps[:min(len(gaps), 20)], " "), inSocket, backlogDrops(f.t)-f.backlog)
	}
	return sent, lost, duplicated
}

// socketDrops is what the receiver's socket had no room for, or its filter dropped.
func (f *flow) socketDrops() (drops uint32) {
	f.t.Helper()
	const drop = 8 // SK_MEMINFO_DROPS
	var info [9]uint32
	size := uint32(unsafe.Sizeof(info))
	err := onSocket(f.receive, func(fd int) error {
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
			uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
		if errno != 0 {
			return errno
		}
		return nil
	})
	if err != nil {
		f.t.Logf("what the receiver's socket dropped is not known: %v", err)
	}
	return info[drop]
}

// backlogDrops is what the processors' queues of packets between devices had no room for, on the whole machine.
func backlogDrops(t *testing.T) (drops uint64) {
	t.Helper()
	text, err := os.ReadFile("/proc/net/softnet_stat")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var processed, dropped uint64
		if _, err := fmt.Sscanf(line, "%x %x", &processed, &dropped); err != nil {
			t.Fatalf("/proc/net/softnet_stat says %q: %v", line, err)
		}
		drops += dropped
	}
	return drops
}
