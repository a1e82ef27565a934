package lifecycle

import (
	"encoding/binary"
	"net"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// flow is 1,000 datagrams a second from one element to another, each with its number.
type flow struct {
	p        *platform
	send     *net.UDPConn
	receive  *net.UDPConn
	end      chan struct{}
	sent     atomic.Uint64
	ended    chan struct{}
	received chan map[uint64]int
	lastSeen atomic.Uint64
}

func inNamespace(path string, f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // not given back: the thread ends with the goroutine
		done <- func() error {
			fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
				return err
			}
			return f()
		}()
	}()
	return <-done
}

func (p *platform) namespace(element string) string {
	p.t.Helper()
	views, err := p.client.Elements(p.t.Context(), "lab")
	if err != nil {
		p.t.Fatal(err)
	}
	for _, v := range views {
		if v.ID.Element == element {
			return p.dirs.Node(v.Node).Namespace(v.ID)
		}
	}
	p.t.Fatalf("there is no element %s", element)
	return ""
}

// flow starts one. With drop, the kernel drops the packet of that number at the receiver's socket.
func (p *platform) flow(from, to string, drop uint32) *flow {
	p.t.Helper()
	f := &flow{p: p, end: make(chan struct{}), ended: make(chan struct{}), received: make(chan map[uint64]int, 1)}
	address := p.address(to)
	p.inside(p.namespace(to), func() (err error) {
		f.receive, err = net.ListenUDP("udp4", &net.UDPAddr{IP: address})
		if err != nil {
			return err
		}
		raw, err := f.receive.SyscallConn()
		if err != nil {
			return err
		}
		var serr error
		err = raw.Control(func(fd uintptr) {
			serr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20)
			if serr == nil && drop != 0 {
				// The socket filter sees the UDP header first, eight bytes; the number's low half follows its high half.
				serr = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 4,
					Filter: &[]unix.SockFilter{
						{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 12},
						{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: drop},
						{Code: unix.BPF_RET | unix.BPF_K, K: 0xffff},
						{Code: unix.BPF_RET | unix.BPF_K, K: 0},
					}[0]})
			}
		})
		if err == nil {
			err = serr
		}
		return err
	})
	p.inside(p.namespace(from), func() (err error) {
		f.send, err = net.DialUDP("udp4", nil, f.receive.LocalAddr().(*net.UDPAddr))
		return err
	})
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
		select {
		case <-f.end:
			return
		case <-time.After(time.Until(start.Add(time.Duration(n) * time.Millisecond))):
		}
		binary.BigEndian.PutUint64(packet, n)
		if _, err := f.send.Write(packet); err != nil {
			f.p.t.Errorf("packet %d: %v", n, err)
			return
		}
		f.sent.Store(n + 1)
	}
}

func (f *flow) count() {
	seen := map[uint64]int{}
	buf := make([]byte, 64)
	for {
		n, _, err := f.receive.ReadFromUDP(buf)
		if err != nil {
			f.received <- seen
			return
		}
		if n == 8 {
			k := binary.BigEndian.Uint64(buf)
			seen[k]++
			f.lastSeen.Store(max(f.lastSeen.Load(), k+1))
		}
	}
}

// reached waits until so many packets have been sent and one of them or a later one has arrived.
func (f *flow) reached(n uint64) {
	f.p.t.Helper()
	f.p.until("packets to arrive", func() error {
		if f.lastSeen.Load() < n {
			return unix.EAGAIN
		}
		return nil
	})
}

// stop ends the flow and tells how many packets were sent and how many of them did not arrive.
func (f *flow) stop() (sent, lost uint64) {
	f.p.t.Helper()
	close(f.end)
	<-f.ended
	sent = f.sent.Load()
	// The last packet was sent after all others, on the same path.
	f.reached(sent)
	f.send.Close()
	f.receive.Close()
	seen := <-f.received
	for k := range sent {
		switch seen[k] {
		case 0:
			lost++
		case 1:
		default:
			f.p.t.Errorf("packet %d arrived %d times", k, seen[k])
		}
	}
	return sent, lost
}
