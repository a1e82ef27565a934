package manager

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
	"github.com/polyplane/polyplane/wire/tunnel"
)

// node is one node of the substrate: what it is to have, and what it reports.
type node struct {
	model.SubstrateNode
	socket  string          // its agent's
	tunnel  *tunnel.Session // to the agent of a joined node; nil while there is none
	offers  model.Offers
	came    bool // whether its agent has registered since this process started
	watches int  // open watches of its desired state; with one the agent counts as alive

	revision int64         // of the desired state
	told     chan struct{} // closed when the desired state changes

	heard    bool // whether a report has come since this process started
	back     bool // and since its agent came
	lastSeen time.Time
	ear      *ear
	news     *news
	heardAt  time.Duration // in ticks of the ear: when the agent last said anything
	beat     model.Beat
	said     model.Condition // as last told in an event, and why
	saidWhy  string
	reported int64           // the revision that the node says it has
	atWork   map[string]bool // networks of which it is still removing something
	problem  string
	cpuUsed  float64
	memUsed  model.Bytes
	disk     model.Bytes // that its data is on
	diskFree model.Bytes
	underlay map[string]model.HookUse
	elements map[model.ID]model.ElementStatus
	ports    map[model.PortID]model.PortStatus
	relays   map[relayID]model.RelayStatus
	measures *model.Measures      // the latest; nil until there are any
	found    *model.Discovery     // likewise
	hearing  map[string][]heardBy // of found, by the node that is heard
	// unanswered is in how many rounds in succession a neighbour that had answered did not, by its name.
	unanswered map[string]int
	trust      credence // what it said that it had no business to
	held       []model.HeldNetwork
	going      map[string]model.HeldNetwork // that it was told to let go of, until it has
	// unproven is a network that it says it holds, of which nobody knows that it was placed on it.
	unproven string
	beside   map[string]beside // what it has of networks that the store does not know or cannot read
	// gone are networks that it is told to remove; true for those that do not go to the trash.
	gone map[string]bool
}

func (k *known) newNode(sn model.SubstrateNode, socket string) *node {
	return &node{SubstrateNode: sn, socket: socket, ear: &k.ear, news: k.news, heardAt: k.ear.time,
		told: make(chan struct{}), elements: map[model.ID]model.ElementStatus{},
		ports: map[model.PortID]model.PortStatus{}, relays: map[relayID]model.RelayStatus{}}
}

// Register makes a node's agent known.
func (m *Manager) Register(name string, r model.Registration) error {
	if r.Machine != nil {
		r.Machine.Name = name
		if err := m.refresh(*r.Machine); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.nodes.named(name)
	if err != nil {
		return err
	}
	if r.Socket == "" && !n.Joined {
		return api.Invalid(fmt.Sprintf("the agent of node %s does not say which socket it listens on", name))
	}
	if !n.Joined { // otherwise it is reached by its tunnel, and has nothing on this machine
		n.socket = r.Socket
	}
	n.beat = model.Beat{} // another life's
	n.hear()
	m.take(n, &r)
	return nil
}

// Watch begins a watch of the node's desired state, which is sent whole each time, or as changes. The node counts as
// alive until end is called.
func (m *Manager) Watch(name string, changes bool) (next func() api.Desired, end func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.nodes.named(name)
	if err != nil {
		return nil, nil, err
	}
	if n.watches == 0 {
		n.back = false
	}
	n.watches++
	n.hear()
	m.readiness(n)
	var before *sent // what this watch was told last
	next = func() api.Desired {
		m.mu.RLock()
		defer m.mu.RUnlock()
		d := api.Desired{Revision: n.revision, Changed: n.told}
		if !changes {
			d.Lines = [][]byte{m.whole(n)}
			return d
		}
		d.Lines, before = m.changes(n, before)
		return d
	}
	end = func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		n.watches--
		m.readiness(n)
	}
	return next, end, nil
}

// Report takes over a node's report about itself.
func (m *Manager) Report(r model.Report) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.nodes.named(r.Node)
	if err != nil {
		return err
	}
	m.believe(n, &r)
	first := !n.heard
	n.hear()
	n.atWork = map[string]bool{}
	for _, name := range r.AtWork {
		_, n.atWork[name] = n.gone[name]
		if on := m.networks[name]; on != nil { // what a node says about others does not count
			_, has := on.parts[n.Name]
			_, leaves := on.leaving[n.Name]
			n.atWork[name] = has || leaves
		}
	}
	maps.DeleteFunc(n.atWork, func(_ string, at bool) bool { return !at })
	n.heard, n.back, n.reported, n.problem, n.cpuUsed, n.memUsed, n.underlay =
		true, true, r.Revision, r.Problem, r.CPUUsed, r.MemUsed, r.Underlay
	n.disk, n.diskFree = r.Disk, r.DiskFree
	for _, ev := range r.Events {
		ev.Node, ev.Network = n.Name, ""
		if !n.itself(ev.Object) {
			ev.Network = networkOf(ev.Object)
			m.sign(&ev)
		}
		m.add(ev)
	}
	m.takeElements(n, r.Elements, first)
	takePorts(n, r.Ports)
	takeRelays(n, r.Relays)
	m.takeHeld(n, &r)
	m.readiness(n)
	m.touch()
	m.poke()
	return nil
}

// takeElements replaces what is known of the node's elements. Agents emit events about failures and recoveries
// themselves. A first report only says what has been so for long.
func (k *known) takeElements(n *node, list []model.ElementStatus, first bool) {
	for _, is := range list {
		is.Node = n.Name
		was := n.elements[is.ID]
		n.elements[is.ID] = is
		if first || was.Phase == is.Phase || was.Phase == model.PhaseFailed || !n.takesEvent() {
			continue
		}
		switch is.Phase {
		case model.PhaseRunning:
			k.add(model.Event{Severity: model.Info, Object: is.ID.String(), Network: is.ID.Network,
				Reason: "ElementStarted", Message: "runs", Node: n.Name})
		case model.PhaseSuspended:
			k.add(model.Event{Severity: model.Info, Object: is.ID.String(), Network: is.ID.Network,
				Reason: "ElementSuspended", Message: "is suspended", Node: n.Name})
		case model.PhaseStopped:
			k.add(model.Event{Severity: model.Info, Object: is.ID.String(), Network: is.ID.Network,
				Reason: "ElementStopped", Message: "is stopped", Node: n.Name})
		}
	}
	keepOnly(n.elements, list, func(s model.ElementStatus) model.ID { return s.ID })
}

// keepOnly removes from known what is not in the list.
func keepOnly[K comparable, V any](known map[K]V, list []V, id func(V) K) {
	if len(known) == len(list) {
		return
	}
	present := make(map[K]struct{}, len(list))
	for _, v := range list {
		present[id(v)] = struct{}{}
	}
	maps.DeleteFunc(known, func(k K, _ V) bool {
		_, ok := present[k]
		return !ok
	})
}

func takePorts(n *node, list []model.PortStatus) {
	for _, p := range list {
		n.ports[p.ID] = p
	}
	keepOnly(n.ports, list, func(p model.PortStatus) model.PortID { return p.ID })
}

// linkID is a link of a network, relayID a path of it.
type (
	linkID  struct{ network, link string }
	relayID struct {
		linkID
		vni uint32
	}
)

func takeRelays(n *node, list []model.RelayStatus) {
	clear(n.relays)
	for _, r := range list {
		r.Node = n.Name
		n.relays[relayID{linkID{r.Network, r.Link}, r.VNI}] = r
	}
}

// relays tells whether a link's path leads through a node that has none of its ends.
func (ns networks) relays(n *node, r *model.RelayStatus) (of *network, ok bool) {
	of = ns[r.Network]
	if of == nil || of.damaged != nil {
		return of, false
	}
	for _, p := range of.record.Assigned.AllPaths(r.Link) {
		if last := len(p.Nodes) - 1; last > 1 && slices.Contains(p.Nodes[1:last], n.Name) {
			return of, true
		}
	}
	return of, false
}

// Agent says on which node an element is, and how that node's agent is reached.
func (m *Manager) Agent(ctx context.Context, id model.ID) (api.Reach, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n, err := m.mine(ctx, id.Network)
	if err != nil {
		return api.Reach{}, err
	}
	if _, ok := n.index[id.Element]; !ok {
		return api.Reach{}, n.noElement(id.Element)
	}
	name := n.record.Assigned.Placement.Elements[id.Element]
	on := m.nodes[name]
	if on == nil {
		return api.Reach{}, api.Conflict("%s is placed on node %q, which the substrate does not have", id, name)
	}
	switch {
	case on.lost():
		_, why := on.condition()
		return api.Reach{Node: name, Lost: true},
			api.Unavailable(fmt.Errorf("%s is on node %s, which does not answer now: %s", id, name, why))
	case on.watches == 0:
		return api.Reach{}, api.Unavailable(fmt.Errorf("%s is on node %s, whose agent is away", id, name))
	case !on.back:
		return api.Reach{}, api.Unavailable(fmt.Errorf("%s is on node %s, whose agent is starting", id, name))
	}
	return api.Reach{Node: name, Dial: on.dial(), Alive: n.alive}, nil
}

// usable finds a network that is not damaged. The caller holds the lock.
func (k *known) usable(name string) (*network, error) {
	n := k.networks[name]
	if n == nil {
		if err := k.errHeld(name); err != nil {
			return nil, err
		}
		return nil, k.networks.none(name)
	}
	if n.damaged != nil {
		return nil, api.Conflict("%s", k.damagedWords(n))
	}
	return n, nil
}

func (n *network) noElement(name string) error {
	names := make([]string, 0, len(n.resolved.Elements))
	for i := range n.resolved.Elements {
		names = append(names, n.resolved.Elements[i].Name)
	}
	return api.NotFound("network %s has no element %s; it has %s", n.record.Network.Name, name, shorten(names))
}

// shorten lists names; if there are many, only some of them.
func shorten(names []string) string {
	return model.FewNames(12, names)
}
