package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
)

// Bounds of a request for probes.
const (
	maxProbeTime     = 30 * time.Second
	maxProbeAttempts = 100
)

// prober runs the probes of one element, all with the same two sockets, one for each address family.
type prober struct {
	conns map[bool]*net.UDPConn // by whether it is IPv4's

	// mu guards the flights as well, and what they write into results: who sends and who reads are different
	// goroutines.
	mu      sync.Mutex
	waiting map[[nonceLen]byte]*flight // by nonce, whose last byte is zero here
	left    int                        // flights that are not over
	done    chan struct{}              // closed when none is left
}

// flight is a probe under way.
type flight struct {
	probe  model.Probe
	result *model.ProbeResult
	nonce  [nonceLen]byte // its last byte is the attempt's number
	sent   []time.Time    // by attempt
	over   bool
	err    error // of the last attempt to send
}

// runProbes runs all probes at once. It returns when each has its answer or the time is over.
func runProbes(ctx context.Context, request model.ProbesRequest, enter enterFunc) model.ProbesResult {
	timeout := min(max(request.Timeout, 10*time.Millisecond), maxProbeTime)
	attempts := min(max(request.Attempts, 1), maxProbeAttempts)
	results := make([]model.ProbeResult, len(request.Probes))
	byElement := map[model.ID][]int{}
	var order []model.ID
	for i, p := range request.Probes {
		results[i] = model.ProbeResult{From: p.From.String(), To: p.To.String(), Address: p.Address, Not: p.Not}
		if byElement[p.From] == nil {
			order = append(order, p.From)
		}
		byElement[p.From] = append(byElement[p.From], i)
	}
	// The sockets are opened first, so that entering namespaces takes nothing from the probes' time.
	probers := make([]*prober, len(order))
	parallel(len(order), func(k int) {
		flights := each.Of(byElement[order[k]], func(i int) *flight {
			return &flight{probe: request.Probes[i], result: &results[i]}
		})
		p, err := newProber(order[k], flights, enter)
		if err != nil {
			for _, f := range flights {
				f.result.Message = err.Error()
			}
			return
		}
		probers[k] = p
	})
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var wg sync.WaitGroup
	for _, p := range probers {
		if p != nil {
			wg.Go(func() { p.run(ctx, timeout/time.Duration(attempts), attempts) })
		}
	}
	wg.Wait()
	for k, p := range probers {
		if p == nil {
			continue // a probe that could not even be sent does not prove that somebody cannot be reached
		}
		for _, i := range byElement[order[k]] {
			results[i].OK = results[i].Reached != results[i].Not
		}
	}
	return model.ProbesResult{Results: results}
}

// newProber opens sockets for an element's probes, in the families that they need. An element may have no other one.
func newProber(from model.ID, flights []*flight, enter enterFunc) (*prober, error) {
	p := &prober{conns: map[bool]*net.UDPConn{}, waiting: map[[nonceLen]byte]*flight{}, left: len(flights),
		done: make(chan struct{})}
	var need4, need6 bool
	for _, f := range flights {
		rand.Read(f.nonce[:])
		hint := hintOf(f.probe.Secret)
		copy(f.nonce[:], hint[:])
		f.nonce[nonceLen-1] = 0
		p.waiting[f.nonce] = f
		need4 = need4 || f.probe.Address.Unmap().Is4()
		need6 = need6 || !f.probe.Address.Unmap().Is4()
	}
	err := enter(from, func() error {
		for family, need := range map[string]bool{"udp4": need4, "udp6": need6} {
			if !need {
				continue
			}
			c, err := listen(family, ":0")
			if err != nil {
				return err
			}
			p.conns[family == "udp4"] = c
		}
		return nil
	})
	if err != nil {
		p.close()
		return nil, fmt.Errorf("element %s: send probes: %w", from, err)
	}
	return p, nil
}

func (p *prober) close() {
	for _, c := range p.conns {
		c.Close()
	}
}

// run sends the probes, one attempt after the other, and listens until all are answered or the context ends.
func (p *prober) run(ctx context.Context, every time.Duration, attempts int) {
	var readers sync.WaitGroup
	for _, c := range p.conns {
		readers.Go(func() { p.read(c) })
	}
	ticker := time.Tick(every)
	for sent, over := 0, false; !over; {
		if sent < attempts {
			p.send(sent)
			sent++
		}
		select {
		case <-ticker:
		case <-p.done:
			over = true
		case <-ctx.Done():
			over = true
		}
	}
	p.close()
	readers.Wait()
	for _, f := range p.waiting {
		if !f.over {
			f.result.Message = "no answer"
			if f.err != nil {
				f.result.Message = f.err.Error()
			}
		}
	}
}

// send repeats all probes that have no answer yet.
func (p *prober) send(attempt int) {
	for _, f := range p.waiting {
		p.mu.Lock()
		over := f.over
		f.sent = append(f.sent, time.Now())
		p.mu.Unlock()
		if over {
			continue
		}
		address := f.probe.Address.Unmap()
		packet := append([]byte(question), f.nonce[:]...)
		packet[len(packet)-1] = byte(attempt)
		_, err := p.conns[address.Is4()].WriteToUDPAddrPort(packet, netip.AddrPortFrom(address, model.ProbePort))
		f.err = plain(err)
	}
}

// plain removes the words that the socket puts before an error.
func plain(err error) error {
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		return errno
	}
	return err
}

// read takes answers until the socket is closed. One that is not from the address that was asked, or comes after the
// first, does not count. Whoever answers in another's place is told: two elements may have the same address.
func (p *prober) read(c *net.UDPConn) {
	buf := make([]byte, 2048)
	for {
		n, from, err := c.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		now := time.Now()
		nonce, id, secret, ok := parseReply(buf[:n])
		if !ok {
			continue
		}
		attempt := int(nonce[nonceLen-1])
		nonce[nonceLen-1] = 0
		p.mu.Lock()
		f := p.waiting[nonce]
		if f == nil || f.over || attempt >= len(f.sent) ||
			from.Addr().Unmap().WithZone("") != f.probe.Address.Unmap().WithZone("") {
			p.mu.Unlock()
			continue
		}
		f.over = true
		f.result.RTT = now.Sub(f.sent[attempt])
		if id == f.probe.To.String() && secret == f.probe.Secret {
			f.result.Reached = true
		} else {
			f.result.Answered = id
			f.result.Message = id + " answered in the place of " + f.probe.To.String()
			if id == f.probe.To.String() {
				f.result.Message = id + " answered with another secret: it is not the one that was meant"
			}
		}
		p.left--
		last := p.left == 0
		p.mu.Unlock()
		if last {
			close(p.done)
		}
	}
}
