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

// showPlaces tells where the elements and links of planned networks would be, and what the nodes and the links between
// them would have left.
func (c *CLI) showPlaces(ctx context.Context, cl Client, planned []model.ApplyResult) error {
	left, err := leftAfter(ctx, cl, planned)
	if err != nil {
		return err
	}
	for _, p := range planned {
		if _, err := fmt.Fprint(c.Out, "places of "+p.Record.Network.Name+"\n", placesOf(p, left)); err != nil {
			return err
		}
	}
	return nil
}

func placesOf(p model.ApplyResult, left *rooms) string {
	on := map[string][]string{}
	for _, e := range p.Record.Network.Elements {
		if node := p.Record.Assigned.Placement.Elements[e.Name]; node != "" {
			on[node] = append(on[node], e.Name)
		}
	}
	var b strings.Builder
	for _, node := range slices.Sorted(maps.Keys(on)) {
		fmt.Fprintf(&b, "  on %s: %s", node, someOf(on[node]))
		if n := left.nodes[node]; n != nil {
			fmt.Fprintf(&b, "; %s of %s cores and %s of %s left", n.CPU-min(n.CPU, n.CPUReserved), n.CPU,
				(n.Memory - min(n.Memory, n.MemoryReserved)).Rounded(), n.Memory.Rounded())
		}
		b.WriteString("\n")
	}
	ways, nodes := map[string][]string{}, map[string][]string{}
	for _, l := range p.Record.Network.Links {
		for _, path := range p.Record.Assigned.Placement.Links[l.Name] {
			way := strings.Join(path.Nodes, " → ")
			ways[way], nodes[way] = append(ways[way], l.Name), path.Nodes
		}
	}
	for _, way := range slices.Sorted(maps.Keys(ways)) {
		fmt.Fprintf(&b, "  by %s: %s%s\n", way, someOf(ways[way]), left.along(nodes[way]))
	}
	return b.String()
}

func someOf(names []string) string {
	if len(names) > mostNames {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:mostNames], ", "), len(names)-mostNames)
	}
	return strings.Join(names, ", ")
}

// rooms are the nodes and the links between them, with what is reserved.
type rooms struct {
	nodes map[string]*model.NodeStatus
	links map[[2]string]*model.SubstrateLinkStatus // by their ends, the lesser first
}

// along tells what the links on a path have left, as far as they say what they carry.
func (r *rooms) along(path []string) string {
	var parts []string
	for i := 1; i < len(path); i++ {
		l := r.links[hopOf(path[i-1], path[i])]
		if l != nil && l.Bandwidth > 0 {
			parts = append(parts, fmt.Sprintf("%s – %s %s of %s", path[i-1], path[i],
				l.Bandwidth-min(l.Bandwidth, l.Reserved), l.Bandwidth))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "; left on " + strings.Join(parts, ", ")
}

func hopOf(a, b string) [2]string { return [2]string{min(a, b), max(a, b)} }

// leftAfter works out what is reserved once everything that is planned is as planned.
func leftAfter(ctx context.Context, cl Client, planned []model.ApplyResult) (*rooms, error) {
	nodes, err := cl.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	links, err := cl.SubstrateLinks(ctx)
	if err != nil {
		return nil, err
	}
	r := &rooms{map[string]*model.NodeStatus{}, map[[2]string]*model.SubstrateLinkStatus{}}
	for i := range nodes {
		r.nodes[nodes[i].Name] = &nodes[i]
	}
	for i := range links {
		r.links[hopOf(links[i].A, links[i].B)] = &links[i]
	}
	for i := range planned {
		if planned[i].Before != nil {
			r.count(planned[i].Before, false)
		}
	}
	for i := range planned {
		r.count(&planned[i].Record, true)
	}
	return r, nil
}

// count adds what a network takes, or takes it away.
func (r *rooms) count(of *model.Record, add bool) {
	placed := of.Assigned.Placement
	for i := range of.Network.Elements {
		e := &of.Network.Elements[i]
		if n := r.nodes[placed.Elements[e.Name]]; n != nil {
			change(&n.CPUReserved, e.CPU, add)
			change(&n.MemoryReserved, e.Memory, add)
		}
	}
	for _, paths := range placed.Links {
		for _, p := range paths {
			for k := 1; k < len(p.Nodes); k++ {
				if l := r.links[hopOf(p.Nodes[k-1], p.Nodes[k])]; l != nil {
					change(&l.Reserved, p.Bandwidth, add)
				}
			}
		}
	}
}

func change[T model.CPU | model.Bytes | model.Bandwidth](of *T, by T, add bool) {
	if add {
		*of += by
	} else {
		*of -= min(*of, by)
	}
}
