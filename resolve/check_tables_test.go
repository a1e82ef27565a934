package resolve

import (
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// A strict slice with routers whose packets the node forwards states what it owns of the node's tables, and gets it or
// is refused.
func TestTableQuotas(t *testing.T) {
	if q := (&model.Slice{Tables: 64 << 20, Mode: model.Strict}).TableQuota(); q != (model.TableQuota{Strict: true,
		Tables: 64 << 20, NextHops: model.DefaultNextHops, Routes: 2 << 20, Punts: model.DefaultPunts}) {
		t.Errorf("%+v", q)
	}
	net := func(name string, s model.Slice) model.Network {
		s.Mode, s.Bandwidth, s.Packets = model.Strict, 1e6, 1000
		return model.Network{Name: name, Slice: s,
			Elements: []model.Element{{Name: "r1", Kind: model.Router, Forwarding: model.ForwardXDP,
				Amounts: model.Amounts{CPU: 100, Memory: 64 << 20}},
				{Name: "r2", Kind: model.Router, Amounts: model.Amounts{CPU: 100, Memory: 64 << 20}}}}
	}
	for want, s := range map[string]model.Slice{
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
		for _, p := range problemsOf(n) {
			if strings.Contains(p.Message, "slice") {
				said = append(said, p.Message)
			}
		}
		if want == "" && len(said) > 0 || want != "" && (len(said) != 1 || !strings.Contains(said[0], want)) {
			t.Errorf("%+v: %q, not %q", s, said, want)
		}
	}
	placed := map[string]string{"r1": "n1", "r2": "n2"}
	big := net("big", model.Slice{Tables: 200 << 20, NextHops: 50_000})
	others := model.ReservedTables([]model.Record{{Network: big,
		Assigned: model.Assigned{Placement: model.Placement{Elements: placed}}}})
	if len(others) != 1 || others["n1"].Tables != 200<<20 || others["n1"].NextHops != 50_000 {
		t.Errorf("reserved %+v", others)
	}
	nodes := []string{"n1", "n2"}
	for _, k := range []struct {
		slice model.Slice
		node  string
		want  []string
	}{
		{model.Slice{Tables: 24 << 20, NextHops: 7337}, "n1", nil},
		{model.Slice{Tables: 25 << 20, NextHops: 7338}, "n1",
			[]string{"tables of 25MiB do not fit on node n1, where strict slices own 200MiB of 224MiB",
				"7338 nexthops do not fit on node n1, where strict slices own 50000 of 57337"}},
		{model.Slice{Tables: 224 << 20, NextHops: 50_000}, "n2", nil},
	} {
		n := net("lab", k.slice)
		got := model.CheckReservedTables(&n, map[string]string{"r1": k.node, "r2": "n1"}, others, nodes)
		if len(got) != len(k.want) {
			t.Errorf("%+v: %v", k.slice, got)
			continue
		}
		for i := range got {
			if !strings.Contains(got[i].Error(), k.want[i]) {
				t.Errorf("%v, not %q", got[i], k.want[i])
			}
		}
		n.Slice.Mode = model.Shared
		if got := model.CheckReservedTables(&n, map[string]string{"r1": k.node}, others, nodes); len(got) > 0 {
			t.Errorf("a shared slice reserves: %v", got)
		}
	}
}
