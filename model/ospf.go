package model

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
)

// UsualCost is OSPF's where nobody says one. It is written into configurations, because the programs guess differently
// from a virtual device's speed, and equal links must be equal.
const UsualCost = 10

// OSPFPort is what OSPF does at one interface. What is left out is as the router's OSPF says, or follows from the link.
type OSPFPort struct {
	// Off tells that it does not run there, nor announces the subnet. Then nothing else is said.
	Off     bool   `json:"off,omitempty"`
	Area    string `json:"area,omitempty"` // dotted form
	Passive YesNo  `json:"passive,omitempty"`
	OSPFPortKeys
}

// OSPFPortKeys are those of its keys that have a list.
type OSPFPortKeys struct {
	Cost    int         `json:"cost,omitempty"`
	Network OSPFNetwork `json:"network,omitempty"`
	OSPFTimers
}

// YesNo is a truth that may be left open: empty then.
type YesNo string

const (
	Yes YesNo = "true"
	No  YesNo = "false"
)

// OSPFNetwork is a network type of RFC 2328, section 1.2.
type OSPFNetwork string

const (
	PointToPoint OSPFNetwork = "point-to-point"
	Broadcast    OSPFNetwork = "broadcast"
)

// OSPFNetworks are the known types.
var OSPFNetworks = []OSPFNetwork{PointToPoint, Broadcast}

// Words is Word's.
func (OSPFNetwork) Words() []string { return words(OSPFNetworks) }

// Keys are what a file may say of OSPF at an interface by a single value.
func (OSPFPortKeys) Keys() []Key[OSPFPortKeys] { return ospfPortKeys }

var ospfPortKeys = append([]Key[OSPFPortKeys]{
	newKey("cost", func(p *OSPFPortKeys) *int { return &p.Cost }, parseCost, about[int]{example: "100",
		meaning: "What it costs to leave by the interface; the router's cost when left out.",
		least:   1, few: "that OSPF can say",
		most: 65535, many: "than OSPF can say"}),
	newWord("network", func(p *OSPFPortKeys) *OSPFNetwork { return &p.Network }, about[OSPFNetwork]{
		example: string(Broadcast),
		meaning: "point-to-point, where there is one neighbour and nobody is elected, or broadcast, where a " +
			"designated router is; when left out, point-to-point on links between two routers, else broadcast. " +
			"Neighbours must have the same."}),
}, within(func(p *OSPFPortKeys) *OSPFTimers { return &p.OSPFTimers }, ospfTimers)...)

func parseCost(s string) (int, error) {
	n, err := parseCount(s)
	if err == nil && n == 0 {
		err = fmt.Errorf("the cost 0 is not between 1 and 65535")
	}
	return n, err
}

// Runs tells whether OSPF runs at an interface that says this of it.
func (p *OSPFPort) Runs() bool { return p == nil || !p.Off }

// OSPFThere is what a version of OSPF does at a place, with everything said.
type OSPFThere struct {
	Area         string
	Cost         int
	Hello, Dead  int // in seconds
	Passive      bool
	PointToPoint bool
}

// There is what a router's OSPF does at an interface that says this of it (nil where it says nothing): at a link to one
// other router (twoRouters), or where there is no router at all (passive).
func (o *OSPF) There(at *OSPFPort, twoRouters, passive bool) OSPFThere {
	p := OSPFPort{}
	if at != nil {
		p = *at
	}
	t := OSPFThere{Area: cmp.Or(p.Area, o.Area, "0.0.0.0"), Cost: cmp.Or(p.Cost, o.Cost, UsualCost),
		Passive:      passive && p.Passive != No || p.Passive == Yes,
		PointToPoint: twoRouters && p.Network == "" || p.Network == PointToPoint}
	timers := OSPFTimers{Hello: cmp.Or(p.Hello, o.Hello), Dead: cmp.Or(p.Dead, o.Dead)}
	t.Hello, t.Dead = timers.Intervals(twoRouters)
	return t
}

// CheckPort calls report for each value that OSPF cannot have at an interface, by itself or beside what the router
// says.
func (o *OSPF) CheckPort(p *OSPFPort, report func(key, problem string)) {
	if p.Off && *p != (OSPFPort{Off: true}) {
		report("", "OSPF does not run there, so nothing else can be said of it")
	}
	if a, err := netip.ParseAddr(p.Area); p.Area != "" && (err != nil || !a.Is4()) {
		report("area", fmt.Sprintf("the area %q is not in dotted form, like 0.0.0.0", p.Area))
	}
	if p.Passive != "" && p.Passive != Yes && p.Passive != No {
		report("passive", fmt.Sprintf("passive %s is neither true nor false", strconv.Quote(string(p.Passive))))
	}
	bad := false
	CheckKeys(ospfPortKeys, &p.OSPFPortKeys, func(key, problem string) {
		bad = bad || slices.Contains([]string{"hello", "dead"}, key)
		report(key, problem)
	})
	if t := o.There(p, false, false); !bad && (p.Hello != 0 || p.Dead != 0) && t.Dead <= t.Hello {
		key := "dead"
		if p.Dead == 0 {
			key = "hello"
		}
		report(key, fmt.Sprintf("dead %ds is not longer than hello, which is %ds; OSPF usually has four times hello",
			t.Dead, t.Hello))
	}
}
