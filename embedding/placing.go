package embedding

import (
	"fmt"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/embedding/search"
	"github.com/polyplane/polyplane/model"
)

// checkPlacing tells which of the elements that have their places already are not as the network's placement wants
// them: the search moves none of them.
func (e *embedder) checkPlacing(current Current) {
	if e.net.Placing.Distinct {
		on := map[int32]string{}
		for i, n := range e.pin {
			el := e.net.Elements[i].Name
			if n < 0 {
				continue
			}
			if other := on[n]; other != "" {
				e.refuse(model.AboutElement, el, "node", "%s is %s %s, where %s is; with placement distinct "+
					"no two are on one node: pin one of them to another (node:)", el, e.how(i), e.nodes[n].Name,
					other)
				continue
			}
			on[n] = el
		}
		if len(e.net.Elements) > len(e.nodes) && len(e.problems) == 0 {
			e.refuse(model.AboutNetwork, e.net.Name, "placement", "%d elements are to be on nodes of their own "+
				"(placement distinct), and there are %d nodes", len(e.net.Elements), len(e.nodes))
		}
	}
	if e.net.Placing.Spread == model.SpreadLocation {
		e.checkSpread(current)
	}
}

// checkSpread tells the locations that have too many elements. What was so before is not asked of again.
func (e *embedder) checkSpread(current Current) {
	fresh := current.Network.Placing.Spread != model.SpreadLocation // the key is new
	pinned := fresh
	for i, n := range e.pin {
		fresh = fresh || n < 0
		// Whatever pins it: itself, or an edge.
		pinned = pinned || n >= 0 && !e.stays[i] && e.nodes[n].Name != current.Elements[e.net.Elements[i].Name]
	}
	if (fresh || pinned) && len(e.locationsOf()) == 0 {
		e.refuse(model.AboutNetwork, e.net.Name, "placement", "its elements are to be spread over locations, and no "+
			"node has one (`location:` of a node, in the substrate's file or of `join`)")
		return
	}
	if !pinned {
		return // what is still to be placed the search sees to
	}
	most := e.mostInLocation()
	in := map[string][]string{}
	for i, n := range e.pin {
		if n >= 0 {
			in[e.nodes[n].Location] = append(in[e.nodes[n].Location], e.net.Elements[i].Name)
		}
	}
	for _, location := range e.locationsOf() {
		if names := in[location]; len(names) > most {
			e.refuse(model.AboutElement, names[most], "node", "location %s has %s; %d elements that are spread "+
				"over %d locations are at most %d in each: pin some to nodes elsewhere (node:)", location,
				list(names), len(e.net.Elements), len(e.locationsOf()), most)
		}
	}
}

// how says why an element is on the node where it must be.
func (e *embedder) how(i int) string {
	if e.stays[i] {
		return "on"
	}
	return "pinned to"
}

// mostInLocation is how many elements a location may have where they are to be spread; 0 is any number.
func (e *embedder) mostInLocation() int {
	n := len(e.locationsOf())
	if e.net.Placing.Spread != model.SpreadLocation || n == 0 {
		return 0
	}
	return (len(e.net.Elements) + n - 1) / n
}

// locationsOf are the locations of the nodes.
func (e *embedder) locationsOf() (names []string) {
	for _, n := range e.nodes {
		if n.Location != "" && !slices.Contains(names, n.Location) {
			names = append(names, n.Location)
		}
	}
	return names
}

// stuck tells why there is no place for an element, node by node, or no way for a link.
func (e *embedder) stuck(q *query, s *search.Stuck) model.Problem {
	if s.Element < 0 {
		l := &e.net.Links[q.links[s.Link]]
		return problem(model.AboutLink, l.Name, "bandwidth", "%s",
			e.noPath(l, s.At[q.Links[s.Link].A], s.At[q.Links[s.Link].B]))
	}
	el, alone, most := &e.net.Elements[s.Element], q.Groups[0].Alone, q.Groups[0].Most
	holds := make([][]string, len(e.nodes))
	in := map[string]int{}
	cpu, memory := make([]model.CPU, len(e.nodes)), make([]model.Bytes, len(e.nodes))
	for i, n := range s.At {
		if n < 0 {
			continue
		}
		holds[n] = append(holds[n], e.net.Elements[i].Name)
		in[e.nodes[n].Location]++
		cpu[n] += e.net.Elements[i].CPU
		memory[n] += e.net.Elements[i].Memory
	}
	var reasons []string
	for n := range e.nodes {
		node := &e.nodes[n]
		freeCPU, freeMemory := minus(node.CPU, node.base.CPU+cpu[n]), minus(node.Memory, node.base.Memory+memory[n])
		why := ""
		switch {
		case el.Location != "" && node.Location != el.Location:
			continue
		case e.may[s.Element] != nil && !e.may[s.Element][n]:
			why = "lacks what it wants"
		case alone && len(holds[n]) > 0:
			why = "has " + list(holds[n])
		case el.CPU > freeCPU:
			why = "has " + cores(freeCPU) + " free"
		case el.Memory > freeMemory:
			why = "has " + freeMemory.Rounded() + " free"
		case most > 0 && node.Location == "":
			why = "has no location"
		case most > 0 && in[node.Location] >= most:
			why = fmt.Sprintf("is in %s, which has %d already", node.Location, in[node.Location])
		default:
			why = "has room, but no ways were found for its links"
		}
		reasons = append(reasons, node.Name+" "+why)
	}
	var words []string
	if alone {
		words = append(words, "distinct")
	}
	if most > 0 {
		words = append(words, fmt.Sprintf("spread, %d a location", most))
	}
	where := ""
	if len(words) > 0 {
		where = " (placement " + strings.Join(words, ", ") + ")"
	}
	needs := ""
	if el.CPU > 0 || el.Memory > 0 {
		needs = ", which needs " + demand(el.CPU, el.Memory) + ","
	}
	spent := ""
	if s.Spent {
		spent = fmt.Sprintf(" (the search ended after %d steps)", search.Steps(&q.Problem))
	}
	return problem(model.AboutElement, el.Name, "node", "no node was found for %s%s beside the others%s: %s%s",
		el.Name, needs, where, list(reasons), spent)
}
