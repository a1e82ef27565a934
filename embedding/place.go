package embedding

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
)

// unit is what is placed as one: an element, or several that links glue together.
type unit struct {
	members  []int32
	cpu      model.CPU
	memory   model.Bytes
	weight   model.CPU
	location string
	may      []bool  // the nodes that it may be on; nil: all
	turn     int     // when it is placed: with those that may be on as few nodes
	adjacent []int32 // units
}

// place puts every element onto a node, or tells the problems.
func (e *embedder) place() {
	e.problems = nil
	for i := range e.nodes {
		e.nodes[i].used = e.nodes[i].base
	}
	units, unitOf := e.units()
	for i := range e.at {
		e.at[i] = -1
	}
	e.fix()
	var free []int32
	for u := range units {
		if e.at[units[u].members[0]] < 0 {
			free = append(free, int32(u))
		}
	}
	if len(free) == 0 {
		return
	}
	p := &placer{embedder: e, units: units, unitOf: unitOf}
	all := true
	for turn, group := range e.turns(units, free) {
		p.turn = turn
		p.shares(group)
		p.besideNeighbours(group)
		p.grow(group)
		all = p.leftovers(group) && all
	}
	if all {
		return
	}
	// Keeping neighbours together left holes that something large would have needed. Now pack by size alone.
	for _, u := range free {
		p.lift(u)
	}
	if p.leftovers(free) {
		return
	}
	for _, u := range free {
		if !p.placed(u) {
			e.refuseUnit(&units[u])
		}
	}
}

// units groups glued elements.
func (e *embedder) units() ([]unit, []int32) {
	unitOf := make([]int32, len(e.parent))
	var units []unit
	for i := range e.parent {
		root := e.find(int32(i))
		if root == int32(i) {
			unitOf[i] = int32(len(units))
			units = append(units, unit{})
		}
	}
	for i := range e.parent {
		el := &e.net.Elements[i]
		u := unitOf[e.find(int32(i))]
		unitOf[i] = u
		units[u].members = append(units[u].members, int32(i))
		units[u].cpu += el.CPU
		units[u].memory += el.Memory
		units[u].weight += max(el.CPU, DefaultWeight)
		if e.location[i] != "" {
			units[u].location = e.location[i]
		}
		units[u].may = e.may[e.find(int32(i))]
	}
	for u := range units {
		for _, i := range units[u].members {
			for _, j := range e.adjacent[i] {
				if unitOf[j] != int32(u) {
					units[u].adjacent = append(units[u].adjacent, unitOf[j])
				}
			}
		}
	}
	return units, unitOf
}

// find returns the element that stands for i's group: the group's least.
func (e *embedder) find(i int32) int32 {
	for e.parent[i] != i {
		e.parent[i] = e.parent[e.parent[i]]
		i = e.parent[i]
	}
	return i
}

// fix puts what is pinned or stays where it must be, and tells which nodes that overfills.
func (e *embedder) fix() {
	for i := range e.at {
		if n := e.pin[e.find(int32(i))]; n >= 0 {
			e.put(int32(i), n)
		}
	}
	for n := range e.nodes {
		e.checkFixed(int32(n))
	}
}

// checkFixed tells what of a node's pinned and staying elements has no room.
func (e *embedder) checkFixed(n int32) {
	node := &e.nodes[n]
	if node.used.CPU <= node.CPU && node.used.Memory <= node.Memory {
		return
	}
	var asking []string
	first := ""
	for i, at := range e.at {
		el := &e.net.Elements[i]
		if at != n || el.CPU == 0 && el.Memory == 0 {
			continue
		}
		how := "pinned"
		if e.stays[i] {
			how = "there already"
		}
		first = cmp.Or(first, el.Name)
		asking = append(asking, fmt.Sprintf("%s %s (%s)", el.Name, demand(el.CPU, el.Memory), how))
	}
	if len(asking) == 0 {
		return // others overfill it; nothing of this network makes it worse
	}
	e.refuse(model.AboutElement, first, amountOf(node.used.CPU > node.CPU),
		"node %s has %s free, but these must be there: %s; give them less, or pin some to another node", node.Name,
		demand(minus(node.CPU, node.base.CPU), minus(node.Memory, node.base.Memory)), list(asking))
}

func (e *embedder) put(i, n int32) {
	el, node := &e.net.Elements[i], &e.nodes[n]
	e.at[i] = n
	node.used.CPU += el.CPU
	node.used.Memory += el.Memory
	node.used.Weight += max(el.CPU, DefaultWeight)
	node.used.Elements++
}

// load is how full a node with this usage would be, as a fraction of the whole substrate's capacity.
func (e *embedder) load(weight model.CPU, memory model.Bytes) float64 {
	l := 0.0
	if e.totalCPU > 0 {
		l = float64(weight) / e.totalCPU
	} else {
		l = float64(weight)
	}
	if e.totalMem > 0 {
		l = max(l, float64(memory)/e.totalMem)
	}
	return l
}

// size is the node's part of the whole substrate.
func (e *embedder) size(n int32) float64 {
	if e.totalCPU > 0 {
		return max(float64(e.nodes[n].CPU)/e.totalCPU, 1e-9)
	}
	return 1 / float64(len(e.nodes))
}

// refuseUnit tells what the unit needs and what each node has.
func (e *embedder) refuseUnit(u *unit) {
	names := each.Of(u.members, func(m int32) string { return e.net.Elements[m].Name })
	var has []string
	where := ""
	if u.location != "" {
		where = " in location " + u.location
	}
	for i := range e.nodes {
		n := &e.nodes[i]
		if u.location != "" && n.Location != u.location {
			continue
		}
		if u.may != nil && !u.may[i] {
			has = append(has, n.Name+" lacks what it wants")
			continue
		}
		var lacks []string
		if u.cpu > 0 && n.used.CPU+u.cpu > n.CPU {
			lacks = append(lacks, cores(minus(n.CPU, n.used.CPU)))
		}
		if u.memory > 0 && n.used.Memory+u.memory > n.Memory {
			lacks = append(lacks, minus(n.Memory, n.used.Memory).Rounded())
		}
		has = append(has, fmt.Sprintf("%s has %s free", n.Name, strings.Join(lacks, " and ")))
	}
	verb, needs := "needs", demand(u.cpu, u.memory)+" on one node"
	if len(names) > 1 {
		verb = "together need"
	}
	field := amountOf(!slices.ContainsFunc(e.nodes, func(n nodeState) bool { return n.used.CPU+u.cpu <= n.CPU }))
	if u.cpu == 0 && u.memory == 0 {
		needs, field = "one node", "node"
	}
	e.refuse(model.AboutElement, names[0], field, "%s %s %s%s: %s", list(names), verb, needs, where, list(has))
}

// amountOf is the field that a lack is about.
func amountOf(cpu bool) string {
	if cpu {
		return "cpu"
	}
	return "memory"
}
