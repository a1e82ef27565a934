package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
)

// Probes and their answers are UDP datagrams:
//
//	question  "polyplane?" nonce(16)
//	answer    "polyplane!" nonce(16) "net/element" 0 secret
const (
	question = "polyplane?"
	reply    = "polyplane!"
	nonceLen = 16
	// maxAnswer bounds names and secret together, in bytes.
	maxAnswer = 1200
)

// enterFunc runs f in an element's network namespace, as control.Enterer does.
type enterFunc func(id model.ID, f func() error) error

// responders answer probes inside elements. A responder is no process but one socket for each address family. The
// socket is in the element's namespace, and the agent reads it.
type responders struct {
	enter enterFunc

	mu      sync.Mutex
	running map[model.ID]*responder
}

type responder struct {
	conns []*net.UDPConn
	timer *time.Timer
}

func (r *responder) close() {
	r.timer.Stop()
	for _, c := range r.conns {
		c.Close()
	}
}

func newResponders(enter enterFunc) *responders {
	return &responders{enter: enter, running: map[model.ID]*responder{}}
}

func (r *responders) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, x := range r.running {
		x.close()
		delete(r.running, id)
	}
}

// maxResponderTime is the longest life of a responder.
const maxResponderTime = time.Hour

// open opens the responders that a request asks for. It replaces those that exist.
func (r *responders) open(request model.RespondersRequest) model.RespondersResult {
	var result model.RespondersResult
	life := min(max(time.Duration(request.Seconds)*time.Second, time.Second), maxResponderTime)
	failures := make([]error, len(request.Responders))
	parallel(len(request.Responders), func(i int) {
		failures[i] = r.openOne(request.Responders[i], life)
	})
	for i, err := range failures {
		if err != nil {
			result.Failed = append(result.Failed, model.ResponderFailure{ID: request.Responders[i].ID,
				Message: err.Error()})
		}
	}
	return result
}

func (r *responders) openOne(what model.Responder, life time.Duration) error {
	if len(what.ID.String())+len(what.Secret) > maxAnswer {
		return fmt.Errorf("the names and the secret are longer than %d bytes", maxAnswer)
	}
	var x *responder
	err := r.enter(what.ID, func() (err error) {
		// A port is free some time after its socket was closed, while somebody still reads from that, and others may
		// open a responder here at the same time.
		for until := time.Now().Add(portFree); ; time.Sleep(10 * time.Millisecond) {
			r.mu.Lock()
			old := r.running[what.ID]
			delete(r.running, what.ID)
			r.mu.Unlock()
			if old != nil {
				old.close()
			}
			if x, err = listenForProbes(); !errors.Is(err, unix.EADDRINUSE) || time.Now().After(until) {
				return err
			}
		}
	})
	if err != nil {
		return fmt.Errorf("element %s: listen for probes: %w", what.ID, err)
	}
	for _, c := range x.conns {
		go respond(c, what)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	x.timer = time.AfterFunc(life, func() {
		r.mu.Lock()
		if r.running[what.ID] == x {
			delete(r.running, what.ID)
		}
		r.mu.Unlock()
		for _, c := range x.conns {
			c.Close()
		}
	})
	if other := r.running[what.ID]; other != nil {
		other.close()
	}
	r.running[what.ID] = x
	return nil
}

// portFree is how long at most the port of an earlier responder is waited for.
const portFree = 2 * time.Second

// listenForProbes opens a responder's sockets in the calling thread's namespace, of each family that it has.
func listenForProbes() (*responder, error) {
	x := &responder{}
	for _, family := range []string{"udp4", "udp6"} {
		c, err := listen(family, fmt.Sprintf(":%d", model.ProbePort))
		if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EADDRNOTAVAIL) {
			continue // the element, or the kernel, does not have this family
		}
		if err != nil {
			for _, c := range x.conns {
				c.Close()
			}
			return nil, err
		}
		x.conns = append(x.conns, c)
	}
	return x, nil
}

// listen opens a UDP socket in the calling thread's namespace. Each datagram it reads says to which address it was
// sent.
func listen(family, address string) (*net.UDPConn, error) {
	level, option := unix.IPPROTO_IP, unix.IP_PKTINFO
	if family == "udp6" {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO
	}
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var serr error
		err := c.Control(func(fd uintptr) { serr = unix.SetsockoptInt(int(fd), level, option, 1) })
		return errors.Join(err, serr)
	}}
	host := "0.0.0.0"
	if family == "udp6" {
		host = "[::]"
	}
	// A literal address: no name is looked up, so no packet leaves this thread's namespace.
	c, err := lc.ListenPacket(context.Background(), family, host+address)
	if err != nil {
		return nil, err
	}
	return c.(*net.UDPConn), nil
}

// respond answers each question from the address that was asked, until the socket is closed.
func respond(c *net.UDPConn, what model.Responder) {
	var buf [256]byte
	var oob [128]byte
	tail := append(append([]byte(what.ID.String()), 0), what.Secret...)
	for {
		n, oobn, _, from, err := c.ReadMsgUDPAddrPort(buf[:], oob[:])
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || n != len(question)+nonceLen || string(buf[:len(question)]) != question {
			continue // an ICMP error for an earlier answer, or a datagram that is no question
		}
		out := append([]byte(reply), buf[len(question):n]...)
		out = append(out, tail...)
		// If the prober has gone, or there is no route yet, the responder need not care.
		c.WriteMsgUDPAddrPort(out, source(oob[:oobn]), from) //nolint:errcheck
	}
}

// source turns the control message that says to which address a datagram was sent into one that makes this address the
// source of the answer.
func source(oob []byte) []byte {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		switch {
		case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO &&
			len(m.Data) >= unix.SizeofInet4Pktinfo:
			// struct in_pktinfo: interface, local address (the one asked), header's destination
			info := &unix.Inet4Pktinfo{}
			copy(info.Spec_dst[:], m.Data[4:8])
			return unix.PktInfo4(info)
		case m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO &&
			len(m.Data) >= unix.SizeofInet6Pktinfo:
			info := &unix.Inet6Pktinfo{}
			copy(info.Addr[:], m.Data[:16])
			if netip.AddrFrom16(info.Addr).IsLinkLocalUnicast() {
				info.Ifindex = uint32(m.Data[16]) | uint32(m.Data[17])<<8 | uint32(m.Data[18])<<16 |
					uint32(m.Data[19])<<24
			}
			return unix.PktInfo6(info)
		}
	}
	return nil
}

// parseReply takes an answer apart.
func parseReply(b []byte) (nonce [nonceLen]byte, id, secret string, ok bool) {
	rest, ok := bytes.CutPrefix(b, []byte(reply))
	if !ok || len(rest) < nonceLen {
		return nonce, "", "", false
	}
	copy(nonce[:], rest)
	name, word, ok := bytes.Cut(rest[nonceLen:], []byte{0})
	return nonce, string(name), string(word), ok
}

// parallel calls f for every i below n, a bounded number of them at a time.
func parallel(n int, f func(i int)) {
	const workers = 16
	var wg sync.WaitGroup
	next := make(chan int)
	for range min(n, workers) {
		wg.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}
