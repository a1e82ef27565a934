package model

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// elementWants are what an element asks for by itself.
func elementWants(e ResolvedElement) []Want {
	return Wants(&Resolved{Elements: []ResolvedElement{e}})[0]
}

// What a node lacks of an element's wants, in the order in which they are asked.
func TestOffersMeetWants(t *testing.T) {
	offers := Offers{
		{Driver: "control: netns", Makes: []Feature{"software: frr"},
			Lacks: map[Feature]string{"software: bird": "no bird"}},
		{Driver: "control: vm", Lacks: map[Feature]string{"control: vm": "no /dev/kvm"},
			Makes: []Feature{"software: bird"}},
		{Driver: "forwarding: guest", Kinds: []Kind{Router, Host}},
		{Driver: "forwarding: bridge", Kinds: []Kind{Switch}},
		{Driver: "forwarding: bridge", Kinds: []Kind{Router},
			Lacks: map[Feature]string{"forwarding: bridge": "no next hops"}},
		{Driver: "forwarding: xdp", Kinds: []Kind{Router}, Makes: []Feature{"hook: tc"}},
	}
	router := func(c Control, f Forwarding, s Software, h Hook) ResolvedElement {
		return ResolvedElement{Name: "e", Kind: Router, Control: c, Forwarding: f, Software: s, Hook: h}
	}
	for _, c := range []struct {
		e    ResolvedElement
		want string // "feature: why", joined
	}{
		{router("netns", "guest", "frr", ""), ""},
		{router("netns", "guest", "static", ""), ""},
		{router("netns", "xdp", "frr", "tc"), ""},
		{router("netns", "xdp", "frr", "auto"), ""},
		{router("netns", "xdp", "frr", "xdp"), "hook: xdp: there is hook: tc"},
		{router("netns", "guest", "bird", ""), "software: bird: no bird"},
		{router("vm", "guest", "bird", ""), "control: vm: no /dev/kvm|software: bird: no /dev/kvm"},
		{router("controller", "openflow", "none", ""),
			"control: controller: there is control: netns|forwarding: openflow: there is forwarding: guest, xdp"},
		{router("netns", "bridge", "none", ""), "forwarding: bridge: no next hops"},
		{ResolvedElement{Name: "e", Kind: Switch, Control: "netns", Forwarding: "bridge"}, ""},
		{ResolvedElement{Name: "e", Kind: Switch, Control: "netns", Forwarding: "xdp"},
			"forwarding: xdp: there is forwarding: bridge"},
		{ResolvedElement{Name: "e", Kind: Host, Control: "netns", Forwarding: "guest"}, ""},
	} {
		var got []string
		for _, w := range elementWants(c.e) {
			if why := offers.Lack(w); why != "" {
				got = append(got, string(w.Feature)+": "+why)
			}
			if why := Offers(nil).Lack(w); why != "" {
				t.Errorf("%v: a node that tells nothing lacks %s: %s", c.e, w.Feature, why)
			}
		}
		if strings.Join(got, "|") != c.want {
			t.Errorf("%s %s %s %s: lacks %q, want %q", c.e.Kind, c.e.Control, c.e.Forwarding, c.e.Software,
				strings.Join(got, "|"), c.want)
		}
	}
	if why := offers.Barren(); why != "" {
		t.Errorf("a node with one control driver makes nothing: %s", why)
	}
	if why := offers[1:].Barren(); why != "it can make no elements: control: vm: no /dev/kvm" {
		t.Errorf("a node without one: %q", why)
	}
	if why := Offers(nil).Barren(); why != "" {
		t.Errorf("a node that tells nothing: %s", why)
	}
}

// Links that delay, and edges to the Internet, ask for it where they end.
func TestWantsOfLinksAndEdges(t *testing.T) {
	net := Resolved{Elements: []ResolvedElement{{Name: "a", Kind: Host}, {Name: "b", Kind: Host},
		{Name: "c", Kind: Host}},
		Links: []Link{{Name: "ab", Jitter: 1, Ends: [2]End{{Element: "a"}, {Element: "b"}}},
			{Name: "bc", Ends: [2]End{{Element: "b"}, {Element: "c"}}}},
		Edges: []ResolvedEdge{{Name: "out", End: End{Element: "c"}, Internet: &ResolvedInternet{}},
			{Name: "dev", End: End{Element: "a"}, Device: "eth1"}}}
	delay := Want{FeatureDelay, FeatureDelay, Host, AboutLink, "ab"}
	if got, want := Wants(&net),
		[][]Want{{delay}, {delay},
			{{FeatureInternet, FeatureInternet, Host, AboutEdge, "out"}}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// What agents told before there were offers means what it meant.
func TestBareOffers(t *testing.T) {
	var r Registration
	if err := json.Unmarshal([]byte(`{"socket":"/s","controls":["netns"],"forwardings":["bridge","guest","xdp"],"noDelay":"no netem"}`), &r); err != nil {
		t.Fatal(err)
	}
	offers := r.BareOffers.Offers()
	for _, c := range []struct {
		w    Want
		want string
	}{
		{Want{"control: netns", "control: netns", Router, "", ""}, ""},
		{Want{"control: vm", "control: vm", Router, "", ""}, "there is control: netns"},
		{Want{"software: frr", "control: netns", Router, "", ""}, ""}, // it told nothing of software
		{Want{"forwarding: xdp", "forwarding: xdp", Router, "", ""}, ""},
		{Want{"forwarding: xdp", "forwarding: xdp", Switch, "", ""}, "there is forwarding: bridge"},
		{Want{"forwarding: bridge", "forwarding: bridge", Switch, "", ""}, ""},
		{Want{"forwarding: router", "forwarding: router", Router, "", ""}, "there is forwarding: bridge, guest, xdp"},
		{Want{"delay", "delay", Host, "", ""}, "no netem"},
		{Want{"internet", "internet", Host, "", ""}, ""},
	} {
		if got := offers.Lack(c.w); got != c.want {
			t.Errorf("%s for a %s: %q, want %q", c.w.Feature, c.w.Kind, got, c.want)
		}
	}
	if got := (&BareOffers{}).Offers(); got != nil {
		t.Errorf("an agent that tells nothing offers %v", got)
	}
}

func TestOffersAreBounded(t *testing.T) {
	long := strings.Repeat("x", 5000)
	var all Offers
	for range 100 {
		o := Offer{Driver: Feature(long), Lacks: map[Feature]string{}}
		for range 100 {
			o.Makes, o.Kinds = append(o.Makes, Feature(long)), append(o.Kinds, Router)
		}
		for i := range 100 {
			o.Lacks[Feature(long[:i+1])] = long
		}
		all = append(all, o)
	}
	got := all.Bounded(8, 64, 1000)
	b, err := json.Marshal(got)
	if err != nil || len(got) != 8 || len(got[7].Makes) != 8 || len(got[7].Kinds) != 8 || len(got[7].Lacks) != 8 ||
		len(b) > 8*(10*80+8*1100) {
		t.Errorf("%v: %d offers, %d bytes", err, len(got), len(b))
	}
	if len(all[0].Makes) != 100 || string(all[0].Makes[0]) != long {
		t.Error("what was given has changed")
	}
}

// What forwards for an element may need something of what its control driver makes.
func TestForwardingWantsOfControl(t *testing.T) {
	for _, c := range []struct {
		kind Kind
		by   Forwarding
		want Feature
	}{
		{Router, ForwardGuest, ""}, {Router, ForwardXDP, FeatureRoutes}, {Router, ForwardRouter, FeatureRoutes},
		{Router, ForwardBridge, FeatureRoutes}, {Switch, ForwardBridge, FeatureEnter}, {Host, ForwardGuest, ""},
	} {
		var got Feature
		for _, w := range elementWants(ResolvedElement{Kind: c.kind, Control: ControlNetns, Forwarding: c.by}) {
			if w.Driver == ControlNetns.Feature() && w.Feature != w.Driver {
				got += w.Feature
			}
		}
		if got != c.want {
			t.Errorf("a %s that forwards by %s wants %q of its control driver, and not %q", c.kind, c.by, got, c.want)
		}
	}
}
