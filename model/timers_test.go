package model

import (
	"strings"
	"testing"
	"time"
)

// TestSetTimers: timers are set of the protocols that an element speaks, for that element alone, and stay when a
// document does not name them.
func TestSetTimers(t *testing.T) {
	const s = Duration(time.Second)
	shared := &OSPF{Cost: 7}
	net := settable()
	net.Elements[0].Routing.OSPF, net.Elements[1].Routing.OSPF = shared, shared
	got, marks, errs := Assign(net, Settings{}, "r1", values("ospf.hello=10s ospf.dead=40s"))
	if len(errs) > 0 || got.Elements[0].Routing.OSPF.OSPFTimers != (OSPFTimers{10 * s, 40 * s}) ||
		got.Elements[0].Routing.OSPF.Cost != 7 {
		t.Fatalf("%v, r1 has %+v", errs, got.Elements[0].Routing.OSPF)
	}
	if shared.OSPFTimers != (OSPFTimers{}) || got.Elements[1].Routing.OSPF != shared {
		t.Errorf("what r2 says was changed: %+v", shared)
	}
	again, left := Inherit(net, got, marks)
	if again.Elements[0].Routing.OSPF.OSPFTimers != (OSPFTimers{10 * s, 40 * s}) || shared.Hello != 0 ||
		len(left.Elements["r1"]) != 2 {
		t.Errorf("a document that does not name them makes %+v, set are %v", again.Elements[0].Routing.OSPF, left)
	}
	if back, _, errs := Assign(got, marks, "r1", values("ospf.hello= ospf.dead=")); len(errs) > 0 ||
		back.Elements[0].Routing.OSPF.OSPFTimers != (OSPFTimers{}) {
		t.Errorf("%v, given back are %+v", errs, back.Elements[0].Routing.OSPF)
	}
	for value, want := range map[string]string{
		"bgp.hold=180s":    "r1 does not speak bgp; a file that says `bgp:` for it changes that",
		"ospf.hello=10":    "it has no unit",
		"ospf.hello=0s":    "not a whole number of seconds",
		"ospf.hello=1.5s":  "not a whole number of seconds",
		"ospf.helo=1s":     "no key",
		"ospf.dead=1500ms": "not a whole number of seconds",
	} {
		if _, _, errs := Assign(net, Settings{}, "r1", values(value)); len(errs) != 1 ||
			!strings.Contains(errs[0].Error(), want) {
			t.Errorf("%s: %v, should say %q", value, errs, want)
		}
	}
}

func TestUsualTimers(t *testing.T) {
	const s = Duration(time.Second)
	type two struct{ a, b int }
	for _, c := range []struct {
		of   OSPFTimers
		link bool
		want two
	}{{OSPFTimers{}, true, two{1, 12}}, {OSPFTimers{}, false, two{1, 4}}, {OSPFTimers{Hello: 10 * s}, true, two{10, 40}},
		{OSPFTimers{Dead: 9 * s}, true, two{1, 9}}, {OSPFTimers{10 * s, 30 * s}, false, two{10, 30}}} {
		if hello, dead := c.of.Intervals(c.link); (two{hello, dead}) != c.want {
			t.Errorf("%+v: %d and %d, should be %+v", c.of, hello, dead, c.want)
		}
	}
	for of, want := range map[BGPTimers]two{{}: {3, 9}, {Hold: 180 * s}: {60, 180}, {Keepalive: 5 * s}: {5, 15}} {
		if keepalive, hold := of.Intervals(); (two{keepalive, hold}) != want {
			t.Errorf("%+v: %d and %d, should be %+v", of, keepalive, hold, want)
		}
	}
	for of, want := range map[ISISTimers]two{{}: {1, 12}, {Hello: 10 * s}: {10, 3}, {Hold: 30 * s}: {1, 30}} {
		if hello, times := of.Intervals(true); (two{hello, times}) != want {
			t.Errorf("%+v: %d and %d, should be %+v", of, hello, times, want)
		}
	}
	if u, timeout, garbage := (RIPTimers{Update: 30 * s}).Intervals(); u != 30 || timeout != 90 || garbage != 60 {
		t.Errorf("RIP: %d %d %d", u, timeout, garbage)
	}
}
