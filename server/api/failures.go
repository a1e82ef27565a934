package api

import (
	"net/netip"
	"sync"
	"time"
)

// How many wrong tokens a host may show.
const (
	// maxFailures is how many in failuresWithin; then all its tokens are refused for the rest of that time.
	maxFailures    = 20
	failuresWithin = time.Minute
	// maxFailing is how many hosts are remembered; more at a time forget the earlier ones.
	maxFailing = 4096
)

// failures counts wrong tokens by the host that they came from. Secrets are too long to be guessed. This keeps hosts
// that try all the same from keeping the manager busy.
type failures struct {
	now func() time.Time

	mu    sync.Mutex               // guards hosts, and is held while a token is checked
	hosts map[netip.Prefix]failing // those that have shown a wrong token lately
}

type failing struct {
	count int
	until time.Time
}

func newFailures(now func() time.Time) *failures {
	return &failures{now: now, hosts: map[netip.Prefix]failing{}}
}

// network is what counts as one host: an IPv4 address, or the /64 that a host with one IPv6 address usually has.
func network(host string) netip.Prefix {
	a, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Prefix{}
	}
	a = a.Unmap().WithZone("")
	bits := 32
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits)
	return p
}

// try has a token checked; check says why it is wrong. A host that has shown too many wrong ones lately is refused
// without a check. Tokens are checked one after the other: otherwise many at once would all be checked before the first
// is counted. So check must not wait for anything.
func (f *failures) try(host string, check func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, key := f.now(), network(host)
	h, there := f.hosts[key]
	if h.count >= maxFailures && now.Before(h.until) {
		return &Problem{Kind: KindTooMany, Detail: "too many wrong tokens came from " + host +
			"; try again in a minute"}
	}
	err := check()
	if err == nil {
		return nil
	}
	if !now.Before(h.until) {
		h = failing{until: now.Add(failuresWithin)}
	}
	h.count++
	if !there && len(f.hosts) >= maxFailing {
		clear(f.hosts)
	}
	f.hosts[key] = h
	return err
}
