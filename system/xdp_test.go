package system

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// forwarded is an example's file with all routers' packets forwarded so.
func forwarded(t *testing.T, example string, f model.Forwarding) string {
	t.Helper()
	return file(t, forwardedText(t, example, f))
}

func forwardedText(t *testing.T, example string, f model.Forwarding) string {
	t.Helper()
	text := read(t, filepath.Join(root, "examples", example+".yaml"))
	head := "network: " + example + "\n"
	if !strings.Contains(text, head) {
		t.Fatalf("the example %s has another name", example)
	}
	return strings.Replace(text, head, head+"forwarding: "+string(f)+"\n", 1)
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// fast sums up what the nodes forwarded for the network's routers, and what the routers' own stacks got, by reason.
func (p *platform) fast(network string) (packets uint64, punted map[string]uint64) {
	p.t.Helper()
	punted = map[string]uint64{}
	for _, e := range p.elements(network) {
		if e.Fast == nil {
			continue
		}
		packets += e.Fast.Packets
		for reason, n := range e.Fast.Punted {
			punted[reason] += n
		}
	}
	return packets, punted
}

// owner tells whose address it is.
func owner(elements map[string]model.ElementView, address string) string {
	a, err := netip.ParseAddr(address)
	for name, e := range elements {
		for _, own := range e.Element.Loopback { // a router of BGP says all that it says itself from there
			if err == nil && own.Addr() == a {
				return name
			}
		}
		for _, ifc := range e.Element.Interfaces {
			for _, own := range ifc.Addresses {
				if err == nil && own.Addr() == a {
					return name
				}
			}
		}
	}
	return ""
}

// route is the way that traceroute shows, probe by probe, since hosts answer few at once: the hops' addresses.
func (p *platform) route(network, from, to string) []string {
	p.t.Helper()
	var hops []string
	for line := range strings.Lines(in(p.t, p.namespace(network, from), "traceroute", "-n", "-q1",
		"-N1", "-w5", "-U", to)) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] != "traceroute" {
			hops = append(hops, f[1])
		}
	}
	return hops
}

// addressOf is an address of an element's first interface.
func addressOf(p *platform, network, element string, v6 bool) string {
	p.t.Helper()
	for _, a := range p.elements(network)[element].Element.Interfaces[0].Addresses {
		if a.Addr().Is6() == v6 {
			return a.Addr().String()
		}
	}
	p.t.Fatalf("%s/%s has no such address", network, element)
	return ""
}

// TestForwardingXDP has the nodes forward for a square of OSPF routers: transit packets do so, and what they can't do
// their guests do.
func TestForwardingXDP(t *testing.T) {
	p := up(t, 3)
	const network = "ospf-square"
	byXDP := forwarded(t, network, model.ForwardXDP)
	p.run("apply", "-f", byXDP)
	p.run("check", network, "--mesh", "--wait", "3m")
	for _, router := range []string{"r1", "r2", "r3", "r4"} { // one way may be there before the other
		compareRoutes(t, p, network, router)
	}
	h3, h3v6 := addressOf(p, network, "h3", false), addressOf(p, network, "h3", true)

	t.Run("transit", func(t *testing.T) {
		p := p.with(t)
		before, puntedBefore := p.fast(network)
		f := p.flow(network, "h1", "h3", h3, 0)
		f.reached(2000)
		sent, lost, duplicated := f.stop()
		if lost+duplicated != 0 {
			t.Errorf("of %d packets %d were lost and %d came twice", sent, lost, duplicated)
		}
		// Three routers each: the counters are told once a second.
		var packets uint64
		var punted map[string]uint64
		p.await("the fast path's counters", func() bool {
			packets, punted = p.fast(network)
			return packets-before >= 3*sent*99/100
		}, func() string {
			return fmt.Sprintf("%d of 3 × %d packets, punted %v before %v", packets-before, sent, punted, puntedBefore)
		})
		others := uint64(0)
		for reason, n := range punted {
			if reason != "not addressed to the router, or not IP" && reason != "address that is not forwarded" &&
				reason != "to the router itself" {
				others += n - puntedBefore[reason]
			}
		}
		if others > 3*sent/100 {
			t.Errorf("punted %v, before %v", punted, puntedBefore)
		}
	})

	t.Run("traceroute", func(t *testing.T) {
		p := p.with(t)
		elements := p.elements(network)
		for _, to := range []string{h3, h3v6} {
			hops := p.route(network, "h1", to)
			var names []string
			for _, a := range hops {
				names = append(names, owner(elements, a))
			}
			if len(names) == 4 && names[1] == "r4" {
				names[1] = "r2" // both ways are as good
			}
			if !slices.Equal(names, []string{"r1", "r2", "r3", "h3"}) {
				t.Errorf("the way to %s is shown as %v: %v", to, hops, names)
			}
		}
	})
}
