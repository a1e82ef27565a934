package manager

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/polyplane/polyplane/model"
)

// The manager believes a node only about what is placed on it, and only as much as that can be. The node may be
// somebody else's machine, and its agent another program.

// Bounds of what a node says.
const (
	maxToldText   = 1000 // bytes of a message
	maxToldName   = 64   // bytes of a device's name, a reason
	maxToldDisk   = 1 << 56
	maxToldKinds  = 64  // entries of a map by reasons
	maxUnderlay   = 64  // devices of an underlay
	maxClasses    = 64  // of a histogram
	maxEventKinds = 512 // how many severities and reasons the manager counts separately
	// A joined node may report maxToldEvents events at once, and eventsOfElement more for each of its elements. After
	// that it may report eventsPerSecond.
	maxToldEvents   = 2048
	eventsOfElement = 2
	eventsPerSecond = 10
	// futureMost is how far a node's clock may be ahead of the manager's.
	futureMost = time.Minute
	// lastYear is the last year in which an incident may be.
	lastYear = 2200
	// behindMost is how long a node may report elements that were taken from it, since it may not have done yet what it
	// was last told.
	behindMost = time.Minute
	// machineEvery is how often a joined node may report a change of its machine. All other nodes are told each time.
	machineEvery = 10 * time.Second
)

// credence is what the manager remembers of a node that reported what it must not.
type credence struct {
	refused  uint64 // elements, ports, events and measures that the node must not report
	dropped  uint64 // events beyond what is taken
	told     bool   // of refused, in an event
	toldDrop bool   // of dropped
	events   float64
	at       time.Time
	behind   time.Time // since when it has reported such things without having done what it was last told
	changed  time.Time // when its machine last was
}

// beside is what a node reports of a network that it has, and that the store does not know or cannot read.
type beside struct{ elements, running int }

// believe removes from a report what the node must not say, and tells of it once. The caller holds the lock.
func (m *Manager) believe(n *node, r *model.Report) {
	refused, first := uint64(0), ""
	refuse := func(about string) {
		if refused++; first == "" {
			first = model.Shorten(about, maxToldName*2)
		}
	}
	r.Problem = model.Shorten(r.Problem, maxToldText)
	r.CPUUsed = max(0, r.CPUUsed)
	r.Disk = min(r.Disk, maxToldDisk)
	r.DiskFree = min(r.DiskFree, r.Disk)
	r.Underlay = fewUses(r.Underlay, maxUnderlay)
	r.Held = slices.DeleteFunc(r.Held, func(h model.HeldNetwork) bool { return model.CheckName(h.Name) != nil })
	for i := range r.Held {
		if h := &r.Held[i]; !model.FitsKey(h.Name, h.Title) {
			h.Title = ""
		}
		r.Held[i].Why = model.Shorten(r.Held[i].Why, maxToldText)
		r.Held[i].Cut = slices.DeleteFunc(r.Held[i].Cut, func(name string) bool { return model.CheckName(name) != nil })
	}
	n.beside = map[string]beside{}
	for i := 0; i < len(r.Held) && i < model.MaxNetworks; i++ {
		n.beside[r.Held[i].Name] = beside{}
	}
	for name := range n.gone {
		n.beside[name] = beside{}
	}
	r.Elements = slices.DeleteFunc(r.Elements, func(e model.ElementStatus) bool {
		of, ok := m.networks.places(n, e.ID)
		if is, held := n.beside[e.ID.Network]; held && of == nil || of != nil && of.damaged != nil {
			is.elements++
			if e.Phase == model.PhaseRunning {
				is.running++
			}
			n.beside[e.ID.Network] = is
			return true
		}
		switch {
		case ok && slices.Contains(model.ElementPhases, e.Phase):
			return false
		case ok:
			refuse(e.ID.String() + " (phase " + string(e.Phase) + ")")
		default:
			refuse(e.ID.String())
		}
		return true
	})
	for i := range r.Elements {
		boundElement(&r.Elements[i], m.networks[r.Elements[i].ID.Network])
	}
	r.Ports = slices.DeleteFunc(r.Ports, func(p model.PortStatus) bool {
		of, ok := m.networks.places(n, p.ID.ID)
		_, held := n.beside[p.ID.Network]
		switch {
		case ok && of.hasInterface(p.ID):
			return false
		case of != nil && of.damaged != nil, of == nil && held:
		default:
			refuse(p.ID.String())
		}
		return true
	})
	r.Relays = slices.DeleteFunc(r.Relays, func(s model.RelayStatus) bool {
		of, ok := m.networks.relays(n, &s)
		_, held := n.beside[s.Network]
		if !ok && !(of != nil && of.damaged != nil || of == nil && held) {
			refuse(s.Network + "/" + s.Link)
		}
		return !ok
	})
	for i := range r.Ports {
		p := &r.Ports[i]
		p.Device, p.Drops = model.Shorten(p.Device, maxToldName), few(p.Drops)
	}
	r.Events = slices.DeleteFunc(r.Events, func(e model.Event) bool {
		switch {
		case !m.networks.mayTell(n, e.Object):
			if !slices.ContainsFunc(r.Held, func(h model.HeldNetwork) bool { return h.Name == networkOf(e.Object) }) {
				refuse("event of " + e.Object)
			}
			return true
		case !reasonable(e):
			refuse("event " + e.Reason)
			return true
		}
		return !n.takesEvent()
	})
	for i := range r.Events {
		e := &r.Events[i]
		e.Severity = cmp.Or(e.Severity, model.Info)
		e.Seq, e.Message, e.Object = 0, model.Shorten(e.Message, maxToldText), model.Shorten(e.Object, 4*maxToldName)
		if now := time.Now(); e.Time.After(now.Add(futureMost)) {
			e.Time = now
		}
	}
	// The report may have been under way when something was taken from the node, or the node may not have released it
	// yet. Neither is a lie.
	switch now := time.Now(); {
	case refused == 0:
		n.trust.behind = time.Time{}
	case r.Revision >= n.revision || !n.trust.behind.IsZero() && now.Sub(n.trust.behind) > behindMost:
		n.tellRefused(refused, first)
	case n.trust.behind.IsZero():
		n.trust.behind = now
	}
}

// reasonable returns whether agents use an event's words.
func reasonable(e model.Event) bool {
	if e.Severity != "" && e.Severity != model.Info && e.Severity != model.Warning && e.Severity != model.Error {
		return false
	}
	if e.Reason == "" || len(e.Reason) > maxToldName || e.Reason[0] < 'A' || e.Reason[0] > 'Z' {
		return false
	}
	return !strings.ContainsFunc(e.Reason, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9')
	})
}

func (n *network) hasInterface(id model.PortID) bool {
	_, there := n.interfaces[model.End{Element: id.Element, Interface: id.Interface}]
	return there
}

// boundElement cuts what is reported about an element to what is possible.
func boundElement(e *model.ElementStatus, of *network) {
	e.Message = model.Shorten(e.Message, maxToldText)
	e.Attacks = few(e.Attacks)
	if i := e.Incident; i != nil {
		i.Signal, i.What = model.Shorten(i.Signal, maxToldName), model.Shorten(i.What, maxToldText)
		if y := i.At.Year(); y < 1970 || y > lastYear {
			e.Incident = nil // its number would overflow (time.Time.UnixNano), and no later one would count
		}
	}
	if u := e.Usage; u != nil {
		u.CPU, u.Processes = max(0, u.CPU), max(0, u.Processes)
	}
	f := e.Fast
	if f == nil {
		return
	}
	f.Punted, f.Hooks = few(f.Punted), fewUses(f.Hooks, model.MaxInterfaces)
	maps.DeleteFunc(f.Hooks, func(name string, _ model.HookUse) bool {
		return !of.hasInterface(model.PortID{ID: e.ID, Interface: name})
	})
	if t := f.Tables; t != nil {
		seen := map[model.Family]bool{}
		if len(t.Punted) > 2 {
			t.Punted = nil
		}
		for family, why := range t.Punted {
			t.Punted[family] = model.Shorten(why, maxToldText)
		}
		if t.Lack != nil {
			t.Lack.Quota = model.Shorten(t.Lack.Quota, maxToldName)
		}
		t.Families = slices.DeleteFunc(t.Families, func(f model.FIBTable) bool {
			twice := seen[f.Family] || f.Family != model.IPv4 && f.Family != model.IPv6
			seen[f.Family] = true
			return twice
		})
	}
}

// few keeps as many entries of a map by reasons as there can be, and of each reason as much as there may be.
func few[V any](all map[string]V) map[string]V {
	if all == nil {
		return nil
	}
	kept := make(map[string]V, min(len(all), maxToldKinds))
	for k, v := range all {
		if len(kept) < maxToldKinds {
			kept[model.Shorten(k, maxToldName)] = v
		}
	}
	return kept
}

func fewUses(all map[string]model.HookUse, most int) map[string]model.HookUse {
	for k, u := range all {
		if len(all) > most || len(k) > maxToldName || u.Hook != model.HookTC && u.Hook != model.HookXDP {
			delete(all, k)
			continue
		}
		u.Why = model.Shorten(u.Why, maxToldText)
		all[k] = u
	}
	return all
}

// believeMeasures keeps of a node's measures what is possible: its links, and histograms that are complete. The caller
// holds the lock.
func (m *Manager) believeMeasures(n *node, is *model.Measures) {
	refused, first := uint64(0), ""
	refuse := func(what string) {
		if refused++; first == "" {
			first = model.Shorten(what, 2*maxToldName)
		}
	}
	neighbours := map[string]bool{}
	for _, l := range m.substrate.Links {
		switch n.Name {
		case l.A:
			neighbours[l.B] = true
		case l.B:
			neighbours[l.A] = true
		}
	}
	if !whole(is.Passes) {
		refuse("the times of its passes")
		is.Passes = model.Histogram{}
	}
	seen := map[string]bool{}
	is.Links = slices.DeleteFunc(is.Links, func(l model.LinkMeasure) bool {
		// A link may just have gone, with the node at its other end. That is no lie.
		if !neighbours[l.To] || seen[l.To] {
			if m.nodes[l.To] == nil || seen[l.To] || l.To == n.Name {
				refuse("its link to " + l.To)
			}
			return true
		}
		seen[l.To] = true
		return false
	})
	for i := range is.Links {
		l := &is.Links[i]
		l.Problem, l.Device = model.Shorten(l.Problem, maxToldText), model.Shorten(l.Device, maxToldName)
		if !whole(l.RTT) {
			refuse("the round-trip times to " + l.To)
			l.RTT = model.Histogram{}
		}
	}
	n.tellRefused(refused, first)
}

// whole tells whether a histogram is one; none at all is one, too.
func whole(h model.Histogram) bool {
	if len(h.Bounds)+len(h.Counts) == 0 {
		return true
	}
	return len(h.Bounds) <= maxClasses && len(h.Counts) == len(h.Bounds)+1 && slices.IsSorted(h.Bounds)
}

// tellRefused counts what was refused from a node, and tells of the first. The caller holds the lock.
func (n *node) tellRefused(refused uint64, first string) {
	if refused == 0 {
		return
	}
	n.trust.refused += refused
	if !n.trust.told {
		n.trust.told = true
		n.news.event(model.Error, n.Name, "ReportRefused",
			fmt.Sprintf("node %s tells of what is not placed on it, or what nobody can tell (%s): that is not "+
				"believed, now or later; "+
				"if it does so of itself, take it out (`polyplane node remove %s`)", n.Name, first, n.Name), n.Name)
	}
}

// takesEvent counts an event that comes from a node, or follows from what it says, and returns whether there is room
// for it: all nodes' events are kept together. The caller holds the lock.
func (n *node) takesEvent() bool {
	if !n.Joined { // the platform's own
		return true
	}
	t := &n.trust
	now := time.Now()
	most := float64(maxToldEvents + eventsOfElement*len(n.elements))
	if t.at.IsZero() {
		t.events = most
	}
	t.events = min(most, t.events+eventsPerSecond*now.Sub(t.at).Seconds())
	if t.at = now; t.events < 1 {
		t.dropped++
		if !t.toldDrop {
			t.toldDrop = true
			n.news.event(model.Warning, n.Name, "EventsDropped",
				fmt.Sprintf("node %s tells of more than %d events at once and %d a second; the rest is counted only",
					n.Name, maxToldEvents, eventsPerSecond), n.Name)
		}
		return false
	}
	t.events--
	if t.events > most/2 {
		t.toldDrop = false
	}
	return true
}
