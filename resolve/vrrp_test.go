package resolve

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// office is a segment with two routers, a host, and a router that is linked to one of the others only.
func office(virtual ...model.VRRP) model.Network {
	n := model.Network{Name: "lab", Elements: []model.Element{{Name: "r1", Kind: model.Router},
		{Name: "r2", Kind: model.Router}, {Name: "r3", Kind: model.Router}, {Name: "h1", Kind: model.Host},
		{Name: "s1", Kind: model.Switch, VRRP: virtual}}}
	for _, l := range [][2]string{{"r1", "s1"}, {"r2", "s1"}, {"h1", "s1"}, {"r3", "r1"}} {
		n.Links = append(n.Links, model.Link{Name: l[0] + "--" + l[1],
			Ends: [2]model.End{{Element: l[0], Interface: l[1]}, {Element: l[1], Interface: l[0]}}})
	}
	return n
}

func resolvedOf(t *testing.T, n model.Network, was model.Assigned) (model.Resolved, model.Assigned) {
	t.Helper()
	d, problems := Read(n)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	out, as, err := d.Resolve(was, NewNumbers())
	if err != nil {
		t.Fatal(err)
	}
	if problems := d.Check(&out); len(problems) > 0 {
		t.Fatal(problems)
	}
	return out, as
}

// TestVirtualRouters: what follows from a switch's virtual routers, also where nearly nothing is said of them.
func TestVirtualRouters(t *testing.T) {
	address := netip.MustParseAddr("10.7.0.9")
	n := office(model.VRRP{Address: address, Priority: map[string]int{"r1": 200}, Preempt: model.No}, model.VRRP{})
	n.Elements[4].Prefixes = []netip.Prefix{netip.MustParsePrefix("10.7.0.0/24")}
	out, as := resolvedOf(t, n, model.Assigned{})
	if r1, r2, r3 := out.Elements[0], out.Elements[1], out.Elements[2]; r1.Software != model.SoftwareFRR ||
		r2.Software != model.SoftwareFRR || r3.Software != model.SoftwareStatic {
		t.Errorf("r1 runs %s, r2 %s and r3 %s", r1.Software, r2.Software, r3.Software)
	}
	last := netip.MustParseAddr("10.7.0.254")
	want := []model.VirtualRouter{
		{ID: 1, Address: address, Priority: 200, Interval: model.UsualVRRPInterval, Device: "vrrp1-s1"},
		{ID: 2, Address: last, Priority: 100, Interval: model.UsualVRRPInterval, Preempt: true, Device: "vrrp2-s1"}}
	if got := out.Elements[0].Interfaces[0].VRRP; !slices.Equal(got, want) {
		t.Errorf("r1 has %+v, want %+v", got, want)
	}
	if got := out.Elements[1].Interfaces[0].VRRP; !slices.Equal(got, want[1:]) {
		t.Errorf("r2 has %+v, want %+v", got, want[1:])
	}
	if got := out.Elements[3].Gateways; !slices.Equal(got, []netip.Addr{address}) {
		t.Errorf("h1's gateway is %v", got)
	}
	knows := func(i int) (all []string) {
		for _, p := range out.Elements[i].Interfaces[0].Far.Peers {
			if strings.HasPrefix(p.MAC, "00:00:5e:00:01:") {
				all = append(all, p.MAC[15:]+" "+p.Addresses[0].String())
			}
		}
		return all
	}
	for i, want := range map[int][]string{0: nil, 1: {"01 10.7.0.9"}, 3: {"01 10.7.0.9", "02 10.7.0.254"}} {
		if got := knows(i); !slices.Equal(got, want) {
			t.Errorf("%s knows %v, want %v", out.Elements[i].Name, got, want)
		}
	}
	wants := model.Wants(&out)
	for i, want := range []bool{true, true, false, false} {
		if has := slices.ContainsFunc(wants[i], func(w model.Want) bool { return w.Feature == model.FeatureVRRP }); has != want {
			t.Errorf("%s wants VRRP of its node: %v", out.Elements[i].Name, has)
		}
	}
	if n.Elements[4].VRRP[1].ID != 0 {
		t.Error("the document was changed")
	}

	// Where the document says nothing more, the address is from the pools, and stays as others come.
	n = office(model.VRRP{})
	out, as = resolvedOf(t, n, model.Assigned{})
	first := out.Elements[4].VRRP[0].Address
	n.Elements = append(n.Elements, model.Element{Name: "h2", Kind: model.Host})
	n.Links = append(n.Links, model.Link{Name: "h2--s1", Ends: [2]model.End{{Element: "h2", Interface: "s1"},
		{Element: "s1", Interface: "h2"}}})
	out, _ = resolvedOf(t, n, as)
	if now := out.Elements[4].VRRP[0].Address; now != first || !first.IsValid() || out.Elements[5].Gateways[0] != first {
		t.Errorf("the virtual router was %s, and is %s; h2's gateways are %v", first, now, out.Elements[5].Gateways)
	}
}

// TestVirtualRoutersAreChecked: of each mistake the words that tell what would be right.
func TestVirtualRoutersAreChecked(t *testing.T) {
	at := func(s string) model.VRRP { return model.VRRP{Address: netip.MustParseAddr(s)} }
	for _, c := range []struct {
		virtual []model.VRRP
		change  func(*model.Network)
		want    string
	}{
		{[]model.VRRP{at("2001:db8::1")}, nil, "is of IPv6; virtual routers have one of IPv4"},
		{[]model.VRRP{at("224.0.0.1")}, nil, "no address that a virtual router can have"},
		{[]model.VRRP{at("10.8.0.1")}, nil, "10.8.0.1 is outside 10.7.0.0/24"},
		{[]model.VRRP{at("10.7.0.255")}, nil, "network or broadcast address of 10.7.0.0/24; 10.7.0.254 is its last"},
		{[]model.VRRP{at("10.7.0.1")}, nil, "10.7.0.1 is the address of h1:s1"},
		{[]model.VRRP{at("10.7.0.9"), at("10.7.0.9")}, nil, "vrrp number 2: another virtual router of the segment has the address"},
		{[]model.VRRP{{VRRPKeys: model.VRRPKeys{ID: 7}}, {VRRPKeys: model.VRRPKeys{ID: 7}}}, nil, "has the number 7 as well"},
		{[]model.VRRP{{VRRPKeys: model.VRRPKeys{ID: 256}}}, nil, "at most 255"},
		{[]model.VRRP{{VRRPKeys: model.VRRPKeys{Interval: 1e6}}}, nil, "less than the 10ms"},
		{[]model.VRRP{{VRRPKeys: model.VRRPKeys{Interval: 15e6}}}, nil, "hundredths of a second"},
		{[]model.VRRP{{Priority: map[string]int{"r1": 255}}}, nil, "255 of r1 is not between 1 and 254"},
		{[]model.VRRP{{Priority: map[string]int{"r9": 1}}}, nil, "there is no router r9"},
		{[]model.VRRP{{Priority: map[string]int{"r3": 1}}}, nil, "router r3 is not on the segment; link it to the switch"},
		{[]model.VRRP{{Priority: map[string]int{"h1": 1}}}, nil, "h1 is a host; routers take part"},
		{[]model.VRRP{{Preempt: "perhaps"}}, nil, "neither true nor false"},
		{[]model.VRRP{{}}, func(n *model.Network) { n.Elements[1].Software = model.SoftwareBIRD },
			"router r2 runs BIRD, which speaks no VRRP"},
		{[]model.VRRP{{}}, func(n *model.Network) { n.Elements[1].Software = model.SoftwareStatic },
			"router r2 has software: static, which speaks no VRRP"},
		{[]model.VRRP{{}}, func(n *model.Network) { n.Links = n.Links[2:] }, "there are no routers on the segment"},
		{[]model.VRRP{{}}, func(n *model.Network) { n.Links, n.Elements[3].Interfaces = n.Links[3:], nil },
			"there are no routers on its segment"},
		{nil, func(n *model.Network) { n.Elements[0].VRRP = []model.VRRP{{}} }, "a router has no virtual routers"},
		{[]model.VRRP{{Priority: map[string]int{"r1": 1}}}, func(n *model.Network) {
			n.Expect = []model.Expectation{{From: "r2", Known: model.Known{What: model.KnownVirtual, State: "master"}}}
		}, "r2 takes no part in VRRP"},
		{[]model.VRRP{at("10.7.0.9")}, func(n *model.Network) {
			n.Expect = []model.Expectation{{From: "r2", Known: model.Known{What: model.KnownVirtual, State: "master",
				Via: netip.MustParseAddr("10.7.0.8")}}}
		}, "r2 takes no part in a virtual router with the address 10.7.0.8"},
		{make([]model.VRRP, 17), nil, "at most 16"},
	} {
		n := office(c.virtual...)
		n.Elements[3].Interfaces = []model.Interface{{Name: "s1", Addresses: []netip.Prefix{netip.MustParsePrefix("10.7.0.1/24")}}}
		n.Elements[4].Prefixes = []netip.Prefix{netip.MustParsePrefix("10.7.0.0/24")}
		if c.change != nil {
			c.change(&n)
		}
		_, problems := Read(n)
		if len(problems) == 0 || !strings.Contains(problems[0].Error(), c.want) {
			t.Errorf("want %q: %v", c.want, problems)
		}
	}

	// What only the chosen addresses show.
	n := office(at("192.0.2.9"))
	d, problems := Read(n)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	out, _, err := d.Resolve(model.Assigned{}, NewNumbers())
	if err != nil {
		t.Fatal(err)
	}
	if p := d.Check(&out); len(p) == 0 || !strings.Contains(p[0].Error(), "like prefixes: 192.0.2.0/24") {
		t.Errorf("an address on no subnet: %v", p)
	}
}
