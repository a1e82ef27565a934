package admission

import (
	"fmt"
	"maps"
	"slices"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/software"
)

// checkHeard refuses a network that would have elements on nodes whose agents have not told yet what they offer. What
// is there already and asks for nothing else stays, whatever its node's agent does: it must be possible to change a
// network when one of its nodes is dead.
func (s *Situation) checkHeard(old *Network, resolved *model.Resolved, placed map[string]string) error {
	had := map[string][]model.Want{}
	if old != nil {
		for i, w := range model.Wants(&old.Resolved) {
			had[old.Resolved.Elements[i].Name] = w
		}
	}
	silent := map[string]struct{}{}
	for i, wants := range model.Wants(resolved) {
		name := resolved.Elements[i].Name
		node := placed[name]
		stays := old != nil && old.on(name) == node && isSubset(wants, had[name])
		if _, told := s.Offers[node]; !told && !stays {
			silent[node] = struct{}{}
		}
	}
	if len(silent) == 0 {
		return nil
	}
	nodes := slices.Sorted(maps.Keys(silent))
	what := "the agent of node " + nodes[0] + " has"
	if len(nodes) > 1 {
		what = "the agents of nodes " + model.FewNames(12, nodes) + " have"
	}
	return &Refusal{Kind: NotYet,
		Detail: fmt.Sprintf("network %s cannot be judged yet: %s not reported what can run there since the manager "+
			"started; wait until `polyplane get nodes` shows them ready, or pin the elements to other nodes (node:)",
			resolved.Name, what)}
}

// checkRefusing refuses to put something new on nodes that take nothing new.
func (s *Situation) checkRefusing(old *Network, network string, placed map[string]string) error {
	for _, element := range slices.Sorted(maps.Keys(placed)) {
		node := placed[element]
		if why := s.Refusing[node]; why != "" && old.on(element) != node {
			return &Refusal{Kind: Conflict, Detail: fmt.Sprintf("network %s would have elements on node %s%s",
				network, node, why)}
		}
	}
	return nil
}

// mostMoves is how many elements that move are told.
const mostMoves = 20

// checkMoves tells which elements would move to another node and leave behind what was written inside them.
func (s *Situation) checkMoves(old *Network, placed map[string]string) []error {
	if s.LoseFiles {
		return nil
	}
	var problems []error
	moves := s.Moves(old, placed)
	for i, name := range moves {
		if i == mostMoves {
			return append(problems, fmt.Errorf("and %d more", len(moves)-mostMoves))
		}
		problems = append(problems, model.Problem{About: model.AboutElement, Name: name,
			Message: fmt.Sprintf("element %s would move from node %s to %s without what was written inside it; "+
				"`polyplane move %s/%s --to %s --cold` takes that along", name, old.on(name), placed[name],
				old.Record.Network.Name, name, placed[name])})
	}
	return problems
}

// Moves are the elements that leave files of their own on another node, by name. Those of a node that is gone are lost
// anyway.
func (s *Situation) Moves(old *Network, placed map[string]string) []string {
	nodes := map[string]bool{}
	for i := range s.Substrate.Nodes {
		nodes[s.Substrate.Nodes[i].Name] = true
	}
	var moves []string
	for name, e := range old.elements() {
		if was := old.on(name); e.Kind != model.Switch && nodes[was] && placed[name] != "" && placed[name] != was {
			moves = append(moves, name)
		}
	}
	slices.Sort(moves)
	return moves
}

func isSubset(wants, of []model.Want) bool {
	return !slices.ContainsFunc(wants, func(w model.Want) bool { return !slices.Contains(of, w) })
}

// checkSoftware tells which elements' routing software could not be configured: what a node would refuse to render is
// refused before it gets there.
func checkSoftware(resolved *model.Resolved) []error {
	var problems []error
	for i := range resolved.Elements {
		if _, err := software.Render(resolved.Name, resolved.Elements[i]); err != nil {
			problems = append(problems, model.Problem{About: model.AboutElement, Name: resolved.Elements[i].Name,
				Message: err.Error()})
		}
	}
	return problems
}

// checkDisks tells which elements would have smaller disks than they have: file systems in use do not shrink.
func checkDisks(old *Network, resolved *model.Resolved) []error {
	var problems []error
	had := old.elements()
	for i := range resolved.Elements {
		e := &resolved.Elements[i]
		before := had[e.Name]
		if before == nil {
			continue
		}
		is, was := e.Limits().Disk, before.Limits().Disk
		if is < was && e.HasProcesses() && before.HasProcesses() {
			problems = append(problems,
				model.ProblemOfElement(e, "disk", "its disk of %s cannot shrink to %s while it is used; "+
					"leave it, or delete the element and make it anew", was, is))
		}
	}
	return problems
}

func sliceProblem(field, format string, args ...any) error {
	return model.Problem{About: model.AboutNetwork, Field: "slice/" + field, Message: fmt.Sprintf(format, args...)}
}

// checkTables tells on which nodes a strict slice cannot have the forwarding tables that it states.
func (s *Situation) checkTables(net *model.Network, placed map[string]string) []error {
	return model.CheckReservedTables(net, placed, model.ReservedTables(s.Others), nodeNames(s.Substrate))
}

// checkSlice tells which of a slice's amounts is more than all nodes have together: no network could ever fill it.
func checkSlice(s *model.Slice, substrate model.Substrate) []error {
	var cpu uint64
	var memory model.Bytes
	for _, n := range substrate.Nodes {
		cpu += uint64(n.CPU)
		memory += n.Memory
	}
	var problems []error
	if uint64(s.CPU) > cpu {
		problems = append(problems, sliceProblem("cpu", "slice: %s cores are more than all nodes have together (%s)",
			s.CPU, model.CPU(min(cpu, 1<<32-1))))
	}
	if s.Memory > memory {
		problems = append(problems,
			sliceProblem("memory", "slice: %s of memory is more than all nodes have together (%s)",
				s.Memory, memory.Rounded()))
	}
	return problems
}
