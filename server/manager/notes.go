package manager

import (
	"fmt"
	"maps"
	"slices"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/resolve"
	"github.com/polyplane/polyplane/server/admission"
)

// notes says what people should know about a network that is about to be applied and what no comparison of documents
// shows. The caller does not hold the lock.
func (m *Manager) notes(s *admission.Situation, old *network, next admission.Network,
	options model.ApplyOptions) []string {
	var all []string
	resolved := next.Resolved
	if old != nil {
		all = append(leftBehind(s, old, next, options.LoseFiles),
			m.ownConfigurations(old, resolved, options.Overwrite)...)
	}
	all = append(all, resolve.Doubts(&next.Record.Network, &resolved)...)
	if s := resolved.Slice; s.CPU != 0 || s.Memory != 0 {
		for i := range resolved.Elements {
			e := &resolved.Elements[i]
			if s.CPU != 0 && e.CPU == 0 || s.Memory != 0 && e.Memory == 0 {
				all = append(all, fmt.Sprintf("slice: cpu and memory bound what its elements ask for together; %s "+
					"asks for none of one of them, which does not count", e.Name))
				break
			}
		}
	}
	return all
}

// leftBehind says which elements move without their files, and where these stay.
func leftBehind(s *admission.Situation, old *network, next admission.Network, allowed bool) []string {
	placed := next.Record.Assigned.Placement.Elements
	byNode := map[string][]string{}
	for _, name := range s.Moves(old.admitted(), placed) {
		from := old.record.Assigned.Placement.Elements[name]
		byNode[from] = append(byNode[from], name+" (to "+placed[name]+")")
	}
	var notes []string
	for _, from := range slices.Sorted(maps.Keys(byNode)) {
		note := fmt.Sprintf("%s would move from node %s without what was written inside: the disk stays in that "+
			"node's trash", shorten(byNode[from]), from)
		if !allowed {
			note += "; apply refuses that without --lose-files, and `polyplane move` takes it along"
		}
		notes = append(notes, note)
	}
	return notes
}

// ownConfigurations says which elements' edited configurations and files are replaced, or conflict with the document's.
func (m *Manager) ownConfigurations(old *network, resolved model.Resolved, overwrite bool) (notes []string) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var replaced, edited []string
	for i := range resolved.Elements {
		e := &resolved.Elements[i]
		if _, there := old.index[e.Name]; !there || !e.IsSeeded() {
			continue
		}
		replaced = append(replaced, e.Name)
		// A running element with a warning has kept what was edited inside it.
		is := m.nodes.elementStatus(old, e.Name)
		if is.Phase != model.PhaseRunning || is.Message == "" {
			continue
		}
		edited = append(edited, e.Name)
		if !overwrite {
			notes = append(notes, e.Name+": "+is.Message)
		}
	}
	switch {
	case !overwrite || len(replaced) == 0:
	case len(edited) > 0:
		notes = append(notes, fmt.Sprintf("what was edited inside %s is replaced by the document's, "+
			"and so is that of any other element, if it was edited", shorten(edited)))
	default:
		notes = append(notes, fmt.Sprintf("where configuration or files were edited inside %s, they are replaced by "+
			"the document's", shorten(replaced)))
	}
	return notes
}
