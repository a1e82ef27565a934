package cli

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/model"
)

// root asks a switch for its spanning tree, and shows its root. It returns nil where the switch cannot be asked.
func (s *sheet) root(cmd *cobra.Command, cl Client, e *model.ElementView, links []model.LinkStatus) *model.Tree {
	if e.Phase != model.PhaseRunning {
		return nil
	}
	t, err := cl.Tree(cmd.Context(), e.ID)
	if err != nil {
		s.line("STP root", "unknown: "+oneLine(err.Error()))
		return nil
	}
	var names []string
	for i := range links {
		if l := &links[i]; l.Network == e.ID.Network {
			names = append(names, l.Link.Ends[0].Element, l.Link.Ends[1].Element)
		}
	}
	name := model.BridgeName(e.ID.Network, t.Root.MAC, names)
	switch {
	case t.Root == t.Bridge:
		s.line("STP root", "itself")
	case name != "":
		s.line("STP root", fmt.Sprintf("%s (priority %d), at cost %d", name, t.Root.Priority, t.Cost))
	default: // outside of the network
		s.line("STP root", fmt.Sprintf("a bridge %s (priority %d), at cost %d", t.Root.MAC, t.Root.Priority, t.Cost))
	}
	return &t
}

// tree shows the ports of a spanning tree.
func (s *sheet) tree(t *model.Tree) {
	if t == nil {
		return
	}
	ports := table{head: []string{"STP PORT", "ROLE", "STATE", ">COST"}}
	for _, p := range t.Ports {
		ports.add(texts(p.Interface, string(p.Role), string(p.State), strconv.FormatUint(uint64(p.Cost), 10))...)
	}
	s.table("Spanning tree", ports)
}
