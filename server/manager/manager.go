// Package manager is the leader's loop. It validates, resolves and embeds networks and so decides what every node is to
// have. It stores that, sends it to the nodes, and knows what they report.
package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/resolve"
	"github.com/polyplane/polyplane/server/api"
	"github.com/polyplane/polyplane/server/images"
	"github.com/polyplane/polyplane/server/store"
	"github.com/polyplane/polyplane/trust"
)

// Manager holds everything in memory, and reads the store only when it starts. It implements the API's services.
type Manager struct {
	*known
	gate
	agents
	quotas
	checks
	outlook
	started time.Time
	// restraints are what administrators have decided about elements that their owners have deleted, in order.
	restraints restraints
	faults     schedule
	moves      moves
	images     *shelf
}

// known is what the manager knows of its networks and nodes, and what follows from it. Its methods decide nothing and
// store nothing. Whoever calls one of them holds mu, unless it takes it itself, or nobody knows the manager yet.
type known struct {
	*news
	dirs  instance.Dirs
	store *store.Store
	base  model.Substrate // without the nodes that joined
	// authority seals what joined nodes are told; nil if there can be no joined nodes.
	authority *trust.Authority

	// changing serialises changes of records. It is held from the decision to the store's answer. Readers take only mu,
	// so they never wait for the disk.
	changing turns

	// mu guards all below. It is taken after changing, and is held for moments only: no store and no node is asked
	// under it. The locks of news, gate and restraints may be taken while it is held.
	mu        sync.RWMutex
	substrate model.Substrate // including the nodes that joined; changed only with both locks held
	networks  networks
	nodes     nodes
	revision  int64 // of the nodes' desired state; it is the store's, so it outlives this process
	identity  model.StoreIdentity
	strange   string                   // why the store that answers is not the one that was opened
	silent    string                   // since when the store does not answer, and why
	deleted   map[string]model.Deleted // networks, lately
	ear       ear
	found     map[[2]string]foundLink // between nodes, by their names in order: those that were ever found
	wake      chan struct{}           // wakes the loop
	closing   sync.WaitGroup          // tunnels that are being closed
}

var (
	_ api.Networks = (*Manager)(nil)
	_ api.Views    = (*Manager)(nil)
	_ api.Agents   = (*Manager)(nil)
	_ api.Moves    = (*moves)(nil)
	_ api.Settings = (*Manager)(nil)
	_ api.Gate     = (*Manager)(nil)
	_ api.Tokens   = (*Manager)(nil)
	_ api.Members  = (*Manager)(nil)
)

// network is one network: its record, which nobody changes in place, and what follows from it.
type network struct {
	record   model.Record
	resolved model.Resolved
	parts    map[string]part // by node
	index    map[string]int  // element name → its place in resolved
	// interfaces are those of its elements: the ports that a node may report.
	interfaces map[model.End]struct{}
	phase      model.Phase // last announced
	// leaving are the nodes that still have something of a network that is being deleted, with the state's revision
	// that tells them to remove it.
	leaving map[string]int64
	damaged *store.Damaged
	backup  string // the newest good one that has it, if it is damaged
	// alive ends when the network becomes another owner's, or is gone; end ends it.
	alive context.Context
	end   context.CancelFunc
}

// begin makes the network alive: it takes over from the one that was there under its name, unless that was another
// owner's.
func (n *network) begin(was *network) {
	if was != nil && was.alive != nil && was.record.WhoseItIs() == n.record.WhoseItIs() {
		n.alive, n.end = was.alive, was.end
		return
	}
	if was != nil && was.end != nil {
		was.end()
	}
	n.alive, n.end = context.WithCancel(context.Background())
}

// New reads the store. A substrate without nodes stands for the stored one.
func New(ctx context.Context, dirs instance.Dirs, st *store.Store, substrate model.Substrate) (*Manager, error) {
	k := &known{dirs: dirs, store: st, networks: networks{}, nodes: nodes{}, news: newNews(),
		wake: make(chan struct{}, 1)}
	m := &Manager{known: k, gate: gate{known: k}, started: time.Now()}
	m.agents, m.faults = newAgents(k.reach, k.heir), schedule{k, m, make(chan struct{}, 1)}
	m.moves = newMoves(k, m)
	var err error
	m.images = &shelf{known: k, allowed: m.Allowed}
	m.quotas, m.checks.known = quotas{known: k, gate: &m.gate, images: m.images}, k
	m.outlook.known = k
	if m.images.kept, err = images.Open(dirs.Images(), linux.NewRooms(dirs.Rooms()), &m.images.verifying); err != nil {
		return nil, fmt.Errorf("start the manager: %w", err)
	}
	if err := m.loadSubstrate(ctx, substrate); err != nil {
		return nil, err
	}
	if m.authority, err = trust.ReadAuthority(authorityDir(dirs.Data)); err != nil {
		return nil, fmt.Errorf("start the manager: %w", err)
	}
	if m.quotas.limits, err = st.Quotas(ctx); err != nil {
		return nil, err
	}
	m.restraints.store = st
	if m.restraints.list, err = st.Restraints(ctx); err != nil {
		return nil, err
	}
	slices.SortFunc(m.restraints.list, byElement)
	if err := m.loadAccess(ctx); err != nil {
		return nil, fmt.Errorf("start the manager: %w", err)
	}
	records, damaged, revision, err := st.Load(ctx)
	if err != nil {
		return nil, err
	}
	if err := st.Sweep(ctx); err != nil {
		// Left-overs take room and do no harm.
		slog.Warn("the store could not be swept", "error", err)
	}
	m.revision, m.identity = revision, st.Identity()
	if m.deleted, err = st.Deleted(ctx); err != nil {
		return nil, err
	}
	m.event(model.Info, "manager", "ManagerStarted",
		fmt.Sprintf("has started with %s; events before this are forgotten", counted(len(records)+len(damaged))), "")
	for _, d := range damaged {
		m.hold(d)
	}
	numbers := taken(records, damaged)
	for _, r := range records {
		if err := m.restore(r, numbers); err != nil {
			// Its numbers are known as before, since the nodes still use them.
			m.hold(store.Damaged{Name: r.Network.Name, Index: r.Assigned.Index,
				VNI: store.HighestVNI(r.Assigned), Err: err})
		}
	}
	for _, n := range m.nodes {
		m.tell(n)
	}
	return m, nil
}

// loadSubstrate reads the substrate of before, unless one is given, which is stored then.
func (m *Manager) loadSubstrate(ctx context.Context, given model.Substrate) error {
	stored, found, err := m.store.Substrate(ctx)
	if err != nil {
		return err
	}
	m.substrate = stored
	if len(given.Nodes) > 0 {
		m.substrate = given
		if !found || !reflect.DeepEqual(stored, given) {
			if err := m.store.PutSubstrate(ctx, given); err != nil {
				return err
			}
		}
	}
	if len(m.substrate.Nodes) == 0 {
		return errors.New("start the manager: there is no substrate, neither given nor stored; at least one node is " +
			"needed")
	}
	for _, sn := range m.substrate.Nodes {
		if m.nodes[sn.Name] != nil {
			return fmt.Errorf("start the manager: the substrate has two nodes called %s", sn.Name)
		}
		m.nodes[sn.Name] = m.newNode(sn, m.dirs.Node(sn.Name).AgentSocket())
	}
	m.base = m.substrate
	return nil
}

func counted(networks int) string {
	if networks == 1 {
		return "1 network"
	}
	return fmt.Sprintf("%d networks", networks)
}

// hold keeps what the nodes have of a network whose record cannot be read.
func (k *known) hold(d store.Damaged) {
	n := &network{damaged: &d, record: model.Record{Network: model.Network{Name: d.Name}}}
	n.backup, _ = store.NewestGoodOf(k.dirs.Backups(), d.Name)
	k.networks[d.Name] = n
	k.networkEvent(model.Error, d.Name, "NetworkDamaged", k.damagedWords(n), "")
	slog.Error("a network is damaged", "network", d.Name, "error", d.Err)
}

// taken are the numbers that networks have, including damaged ones, which the nodes still use.
func taken(records []model.Record, damaged []store.Damaged) *resolve.Numbers {
	all := make([]model.Assigned, 0, len(records)+len(damaged))
	for i := range records {
		all = append(all, records[i].Assigned)
	}
	all = append(all, each.Of(damaged, numbersOf)...)
	return resolve.NewNumbers(all...)
}

// numbersOf is what is known of a damaged network's numbers. VNIs are given out upwards, so the highest keeps all below
// it from being given again.
func numbersOf(d store.Damaged) model.Assigned {
	return model.Assigned{Index: d.Index, Links: map[string]model.AssignedLink{"": {VNI: d.VNI}}}
}

// restore takes up a stored network.
func (k *known) restore(r model.Record, numbers *resolve.Numbers) error {
	resolved, assigned, err := resolve.Known(r.Network).Resolve(r.Assigned, numbers)
	if err != nil {
		return err
	}
	r.Assigned = assigned
	n := &network{record: r, resolved: resolved}
	n.begin(nil)
	n.makeIndex()
	k.networks[r.Network.Name] = n
	if r.Deleting {
		n.leaving = map[string]int64{}
		for _, node := range r.Assigned.Placement.Elements {
			n.leaving[node] = k.revision
			if on := k.nodes[node]; on != nil {
				on.goneFrom(r.Network.Name, r.Discard)
			}
		}
		return nil
	}
	parts, err := k.makeParts(r, resolved, k.substrate)
	if err != nil {
		return err
	}
	for node, p := range parts {
		p.revision = k.revision
		parts[node] = p
	}
	n.parts = parts
	for _, node := range slices.Sorted(maps.Keys(placedOn(r))) {
		if k.nodes[node] == nil {
			k.networkEvent(model.Error, r.Network.Name, "NodeMissing", fmt.Sprintf(
				"elements are placed on node %s, which the substrate no longer has; apply the network again to place "+
					"them anew", node), node)
		}
	}
	return nil
}

// next is the record of the network's next revision; all else in it is as it was.
func (n *network) next() model.Record {
	r := n.record
	r.Revision, r.Modified = r.Revision+1, time.Now().UTC()
	return r
}

func (n *network) makeIndex() {
	n.index = make(map[string]int, len(n.resolved.Elements))
	n.interfaces = make(map[model.End]struct{}, 2*len(n.resolved.Links))
	for i := range n.resolved.Elements {
		e := &n.resolved.Elements[i]
		n.index[e.Name] = i
		for k := range e.Interfaces {
			n.interfaces[model.End{Element: e.Name, Interface: e.Interfaces[k].Name}] = struct{}{}
		}
	}
}

// placedOn counts a network's elements by node.
func placedOn(r model.Record) map[string]int {
	nodes := map[string]int{}
	for _, node := range r.Assigned.Placement.Elements {
		nodes[node]++
	}
	return nodes
}

// poke wakes the loop.
func (k *known) poke() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// loopEvery is how often the loop repeats what the store refused.
const loopEvery = 10 * time.Second

// Loop does what no request does: it announces networks that have become ready, and finishes deletions, until the
// context ends.
func (m *Manager) Loop(ctx context.Context) {
	var schedules sync.WaitGroup
	schedules.Go(func() { m.faults.run(ctx) })
	schedules.Go(func() { m.moves.run(ctx) })
	defer schedules.Wait()
	tick := time.Tick(loopEvery)
	cut := cuts{Manager: m}
	paths := turning{m.known, m.commit, map[linkID]time.Time{}}
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
		case <-tick:
		}
		m.announce()
		m.decide(ctx)
		m.removeProvisional(ctx, time.Now())
		m.finishDeletions(ctx)
		cut.step(ctx, time.Now())
		paths.step(ctx, time.Now())
	}
}
