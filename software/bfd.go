package software

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/polyplane/polyplane/model"
)

// watched are the ports at which a protocol may be told by BFD that a neighbour is lost.
func watched(el model.ResolvedElement) []port {
	r := el.Routing
	if r.OSPF == nil && r.OSPF6 == nil && r.ISIS == nil && r.BGP == nil {
		return nil
	}
	return slices.DeleteFunc(ports(el), func(p port) bool { return p.bfd == "" })
}

// watches returns the port at which a session of BGP is watched: that of its link, if it is over one.
func watches(el model.ResolvedElement, n model.BGPNeighbor) (port, bool) {
	all := watched(el)
	device, _ := routeDevice(el, n.Interface)
	if device == "" {
		device = n.Address.Zone()
	}
	i := slices.IndexFunc(all, func(p port) bool {
		return p.device == device || device == "" &&
			slices.ContainsFunc(p.prefixes, func(a netip.Prefix) bool { return a.Contains(n.Address) })
	})
	if i < 0 {
		return port{}, false
	}
	return all[i], true
}

// frrProfile is the name of the profile with a port's times.
func frrProfile(b model.BFD) string {
	interval, multiplier, _ := b.Times()
	return fmt.Sprintf("every-%dms-%d", milliseconds(interval), multiplier)
}

func milliseconds(d model.Duration) int { return int(d / model.Duration(time.Millisecond)) }

// frrBFD writes the profiles that protocols refer to.
func frrBFD(w *writer, el model.ResolvedElement) {
	var done []string
	for _, p := range watched(el) {
		name := frrProfile(p.bfd)
		if slices.Contains(done, name) {
			continue
		}
		if done = append(done, name); len(done) == 1 {
			w.line("bfd")
		}
		interval, multiplier, _ := p.bfd.Times()
		w.line(" profile %s", name)
		w.line("  detect-multiplier %d", multiplier)
		w.line("  transmit-interval %d", milliseconds(interval))
		w.line("  receive-interval %d", milliseconds(interval))
		w.line(" exit")
		w.line(" !")
	}
	if len(done) > 0 {
		w.line("exit")
		w.line("!")
	}
}

// frrWatches has a protocol be told by BFD: on an interface, or of a neighbour.
func frrWatches(w *writer, words string, b model.BFD) {
	if b != "" {
		w.line(" %s bfd", words)
		w.line(" %s bfd profile %s", words, frrProfile(b))
	}
}

// birdBFD writes the protocol that watches, with its times by interface.
func birdBFD(w *writer, el model.ResolvedElement) error {
	all := watched(el)
	if len(all) == 0 {
		return nil
	}
	w.line("protocol bfd {")
	for _, p := range all {
		interval, multiplier, _ := p.bfd.Times()
		w.line("\tinterface %q { min rx interval %d ms; min tx interval %[2]d ms; multiplier %d; };", p.device,
			milliseconds(interval), multiplier)
	}
	w.line("}")
	return nil
}
