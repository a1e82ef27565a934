package agent

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A neighbour's probe and the answer to it are UDP datagrams of the same size:
//
//	probe   "polyplane link?" run(16) number(8)
//	answer  "polyplane link!" run(16) number(8)
//
// The run is a random number of the prober's, so that answers to another's probes, or to those of an earlier life, are
// told apart. An answer is never answered, and nobody but neighbours is.
const (
	linkQuestion = "polyplane link?"
	linkReply    = "polyplane link!"
	runLen       = 16
	linkProbeLen = len(linkQuestion) + runLen + 8
)

// echoed is what came of a probe.
type echoed struct {
	link int // as ask was told
	from netip.Addr
	lost bool
	rtt  time.Duration
	at   time.Time
}

// echo sends probes to neighbours and answers theirs. It takes the times itself. The kernel could stamp the packets,
// but if it does so for one socket it does so for the whole machine, and every router on it would pay for that.
type echo struct {
	port    uint16
	conns   map[bool]*net.UDPConn // by whether they speak IPv4
	known   map[netip.Addr]bool
	run     [runLen]byte
	answers chan echoed   // what came back; a reader waits until it is taken, or until closed
	closed  chan struct{} // by close
	readers sync.WaitGroup

	mu      sync.Mutex        // guards the two below: who asks and who reads are different goroutines
	number  uint64            // of the latest probe
	pending map[uint64]echoed // at is when the probe was sent
}

// openEcho opens a socket for each address. Probes are answered only from the addresses of neighbours.
func openEcho(port uint16, addresses []netip.Addr) (*echo, error) {
	e := &echo{port: port, conns: map[bool]*net.UDPConn{}, known: map[netip.Addr]bool{}, answers: make(chan echoed, 64),
		closed: make(chan struct{}), pending: map[uint64]echoed{}}
	rand.Read(e.run[:]) //nolint:errcheck // it never fails
	// All of them before anybody reads.
	for _, a := range addresses {
		e.known[a] = true
	}
	for _, a := range addresses {
		if e.conns[a.Is4()] != nil {
			continue
		}
		family := "udp6"
		if a.Is4() {
			family = "udp4"
		}
		c, err := listen(family, fmt.Sprintf(":%d", port))
		if err != nil {
			e.close()
			return nil, fmt.Errorf("listen for neighbours' probes on UDP port %d: %w", port, err)
		}
		e.conns[a.Is4()] = c
		e.readers.Go(func() { e.read(c) })
	}
	return e, nil
}

func (e *echo) close() {
	close(e.closed)
	for _, c := range e.conns {
		c.Close()
	}
	e.readers.Wait()
}

// ask sends one probe.
func (e *echo) ask(link int, to netip.Addr) {
	e.mu.Lock()
	e.number++
	number := e.number
	e.pending[number] = echoed{link: link, from: to, at: time.Now()}
	e.mu.Unlock()
	packet := make([]byte, 0, linkProbeLen)
	packet = append(append(packet, linkQuestion...), e.run[:]...)
	packet = binary.BigEndian.AppendUint64(packet, number)
	// An error here may be an ICMP error for an earlier probe. A probe that was not sent will not be answered.
	e.conns[to.Is4()].WriteToUDPAddrPort(packet, netip.AddrPortFrom(to, e.port)) //nolint:errcheck
}

// expire removes and returns the probes that were sent before a moment and have no answer.
func (e *echo) expire(before time.Time) []echoed {
	e.mu.Lock()
	defer e.mu.Unlock()
	var lost []echoed
	for number, p := range e.pending {
		if p.at.Before(before) {
			delete(e.pending, number)
			p.lost = true
			lost = append(lost, p)
		}
	}
	return lost
}

// read takes datagrams until the socket is closed.
func (e *echo) read(c *net.UDPConn) {
	var buf [linkProbeLen + 1]byte
	var oob [128]byte
	for {
		n, oobn, flags, from, err := c.ReadMsgUDPAddrPort(buf[:], oob[:])
		now := time.Now()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		sender := from.Addr().Unmap().WithZone("")
		if err != nil || flags&unix.MSG_TRUNC != 0 || n != linkProbeLen || !e.known[sender] {
			continue // an ICMP error for an earlier probe, or a stranger's
		}
		switch string(buf[:len(linkQuestion)]) {
		case linkQuestion:
			copy(buf[:], linkReply)
			c.WriteMsgUDPAddrPort(buf[:n], source(oob[:oobn]), from) //nolint:errcheck // then it is lost, which the prober finds out
		case linkReply:
			if [runLen]byte(buf[len(linkReply):]) != e.run {
				continue
			}
			number := binary.BigEndian.Uint64(buf[len(linkReply)+runLen:])
			e.mu.Lock()
			p, asked := e.pending[number]
			if asked = asked && p.from == sender; asked {
				delete(e.pending, number)
			}
			e.mu.Unlock()
			if !asked {
				continue
			}
			p.rtt, p.at = now.Sub(p.at), now
			select {
			case e.answers <- p:
			case <-e.closed:
				return
			}
		}
	}
}
