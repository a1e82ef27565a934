package system

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/spec"
)

var update = flag.Bool("update", false, "write the routes seen as the expected ones (then read every one of them)")

// lacksForExample says why this kernel cannot make what an example is about; nil if it can.
func lacksForExample(file string) error {
	switch filepath.Base(file) {
	case "vlans.yaml":
		return lacksVLANs()
	case "vrf.yaml":
		return lacksVRFs()
	case "mpls.yaml":
		return linux.ProbeMPLS()
	}
	return nil
}

// TestExamples runs all examples at once, on two nodes: each must do what its file expects, and the routes that its
// routing software gave every router's kernel must be the expected ones in testdata/routes.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../examples/*.yaml")
	if err != nil || len(files) < 8 {
		t.Fatalf("examples: %v, %v", files, err)
	}
	p := up(t, 2)
	var networks []model.Network
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if lacksForExample(f) != nil {
			continue // its own test has it refused here, and made where it can be
		}
		parsed, err := spec.Parse(f, text, spec.Options{})
		if err != nil {
			t.Fatal(err)
		}
		networks = append(networks, parsed...)
		p.run("apply", "-f", strings.TrimPrefix(f, "../"))
	}
	if *update {
		time.Sleep(time.Minute) // there is nothing to wait for yet: the protocols are taken to be done by now
	}
	for _, n := range networks {
		t.Run(n.Name, func(t *testing.T) {
			p := p.with(t)
			if len(n.Expect) > 0 {
				if out, stderr, err := p.try("check", n.Name, "--wait", "3m"); err != nil {
					t.Fatalf("check %s: %v\n%s%s%s", n.Name, err, out, stderr, p.routing(n))
				}
			}
			for _, e := range n.Elements {
				if e.Kind == model.Router {
					compareRoutes(t, p, n.Name, e.Name)
				}
			}
		})
	}
}

// routing is what the network's routing software says of itself, for a test that failed.
func (p *platform) routing(n model.Network) string {
	var said strings.Builder
	for _, e := range n.Elements {
		if e.Kind != model.Router {
			continue
		}
		id := n.Name + "/" + e.Name
		for _, args := range [][]string{
			{"exec", id, "--", "vtysh", "-c", "show ip ospf neighbor", "-c", "show ip ospf interface",
				"-c", "show ip route",
				"-c", "show running-config"},
			{"logs", id},
		} {
			out, stderr, _ := p.try(args...)
			fmt.Fprintf(&said, "polyplane %s:\n%s%s\n", strings.Join(args, " "), out, stderr)
		}
	}
	return said.String()
}

func compareRoutes(t *testing.T, p *platform, network, router string) {
	t.Helper()
	file := filepath.Join("testdata", "routes", network, router+".txt")
	namespace := p.namespace(network, router)
	got := withoutEnds(routes(t, namespace))
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got == string(want) {
		return
	}
	// Expected reachability can be there a moment before the last route is.
	p.await("the routes of "+network+"/"+router, func() bool {
		got = withoutEnds(routes(t, namespace))
		return got == string(want)
	}, func() string { return fmt.Sprintf("they are\n%s\nand should be\n%s", got, want) })
}

// withoutEnds leaves out what FRR 10 announces and FRR 8 did not: besides the subnet of an OSPFv3 point-to-point link,
// the addresses of its ends (RFC 5340, 4.4.3.9).
func withoutEnds(table string) string {
	var subnets []netip.Prefix
	var kept strings.Builder
	for line := range strings.Lines(table) {
		if p, err := netip.ParsePrefix(strings.Fields(line)[0]); err == nil {
			subnets = append(subnets, p)
		}
	}
	for line := range strings.Lines(table) {
		words := strings.Fields(line)
		a, err := netip.ParseAddr(words[0])
		if err == nil && a.Is6() && words[1] == "ospf:" &&
			slices.ContainsFunc(subnets, func(p netip.Prefix) bool { return p.Contains(a) }) {
			continue
		}
		kept.WriteString(line)
	}
	return kept.String()
}

func TestWithoutEnds(t *testing.T) {
	const before = `10.0.0.1 ospf: r2
10.0.0.0/30 kernel: r2
default ospf: r2
fd00:10:0:1::/64 kernel: r2
fd00:10:0:1::2 ospf: r2
fd00:10:0:1::3 static: r2
fd00:10:0:ffff::2 ospf: r2
`
	if got, want := withoutEnds(before), strings.Replace(before, "fd00:10:0:1::2 ospf: r2\n", "", 1); got != want {
		t.Errorf("left are\n%s\nand should be\n%s", got, want)
	}
}

// nextHops are the next hops of a route, or of a next-hop object, which FRR gives its routes.
type nextHops struct {
	ID      int `json:"id"`
	Object  int `json:"nhid"`
	Gateway string
	Via     struct{ Host string }
	Device  string                          `json:"dev"`
	Labels  string                          // that packets get
	Several []struct{ Gateway, Dev string } `json:"nexthops"`
	Group   []struct{ ID int }
}

func (n nextHops) words(objects map[int]nextHops) []string {
	var words []string
	hop := func(gateway, device string) {
		// Link-local gateways say nothing that the device does not.
		if gateway != "" && !strings.HasPrefix(gateway, "fe80:") {
			device += " via " + gateway
		}
		words = append(words, device)
	}
	switch {
	case n.Object != 0:
		return objects[n.Object].words(objects)
	case len(n.Group) > 0:
		for _, member := range n.Group {
			words = append(words, objects[member.ID].words(objects)...)
		}
	case len(n.Several) > 0:
		for _, h := range n.Several {
			hop(h.Gateway, h.Dev)
		}
	default:
		hop(n.Gateway+n.Via.Host, n.Device)
		if n.Labels != "" {
			words[0] += " push " + n.Labels
		}
	}
	slices.Sort(words)
	return words
}

// routes is the kernel's unicast routing table in a canonical form: destination, who made it, next hops.
func routes(t *testing.T, namespace string) string {
	t.Helper()
	read := func(into any, args ...string) {
		t.Helper()
		out := in(t, namespace, append([]string{"ip", "-j"}, args...)...)
		if out = strings.TrimSpace(out); out == "" {
			return
		}
		// iproute2 says "dst" of the route and of the labels alike.
		out = strings.ReplaceAll(out, `"encap":"mpls","dst":`, `"labels":`)
		if err := json.Unmarshal([]byte(out), into); err != nil {
			t.Fatalf("ip %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	var lines []string
	for _, family := range []string{"-4", "-6"} {
		var table []struct {
			nextHops
			Destination string `json:"dst"`
			Protocol    string
			Type        string
		}
		var list []nextHops
		read(&table, family, "route", "show", "table", "main")
		read(&list, "nexthop", "show")
		objects := map[int]nextHops{}
		for _, n := range list {
			objects[n.ID] = n
		}
		for _, r := range table {
			if strings.HasPrefix(r.Destination, "fe80:") || strings.HasPrefix(r.Destination, "ff00:") ||
				r.Destination == "multicast" {
				continue
			}
			what := r.Protocol
			if r.Type != "" {
				what += " " + r.Type
			} else {
				// People and scripts read next hops in `ip route` itself, as on any machine.
				if r.Object != 0 && r.Device == "" && len(r.Several) == 0 {
					t.Errorf("`ip route` shows %s by nhid %d, and no next hop", r.Destination, r.Object)
				}
				what += ": " + strings.Join(r.words(objects), ", ")
			}
			lines = append(lines, r.Destination+" "+what)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}
