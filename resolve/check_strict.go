package resolve

import "github.com/polyplane/polyplane/model"

// checkStrict requires a strict slice to say what it owns.
func (ps *problems) checkStrict() {
	s := &ps.net.Slice
	if s.Bandwidth == 0 && !ps.ofNetwork("slice/bandwidth") {
		ps.network("slice", "slice: a strict one owns what it says, and it says no bandwidth: what it may send to "+
			"other nodes, like bandwidth: 100Mbit")
	}
	if s.Packets == 0 && !ps.ofNetwork("slice/packets") {
		ps.network("slice", "slice: a strict one owns what it says, and it says no packets: how many a second it may "+
			"send on each node, like packets: 100000")
	}
	var cpu, memory, fast []string
	for i := range ps.net.Elements {
		e := &ps.net.Elements[i]
		if e.FastRouter() && !ps.ofElement(i, "forwarding") {
			fast = append(fast, e.Name)
		}
		if e.CPU == 0 && !ps.ofElement(i, "cpu") {
			cpu = append(cpu, e.Name)
		}
		if e.Memory == 0 && !ps.ofElement(i, "memory") {
			memory = append(memory, e.Name)
		}
	}
	if len(fast) > 0 && s.Tables == 0 && !ps.ofNetwork("slice/tables") {
		ps.network("slice", "slice: a strict one owns what it says, and it says no tables: what its routers whose "+
			"forwarding is not guest (%s) may have of each node's, like tables: 4MiB", model.FewNames(5, fast))
	}
	if len(fast) > 0 && s.NextHops == 0 && !ps.ofNetwork("slice/nexthops") {
		ps.network("slice", "slice: a strict one owns what it says, and it says no nexthops: how many its routers "+
			"whose forwarding is not guest (%s) may have on each node, like nexthops: 1024", model.FewNames(5, fast))
	}
	for _, m := range []struct {
		key, like string
		without   []string
	}{{"cpu", "0.1", cpu}, {"memory", "64MiB", memory}} {
		if len(m.without) > 0 {
			ps.network("slice/mode",
				"slice: a strict one owns what it says, and without %s: %s; give each its share, like defaults: "+
					"{routers: {%s: %s}}",
				m.key, model.FewNames(5, m.without), m.key, m.like)
		}
	}
}
