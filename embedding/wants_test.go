package embedding

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/polyplane/polyplane/model"
)

// driver is an offer of a driver with what it makes besides, "software: frr" and the like.
func driver(name model.Feature, makes ...model.Feature) model.Offer {
	return model.Offer{Driver: name, Makes: makes}
}

// lacking is an offer of a driver that makes nothing.
func lacking(name model.Feature, why string) model.Offer {
	return model.OfferOf(name, errors.New(why))[0]
}

// asks is a network of routers, each "NAME control forwarding software [node or location/]", in a line.
func asks(routers ...string) model.Resolved {
	net := line(len(routers))
	for i, r := range routers {
		w := strings.Fields(r)
		e := &net.Elements[i]
		e.Control, e.Forwarding, e.Software = model.Control(w[0]), model.Forwarding(w[1]), model.Software(w[2])
		if len(w) > 3 {
			e.Node = w[3]
		}
	}
	return net
}

var (
	// n1 and n2 are plain, n2 has no BIRD and no xdp; n3 is a hypervisor.
	plain = model.Offers{driver("control: netns", "software: frr", "software: bird"),
		lacking("control: vm", "no /dev/kvm"),
		driver("forwarding: guest"), driver("forwarding: xdp", "hook: tc"),
		lacking("delay", "no netem"), driver("internet")}
	small = model.Offers{{Driver: "control: netns", Makes: []model.Feature{"software: frr"},
		Lacks: map[model.Feature]string{"software: bird": "no bird"}},
		driver("forwarding: guest"), driver("delay"), lacking("internet", "no nft")}
	hypervisor = model.Offers{driver("control: vm", "software: frr", "hypervisor: kvm"), driver("forwarding: guest"),
		driver("forwarding: xdp"),
		driver("delay"), driver("internet")}
	three = map[string]model.Offers{"n1": plain, "n2": small, "n3": hypervisor}
)

func TestElementsGoWhereTheirDriversAre(t *testing.T) {
	for _, c := range []struct {
		name   string
		net    model.Resolved
		offers map[string]model.Offers
		want   map[string]string // element → the nodes that it may be on
	}{
		{"a VM goes to the hypervisor", asks("vm guest frr", "netns guest frr", "vm guest frr"), three,
			map[string]string{"r1": "n3", "r2": "n1 n2", "r3": "n3"}},
		{"a fast one", asks("netns xdp frr", "netns guest frr"), three, map[string]string{"r1": "n1", "r2": "n1 n2"}},
		{"a fast VM", asks("vm xdp static"), three, map[string]string{"r1": "n3"}},
		{"software", asks("netns guest bird", "netns guest frr"), three, map[string]string{"r1": "n1", "r2": "n1 n2"}},
		{"none that needs any", asks("netns guest none"), three, map[string]string{"r1": "n1 n2"}},
		{"a node that tells nothing may have all", asks("vm xdp bird"),
			map[string]model.Offers{"n1": small, "n3": small}, map[string]string{"r1": "n2"}},
		{"a pin to a node that has it", asks("netns guest frr n2"), three, map[string]string{"r1": "n2"}},
		{"delay at both ends", func() model.Resolved {
			net := asks("netns guest frr", "vm guest frr", "netns guest frr")
			net.Links[0].Delay = 5
			return net
		}(), three, map[string]string{"r1": "n2", "r2": "n3", "r3": "n1 n2"}},
		{"a way out", func() model.Resolved {
			net := asks("netns guest frr", "netns guest frr")
			net.Edges = []model.ResolvedEdge{{Name: "up", End: model.End{Element: "r2"},
				Internet: &model.ResolvedInternet{}}}
			return net
		}(), three, map[string]string{"r1": "n1 n2", "r2": "n1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := Embed(substrate(3), c.offers, Usage{}, c.net, Current{})
			if err != nil {
				t.Fatal(err)
			}
			for el, nodes := range c.want {
				if !slices.Contains(strings.Fields(nodes), p.Elements[el]) {
					t.Errorf("%s is on %s, want it on %s", el, p.Elements[el], nodes)
				}
			}
		})
	}
}

func TestRefusedWants(t *testing.T) {
	with := func(net model.Resolved, change func(*model.Resolved)) model.Resolved { change(&net); return net }
	two := map[string]model.Offers{"n1": plain, "n2": small}
	for _, c := range []struct {
		name  string
		net   model.Resolved
		now   Current
		want  string
		about model.Subject
		field string
	}{
		{name: "nowhere", net: asks("vm guest frr"), about: model.AboutElement, field: "control",
			want: "router r1 wants control: vm; n1 lacks it: no /dev/kvm; n2 lacks it: there is control: netns"},
		{name: "for the same reason", net: asks("controller guest frr"), about: model.AboutElement, field: "control",
			want: "router r1 wants control: controller; n1, n2 lack it: there is control: netns"},
		{name: "each here, both nowhere", net: with(asks("netns xdp frr"), func(n *model.Resolved) {
			n.Links = []model.Link{{Name: "k", Delay: 1, Ends: [2]model.End{{Element: "r1"}, {Element: "r1"}}}}
		}),
			about: model.AboutElement, field: "forwarding",
			want: "router r1 wants forwarding: xdp and delay; n1 lacks delay: no netem; n2 lacks forwarding: xdp: " +
				"there is forwarding: guest"},
		{name: "pinned", net: asks("netns guest bird n2"), about: model.AboutElement, field: "software",
			want: "router r1 wants software: bird; r1 is pinned to n2; n2 lacks it: no bird; n1 has it: pin r1 to it " +
				"(node:)"},
		{name: "where it is", net: asks("netns xdp frr"), about: model.AboutElement, field: "forwarding",
			now: Current{Placement: model.Placement{Elements: map[string]string{"r1": "n2"}}, Network: asks("netns guest frr")},
			want: "router r1 wants forwarding: xdp; r1 is on n2; n2 lacks it: there is forwarding: guest; n1 has it: " +
				"pin r1 to it (node:)"},
		{name: "in a location", net: with(asks("netns xdp frr"),
			func(n *model.Resolved) { n.Elements[0].Location = "bonn" }), about: model.AboutElement, field: "forwarding",
			want: "router r1 wants forwarding: xdp; r1 is pinned to location bonn; n2 lacks it: there is forwarding: " +
				"guest"},
		{name: "a link", net: with(asks("netns guest frr n1", "netns guest frr n2"),
			func(n *model.Resolved) { n.Links[0].Jitter = 5 }), about: model.AboutLink, field: "delay",
			want: "link r1--r2 wants delay; r1 is pinned to n1; n1 lacks it: no netem; n2 has it: pin r1 to it " +
				"(node:)"},
		{name: "an edge", net: with(asks("netns guest frr n2"), func(n *model.Resolved) {
			n.Edges = []model.ResolvedEdge{{Name: "up", End: model.End{Element: "r1"},
				Internet: &model.ResolvedInternet{}}}
		}), about: model.AboutEdge, field: "internet", want: "edge up wants internet; r1 is pinned to n2; n2 lacks " +
			"it: no nft; n1 has it: pin r1 to it (node:)"},
		{name: "no room where it may be", net: with(asks("netns xdp frr"),
			func(n *model.Resolved) { n.Elements[0].CPU = 5000 }), about: model.AboutElement, field: "cpu",
			want: "r1 needs 5 cores on one node: n1 has 4 cores free, n2 lacks what it wants"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Embed(substrate(2), two, Usage{}, c.net, c.now)
			var refusal *Refusal
			if !errors.As(err, &refusal) {
				t.Fatalf("got %v, want %s", err, c.want)
			}
			if p := refusal.Problems[0]; len(refusal.Problems) != 1 || p.Message != c.want || p.About != c.about ||
				p.Field != c.field {
				t.Errorf("got  %+v\nwant %s (about %s, %s)", refusal.Problems, c.want, c.about, c.field)
			}
		})
	}
}

// What is there and asks for nothing new stays although its node has lost what it needs, and what is beside it can
// change.
func TestWhatIsThereStays(t *testing.T) {
	was := asks("vm guest frr", "netns guest frr")
	now := Current{Placement: model.Placement{Elements: map[string]string{"r1": "n1", "r2": "n2"}}, Network: was}
	two := map[string]model.Offers{"n1": plain, "n2": small}
	net := asks("vm guest frr", "netns guest frr", "netns guest bird")
	p, err := Embed(substrate(2), two, Usage{}, net, now)
	if err != nil || p.Elements["r1"] != "n1" || p.Elements["r2"] != "n2" || p.Elements["r3"] != "n1" {
		t.Errorf("%v, %v", p.Elements, err)
	}
	net.Elements[0].Node = "n2" // it asks for a place where it never was
	if _, err = Embed(substrate(2), two, Usage{}, net, now); err == nil ||
		!strings.Contains(err.Error(), "n2 lacks it") {
		t.Errorf("it is moved to a node without its driver: %v", err)
	}
}

// Those that may be anywhere make room for those that may not, and lines are cut into as few pieces as before.
func TestOffersAndBalance(t *testing.T) {
	routers := slices.Concat(slices.Repeat([]string{"netns guest frr"}, 200),
		slices.Repeat([]string{"netns xdp frr"}, 100))
	offers := map[string]model.Offers{"n1": plain, "n2": small, "n3": small}
	p, err := Embed(substrate(3), offers, Usage{}, asks(routers...), Current{})
	if err != nil {
		t.Fatal(err)
	}
	for n, c := range counts(p) {
		if c < 75 || c > 125 { // a quarter more, to be beside neighbours
			t.Errorf("%s has %d of 300 elements", n, c)
		}
	}
	if len(p.Links) > 4 {
		t.Errorf("%d links cross nodes", len(p.Links))
	}
	// A large one that may be anywhere does not take the only place of one that may not.
	net := asks("netns guest frr", "netns xdp frr")
	net.Elements[0].CPU, net.Elements[1].CPU = 3900, 200
	two := map[string]model.Offers{"n1": plain, "n2": small}
	if p, err = Embed(substrate(2), two, Usage{}, net, Current{}); err != nil || p.Elements["r1"] != "n2" ||
		p.Elements["r2"] != "n1" {
		t.Errorf("%v, %v", p.Elements, err)
	}
}

// Ends of a link that fits nowhere share a node only if that offers what both want.
func TestGluedElementsShareANodeThatOffersBoth(t *testing.T) {
	sub := substrate(3)
	for i := range sub.Links {
		sub.Links[i].Bandwidth = 1e6
	}
	net := asks("netns xdp none", "netns guest bird")
	net.Links[0].Bandwidth = 1e9
	// so that they are apart at first, and refused together
	net.Elements[0].Memory, net.Elements[1].Memory = 5*gib, 5*gib
	both := map[string]model.Offers{"n1": plain, "n2": small, "n3": hypervisor}
	if p, err := Embed(sub, both, Usage{}, net, Current{}); err == nil {
		t.Errorf("10 GiB on %v", p.Elements)
	}
	net.Elements[0].Memory, net.Elements[1].Memory = 0, 0
	p, err := Embed(sub, both, Usage{}, net, Current{})
	if err != nil || p.Elements["r1"] != "n1" || p.Elements["r2"] != "n1" {
		t.Errorf("%v, %v", p.Elements, err)
	}
	net = asks("vm guest none", "netns guest bird")
	net.Links[0].Bandwidth = 1e9
	if p, err := Embed(sub, both, Usage{}, net, Current{}); err == nil ||
		!strings.Contains(err.Error(), "link r1--r2 needs 1Gbit") {
		t.Errorf("a VM and a container share %v: %v", p.Elements, err)
	}
}

// Whatever nodes offer, no element is on one that lacks what it wants.
func TestPropertyOffersAreKept(t *testing.T) {
	placed := 0
	rapid.Check(t, func(t *rapid.T) {
		q := drawQuestion(t)
		features := []model.Feature{"control: netns", "control: vm", "forwarding: guest", "forwarding: xdp", "delay"}
		offers := map[string]model.Offers{}
		for _, n := range q.sub.Nodes {
			for _, f := range features {
				switch rapid.IntRange(0, 4).Draw(t, "offers") {
				case 0:
					offers[n.Name] = append(offers[n.Name], lacking(f, "it lacks it"))
				case 1:
				default:
					offers[n.Name] = append(offers[n.Name], driver(f))
				}
			}
		}
		for i := range q.net.Elements {
			e := &q.net.Elements[i]
			e.Control = rapid.SampledFrom([]model.Control{"netns", "netns", "vm"}).Draw(t, "control")
			e.Forwarding = rapid.SampledFrom([]model.Forwarding{"guest", "guest", "xdp"}).Draw(t, "forwarding")
		}
		p, err := Embed(q.sub, offers, q.used, q.net, Current{Placement: q.now})
		var refusal *Refusal
		switch {
		case errors.As(err, &refusal):
			if len(refusal.Problems) == 0 || slices.ContainsFunc(refusal.Problems,
				func(p model.Problem) bool { return p.Message == "" }) {
				t.Fatalf("refused without a word: %+v", refusal)
			}
			return
		case err != nil:
			t.Fatal(err)
		}
		placed++
		for i, wants := range model.Wants(&q.net) {
			for _, w := range wants {
				if why := offers[p.Elements[q.net.Elements[i].Name]].Lack(w); why != "" {
					t.Fatalf("%s is on %s, which lacks %s: %s", q.net.Elements[i].Name,
						p.Elements[q.net.Elements[i].Name], w.Feature, why)
				}
			}
		}
	})
	if placed == 0 {
		t.Error("nothing was ever placed")
	}
}
