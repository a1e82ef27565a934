package model

import (
	"strings"
	"testing"
)

// A strict slice with routers whose packets the node forwards states what it owns of the node's tables, and gets it or is
// refused.
func TestTableQuotas(t *testing.T) {
	if q := (&Slice{Tables: 64 << 20, Mode: Strict}).TableQuota(); q != (TableQuota{Strict: true, Tables: 64 << 20, NextHops: DefaultNextHops, Routes: 2 << 20, Punts: DefaultPunts}) {
		t.Errorf("%+v", q)
	}
	net := func(name string, s Slice) Network {
		s.Mode, s.Bandwidth, s.Packets = Strict, 1e6, 1000
		return Network{Name: name, Slice: s, Elements: []Element{{Name: "r1", Kind: Router, Forwarding: ForwardXDP, Amounts: Amounts{CPU: 100, Memory: 64 << 20}},
			{Name: "r2", Kind: Router, Amounts: Amounts{CPU: 100, Memory: 64 << 20}}}}
	}
	for want, s := range map[string]Slice{
		"it says no tables":                       {NextHops: 100},
		"it says no nexthops":                     {Tables: 1 << 20},
		"tables 1KiB is less than the 64KiB":      {Tables: 1 << 10, NextHops: 100},
		"tables 256MiB is more than a slice":      {Tables: 256 << 20, NextHops: 100},
		"nexthops 3 is less than the 64":          {Tables: 1 << 20, NextHops: 3},
		"nexthops 65000 is more than a slice can": {Tables: 1 << 20, NextHops: 65000},
		"punts 5 is less than":                    {Tables: 1 << 20, NextHops: 100, Punts: 5},
		"":                                        {Tables: 1 << 20, NextHops: 100, Punts: 500},
	} {
		var said []string
		n := net("lab", s)
		for _, p := range n.Validate() {
			if strings.Contains(p.Message, "slice") {
				said = append(said, p.Message)
			}
		}
		if want == "" && len(said) > 0 || want != "" && (len(said) != 1 || !strings.Contains(said[0], want)) {
			t.Errorf("%+v: %q, not %q", s, said, want)
		}
	}
	placed := map[string]string{"r1": "n1", "r2": "n2"}
	big := net("big", Slice{Tables: 200 << 20, NextHops: 50_000})
	others := ReservedTables([]Record{{Network: big, Assigned: Assigned{Placement: Placement{Elements: placed}}}})
	if len(others) != 1 || others["n1"].Tables != 200<<20 || others["n1"].NextHops != 50_000 {
		t.Errorf("reserved %+v", others)
	}
	nodes := []string{"n1", "n2"}
	for _, k := range []struct {
		slice Slice
		node  string
		want  []string
	}{
		{Slice{Tables: 24 << 20, NextHops: 7337}, "n1", nil},
		{Slice{Tables: 25 << 20, NextHops: 7338}, "n1", []string{"tables of 25MiB do not fit on node n1, where strict slices own 200MiB of 224MiB", "7338 nexthops do not fit on node n1, where strict slices own 50000 of 57337"}},
		{Slice{Tables: 224 << 20, NextHops: 50_000}, "n2", nil},
	} {
		n := net("lab", k.slice)
		got := CheckReservedTables(&n, map[string]string{"r1": k.node, "r2": "n1"}, others, nodes)
		if len(got) != len(k.want) {
			t.Errorf("%+v: %v", k.slice, got)
			continue
		}
		for i := range got {
			if !strings.Contains(got[i].Error(), k.want[i]) {
				t.Errorf("%v, not %q", got[i], k.want[i])
			}
		}
		n.Slice.Mode = Shared
		if got := CheckReservedTables(&n, map[string]string{"r1": k.node}, others, nodes); len(got) > 0 {
			t.Errorf("a shared slice reserves: %v", got)
		}
	}
}
