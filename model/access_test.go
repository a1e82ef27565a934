package model

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

func joinedAs(name string, last byte, rate Bandwidth) Member {
	return Member{Machine: Machine{Name: name, CPU: 2000, Memory: 1 << 30, MTU: 1500,
		Address: netip.AddrFrom4([4]byte{192, 0, 2, last}), Bandwidth: rate}}
}

func TestMachinesReachEachOther(t *testing.T) {
	base := Substrate{Nodes: []SubstrateNode{{Name: "base", CPU: 4000}}}
	s := Extend(base, []Member{joinedAs("a", 1, 1e9), joinedAs("b", 2, 1e10), joinedAs("c", 3, 0)})
	want := []SubstrateLink{{A: "base", B: "a", Bandwidth: 1e9}, {A: "base", B: "b", Bandwidth: 1e10},
		{A: "base", B: "c"},
		{A: "a", B: "b", Bandwidth: 1e9}, {A: "a", B: "c", Bandwidth: 1e9}, {A: "b", B: "c", Bandwidth: 1e10}}
	if !slices.Equal(s.Links, want) {
		t.Errorf("the links are %+v", s.Links)
	}
	if len(s.Nodes) != 4 || !s.Nodes[1].Joined || s.Nodes[0].Joined || s.Nodes[1].CPU != 2000 || len(base.Nodes) != 1 {
		t.Errorf("the nodes are %+v", s.Nodes)
	}
	if alone := Extend(base, nil); len(alone.Links) != 0 || len(alone.Nodes) != 1 {
		t.Errorf("without members: %+v", alone)
	}
}

func TestMachines(t *testing.T) {
	good := joinedAs("rio-1", 1, 0).Machine
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for what, spoil := range map[string]func(*Machine){
		"Rio": func(m *Machine) { m.Name = "Rio" }, "cores": func(m *Machine) { m.CPU = 0 },
		"no machine has more": func(m *Machine) { m.CPU = 1<<32 - 1 },
		"nothing sends more":  func(m *Machine) { m.Bandwidth = 1<<64 - 1 },
		"memory":              func(m *Machine) { m.Memory = 1 },
		"no address":          func(m *Machine) { m.Address = netip.Addr{} },
		"2001:db8::1":         func(m *Machine) { m.Address = netip.MustParseAddr("2001:db8::1") },
		"127.0.0.1":           func(m *Machine) { m.Address = netip.MustParseAddr("127.0.0.1") },
		"224.0.0.1":           func(m *Machine) { m.Address = netip.MustParseAddr("224.0.0.1") },
		"MTU":                 func(m *Machine) { m.MTU = 100 }, "location": func(m *Machine) { m.Location = "a b" },
	} {
		m := good
		spoil(&m)
		if err := m.Validate(); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestTokensEnd(t *testing.T) {
	now := time.Unix(1e9, 0)
	for want, token := range map[string]Token{
		"":            {Expires: now.Add(time.Second)},
		"expired":     {Expires: now},
		"was used":    {Expires: now, Used: now, UsedBy: "n1"},
		"was revoked": {Expires: now, Used: now, Revoked: now},
	} {
		why := token.Unusable(now)
		if !strings.HasPrefix(why, want) || (want == "") != (why == "") || token.Ended(now).IsZero() != (want == "") {
			t.Errorf("%+v: %q, want %q", token, why, want)
		}
	}
	if forever := (Token{}); forever.Unusable(now.AddDate(100, 0, 0)) != "" {
		t.Error("a token without an end has ended")
	}
}
