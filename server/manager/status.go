package manager

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/polyplane/polyplane/embedding"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
)

// Ping tells how the instance is.
func (m *Manager) Ping() model.Pong {
	m.mu.RLock()
	defer m.mu.RUnlock()
	p := model.Pong{Instance: m.dirs.Name, Started: m.started, Revision: m.revision, Networks: len(m.networks),
		Nodes: len(m.nodes), Store: m.store.Place(), Waits: m.store.Waits()}
	for _, n := range m.nodes {
		if n.ready() {
			p.Ready++
		}
	}
	return p
}

// Substrate returns the physical nodes and links.
func (m *known) Substrate() model.Substrate {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.substrate
}

// Dump tells of one network, or of all when network is empty; nodes and the substrate's links are always told of
// all.
func (m *Manager) Dump(network string, parts api.Parts) (model.Dump, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var d model.Dump
	names := slices.Sorted(maps.Keys(m.networks))
	if network != "" {
		if m.networks[network] == nil && len(m.nodes.heldOn(network)) == 0 {
			return d, m.networks.none(network)
		}
		names = []string{network}
		if parts.Elements || parts.Links {
			// What nodes have of a network that is held, or whose record is damaged, is not "no elements".
			if n := m.networks[network]; n == nil {
				return d, m.errHeld(network)
			} else if n.damaged != nil {
				_, err := m.usable(network)
				return d, err
			}
		}
	}
	if parts.Networks {
		for _, name := range m.unknownHeld() {
			if network == "" || network == name {
				d.Networks = append(d.Networks, m.heldStatus(name))
			}
		}
	}
	if parts.Nodes {
		d.Nodes, d.Substrate = m.nodeStatuses(), slices.Concat(m.substrateLinks(), m.foundLinks())
	}
	for _, name := range names {
		n := m.networks[name]
		if n == nil {
			continue // nodes hold it, and the store does not know it
		}
		if parts.Networks {
			d.Networks = append(d.Networks, m.networkStatus(n))
		}
		if parts.Elements {
			for i := range n.resolved.Elements {
				e := n.resolved.Elements[i]
				d.Elements = append(d.Elements,
					model.ElementView{ElementStatus: m.nodes.elementStatus(n, e.Name), Owner: n.record.WhoseItIs(),
						Title: n.record.Network.Called(), Element: e})
			}
		}
		if parts.Links {
			for _, l := range n.resolved.Links {
				d.Links = append(d.Links, m.nodes.linkStatus(n, l))
			}
		}
	}
	slices.SortFunc(d.Networks, func(a, b model.NetworkStatus) int { return strings.Compare(a.Name, b.Name) })
	return d, nil
}

// networkStatus sums up a network. The lock is held.
func (k *known) networkStatus(n *network) model.NetworkStatus {
	if n.damaged != nil {
		return k.damagedStatus(n)
	}
	r := &n.record
	s := model.NetworkStatus{Name: r.Network.Name, Phase: model.PhaseRunning, Elements: len(n.resolved.Elements),
		Links: len(n.resolved.Links), Nodes: slices.Sorted(maps.Keys(placedOn(*r))), Revision: r.Revision,
		Created: r.Created, Modified: r.Modified, Deleting: r.Deleting, Owner: r.WhoseItIs(),
		Title:       r.Network.Called(),
		Provisional: r.Provisional}
	var failure, waiting string
	wanted := 0
	for i := range n.resolved.Elements {
		name := n.resolved.Elements[i].Name
		is := k.nodes.elementStatus(n, name)
		stopped := r.Overrides[name].Stopped
		if !stopped {
			wanted++
		}
		if is.AtWork && waiting == "" {
			waiting = "node " + is.Node + " is at work on " + name
		}
		switch {
		case is.LastTold != 0:
			s.Unknown++
			// What ran when its node was heard last runs on; what was being started may not have got there.
			if was := is.Phase; waiting == "" && was != model.PhaseRunning && was != model.PhaseSuspended &&
				(was != model.PhaseStopped || !stopped) {
				waiting = fmt.Sprintf("%s is %s, %s", name, was, is.Message)
			}
		case is.Phase == model.PhaseFailed && is.AtWork: // as it was before
		case is.Phase == model.PhaseFailed:
			s.Failed++
			failure = cmp.Or(failure, name+": "+is.Message)
		case stopped && is.Phase == model.PhaseStopped:
			s.Stopped++
		case is.Phase == model.PhaseSuspended && r.Overrides[name].Suspended:
			s.Suspended++
		case is.Phase == model.PhaseRunning:
			s.Running++
			if stopped && waiting == "" {
				waiting = name + " is stopping"
			}
		case waiting == "" && is.Message != "":
			waiting = name + ": " + is.Message
		}
	}
	for name, p := range n.parts {
		if on := k.nodes[name]; waiting == "" && on != nil && (on.reported < p.revision || on.atWork[s.Name]) {
			waiting = "node " + name + " is at work"
		}
	}
	switch {
	case r.Deleting:
		s.Phase, s.Message = model.PhasePending, "is being deleted, waiting for "+
			shorten(slices.Sorted(maps.Keys(n.leaving)))
	case s.Failed > 0:
		s.Phase, s.Message = model.PhaseFailed, failure
		if s.Failed > 1 {
			s.Message = fmt.Sprintf("%s (and %d more)", failure, s.Failed-1)
		}
	case waiting != "" || s.Running+s.Stopped+s.Suspended+s.Unknown < s.Elements:
		s.Phase, s.Message = model.PhasePending, waiting
	case wanted == 0 && s.Elements > 0:
		s.Phase = model.PhaseStopped
	}
	for node, h := range k.nodes.heldOn(s.Name) {
		s.Message = k.heldWords(node, h)
		break
	}
	for _, name := range s.Nodes {
		on := k.nodes[name]
		if on == nil {
			continue
		}
		if why := on.mute(); why != "" && (s.Message == "" || on.lost()) {
			s.Message = "as last told: " + why
		}
		if s.Unknown > 0 && on.lost() && s.Phase != model.PhaseFailed && !r.Deleting {
			s.Phase = model.PhaseUnknown
		}
	}
	return s
}

// subnets are those that a link's ends have addresses of: what was assigned to it, what its ends state, or those of the
// segment that it is a part of.
func (n *network) subnets(l model.Link) []netip.Prefix {
	var subnets []netip.Prefix
	for _, end := range l.Ends {
		i, ok := n.index[end.Element]
		if !ok {
			continue
		}
		for _, f := range n.resolved.Elements[i].Interfaces {
			if f.Name != end.Interface {
				continue
			}
			for _, a := range f.Addresses {
				if p := a.Masked(); !a.Addr().IsLinkLocalUnicast() && !slices.Contains(subnets, p) {
					subnets = append(subnets, p)
				}
			}
		}
	}
	return subnets
}

// nodeStatuses sums up the nodes, by name. The lock is held.
func (m *known) nodeStatuses() []model.NodeStatus {
	records := make([]model.Record, 0, len(m.networks))
	for _, n := range m.networks {
		if n.damaged == nil {
			records = append(records, n.record)
		}
	}
	usage := embedding.UsageOf(records)
	var out []model.NodeStatus
	for _, name := range slices.Sorted(maps.Keys(m.nodes)) {
		n := m.nodes[name]
		s := model.NodeStatus{SubstrateNode: n.SubstrateNode, LastSeen: n.lastSeen,
			Elements: len(n.elements), Ports: len(n.ports), CPUReserved: usage.Nodes[name].CPU,
			MemoryReserved: usage.Nodes[name].Memory, CPUUsed: n.cpuUsed, MemoryUsed: n.memUsed, Revision: n.reported,
			Disk: n.disk, DiskFree: n.diskFree,
			Underlay: n.underlay, Offers: n.offers, Held: n.heldNames(), Found: n.found}
		for _, e := range n.elements {
			if s.Phases == nil {
				s.Phases = map[model.Phase]int{}
			}
			s.Phases[e.Phase]++
		}
		if !n.came {
			s.LastSeen = time.Time{} // its agent goes on reporting to a manager that it has not found to be new
		}
		s.Condition, s.Problem = n.condition()
		s.Ready = s.Condition == model.Ready
		if s.Problem == "" {
			s.Problem = n.heldProblem()
		}
		for _, store := range []string{m.strange, m.silent, m.store.Aside()} {
			if store != "" {
				s.Problem = strings.TrimPrefix(s.Problem+"; "+store, "; ")
			}
		}
		out = append(out, s)
	}
	return out
}

// announce tells of networks that became ready, failed or stopped.
func (m *Manager) announce() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, n := range m.networks {
		s := m.networkStatus(n)
		if s.Phase == n.phase {
			continue
		}
		was := n.phase
		n.phase = s.Phase
		switch {
		case n.damaged != nil || was == "" && s.Phase == model.PhasePending:
		case s.Phase == model.PhaseRunning:
			m.networkEvent(model.Info, name, "NetworkReady", fmt.Sprintf("all %d elements run", s.Running), "")
		case s.Phase == model.PhaseStopped:
			m.networkEvent(model.Info, name, "NetworkStopped", "all its elements are stopped", "")
		case s.Phase == model.PhaseFailed:
			m.networkEvent(model.Error, name, "NetworkFailed", s.Message, "")
		}
	}
}
