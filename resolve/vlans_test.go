package resolve_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/resolve"
	"github.com/polyplane/polyplane/spec"
)

// read reads and resolves a file that is right.
func readVLANs(t *testing.T, text string) (model.Network, model.Resolved, model.Assigned) {
	t.Helper()
	nets, err := spec.Parse("lab.yaml", []byte(text), spec.Options{})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	d, problems := resolve.Read(nets[0])
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	r, as, err := d.Resolve(model.Assigned{}, resolve.NewNumbers())
	if err != nil {
		t.Fatal(err)
	}
	return d.Network(), r, as
}

func interfaceOf(t *testing.T, r *model.Resolved, name string) *model.ResolvedInterface {
	t.Helper()
	element, iface, _ := strings.Cut(name, ":")
	for i := range r.Elements {
		for k := range r.Elements[i].Interfaces {
			if f := &r.Elements[i].Interfaces[k]; r.Elements[i].Name == element && f.Name == iface {
				return f
			}
		}
	}
	t.Fatalf("there is no %s", name)
	return nil
}

// TestVLANsOfLinks: which VLANs ends carry, and which addresses interfaces of VLANs have, by what links say.
func TestVLANsOfLinks(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       map[string]string // by interface: VLAN without a tag, those with one, addresses
	}{
		{"access ports and a trunk", `switches: {s1: {vlans: {10: 10.1.0.0/24}}, s2: }
routers: [r]
hosts: [a, b, c]
links: [{a -- s1: {vlan: 10}}, {b -- s2: {vlan: 10}}, {c -- s2: {vlan: 20}}, {s1 -- s2: {vlans: all}}, {r -- s1: {vlans: "10,20"}}]`,
			map[string]string{"r:s1": "0 10,20 []", "r:s1.10": "0  [10.1.0.1/24]", "r:s1.20": "0  [10.0.0.1/24]",
				"a:s1": "10  [10.1.0.2/24]", "b:s2": "10  [10.1.0.3/24]", "c:s2": "20  [10.0.0.2/24]",
				"s1:s2": "0 10,20 []", "s2:c": "20  []"}},
		{"what says nothing is in VLAN 1", `switches: {s: {prefixes: 10.1.0.0/24, vlans: {10: 10.2.0.0/24}}}
hosts: [a, b, c]
links: [a -- s, {b -- s: {vlan: 10}}, {c -- s: {vlans: all}}]`,
			map[string]string{"a:s": "1  [10.1.0.1/24]", "b:s": "10  [10.2.0.1/24]", "c:s": "0 1,10 []",
				"c:s.1": "0  [10.1.0.2/24]", "c:s.10": "0  [10.2.0.2/24]"}},
		{"a native VLAN", `switches: [s]
hosts: [a, b]
links: [{a -- s: {vlan: 20, vlans: [10, 20-21, 5]}}, {b -- s: {vlan: 20}}]`, nil},
		{"a native VLAN beside others", `switches: [s]
hosts: [a, b]
links: [{a -- s: {vlan: 20, vlans: [10, 21, 5]}}, {b -- s: {vlan: 20, prefixes: 10.9.0.0/24}}]`,
			map[string]string{"a:s": "20 5,10,21 [10.9.0.1/24]", "a:s.5": "0  [10.0.0.1/24]", "b:s": "20  [10.9.0.2/24]"}},
		{"between routers", `routers: [r1, r2]
links: [{r1 -- r2: {vlans: [100, 200]}}]`,
			map[string]string{"r1:r2": "0 100,200 []", "r1:r2.100": "0  [10.0.0.1/30]", "r2:r1.100": "0  [10.0.0.2/30]",
				"r2:r1.200": "0  [10.0.0.6/30]"}},
		{"switches elsewhere have none", `switches: [s1, s2]
hosts: [a, b]
links: [{a -- s1: {vlan: 10}}, b -- s2]`,
			map[string]string{"a:s1": "10  [10.0.0.1/24]", "b:s2": "0  [10.0.1.1/24]"}},
		{"one number at two places that are not joined", `switches: [s1, s2, s3]
hosts: [a, b]
links: [{a -- s1: {vlan: 10}}, {b -- s3: {vlan: 10}}, {s1 -- s2: {vlans: 20}}, {s2 -- s3: {vlans: 10}}]`,
			map[string]string{"a:s1": "10  [10.0.0.1/24]", "b:s3": "10  [10.0.1.1/24]"}},
		{"a stated address", `switches: [s]
routers: {r: {interfaces: {s.10: 10.7.0.254/24}}}
hosts: [a]
links: [{r -- s: {vlans: 10}}, {a -- s: {vlan: 10}}]`,
			map[string]string{"r:s.10": "0  [10.7.0.254/24]", "a:s": "10  [10.7.0.1/24]"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.want == nil {
				_, err := spec.Parse("lab.yaml", []byte("network: lab\n"+c.text), spec.Options{})
				if err == nil || !strings.Contains(err.Error(), "the VLAN 20 is that of frames without a tag") {
					t.Errorf("%v", err)
				}
				return
			}
			_, r, _ := readVLANs(t, "network: lab\n"+c.text+"\n")
			for name, want := range c.want {
				f := interfaceOf(t, &r, name)
				if got := fmt.Sprintf("%d %s %v", f.Untagged, f.Tagged, f.Addresses); got != want {
					t.Errorf("%s is %q, want %q", name, got, want)
				}
				if on, vlan, is := strings.Cut(f.Name, "."); is && (f.On != on || fmt.Sprint(f.VLAN) != vlan ||
					f.MAC != interfaceOf(t, &r, strings.TrimSuffix(name, "."+vlan)).MAC) {
					t.Errorf("%s is the VLAN %d on %s, with %s", name, f.VLAN, f.On, f.MAC)
				}
			}
		})
	}
}

// TestNumbersStay: what VLANs come beside a network that has none, and what changes in one VLAN, renumbers nobody else.
func TestNumbersStay(t *testing.T) {
	text := `network: lab
switches: [s]
hosts: [a, b, c]
links:
  - a -- s
  - b -- s
  - c -- s
`
	_, was, as := readVLANs(t, text)
	for _, c := range []struct{ from, to string }{{"c -- s", "c -- s: {vlan: 10}"}, {"b -- s", "b -- s: {vlan: 20}"},
		{"b -- s: {vlan: 20}", "b -- s: {vlan: 10}"}, {"c -- s: {vlan: 10}", "c -- s: {vlan: 10, vlans: 30}"}} {
		text = strings.Replace(text, c.from, c.to, 1)
		nets, err := spec.Parse("lab.yaml", []byte(text), spec.Options{})
		if err != nil {
			t.Fatal(err)
		}
		d, problems := resolve.Read(nets[0])
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		now, next, err := d.Resolve(as, resolve.NewNumbers(as))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a:s", "b:s", "c:s"} {
			if strings.HasPrefix(c.from, name[:1]) {
				continue
			}
			before, after := interfaceOf(t, &was, name), interfaceOf(t, &now, name)
			if !slices.Equal(before.Addresses, after.Addresses) {
				t.Errorf("%s: %s had %v and has %v", c.to, name, before.Addresses, after.Addresses)
			}
		}
		was, as = now, next
	}
}

// TestVLANsAreSegments: whatever links say, two interfaces know each other exactly if a walk over the links finds a way
// in one VLAN; a VLAN has one subnet and no other VLAN has it; and what was resolved is resolved again to the same.
func TestVLANsAreSegments(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		switches := rapid.IntRange(1, 4).Draw(t, "switches")
		text := "network: lab\nswitches: s[1-" + fmt.Sprint(switches) + "]\n"
		var links, hosts, routers []string
		say := func(label string, host bool) string {
			options := []string{"", ": {vlan: 10}", ": {vlan: 20}", ": {vlans: all}", ": {vlans: [10, 20]}", ": {vlans: 30}",
				": {vlan: 30, vlans: [10]}"}
			if host {
				options = options[:3]
			}
			return rapid.SampledFrom(options).Draw(t, label)
		}
		for i := 2; i <= switches; i++ {
			links = append(links, fmt.Sprintf("  - s%d -- s%d%s", rapid.IntRange(1, i-1).Draw(t, "to"), i, say("trunk", false)))
		}
		for i := range rapid.IntRange(1, 5).Draw(t, "hosts") {
			hosts = append(hosts, fmt.Sprintf("h%d", i))
			links = append(links, fmt.Sprintf("  - h%d -- s%d%s", i, rapid.IntRange(1, switches).Draw(t, "at"), say("host", true)))
		}
		for i := range rapid.IntRange(0, 2).Draw(t, "routers") {
			routers = append(routers, fmt.Sprintf("r%d", i))
			links = append(links, fmt.Sprintf("  - r%d -- s%d%s", i, rapid.IntRange(1, switches).Draw(t, "at"), say("router", false)))
		}
		text += "hosts: [" + strings.Join(hosts, ", ") + "]\nrouters: [" + strings.Join(routers, ", ") + "]\nlinks:\n" +
			strings.Join(links, "\n") + "\n"
		nets, err := spec.Parse("lab.yaml", []byte(text), spec.Options{})
		if err != nil {
			if strings.Contains(err.Error(), "its switches have no VLANs beside") {
				return
			}
			t.Fatalf("%v\n%s", err, text)
		}
		d, problems := resolve.Read(nets[0])
		if len(problems) > 0 {
			t.Fatalf("%v\n%s", problems, text)
		}
		r, as, err := d.Resolve(model.Assigned{}, resolve.NewNumbers())
		if err != nil {
			t.Fatal(err)
		}
		again, _, err := resolve.Known(d.Network()).Resolve(as, resolve.NewNumbers(as))
		if err != nil || fmt.Sprint(addressesOf(&again)) != fmt.Sprint(addressesOf(&r)) {
			t.Fatalf("resolved again: %v\n%v\n%v\n%s", err, addressesOf(&r), addressesOf(&again), text)
		}
		for from, at := range walk(&r) {
			for to, other := range walk(&r) {
				if from == to {
					continue
				}
				met := fmt.Sprint(at) == fmt.Sprint(other)
				if knows(&r, from, to) != met && from[:2] != to[:2] {
					t.Fatalf("%s and %s: on one segment %v, and known %v\n%s", from, to, met, knows(&r, from, to), text)
				}
				shares := sharesSubnet(&r, from, to)
				if shares != met {
					t.Fatalf("%s and %s: on one segment %v, and in one subnet %v\n%s", from, to, met, shares, text)
				}
			}
		}
	})
}

func addressesOf(r *model.Resolved) (all []string) {
	for i := range r.Elements {
		for _, f := range r.Elements[i].Interfaces {
			all = append(all, fmt.Sprint(r.Elements[i].Name, f.Name, f.Addresses))
		}
	}
	return all
}

// walk goes from each interface that has an address over the links of its VLAN, and returns which switches it passes.
func walk(r *model.Resolved) map[string][]string {
	kinds := map[string]model.Kind{}
	for i := range r.Elements {
		kinds[r.Elements[i].Name] = r.Elements[i].Kind
	}
	carries := func(f *model.ResolvedInterface, vlan int) bool {
		return !f.HasVLANs() || f.Untagged == vlan || slices.Contains(f.Tagged.List(), vlan)
	}
	found := map[string][]string{}
	for i := range r.Elements {
		e := &r.Elements[i]
		for k := range e.Interfaces {
			f := &e.Interfaces[k]
			if e.Kind == model.Switch || len(f.Addresses) == 0 {
				continue
			}
			vlan := f.Untagged + f.VLAN // one of them is 0
			seen := map[string]bool{f.Far.Element: true}
			for next := []string{f.Far.Element}; len(next) > 0; next = next[1:] {
				for j := range r.Elements {
					if r.Elements[j].Name != next[0] {
						continue
					}
					for n := range r.Elements[j].Interfaces {
						g := &r.Elements[j].Interfaces[n]
						if kinds[g.Far.Element] == model.Switch && carries(g, vlan) && !seen[g.Far.Element] {
							seen[g.Far.Element] = true
							next = append(next, g.Far.Element)
						}
					}
				}
			}
			all := []string{fmt.Sprint(vlan)}
			for name := range seen {
				all = append(all, name)
			}
			slices.Sort(all)
			found[e.Name+":"+f.Name] = all
		}
	}
	return found
}

func find(r *model.Resolved, name string) *model.ResolvedInterface {
	element, iface, _ := strings.Cut(name, ":")
	i := slices.IndexFunc(r.Elements, func(e model.ResolvedElement) bool { return e.Name == element })
	k := slices.IndexFunc(r.Elements[i].Interfaces, func(f model.ResolvedInterface) bool { return f.Name == iface })
	return &r.Elements[i].Interfaces[k]
}

func knows(r *model.Resolved, from, to string) bool {
	a, b := find(r, from), find(r, to)
	return slices.ContainsFunc(a.Far.Peers, func(p model.LinkPeer) bool {
		return p.MAC == b.MAC && slices.Contains(p.Addresses, b.Addresses[0].Addr())
	})
}

func sharesSubnet(r *model.Resolved, from, to string) bool {
	return find(r, from).Addresses[0].Masked() == find(r, to).Addresses[0].Masked()
}

// TestVLANsApart tells who must not reach whom.
func TestVLANsApart(t *testing.T) {
	_, r, _ := readVLANs(t, `network: lab
switches: [s1, s2]
routers: [gw]
hosts: [a, b, c, d, far]
links:
  - a -- s1: {vlan: 10}
  - b -- s2: {vlan: 20}
  - c -- s2: {vlan: 30}
  - d -- s2: {vlan: 20, vlans: 30}
  - s1 -- s2: {vlans: all}
  - gw -- s1: {vlans: [10, 20]}
  - gw -- far
`)
	apart := resolve.Apart(&r)
	for _, c := range []struct {
		a, b string
		want bool
	}{{"a", "b", false}, {"a", "c", true}, {"c", "a", true}, {"b", "c", true}, {"d", "c", false}, {"d", "a", false},
		{"far", "c", true}, {"far", "a", false}} {
		if got := apart(c.a, c.b); got != c.want {
			t.Errorf("%s and %s are apart: %v", c.a, c.b, got)
		}
	}
}
