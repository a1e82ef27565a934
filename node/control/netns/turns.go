package netns

import (
	"runtime"
	"slices"
	"time"

	"github.com/polyplane/polyplane/model"
)

// Routing software keeps working for a while after its container was started: its daemons begin, and read the
// configuration. When a hundred routers do so at once, each is slow, and nothing else on the machine gets a processor.
// So there are turns: an element has one from its start until it is ready or has failed, and the others wait. An
// element could keep its turn on purpose, so it loses it after turnTime. If it is not ready by then, it goes on beside
// the next one.
const (
	turnsEach = 4 // a processor
	turnsMost = 64
	turnTime  = 10 * time.Second
	// lookRest is how long the audit leaves elements alone while others have their turn.
	lookRest = 10 * time.Second
)

// waitsForTurn is the warning of an element that has not been started, or restarted, yet.
const waitsForTurn = "waits for its turn: other elements of this node are being started"

// turns is how many elements may be starting at a time.
func turns() int { return min(turnsMost, turnsEach*max(2, runtime.NumCPU())) }

// hasTurn returns whether the element is being started.
func (e *element) hasTurn(now time.Time) bool {
	p := &e.process
	return p.wanted && !p.ready && !p.routed && !p.queued && p.trouble == "" && !e.job.Element.Suspended &&
		len(p.plan.Daemons) > 0 && now.Sub(p.began) < turnTime && p.running()
}

// needsTurn returns whether the element is to be started or restarted now, so that its daemons will be busy. A
// suspended one does nothing.
func (w *work) needsTurn(now time.Time) bool {
	p := &w.e.process
	if !p.wanted || len(p.plan.Daemons) == 0 || w.job.Element.Suspended {
		return false
	}
	return p.running() && p.restarts || !p.running() && (!p.known || !now.Before(p.next))
}

// mayRestart returns whether a running element may be restarted now. Only the comparison of its files shows that it
// must be, so it was not given a turn before. It takes a free turn, or goes on as it is until it gets one.
func (d *Driver) mayRestart(w *work, p *process) bool {
	if w.turn || len(p.plan.Daemons) == 0 {
		return true
	}
	d.turning.Lock()
	defer d.turning.Unlock()
	if d.left > 0 {
		d.left--
		w.shift.starts = true
		return true
	}
	p.restarts, p.queued = true, true
	return false
}

// starting counts the elements that have a turn, by network.
func (d *Driver) starting() (all int, networks map[string]int) {
	d.turning.Lock()
	defer d.turning.Unlock()
	return d.countStarting()
}

// countStarting does the work of starting. The caller holds the turns' lock.
func (d *Driver) countStarting() (all int, networks map[string]int) {
	now, networks := time.Now(), map[string]int{}
	for id, e := range d.elements {
		if s := d.shifts[id]; e.hasTurn(now) || s != nil && s.starts && now.Sub(s.began) < turnTime {
			all++
			networks[id.Network]++
		}
	}
	return all, networks
}

// nextTurns chooses which waiting elements get the free turns. Each turn goes to the network that has the fewest, so
// that one router of a network does not wait for the three hundred of another.
func nextTurns(waiting []model.ID, free int, networks map[string]int) map[model.ID]bool {
	byNetwork := map[string][]model.ID{}
	var order []string
	for _, id := range waiting {
		if byNetwork[id.Network] == nil {
			order = append(order, id.Network)
		}
		byNetwork[id.Network] = append(byNetwork[id.Network], id)
	}
	given := map[model.ID]bool{}
	for ; free > 0 && len(order) > 0; free-- {
		least := slices.MinFunc(order, func(a, b string) int { return networks[a] - networks[b] })
		given[byNetwork[least][0]] = true
		networks[least]++
		if byNetwork[least] = byNetwork[least][1:]; len(byNetwork[least]) == 0 {
			order = slices.DeleteFunc(order, func(s string) bool { return s == least })
		}
	}
	return given
}

// turnsForQueued gives free turns to elements that were told to wait before.
func (d *Driver) turnsForQueued() map[model.ID]bool {
	var waiting []model.ID
	for id, e := range d.elements {
		if e.process.queued {
			waiting = append(waiting, id)
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	slices.SortFunc(waiting, compareIDs)
	all, networks := d.starting()
	return nextTurns(waiting, turns()-all, networks)
}

// queue removes from the list the elements that must still wait. given are those that have a turn already.
func (d *Driver) queue(list []*work, given map[model.ID]bool) []*work {
	now := time.Now()
	d.turning.Lock()
	defer d.turning.Unlock()
	all, networks := d.countStarting()
	var waiting []model.ID
	for _, w := range list {
		w.e.process.queued = false
		switch {
		case !w.needsTurn(now):
		case given[w.job.ID]:
			all++
			networks[w.job.ID.Network]++
		default:
			waiting = append(waiting, w.job.ID)
		}
	}
	more := nextTurns(waiting, turns()-all, networks)
	d.left = turns() - all - len(more)
	return slices.DeleteFunc(list, func(w *work) bool {
		p, id := &w.e.process, w.job.ID
		if w.turn = given[id] || more[id]; w.turn || !w.needsTurn(now) {
			return false
		}
		p.queued, w.e.last = true, nil
		if !p.running() {
			p.readiness = readiness{news: p.news, waits: waitsForTurn}
		}
		return true
	})
}

// turnFree returns whether somebody waits although there is a free turn.
func (d *Driver) turnFree() bool {
	for _, e := range d.elements {
		if e.process.queued {
			all, _ := d.starting()
			return all < turns()
		}
	}
	return false
}
