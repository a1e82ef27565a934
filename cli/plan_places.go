package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/model"
)

// mostNames is how many elements and links are named in a line.
const mostNames = 8

// showPlaces tells where the elements and links of planned networks would be. It also tells what the nodes would have
// left, if the caller may see the nodes.
func (c *CLI) showPlaces(ctx context.Context, cl Client, planned []model.ApplyResult) error {
	nodes, left := leftAfter(ctx, cl, planned)
	for _, p := range planned {
		if _, err := fmt.Fprint(c.Out, "places of "+p.Record.Network.Name+"\n", placesOf(p, nodes, left)); err != nil {
			return err
		}
	}
	return nil
}

func placesOf(p model.ApplyResult, nodes []model.NodeStatus, left map[string]room) string {
	on := map[string][]string{}
	for _, e := range p.Record.Network.Elements {
		if node := p.Record.Assigned.Placement.Elements[e.Name]; node != "" {
			on[node] = append(on[node], e.Name)
		}
	}
	var b strings.Builder
	for _, node := range slices.Sorted(maps.Keys(on)) {
		fmt.Fprintf(&b, "  on %s: %s", node, someOf(on[node]))
		for _, n := range nodes {
			if n.Name == node {
				fmt.Fprintf(&b, "; %s of %s cores and %s of %s left", left[node].cpu, n.CPU,
					left[node].memory.Rounded(), n.Memory.Rounded())
			}
		}
		b.WriteString("\n")
	}
	ways := map[string][]string{}
	for _, l := range p.Record.Network.Links {
		for _, path := range p.Record.Assigned.Placement.Links[l.Name] {
			way := strings.Join(path.Nodes, " → ")
			ways[way] = append(ways[way], l.Name)
		}
	}
	for _, way := range slices.Sorted(maps.Keys(ways)) {
		fmt.Fprintf(&b, "  by %s: %s\n", way, someOf(ways[way]))
	}
	return b.String()
}

func someOf(names []string) string {
	if len(names) > mostNames {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:mostNames], ", "), len(names)-mostNames)
	}
	return strings.Join(names, ", ")
}

// room is what a node has left.
type room struct {
	cpu    model.CPU
	memory model.Bytes
}

// leftAfter works out what nodes would have left once the plan is carried out. If the caller may not see the nodes, it
// returns nothing.
func leftAfter(ctx context.Context, cl Client, planned []model.ApplyResult) ([]model.NodeStatus, map[string]room) {
	nodes, err := cl.Nodes(ctx)
	if err != nil {
		return nil, nil
	}
	taken := map[string]room{}
	for _, n := range nodes {
		taken[n.Name] = room{n.CPUReserved, n.MemoryReserved}
	}
	count := func(r *model.Record, add bool) {
		for i := range r.Network.Elements {
			e := &r.Network.Elements[i]
			t := taken[r.Assigned.Placement.Elements[e.Name]]
			if add {
				t.cpu, t.memory = t.cpu+e.CPU, t.memory+e.Memory
			} else {
				t.cpu, t.memory = t.cpu-min(t.cpu, e.CPU), t.memory-min(t.memory, e.Memory)
			}
			taken[r.Assigned.Placement.Elements[e.Name]] = t
		}
	}
	for i := range planned {
		if planned[i].Before != nil {
			count(planned[i].Before, false)
		}
	}
	for i := range planned {
		count(&planned[i].Record, true)
	}
	left := map[string]room{}
	for _, n := range nodes {
		t := taken[n.Name]
		left[n.Name] = room{n.CPU - min(n.CPU, t.cpu), n.Memory - min(n.Memory, t.memory)}
	}
	return nodes, left
}
