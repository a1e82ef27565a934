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
		Nodes: len(m.nodes), Store: m.store.Place()}
	for _, n := range m.nodes {
		if n.ready() {
			p.Ready++
		}
	}
	return p
}

// Substrate returns the physical nodes and links.
func (m *Manager) Substrate() model.Substrate {
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
		if m.networks[network] == nil && len(m.heldOn(network)) == 0 {
			return d, m.noNetwork(network)
		}
		names = []string{network}
	}
	if parts.Networks {
		for _, name := range m.unknownHeld() {
			if network == "" || network == name {
				d.Networks = append(d.Networks, m.heldStatus(name))
			}
		}
	}
	if parts.Nodes {
		d.Nodes, d.Substrate = m.nodeStatuses(), m.substrateLinks()
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
					model.ElementView{ElementStatus: m.elementStatus(n, e.Name), Element: e})
			}
		}
		if parts.Links {
			for _, l := range n.resolved.Links {
				d.Links = append(d.Links, m.linkStatus(n, l))
			}
		}
	}
	slices.SortFunc(d.Networks, func(a, b model.NetworkStatus) int { return strings.Compare(a.Name, b.Name) })
	return d, nil
}

// elementStatus is what the element's node says, or why it says nothing. The lock is held.
func (m *Manager) elementStatus(n *network, element string) model.ElementStatus {
	s := m.toldOf(n, element)
	switch o := n.record.Overrides[element]; {
	case o.Quarantined:
		s.Quarantine = cmp.Or(o.Reason, "by hand")
	case s.Incident != nil && o.Decided < s.Incident.At.UnixNano():
		s.Quarantine = reasonOf(s.Incident.What)
	}
	return s
}

// toldOf is what the element's node told last. The lock is held.
func (m *Manager) toldOf(n *network, element string) model.ElementStatus {
	id := model.ID{Network: n.record.Network.Name, Element: element}
	s := model.ElementStatus{ID: id, Node: n.record.Assigned.Placement.Elements[element], Phase: model.PhasePending}
	on := m.nodes[s.Node]
	switch {
	case on == nil:
		s.Phase, s.Message = model.PhaseFailed,
			fmt.Sprintf("it is placed on node %q, which the substrate does not have", s.Node)
	case on.mute() != "":
		reported, ok := on.elements[id]
		if s.Message = on.mute(); ok { // what runs there goes on running
			reported.Message, reported.LastTold = "as last told: "+s.Message, on.toldBefore()
			return reported
		}
	default:
		if reported, ok := on.elements[id]; ok {
			return reported
		}
		if on.problem != "" {
			s.Message = on.problem
		}
	}
	return s
}

// networkStatus sums up a network. The lock is held.
func (m *Manager) networkStatus(n *network) model.NetworkStatus {
	r := &n.record
	s := model.NetworkStatus{Name: r.Network.Name, Phase: model.PhaseRunning, Elements: len(n.resolved.Elements),
		Links: len(n.resolved.Links), Nodes: slices.Sorted(maps.Keys(placedOn(*r))), Revision: r.Revision,
		Created: r.Created, Modified: r.Modified, Deleting: r.Deleting, Owner: r.WhoseItIs()}
	if n.damaged != nil {
		s.Phase, s.Message = model.PhaseFailed, n.damaged.Err.Error()
		return s
	}
	var failure, waiting string
	wanted := 0
	for i := range n.resolved.Elements {
		name := n.resolved.Elements[i].Name
		is := m.elementStatus(n, name)
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
		case is.Phase == model.PhaseFailed && is.AtWork: // as it was before
		case is.Phase == model.PhaseFailed:
			s.Failed++
			if failure == "" {
				failure = name + ": " + is.Message
			}
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
		if on := m.nodes[name]; waiting == "" && on != nil && (on.reported < p.revision || on.atWork[s.Name]) {
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
	for node, h := range m.heldOn(s.Name) {
		s.Message = m.heldWords(node, h)
		break
	}
	for _, name := range s.Nodes {
		on := m.nodes[name]
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

// linkStatus sums up a link: it is up when both its ports are. The lock is held.
func (m *Manager) linkStatus(n *network, l model.Link) model.LinkStatus {
	if len(l.Prefixes) == 0 {
		l.Prefixes = n.subnets(l)
	}
	s := model.LinkStatus{Network: n.record.Network.Name, Link: l, VNI: n.record.Assigned.Links[l.Name].VNI,
		Paths: n.record.Assigned.Placement.Links[l.Name]}
	up := 0
	for _, end := range l.Ends {
		id := model.PortID{ID: model.ID{Network: s.Network, Element: end.Element}, Interface: end.Interface}
		on := m.nodes[n.record.Assigned.Placement.Elements[end.Element]]
		if on == nil {
			continue
		}
		if p, ok := on.ports[id]; ok {
			s.Ports = append(s.Ports, p)
			if on.mute() != "" {
				s.LastTold = max(s.LastTold, on.toldBefore())
			}
			if p.Up { // as last told, where the agent is away
				up++
			}
		}
	}
	s.Up = up == len(l.Ends)
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
func (m *Manager) nodeStatuses() []model.NodeStatus {
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
			Underlay: n.underlay, Offers: n.offers, Held: n.heldNames()}
		if !n.came {
			s.LastSeen = time.Time{} // its agent goes on reporting to a manager that it has not found to be new
		}
		s.Condition, s.Problem = n.condition()
		s.Ready = s.Condition == model.Ready
		if s.Problem == "" {
			s.Problem = n.heldProblem()
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
