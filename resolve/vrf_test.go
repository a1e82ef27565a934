package resolve_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/resolve"
	"github.com/polyplane/polyplane/spec"
)

const twoCustomers = `network: lab
routers:
  pe: {vrfs: {red: [a, r1], blue: {interfaces: [b, r2], ospf: {}}}}
  r1:
  r2: {ospf: {}}
hosts: [a, a2, b, b2, c]
links:
  - a -- pe: 10.0.0.0/24
  - b -- pe: 10.0.0.0/24
  - pe -- r1
  - pe -- r2
  - a2 -- r1: 10.1.0.0/24
  - b2 -- r2: 10.1.0.0/24
  - c -- pe
`

// TestVRFsHaveSpacesOfTheirOwn: customers may have the same prefixes; automatic addresses are different, hosts have their gateways, and who is
// apart from whom is known.
func TestVRFsHaveSpacesOfTheirOwn(t *testing.T) {
	net, r, _ := readVLANs(t, twoCustomers)
	for name, want := range map[string]string{"pe:a": "red [10.0.0.2/24]", "pe:b": "blue [10.0.0.2/24]", "a:pe": " [10.0.0.1/24]",
		"b:pe": " [10.0.0.1/24]", "pe:r1": "red [10.0.1.1/30]", "pe:r2": "blue [10.0.1.5/30]", "pe:c": " [10.0.1.10/30]"} {
		f := interfaceOf(t, &r, name)
		if got := fmt.Sprint(f.VRF, " ", f.Addresses); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	pe := r.Elements[0]
	if net.Elements[0].Software != model.SoftwareFRR || !pe.RouterID.IsValid() {
		t.Errorf("pe is %+v", pe)
	}
	if b := r.Elements[5]; b.Name != "b" || fmt.Sprint(b.Gateways) != "[10.0.0.2]" {
		t.Errorf("b is %+v", b)
	}
	s := r.Spaces
	if s["a"] == 0 || s["b"] == 0 || s["a"] == s["b"] || s["a2"] != s["a"] || s["r1"] != s["a"] || s["b2"] != s["b"] || s["c"] != 0 ||
		s["pe"] != 0 {
		t.Errorf("the spaces are %v", s)
	}
	apart := resolve.Apart(&r)
	for _, c := range []struct {
		a, b string
		want bool
	}{{"a", "a2", false}, {"a", "b", true}, {"a2", "b2", true}, {"a", "c", true}, {"b", "b2", false}, {"pe", "c", false}, {"pe", "a", true}} {
		if apart(c.a, c.b) != c.want || apart(c.b, c.a) != c.want {
			t.Errorf("%s and %s are apart: %v", c.a, c.b, !c.want)
		}
	}
	if doubts := resolve.Doubts(&net, &r); len(doubts) > 0 {
		t.Errorf("there are doubts: %q", doubts)
	}
	// A space is that of a trunk's VLAN, too.
	_, r, _ = readVLANs(t, strings.NewReplacer("a -- pe: 10.0.0.0/24", "pe -- s: {vlans: [10, 20]}\n  - a -- s: {vlan: 10, prefixes: 10.0.0.0/24}",
		"b -- pe: 10.0.0.0/24", "b -- s: {vlan: 20, prefixes: 10.0.0.0/24}", "hosts:", "switches: [s]\nhosts:", "red: [a,", "red: [s.10,",
		"[b, r2]", "[s.20, r2]").Replace(twoCustomers))
	apart = resolve.Apart(&r)
	if !apart("a", "b") || apart("a", "a2") || apart("b", "b2") || !apart("a", "b2") ||
		fmt.Sprint(interfaceOf(t, &r, "pe:s.20").Addresses) != "[10.0.0.1/24]" {
		t.Errorf("VLANs in VRFs: %v", r.Spaces)
	}
	// What was given stays when something comes.
	d, _ := resolve.Read(net)
	_, as, _ := d.Resolve(model.Assigned{}, resolve.NewNumbers())
	net.Elements[0].VRFs = maps.Clone(net.Elements[0].VRFs)
	net.Elements[0].VRFs["amber"] = model.VRF{}
	d, _ = resolve.Read(net)
	again, _, err := d.Resolve(as, resolve.NewNumbers())
	if err != nil || fmt.Sprint(interfaceOf(t, &again, "pe:r2").Addresses) != "[10.0.1.5/30]" {
		t.Errorf("%v, %v", interfaceOf(t, &again, "pe:r2").Addresses, err)
	}
}

// TestVRFsAreChecked: of each mistake the words that tell what is wrong.
func TestVRFsAreChecked(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"", "", ""},
		{"red: [a, r1]", "red: [a, r1, c]", ""},
		{"red: [a, r1]", "red: [a]", ""},
		{"red: [a, r1]", "red: [r1]", ""},
		{"  - c -- pe\n", "  - c -- pe: 10.0.0.0/24\n", ""},
		{"  - c -- pe\n", "  - c -- pe\n  - c -- r2\n", ""},
		{"  - c -- pe\n", "  - c -- r1\n  - c -- r2\n", "overlaps 10.0.0.0/24"}, // c would have both
		{"  - c -- pe\n", "  - c -- r1: 10.1.0.0/24\n", "overlaps 10.1.0.0/24"},
		{"r1:\n", "r1: {interfaces: {a2: 10.1.0.9/24}}\n", ""},
		{"r1:\n", "r1: {loopback: 10.7.0.1}\n", ""},
		{"red: [a, r1]", "red: [a, x]", "router pe: VRF red: x is none of the router's interfaces (a, b, r1, r2, c)"},
		{"red: [a, r1]", "red: [a, a]", "VRF red: it has the interface a twice"},
		{"red: [a, r1]", "red: [a, b]", "VRF red: its interface b is in the VRF blue already; an interface is in one"},
		{"red: [a, r1]", "a: [a, r1]", "VRF a: it would be called like the interface a, and both are devices"},
		{"red: [a, r1]", "abcdefghijklmnop: [a, r1]", "has at most 15 characters"},
		{"red: [a, r1]", "lo: [a, r1]", "is Linux's own; choose another"},
		{"red: [a, r1]", "sit0: [a, r1]", `the VRF "sit0" is a device in Linux, which keeps this name for itself; rename it`},
		{"red: [a, r1]", "bonding_masters: [a, r1]", "keeps this name for itself"},
		{"pe: {", "pe: {forwarding: xdp, ", "vrfs takes forwarding: guest, and not xdp"},
		{"pe: {", "pe: {mpls: [{in: 16}], ", "a router has mpls or vrfs"},
		{"pe: {", "pe: {software: bird, ", "BIRD's tables have numbers, which VRFs get in the router only; take frr or static"},
		{"pe: {", "pe: {software: static, ", "VRF blue: software: static speaks no routing protocol, but ospf is asked for"},
		{"ospf: {}}}}", "ospf: {area: 1, redistribute: [bgp]}}}}", `VRF blue: ospf cannot redistribute "bgp" in a VRF; there are connected, static`},
		{"ospf: {}}}}", "ospf: {hello: 5s, dead: 5s}}}}", "VRF blue: dead 5s is not longer than hello"},
		{"ospf: {}}}}", "ospf: {cost: 70000}}}}", "VRF blue: the cost 70000 is not between"},
		{"ospf: {}}}}", "router-id: \"::1\"}}}", "VRF blue: the router ID ::1 is not in dotted form"},
		{"ospf: {}}}}", "gateway: 10.0.9.9}}}", "VRF blue: the gateway 10.0.9.9 is on none of its subnets"},
		{"ospf: {}}}}", "routes: [10.8.0.0/16 dev a]}}}", "VRF blue: the route to 10.8.0.0/16 leaves by a, which is in the VRF red"},
		{"ospf: {}}}}", "routes: [10.8.0.0/16 via 10.0.0.1, 10.8.0.0/16 dev b]}}}", "VRF blue: it has two routes to 10.8.0.0/16"},
		{"pe: {", "pe: {routes: [10.8.0.0/16 dev a], ", "the route to 10.8.0.0/16 leaves by a, which is in the VRF red"},
		{"pe: {", "pe: {routes: [10.8.0.0/16 via 10.0.0.1], ", "the next hop 10.0.0.1 is on none of its subnets"},
		{"pe: {", "pe: {interfaces: {b: {ospf: {cost: 5}}}, ", ""},
		{"pe: {", "pe: {interfaces: {a: {ospf: {cost: 5}}}, ", "it says what OSPF does there, which the router does not speak"},
		{"hosts: [a,", "edges: {out: {end: pe:out, internet: {}}}\nhosts: [a,", ""},
		{"r1]", "out]", "VRF red: on the segment of out is the internet edge"},
		{"  - pe -- r1\n", "  - pe -- r1: {bfd: true}\n", "VRF red: link pe--r1 has bfd, and r1 is in a VRF, where BFD is not spoken"},
		{"  - c -- pe\n", "  - c -- pe\nexpect: [pe route 10.1.0.0/24 vrf green]\n", "pe has no VRF green; there is blue or red"},
		{"  - c -- pe\n", "  - c -- pe\nexpect: [r1 route 10.1.0.0/24 vrf green]\n", "r1 has no VRF green; there is none"},
		{"  - c -- pe\n", "  - c -- pe\nexpect: [pe ospf neighbor r2 vrf blue, pe no route 10.1.0.0/24 via r1 vrf red]\n", ""},
		{"  - c -- pe\n", "  - c -- pe\nexpect: [pe bgp neighbor r2 vrf blue]\n", "nothing else is spoken in a VRF"},
		{"  - c -- pe\n", "  - c -- pe\nexpect: [a reaches a2 vrf red]\n", "leave it out"},
	} {
		text := strings.Replace(twoCustomers, c.old, c.new, 1)
		if c.new == "out]" {
			text = strings.Replace(text, "hosts: [a,", "edges: {out: {end: pe:out, internet: {}}}\nhosts: [a,", 1)
		}
		nets, err := spec.Parse("lab.yaml", []byte(text), spec.Options{})
		var problems []model.Problem
		if err == nil {
			var d resolve.Document
			if d, problems = resolve.Read(nets[0]); len(problems) == 0 {
				r, _, err := d.Resolve(model.Assigned{}, resolve.NewNumbers())
				if err != nil {
					t.Fatal(err)
				}
				problems = d.Check(&r)
			}
		}
		told := fmt.Sprint(err, problems)
		if c.want == "" && (err != nil || len(problems) > 0) || c.want != "" && !strings.Contains(told, c.want) {
			t.Errorf("%q instead of %q: want %q, told %s", c.new, c.old, c.want, told)
		}
	}
	nets, err := spec.Parse("lab.yaml", []byte(twoCustomers), spec.Options{})
	if err != nil {
		t.Fatal(err)
	}
	n := nets[0]
	n.Elements = slices.Clone(n.Elements)
	n.Elements[4].VRFs = map[string]model.VRF{"red": {}}
	if _, problems := resolve.Read(n); len(problems) != 1 || !strings.Contains(problems[0].Error(), "a host has no VRFs") {
		t.Errorf("%v", problems)
	}
}
