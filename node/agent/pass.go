package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/node/edge"
	"github.com/polyplane/polyplane/node/fabric"
	"github.com/polyplane/polyplane/node/forward"
)

// plan is what one desired state asks of each driver and plane. It is computed once for each desired state.
type plan struct {
	of    *model.NodeState
	jobs  map[model.Control][]control.Job
	order []model.ID // all elements, as the state lists them
	peers map[string]model.Peer
	edges map[string]model.PlacedEdge // by "net edge"
	// slices are the bandwidths of those networks that have one.
	slices map[string]model.Bandwidth
	// packets are the packets a second of those networks that have such a limit.
	packets map[string]int
	// quotas bound the tables of the networks' routers, punts how many exceptional packets a second these get.
	quotas  map[string]model.TableQuota
	punts   map[string]int
	held    map[string]bool // networks to be left as they are
	relays  []relay
	watched []watched
	// arriving are elements whose disks are being sent here, arrived the moves by which elements came.
	arriving map[model.ID]arrival
	arrived  map[model.ID]string
}

func newPlan(s *model.NodeState) plan {
	p := plan{of: s, jobs: map[model.Control][]control.Job{}, peers: map[string]model.Peer{},
		edges:  map[string]model.PlacedEdge{},
		slices: map[string]model.Bandwidth{}, packets: map[string]int{}, quotas: map[string]model.TableQuota{},
		punts: map[string]int{}, held: map[string]bool{},
		arriving: map[model.ID]arrival{}, arrived: map[model.ID]string{}}
	for _, n := range s.Hold {
		p.held[n] = true
	}
	for _, peer := range s.Peers {
		p.peers[peer.Name] = peer
	}
	for _, n := range s.Networks {
		if n.Slice.Bandwidth > 0 {
			p.slices[n.Name] = n.Slice.Bandwidth
		}
		if n.Slice.Packets > 0 {
			p.packets[n.Name] = n.Slice.Packets
		}
		quota := n.Slice.TableQuota()
		p.quotas[n.Name], p.punts[n.Name] = quota, quota.Punts
		for _, a := range n.Arriving {
			p.arriving[model.ID{Network: n.Name, Element: a.Element}] = arrival{a, n.Owner}
		}
		for _, e := range n.Elements {
			c, id := e.Control, model.ID{Network: n.Name, Element: e.Name}
			if e.Leaving != "" {
				e.Stopped = true
			}
			if e.Arrived != "" {
				p.arrived[id] = e.Arrived
			}
			p.jobs[c] = append(p.jobs[c], control.Job{ID: id, Index: n.Index, Title: n.Title,
				Owner: n.Owner, Element: e, Names: n.Names, Outside: n.Outside})
			p.order = append(p.order, id)
			p.watched = append(p.watched, watchedOf(id, &e))
		}
		for _, e := range n.Edges {
			p.edges[n.Name+" "+e.Name] = e
		}
		for i := range n.Relays {
			p.relays = append(p.relays, relay{n.Name, &n.Relays[i]})
		}
	}
	return p
}

// outcome is what became of one element in a pass.
type outcome struct {
	job     control.Job
	phase   model.Phase
	devices []control.Device
	driver  control.Driver // nil where the node has none
	err     error

	busy     bool              // work on it is under way
	waits    bool              // the plane that is to forward for it is not in sync yet
	steering *forward.Steering // where its packets are to go; nil leaves them where they go now
	restarts int
	warning  control.Warning
	message  string // how far it is that is starting
}

// pass makes the node as desired. What is new goes from the control driver to the plane to the fabric; what is to go
// takes the opposite way. It returns whether something has to be tried again.
func (a *Agent) pass(ctx context.Context) (failed bool) {
	a.starting = false
	if a.desired == nil || ctx.Err() != nil {
		return false
	}
	if a.plan.of != a.desired {
		a.plan = newPlan(a.desired)
	}
	a.settleMoves(ctx)
	a.pulse.at("make elements")
	outcomes := a.applyControls(ctx)
	a.pulse.at("have routers forwarded for")
	a.applyPlanes(ctx, outcomes)
	a.pulse.at("join ports")
	gateways, edgeProblem := a.applyEdges(ctx, outcomes)
	problem := errors.Join(edgeProblem, a.applyFabric(ctx, outcomes, gateways))
	if ctx.Err() != nil {
		return false // half of a pass is nobody's news
	}
	a.pulse.at("remove what is no longer wanted")
	if err := a.removeOthers(ctx, outcomes); err != nil {
		problem = errors.Join(problem, fmt.Errorf("remove what is no longer wanted: %w", err))
	}
	if problem != nil {
		a.Log.Warn("the node is not as it must be", "error", problem)
		failed = true
	}
	a.starting = len(a.removing) == 0 && len(a.retiring) == 0 && onlyStarts(outcomes)
	a.links.expect(outcomes)
	for _, o := range outcomes {
		failed = failed || o.err != nil
	}
	a.elements.set(outcomes)
	a.kernel.set(a, outcomes)
	a.hoards.set(outcomes)
	a.report(ctx, outcomes, problem)
	return failed
}

// onlyStarts tells whether elements are starting and nothing else goes on: none is still to be made, and no plane is to
// come in sync.
func onlyStarts(outcomes map[model.ID]*outcome) (starts bool) {
	for _, o := range outcomes {
		if o.phase == model.PhasePending || o.waits {
			return false
		}
		starts = starts || o.phase == model.PhaseStarting
	}
	return starts
}

// applyControls has the drivers make the elements.
func (a *Agent) applyControls(ctx context.Context) map[model.ID]*outcome {
	outcomes := make(map[model.ID]*outcome, len(a.plan.order))
	for name, jobs := range a.plan.jobs {
		driver := a.Drivers.Controls[name]
		if driver == nil {
			for _, j := range jobs {
				outcomes[j.ID] = &outcome{job: j, phase: model.PhaseFailed, err: fmt.Errorf(
					"this node has no control driver %q: it has %s", name, words(maps.Keys(a.Drivers.Controls)))}
			}
			continue
		}
		for i, r := range driver.Apply(ctx, jobs) {
			o := &outcome{job: jobs[i], driver: driver, phase: r.Phase, devices: r.Devices, err: r.Err,
				restarts: r.Restarts, warning: r.Warning, message: r.Message, busy: r.Busy}
			outcomes[jobs[i].ID] = o
			a.changes(r.ID.String(), r.Changed)
		}
	}
	return outcomes
}

// applyPlanes has the planes prepare, and notes for which elements they are in sync.
func (a *Agent) applyPlanes(ctx context.Context, outcomes map[model.ID]*outcome) {
	jobs := map[PlaneOf][]forward.Job{}
	for _, id := range a.plan.order {
		o := outcomes[id]
		if o == nil || o.err != nil || o.phase != model.PhaseRunning && o.phase != model.PhaseStarting &&
			o.phase != model.PhaseSuspended {
			continue
		}
		of := a.Drivers.planeOf(&o.job.Element)
		if a.Drivers.Planes[of] == nil {
			has := map[model.Forwarding]bool{}
			for other := range a.Drivers.Planes {
				has[other.Forwarding] = true
			}
			o.phase, o.err = model.PhaseFailed, fmt.Errorf("this node has no forwarding plane %q: it has %s",
				of.Forwarding, words(maps.Keys(has)))
			continue
		}
		job := forward.Job{ID: id, Element: o.job.Element, Devices: o.devices, Quota: a.plan.quotas[id.Network],
			Place: a.Drivers.Fabric.Place(id)}
		if routed, is := o.driver.(forward.Routed); is {
			job.Routes = routed.Routes(id)
		}
		jobs[of] = append(jobs[of], job)
	}
	for of, plane := range a.Drivers.Planes {
		for i, p := range plane.Prepare(ctx, jobs[of]) {
			o := outcomes[jobs[of][i].ID]
			if o.waits = p.Waits; p.Err != nil {
				o.phase, o.err = model.PhaseFailed, p.Err
			}
			if o.steering = p.Steering; o.steering != nil {
				o.steering.Owner = of.Forwarding
			}
		}
	}
}

// applyFabric joins the ports. The ports of elements that failed stay joined: what still works is not cut.
func (a *Agent) applyFabric(ctx context.Context, outcomes map[model.ID]*outcome, gateways map[edge.ID]string) error {
	devices := make(map[model.PortID]control.Device, 2*len(outcomes))
	for id, o := range outcomes {
		for _, d := range o.devices {
			if d.Index != 0 {
				devices[model.PortID{ID: id, Interface: d.Interface}] = d
			}
		}
	}
	state := fabric.State{Peers: a.desired.Peers, Underlay: a.desired.Hook, Slices: a.plan.slices,
		Packets: a.plan.packets, Punts: a.plan.punts, Ports: make([]fabric.Port, 0, len(devices)),
		Steering: map[model.ID]forward.Steering{}, Incomplete: !a.complete || len(a.plan.held) > 0}
	for _, id := range a.plan.order {
		o := outcomes[id]
		if o == nil {
			continue
		}
		if o.steering != nil {
			state.Steering[id] = *o.steering
		}
		for i := range o.job.Element.Interfaces {
			ifc := &o.job.Element.Interfaces[i]
			p := fabric.Port{ID: model.PortID{ID: id, Interface: ifc.Name}, Virtual: len(ifc.VRRP) > 0,
				Untagged: ifc.Access()}
			d := devices[p.ID]
			if p.Index, p.Behind = d.Index, d.Behind; p.Index == 0 {
				continue
			}
			if o.job.Element.Forwarding == model.ForwardXDP {
				p.Hook = cmp.Or(o.job.Element.Hook, model.HookAuto)
			}
			if o.job.Element.Kind != model.Switch {
				// A switch takes every frame, any other element only those that are addressed to it.
				p.MAC, _ = net.ParseMAC(ifc.MAC) // validated with the document
			}
			if err := a.joinPort(&p, ifc, devices, gateways); err != nil && o.err == nil {
				o.phase, o.err = model.PhaseFailed, err
			}
			state.Ports = append(state.Ports, p)
		}
	}
	state.Relays = a.relays()
	report := a.laid.apply(ctx, a.Drivers.Fabric, state)
	for port, err := range report.Failed {
		o := outcomes[port.ID]
		if o != nil && o.err == nil && err != nil {
			o.phase, o.err = model.PhaseFailed, err
		}
		if o != nil && port.Interface == "" { // it is steered as before
			o.steering = nil
		}
	}
	if !report.Steered {
		for _, o := range outcomes {
			o.steering = nil
		}
	}
	a.underlay, a.hooks = report.Underlay, map[model.ID]map[string]model.HookUse{}
	for port, use := range report.Hooks {
		if a.hooks[port.ID] == nil {
			a.hooks[port.ID] = map[string]model.HookUse{}
		}
		a.hooks[port.ID][port.Interface] = use
	}
	a.changes(a.Dirs.Node, report.Changed)
	if report.Again > 0 {
		time.AfterFunc(report.Again, a.changed)
	}
	return report.Problem
}

// joinPort fills in where a port's link ends and what it does to packets.
func (a *Agent) joinPort(p *fabric.Port, ifc *model.PlacedInterface, devices map[model.PortID]control.Device,
	gateways map[edge.ID]string) error {
	if ifc.Shape != nil {
		p.Shape = *ifc.Shape
	}
	if c := ifc.Copy; c != nil {
		p.Copy = &fabric.Copy{Local: model.PortID{ID: model.ID{Network: p.ID.Network, Element: c.Element},
			Interface: c.Interface}, Bandwidth: c.Bandwidth}
		if c.Node != "" && c.Node != a.Dirs.Node {
			peer, ok := a.plan.peers[c.Node]
			if !ok {
				return fmt.Errorf("port %s: copies of what passes its link go to node %s, which this node was not "+
					"told of", p.ID.Interface, c.Node)
			}
			p.Copy.Tunnel = &fabric.Tunnel{VNI: c.VNI, Peer: peer.Address}
		}
	}
	if far := ifc.Far; far != nil {
		p.Down = far.Down
		if far.Node == "" || far.Node == a.Dirs.Node {
			local := model.PortID{ID: model.ID{Network: p.ID.Network, Element: far.Element}, Interface: far.Interface}
			if devices[local].Index != 0 {
				p.Local = local
			} // otherwise the far end does not exist yet, and the next pass joins them
			return nil
		}
		to, what := far.Node, "far end is on"
		if far.Via != "" {
			to, what = far.Via, "path leads over"
		}
		peer, ok := a.plan.peers[to]
		if !ok {
			return fmt.Errorf("port %s: the link's %s node %s, which this node was not told of", p.ID.Interface, what,
				to)
		}
		p.Tunnel = &fabric.Tunnel{VNI: far.VNI, Peer: peer.Address}
		for _, also := range far.Also {
			if from, ok := a.plan.peers[cmp.Or(also.Via, far.Node)]; ok {
				p.Also = append(p.Also, fabric.Tunnel{VNI: also.VNI, Peer: from.Address})
			}
		}
		return nil
	}
	if ifc.Edge != "" {
		e, ok := a.plan.edges[p.ID.Network+" "+ifc.Edge]
		if !ok {
			return fmt.Errorf("port %s: nothing is known of edge %s", p.ID.Interface, ifc.Edge)
		}
		if e.Mirror != nil {
			p.Copies, p.MAC = true, nil
			if e.Mirror.From == "" {
				return nil
			}
			peer, ok := a.plan.peers[e.Mirror.From]
			if !ok {
				return fmt.Errorf("port %s: its copies come from node %s, which this node was not told of",
					p.ID.Interface, e.Mirror.From)
			}
			p.Tunnel = &fabric.Tunnel{VNI: e.Mirror.VNI, Peer: peer.Address}
		} else if e.Internet == nil {
			p.Edge = &fabric.Edge{Device: e.Device, VLAN: e.VLAN, Trunk: e.Trunk}
		} else if device := gateways[edge.ID{Network: p.ID.Network, Edge: e.Name}]; device != "" {
			p.Edge = &fabric.Edge{Device: device}
		} // otherwise there is no gateway, and another message says why
	}
	return nil
}

// removeOthers removes what exists and is not desired. It does so only if the manager has said in this life of the
// agent what is desired, or that a network is deleted: an old file is no reason to take anything away.
func (a *Agent) removeOthers(ctx context.Context, outcomes map[model.ID]*outcome) error {
	if !a.complete && (len(a.held) == 0 || len(a.deleted) == 0) {
		return nil
	}
	var problems []string
	a.retiring = nil
	for of, plane := range a.Drivers.Planes {
		found, err := plane.List(ctx)
		if err == nil {
			found = slices.DeleteFunc(found, func(id model.ID) bool {
				o := outcomes[id]
				// Until an element's new plane is ready, the old one forwards.
				return !a.shallGo(id.Network) || o != nil && (o.steering == nil ||
					a.Drivers.planeOf(&o.job.Element) == of)
			})
			if len(found) > 0 {
				err = a.retire(ctx, plane, found)
			}
		}
		if err != nil {
			problems = append(problems, fmt.Sprintf("forwarding %s: %s", of, err))
		}
	}
	surplus := map[model.ID]bool{}
	for name, driver := range a.Drivers.Controls {
		found, err := driver.List(ctx)
		if err == nil {
			wanted := make(map[model.ID]bool, len(a.plan.jobs[name]))
			for i := range a.plan.jobs[name] {
				wanted[a.plan.jobs[name][i].ID] = true
			}
			var ids []model.ID
			for _, f := range found {
				if !wanted[f.ID] && a.shallGo(f.ID.Network) {
					ids = append(ids, f.ID)
					surplus[f.ID] = true
				}
			}
			if len(ids) > 0 {
				err = a.remove(ctx, driver, ids)
			}
		}
		if err != nil {
			problems = append(problems, fmt.Sprintf("control %s: %s", name, err))
		}
	}
	a.removing.settle(surplus)
	if err := a.removeEdges(ctx); err != nil {
		problems = append(problems, fmt.Sprintf("internet edges: %s", err))
	}
	if len(problems) > 0 {
		return fmt.Errorf("%s", strings.Join(problems, "; "))
	}
	return nil
}

// event notes what happened, for the next report.
func (a *Agent) event(severity model.Severity, object, reason, message string) {
	a.reporter.event(model.Event{Time: time.Now(), Severity: severity, Object: object, Reason: reason, Message: message,
		Node: a.Dirs.Node})
}

// changes notes what was done to an object, or to parts of it.
func (a *Agent) changes(object string, all []change.Change) {
	for _, c := range all {
		a.event(model.Info, object, c.Kind.Reason(), c.String())
	}
}

// words lists names for people.
func words[T ~string](names func(func(T) bool)) string {
	var all []string
	for n := range names {
		all = append(all, string(n))
	}
	if len(all) == 0 {
		return "none"
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}
