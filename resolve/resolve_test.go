package resolve

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
	"pgregory.net/rapid"
)

// build makes a network of words: "r1" a router, "h1" a host, "s1" a switch, "r1-r2" a link, "r1-r2=10.0.0.0/30,…" with
// prefixes.
func build(words ...string) model.Network {
	n := model.Network{Name: "net"}
	for _, w := range words {
		link, prefixes, _ := strings.Cut(w, "=")
		a, b, isLink := strings.Cut(link, "-")
		if !isLink {
			kind := map[byte]model.Kind{'r': model.Router, 'h': model.Host, 's': model.Switch}[w[0]]
			n.Elements = append(n.Elements, model.Element{Name: w, Kind: kind})
			continue
		}
		l := model.Link{Name: a + "--" + b, Ends: [2]model.End{{Element: a, Interface: b}, {Element: b, Interface: a}}}
		for p := range strings.SplitSeq(prefixes, ",") {
			if p != "" {
				l.Prefixes = append(l.Prefixes, netip.MustParsePrefix(p))
			}
		}
		n.Links = append(n.Links, l)
	}
	return n
}

func resolve(t testing.TB, n model.Network, as model.Assigned) (model.Resolved, model.Assigned) {
	t.Helper()
	if _, problems := Read(n); len(problems) > 0 {
		t.Fatalf("Validate: %v", problems)
	}
	r, now, err := resolveAs(n, as, NewNumbers(as))
	if err != nil {
		t.Fatal(err)
	}
	return r, now
}

// problemsOf is what is wrong with a document.
func problemsOf(n model.Network) []model.Problem {
	_, problems := Read(n)
	return problems
}

// known is a document that somebody has described.
func known(n model.Network) Document {
	d, _ := Read(n)
	return d
}

func resolveAs(n model.Network, as model.Assigned, numbers *Numbers) (model.Resolved, model.Assigned, error) {
	return known(n).Resolve(as, numbers)
}

// addresses reads "r1:r2 10.0.0.1/30 …" for every interface with addresses.
func addresses(n model.Resolved) map[string]string {
	all := map[string]string{}
	for _, e := range n.Elements {
		for _, f := range e.Interfaces {
			var words []string
			for _, a := range f.Addresses {
				words = append(words, a.String())
			}
			if len(words) > 0 {
				all[e.Name+":"+f.Name] = strings.Join(words, " ")
			}
		}
	}
	return all
}

func element[I any](t testing.TB, elements []model.ElementOf[I], name string) *model.ElementOf[I] {
	t.Helper()
	i := slices.IndexFunc(elements, func(e model.ElementOf[I]) bool { return e.Name == name })
	if i < 0 {
		t.Fatalf("there is no element %s", name)
	}
	return &elements[i]
}

func TestResolveNumbersLinks(t *testing.T) {
	n := build("r1", "r2", "h1", "h2", "h1-r1", "r1-r2=10.0.0.0/30,2001:db8::/64", "r2-h2=10.0.0.8/31")
	r, as := resolve(t, n, model.Assigned{})
	want := map[string]string{
		"r1:r2": "10.0.0.1/30 2001:db8::1/64", "r2:r1": "10.0.0.2/30 2001:db8::2/64",
		"r2:h2": "10.0.0.8/31", "h2:r2": "10.0.0.9/31",
		"h1:r1": "10.0.0.5/30 fd00:10::1/64", "r1:h1": "10.0.0.6/30 fd00:10::2/64",
	}
	if got := addresses(r); !reflect.DeepEqual(got, want) {
		t.Errorf("addresses\n%v\nwant\n%v", got, want)
	}
	if g := element(t, r.Elements, "h1").Gateways; fmt.Sprint(g) != "[10.0.0.6 fd00:10::2]" {
		t.Errorf("h1's gateways are %v", g)
	}
	if g := element(t, r.Elements, "h2").Gateways; fmt.Sprint(g) != "[10.0.0.8]" {
		t.Errorf("h2's gateways are %v", g)
	}
	if as.Index != 1 || as.Links["h1--r1"].VNI == 0 || len(as.Links["r1--r2"].Prefixes) != 0 {
		t.Errorf("assigned %+v", as)
	}
	f := element(t, r.Elements, "r1").Interfaces[0]
	if f.MTU != model.DefaultMTU || f.MAC == "" || f.Link != "h1--r1" || f.Far == nil || f.Far.Element != "h1" {
		t.Errorf("r1's first interface is %+v", f)
	}
	if len(element(t, n.Elements, "r1").Interfaces) != 0 {
		t.Error("the document was written to")
	}
}

func TestResolveTellsBothEndsWhatTheLinkDoes(t *testing.T) {
	n := build("r1", "r2", "r3", "r1-r2", "r2-r3")
	n.Links[0].Bandwidth, n.Links[0].Delay, n.Links[0].Jitter, n.Links[0].Loss = 1e6, 2, 1, 0.5
	r, _ := resolve(t, n, model.Assigned{})
	want := model.Shape{Bandwidth: 1e6, Delay: 2, Jitter: 1, Loss: 0.5}
	for _, name := range []string{"r1", "r2"} {
		if s := element(t, r.Elements, name).Interfaces[0].Shape; s == nil || *s != want {
			t.Errorf("%s's interface: %+v", name, s)
		}
	}
	if s := element(t, r.Elements, "r3").Interfaces[0].Shape; s != nil {
		t.Errorf("the other link: %+v", s)
	}
}

func TestResolveExplicitAddressesWin(t *testing.T) {
	n := build("r1", "r2", "r3", "r1-r2", "r2-r3", "r3-r1")
	n.Elements[0].Interfaces = []model.Interface{{Name: "r2",
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.2/29")}}}
	r, as := resolve(t, n, model.Assigned{})
	got := addresses(r)
	if got["r1:r2"] != "10.0.0.2/29" || got["r2:r1"] != "10.0.0.3/29" && got["r2:r1"] != "10.0.0.1/29" {
		t.Errorf("the link with a stated address is %v", got)
	}
	if got["r2:r3"] != "10.0.0.9/30" {
		t.Errorf("the next link is numbered from %s, which is not behind the stated subnet", got["r2:r3"])
	}
	// An address stated later pushes an assigned subnet aside, and only that.
	n.Elements[1].Interfaces = []model.Interface{{Name: "r3",
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.13/30")}}}
	r2, _ := resolve(t, n, as)
	now := addresses(r2)
	if now["r2:r3"] != "10.0.0.13/30" || now["r3:r2"] != "10.0.0.14/30" || now["r3:r1"] == got["r3:r1"] {
		t.Errorf("the stated address is not honoured: %v, before %v", now, got)
	}
}

func TestResolveFamilies(t *testing.T) {
	intent := func(n model.Network, r model.Routing) model.Network {
		n.Elements[0].Routing = r
		return n
	}
	v6 := netip.MustParsePrefix("2001:db8::/64")
	for name, c := range map[string]struct {
		net    model.Network
		v4, v6 bool
	}{
		"nothing": {build("r1"), true, false},
		"ospf":    {intent(build("r1"), model.Routing{OSPF: &model.OSPF{}}), true, false},
		"ospf6":   {intent(build("r1"), model.Routing{OSPF6: &model.OSPF{}}), false, true},
		"ospf, ospf6": {intent(build("r1"), model.Routing{OSPF: &model.OSPF{}, OSPF6: &model.OSPF{}}), true,
			true},
		"isis": {intent(build("r1"), model.Routing{ISIS: &model.ISIS{}}), true, true},
		"bgp":  {intent(build("r1"), model.Routing{BGP: &model.BGP{AS: 1}}), true, true},
		"rip, IPv4 link": {intent(build("r1", "r2", "r1-r2=10.0.0.0/30"), model.Routing{RIP: &model.RIP{}}), true,
			false},
		"IPv6 link": {build("r1", "r2", "r1-r2=2001:db8::/64"), false, true},
		"ospf and IPv6 link": {intent(build("r1", "r2", "r1-r2=2001:db8::/64"), model.Routing{OSPF: &model.OSPF{}}),
			true, true},
		"pool": {model.Network{Pools: []netip.Prefix{v6}}, false, true},
	} {
		if v4, v6 := Families(&c.net); v4 != c.v4 || v6 != c.v6 {
			t.Errorf("%s: IPv4 %v, IPv6 %v", name, v4, v6)
		}
	}
	n := intent(build("r1", "r2", "r1-r2"), model.Routing{OSPF6: &model.OSPF{}})
	r, _ := resolve(t, n, model.Assigned{})
	if got := addresses(r)["r1:r2"]; got != "fd00:10::1/64" {
		t.Errorf("the link of an IPv6 network is %s", got)
	}
	e := element(t, r.Elements, "r1")
	if e.RouterID.String() != "10.255.0.1" || fmt.Sprint(e.Loopback) != "[fd00:10:0:ffff::1/128]" {
		t.Errorf("r1 of an IPv6 network has the ID %s and the loopback %v", e.RouterID, e.Loopback)
	}
}

func TestResolveSegments(t *testing.T) {
	n := build("h1", "h2", "r1", "s2", "s3", "h1-s2", "h2-s3", "r1-s3", "s2-s3")
	r, as := resolve(t, n, model.Assigned{})
	want := map[string]string{"r1:s3": "10.0.0.1/24", "h1:s2": "10.0.0.2/24", "h2:s3": "10.0.0.3/24"}
	if got := addresses(r); !reflect.DeepEqual(got, want) {
		t.Fatalf("addresses %v, want %v", got, want)
	}
	if g := element(t, r.Elements, "h2").Gateways; fmt.Sprint(g) != "[10.0.0.1]" {
		t.Errorf("h2's gateways are %v", g)
	}
	// A switch before the others in the alphabet, another router first in the file, a host gone: nobody is renumbered.
	n = build("h2", "r0", "r1", "s1", "s2", "s3", "r0-s1", "h2-s3", "r1-s3", "s2-s3", "s1-s2")
	r, as = resolve(t, n, as)
	want = map[string]string{"r1:s3": "10.0.0.1/24", "r0:s1": "10.0.0.2/24", "h2:s3": "10.0.0.3/24"}
	if got := addresses(r); !reflect.DeepEqual(got, want) {
		t.Errorf("addresses %v, want %v", got, want)
	}
	if _, ok := as.Segments["s2"]; !ok || len(as.Segments) != 1 {
		t.Errorf("segments %v", as.Segments)
	}
	// Many members get a larger subnet.
	words := []string{"s1"}
	for i := range 300 {
		words = append(words, fmt.Sprintf("h%d", i), fmt.Sprintf("h%d-s1", i))
	}
	r, _ = resolve(t, build(words...), model.Assigned{})
	if got := addresses(r)["h299:s1"]; got != "10.0.1.44/23" {
		t.Errorf("the 300th host has %s", got)
	}
}

func TestResolveBGP(t *testing.T) {
	n := build("r1", "r2", "r3", "h1", "r1-r2=10.0.0.0/30,2001:db8::/64", "r2-r3", "h1-r1=10.1.0.0/24")
	n.Elements[0].Routing.BGP = &model.BGP{AS: 65001}
	n.Elements[1].Routing.BGP = &model.BGP{AS: 65002}
	r, _ := resolve(t, n, model.Assigned{})
	b := element(t, r.Elements, "r1").Routing.BGP
	want := []model.BGPNeighbor{{Address: netip.MustParseAddr("10.0.0.2"), AS: 65002, Name: "r2"},
		{Address: netip.MustParseAddr("2001:db8::2"), AS: 65002, Name: "r2"}}
	if !slices.Equal(b.Neighbors, want) {
		t.Errorf("r1's neighbours are %v", b.Neighbors)
	}
	if fmt.Sprint(b.Networks) != "[10.255.0.1/32 fd00:10:0:ffff::1/128 10.1.0.0/24]" {
		t.Errorf("r1 announces %v", b.Networks)
	}
	if len(n.Elements[0].Routing.BGP.Neighbors) != 0 {
		t.Error("the document was written to")
	}
}

func TestResolvePoolsRunOut(t *testing.T) {
	n := build("r1", "r2", "r3", "r1-r2", "r2-r3", "r3-r1")
	n.Pools = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/29")}
	_, _, err := resolveAs(n, model.Assigned{}, NewNumbers())
	if err == nil || !strings.Contains(err.Error(), "r3--r1") || !strings.Contains(err.Error(), "192.0.2.0/29") {
		t.Errorf("the error does not name the link and the pool: %v", err)
	}
	n.Links = n.Links[:2]
	r, _ := resolve(t, n, model.Assigned{})
	if got := addresses(r)["r2:r3"]; got != "192.0.2.5/30" {
		t.Errorf("the second link has %s", got)
	}
}

func TestNumbersAreUnique(t *testing.T) {
	_, a := resolve(t, build("r1", "r2", "r1-r2"), model.Assigned{})
	_, b, err := resolveAs(build("r1", "r2", "r1-r2"), model.Assigned{}, NewNumbers(a))
	if err != nil || a.Index == b.Index || a.Links["r1--r2"].VNI == b.Links["r1--r2"].VNI {
		t.Errorf("two networks have %+v and %+v, %v", a, b, err)
	}
	n := NewNumbers(model.Assigned{Index: 1, Links: map[string]model.AssignedLink{"x": {VNI: MaxVNI}}})
	if v, err := n.VNI(); err != nil || v != 1 {
		t.Errorf("behind the last VNI comes %d, %v", v, err)
	}
	for range model.MaxNetworks - 1 {
		if _, err := n.Index(); err != nil {
			t.Fatal(err)
		}
	}
	if i, err := n.Index(); err == nil {
		t.Errorf("one network too many got the index %d", i)
	}
}

// Whatever is added and removed beside it, a link keeps its subnet and its VNI, and no address is given twice.
func TestResolveIsStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var as model.Assigned
		var before map[string]string
		kinds := []string{"r1", "r2", "r3", "r4", "h1", "h2", "s1", "s2"}
		routing := rapid.SampledFrom([]model.Routing{{}, {OSPF: &model.OSPF{}},
			{OSPF: &model.OSPF{}, OSPF6: &model.OSPF{}}, {BGP: &model.BGP{AS: 65000}}}).Draw(t, "routing")
		for step := range rapid.IntRange(1, 6).Draw(t, "steps") {
			words := slices.Clone(kinds)
			for i, a := range kinds {
				for _, b := range kinds[i+1:] {
					if rapid.Float64().Draw(t, "p") < 0.3 && !(a == "s1" && b == "s2") {
						words = append(words, a+"-"+b)
					}
				}
			}
			n := build(words...)
			for i := range n.Elements {
				if n.Elements[i].Kind == model.Router {
					n.Elements[i].Routing = routing
				}
			}
			if _, problems := Read(n); len(problems) > 0 {
				t.Fatalf("Validate: %v", problems)
			}
			r, now, err := resolveAs(n, as, NewNumbers(as))
			if err != nil {
				t.Fatal(err)
			}
			owners := map[netip.Addr]string{}
			for _, e := range r.Elements {
				for _, f := range e.Interfaces {
					if e.Kind != model.Switch && len(f.Addresses) == 0 {
						t.Fatalf("%s:%s has no address", e.Name, f.Name)
					}
					for _, a := range f.Addresses {
						if other := owners[a.Addr()]; other != "" {
							t.Fatalf("%s and %s:%s have %s", other, e.Name, f.Name, a)
						}
						owners[a.Addr()] = e.Name + ":" + f.Name
					}
				}
			}
			vnis := map[uint32]bool{}
			for name, l := range now.Links {
				if vnis[l.VNI] || l.VNI == 0 {
					t.Fatalf("link %s has the VNI %d", name, l.VNI)
				}
				vnis[l.VNI] = true
				if was, ok := as.Links[name]; ok && !reflect.DeepEqual(was, l) {
					t.Fatalf("link %s was %v and is %v", name, was, l)
				}
			}
			after := addresses(r)
			for port, a := range after {
				if was, ok := before[port]; ok && was != a && step > 0 {
					t.Fatalf("%s was %s and is %s", port, was, a)
				}
			}
			if len(now.Links) != len(n.Links) {
				t.Fatalf("%d links are assigned of %d", len(now.Links), len(n.Links))
			}
			again, same, err := resolveAs(n, now, NewNumbers(now))
			if err != nil || !reflect.DeepEqual(again, r) || !reflect.DeepEqual(same, now) {
				t.Fatalf("resolving again gives another result: %v", err)
			}
			data, err := json.Marshal(now)
			var stored model.Assigned
			if err != nil || json.Unmarshal(data, &stored) != nil || !reflect.DeepEqual(stored, now) {
				t.Fatalf("what is assigned does not survive JSON: %v\n%s", err, data)
			}
			as, before = stored, after
		}
	})
}

// TestMirrors has the first end of a mirrored link's node told where copies go, and that of the host where they come
// from, with a tunnel of its own between nodes that stays what it is; never more than the slice's bandwidth, and
// nothing where the host is away.
func TestMirrors(t *testing.T) {
	net := build("r1", "r2", "h1", "r1-r2", "r2-h1")
	net.Links[0].MTU = 9000
	net.Slice.Bandwidth = 30e6
	net.Edges = []model.Edge{{Name: "mirror0", End: model.End{Element: "h1", Interface: "mirror0"},
		Mirror: &model.Mirror{Link: "r1--r2"}}}
	r, as := resolve(t, net, model.Assigned{})
	vni := as.Links[model.MirrorKey("mirror0")].VNI
	for name, l := range as.Links {
		if vni == 0 || l.VNI == vni && name != model.MirrorKey("mirror0") {
			t.Fatalf("the mirror's tunnel is %d, link %s's %d", vni, name, l.VNI)
		}
	}
	if again, now := resolve(t, net, as); !reflect.DeepEqual(as, now) || !reflect.DeepEqual(r, again) {
		t.Errorf("resolved again it is %+v", now)
	}
	// A document that was drawn up without numbers gets them all afterwards.
	bare := model.Assigned{Links: map[string]model.AssignedLink{}}
	for name := range as.Links {
		bare.Links[name] = model.AssignedLink{}
	}
	for _, was := range []model.Assigned{{}, as} {
		later, err := NewNumbers(was).Renumber(&r, bare, was)
		if err != nil {
			t.Fatal(err)
		}
		given := map[uint32]bool{0: true}
		for name := range as.Links {
			vni := later.Links[name].VNI
			if given[vni] || was.Index != 0 && vni != as.Links[name].VNI {
				t.Errorf("numbered later, %s has tunnel %d", name, vni)
			}
			given[vni] = true
		}
	}
	substrate := model.Substrate{Nodes: []model.SubstrateNode{{Name: "n1", Address: netip.MustParseAddr("192.0.2.1")},
		{Name: "n2", Address: netip.MustParseAddr("192.0.2.2")}}}
	for _, x := range []struct {
		at        string
		overrides map[string]model.Override
		copy      *model.Copy
		from      string
	}{
		{"n1", nil, &model.Copy{Element: "h1", Interface: "mirror0", Bandwidth: 30e6}, ""},
		{"n2", nil, &model.Copy{Element: "h1", Interface: "mirror0", Bandwidth: 30e6, Node: "n2", VNI: vni}, "n1"},
		{"n2", map[string]model.Override{"h1": {Stopped: true}}, nil, "n1"},
		{"n2", map[string]model.Override{"h1": {Quarantined: true}}, nil, "n1"},
	} {
		as.Placement.Elements = map[string]string{"r1": "n1", "r2": "n1", "h1": x.at}
		states := model.NodeStates([]model.ResolvedRecord{{Network: r, Assigned: as, Overrides: x.overrides}},
			substrate)
		for _, e := range states["n1"].Networks[0].Elements {
			for _, f := range e.Interfaces {
				want := x.copy
				if e.Name != "r1" || f.Name != "r2" {
					want = nil
				}
				if !reflect.DeepEqual(f.Copy, want) {
					t.Errorf("%+v: what passes %s:%s is copied to %+v", x, e.Name, f.Name, f.Copy)
				}
			}
		}
		part := states[x.at].Networks[0]
		if m := part.Edges[0].Mirror; m.From != x.from || (m.VNI == vni) != (x.from != "") {
			t.Errorf("%+v: the host's node knows of %+v", x, m)
		}
		if h1 := part.Elements[len(part.Elements)-1]; h1.Interfaces[1].MTU != 9000 {
			t.Errorf("the copies' interface is %+v", h1.Interfaces)
		}
	}
}

func TestNodeStates(t *testing.T) {
	r, as := resolve(t, build("r1", "r2", "r3", "r1-r2", "r2-r3", "r3-r1"), model.Assigned{})
	as.Placement.Elements = map[string]string{"r1": "n1", "r2": "n1", "r3": "n2"}
	substrate := model.Substrate{Nodes: []model.SubstrateNode{{Name: "n1", Address: netip.MustParseAddr("192.0.2.1")},
		{Name: "n2", Address: netip.MustParseAddr("192.0.2.2")},
		{Name: "n3", Address: netip.MustParseAddr("192.0.2.3")}}}
	states := model.NodeStates([]model.ResolvedRecord{{Network: r, Assigned: as,
		Overrides: map[string]model.Override{"r2": {Stopped: true}}}}, substrate)
	if len(states) != 3 || len(states["n3"].Networks) != 0 ||
		fmt.Sprint(states["n1"].Peers) != "[{n2 192.0.2.2} {n3 192.0.2.3}]" {
		t.Fatalf("states %+v", states)
	}
	n1, n2 := states["n1"].Networks[0], states["n2"].Networks[0]
	if len(n1.Elements) != 2 || len(n2.Elements) != 1 || !n1.Elements[1].Stopped {
		t.Fatalf("n1 has %+v, n2 %+v", n1, n2)
	}
	far := func(e model.NodeElement, to string) model.PlacedFar {
		i := slices.IndexFunc(e.Interfaces, func(f model.PlacedInterface) bool { return f.Name == to })
		f := *e.Interfaces[i].Far
		f.Kind, f.Peers = "", nil
		return f
	}
	if got, want := far(n1.Elements[0], "r2"),
		(model.PlacedFar{Far: model.Far{Element: "r2", Interface: "r1"}, Down: true}); !reflect.DeepEqual(got, want) {
		t.Errorf("r1's end towards r2 is %+v, want %+v", got, want)
	}
	if got, want := far(n1.Elements[0], "r3"),
		(model.PlacedFar{Far: model.Far{Element: "r3", Interface: "r1"}, Node: "n2",
			VNI: as.Links["r3--r1"].VNI}); !reflect.DeepEqual(got, want) {
		t.Errorf("r1's end towards r3 is %+v, want %+v", got, want)
	}
	if got, want := far(n2.Elements[0], "r2"),
		(model.PlacedFar{Far: model.Far{Element: "r2", Interface: "r3"}, Node: "n1", VNI: as.Links["r2--r3"].VNI,
			Down: true}); !reflect.DeepEqual(got, want) {
		t.Errorf("r3's end towards r2 is %+v, want %+v", got, want)
	}
	states = model.NodeStates([]model.ResolvedRecord{{Network: r, Assigned: as,
		Overrides: map[string]model.Override{"r3": {Quarantined: true}}}}, substrate)
	if r1 := states["n1"].Networks[0].Elements[0]; !far(r1, "r3").Down || far(r1, "r2").Down {
		t.Errorf("r3 is in quarantine, and r1's ends are %+v", r1.Interfaces)
	}
}

// A document may number links out of the pools that loopbacks are taken from.
func TestLoopbacksKeepClearOfLinks(t *testing.T) {
	for _, stated := range []string{"10.255.0.0/30", "fd00:10:0:ffff::/64"} {
		net := model.Network{Name: "lab",
			Links: []model.Link{{Name: "r1--r2", Ends: [2]model.End{{Element: "r1", Interface: "r2"},
				{Element: "r2", Interface: "r1"}},
				Prefixes: []netip.Prefix{netip.MustParsePrefix(stated)}}}}
		for _, name := range []string{"r1", "r2"} {
			net.Elements = append(net.Elements, model.Element{Name: name, Kind: model.Router,
				Routing: model.Routing{OSPF: &model.OSPF{}}})
		}
		// Also where the loopbacks were given before the link was there.
		for _, as := range []model.Assigned{{},
			{Index: 1, Loopbacks: map[string][]netip.Prefix{"r1": {netip.MustParsePrefix("10.255.0.2/32")}}}} {
			got, _, err := resolveAs(net, as, NewNumbers())
			if err != nil {
				t.Fatal(err)
			}
			owners := map[netip.Addr]string{}
			for _, e := range got.Elements {
				all := slices.Clone(e.Loopback)
				for _, f := range e.Interfaces {
					all = append(all, f.Addresses...)
				}
				for _, p := range all {
					if other, twice := owners[p.Addr()]; twice {
						t.Errorf("%s: %s is an address of %s and of %s", stated, p.Addr(), other, e.Name)
					}
					owners[p.Addr()] = e.Name
				}
			}
			if len(owners) < 4 {
				t.Fatalf("only %d addresses", len(owners))
			}
		}
	}
}

func TestGatewaysThatAreNone(t *testing.T) {
	for gateway, want := range map[string]string{"10.0.0.1": "its own address",
		"10.0.9.9": "on none of its subnets (10.0.0.0/30)", "10.0.0.2": ""} {
		net := model.Network{Name: "lab",
			Elements: []model.Element{{Name: "h1", Kind: model.Host,
				Gateways: []netip.Addr{netip.MustParseAddr(gateway)}}, {Name: "r1", Kind: model.Router}},
			Links: []model.Link{{Name: "h1--r1", Ends: [2]model.End{{Element: "h1", Interface: "r1"},
				{Element: "r1", Interface: "h1"}}}}}
		if _, problems := Read(net); len(problems) != 0 {
			t.Fatal(problems)
		}
		got, _, err := resolveAs(net, model.Assigned{}, NewNumbers())
		if err != nil {
			t.Fatal(err)
		}
		problems := known(net).Check(&got)
		if want == "" && len(problems) == 0 {
			continue
		}
		if len(problems) != 1 || !strings.Contains(problems[0].Message, want) || want == "" {
			t.Errorf("gateway %s: %v, want %q", gateway, problems, want)
		}
	}
}
