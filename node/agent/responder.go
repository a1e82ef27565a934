package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
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
//
// Several checks may be under way at once, each with a secret of its own for the same element. The nonce begins with a
// hint of the secret that the answer is to have, a hash of which nothing can be learnt about it.
const (
	question = "polyplane?"
	reply    = "polyplane!"
	nonceLen = 16
	// maxAnswer bounds names and secret together, in bytes.
	maxAnswer = 1200
	hintLen   = 4
	// maxSecrets is how many checks a responder answers at a time. More take the places of the earliest.
	maxSecrets = 64
)

// hintOf is the hint of a secret.
func hintOf(secret string) (hint [hintLen]byte) {
	sum := sha256.Sum256([]byte(secret))
	return [hintLen]byte(sum[:])
}

// enterFunc runs f in an element's network namespace, as control.Enterer does.
type enterFunc func(id model.ID, f func() error) error

// responders answer probes inside elements. A responder is no process but one socket for each address family. The
// socket is in the element's namespace, and the agent reads it.
type responders struct {
	enter enterFunc

	// mu guards running, and what responders have but secrets. A responder's own lock may be taken while it is held.
	mu      sync.Mutex
	running map[model.ID]*responder
}

// responder answers the probes of all checks of one element that are under way, and ends with the last of them.
type responder struct {
	id        model.ID
	namespace uint64                  // the inode of the network namespace that the sockets are in
	conns     map[string]*net.UDPConn // by address family
	timer     *time.Timer             // ends it

	mu      sync.Mutex // guards secrets: those who read the sockets hold no other lock
	secrets []secret   // the latest last
}

// secret is what one check expects in the answers.
type secret struct {
	tail  []byte // the element's name and the secret
	hint  [hintLen]byte
	until time.Time
}

func (r *responder) close() {
	r.timer.Stop()
	for _, c := range r.conns {
		c.Close()
	}
}

// add adds a check's secret, or has one that it knows last longer. It returns how long the responder is needed.
func (r *responder) add(text string, life time.Duration) time.Duration {
	now := time.Now()
	s := secret{tail: append(append([]byte(r.id.String()), 0), text...), hint: hintOf(text), until: now.Add(life)}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.secrets = slices.DeleteFunc(r.secrets, func(o secret) bool {
		return o.until.Before(now) || bytes.Equal(o.tail, s.tail)
	})
	if over := len(r.secrets) + 1 - maxSecrets; over > 0 {
		r.secrets = slices.Delete(r.secrets, 0, over)
	}
	r.secrets = append(r.secrets, s)
	latest := s.until
	for _, o := range r.secrets {
		if o.until.After(latest) {
			latest = o.until
		}
	}
	return latest.Sub(now)
}

// answer is what a question with this nonce is answered: with the secret that it hints at, or else the latest. It is
// nil once all have had their time.
func (r *responder) answer(nonce []byte) []byte {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	var latest []byte
	for _, s := range slices.Backward(r.secrets) {
		switch {
		case s.until.Before(now):
		case bytes.Equal(s.hint[:], nonce[:hintLen]):
			return s.tail
		case latest == nil:
			latest = s.tail
		}
	}
	return latest
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

// open opens the responders that a request asks for. Those that exist answer its questions beside those of others.
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

// openOne has one element answer with a secret for so long.
func (r *responders) openOne(what model.Responder, life time.Duration) error {
	if len(what.ID.String())+len(what.Secret) > maxAnswer {
		return fmt.Errorf("the names and the secret are longer than %d bytes", maxAnswer)
	}
	return r.enter(what.ID, func() error {
		here, err := currentNamespace()
		if err != nil {
			return fmt.Errorf("element %s: find its network namespace: %w", what.ID, err)
		}
		// A port is free some time after its socket was closed, while somebody still reads from that.
		for until := time.Now().Add(portFree); ; time.Sleep(10 * time.Millisecond) {
			if err = r.take(what, life, here); !errors.Is(err, unix.EADDRINUSE) || time.Now().After(until) {
				break
			}
		}
		if err != nil {
			return fmt.Errorf("element %s: listen for probes: %w", what.ID, err)
		}
		return nil
	})
}

// take has the element's responder answer with a secret too, or opens one in the calling thread's namespace. One that
// is in another namespace, which the element had before, is closed.
func (r *responders) take(what model.Responder, life time.Duration, here uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.running[what.ID]
	if x != nil && x.namespace != here {
		x.close()
		delete(r.running, what.ID)
		x = nil
	}
	is := x
	if is == nil {
		is = &responder{id: what.ID, namespace: here, conns: map[string]*net.UDPConn{}}
	}
	added, err := listenForProbes(is.conns) // also in a family that it has got meanwhile
	if err != nil {
		return err
	}
	needed := is.add(what.Secret, life)
	for _, c := range added {
		go respond(c, is)
	}
	if x == nil {
		r.running[what.ID] = is
	} else {
		is.timer.Stop()
	}
	is.timer = time.AfterFunc(needed, func() { r.end(is) })
	return nil
}

// end closes a responder whose time is over.
func (r *responders) end(x *responder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[x.id] != x {
		return
	}
	x.mu.Lock()
	left := slices.ContainsFunc(x.secrets, func(s secret) bool { return s.until.After(time.Now()) })
	x.mu.Unlock()
	if left { // a check has come while this waited for its turn, and set the timer anew
		return
	}
	delete(r.running, x.id)
	x.close()
}

// currentNamespace is the inode of the calling thread's network namespace. No other has it as long as a socket is open
// in that namespace.
func currentNamespace() (uint64, error) {
	var s unix.Stat_t
	err := unix.Stat("/proc/thread-self/ns/net", &s)
	return s.Ino, err
}

// portFree is how long at most the port of an earlier responder is waited for.
const portFree = 2 * time.Second

// listenForProbes opens a responder's sockets in the calling thread's namespace, of each family that it lacks, and adds
// them: all of them or none.
func listenForProbes(conns map[string]*net.UDPConn) (added []*net.UDPConn, err error) {
	fresh := map[string]*net.UDPConn{}
	for _, family := range []string{"udp4", "udp6"} {
		if conns[family] != nil {
			continue
		}
		c, err := listen(family, fmt.Sprintf(":%d", model.ProbePort))
		if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EADDRNOTAVAIL) {
			continue // the element, or the kernel, does not have this family
		}
		if err != nil {
			for _, c := range fresh {
				c.Close()
			}
			return nil, err
		}
		fresh[family] = c
	}
	for family, c := range fresh {
		conns[family] = c
		added = append(added, c)
	}
	return added, nil
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
func respond(c *net.UDPConn, r *responder) {
	var buf [256]byte
	var oob [128]byte
	for {
		n, oobn, _, from, err := c.ReadMsgUDPAddrPort(buf[:], oob[:])
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || n != len(question)+nonceLen || string(buf[:len(question)]) != question {
			continue // an ICMP error for an earlier answer, or a datagram that is no question
		}
		nonce := buf[len(question):n]
		tail := r.answer(nonce)
		if tail == nil {
			continue
		}
		out := append(append([]byte(reply), nonce...), tail...)
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
