package agent

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/node/watch"
)

// watchUsage returns the signals that follow from the two latest measurements of what an element's processes use.
func (a *Agent) watchUsage(id model.ID) (values []watch.Value, isBusy bool) {
	is, was := a.usage.last[id], a.usage.before[id]
	span := a.usage.at.Sub(a.usage.beforeAt).Seconds()
	if span <= 0 || is.CPU < was.CPU || a.usage.last == nil {
		return nil, false
	}
	if _, known := a.usage.before[id]; !known {
		return nil, false
	}
	values = []watch.Value{
		{Signal: watch.Refused, Value: float64(max(0, is.Refused-was.Refused)) / span},
		{Signal: watch.Killed, Value: float64(max(0, is.Killed-was.Killed)) / span},
	}
	return values, (is.CPU - was.CPU).Seconds() >= watchBusy*span
}

// examine looks closer at an element that keeps a processor busy: what it has in the kernel's tables, and how many of
// its tasks want a processor.
func (a *Agent) examine(ctx context.Context, id model.ID, at time.Time) []watch.Value {
	d, err := driver[control.Examiner](a, id, "be examined")
	if err != nil {
		return nil
	}
	is, ok := d.Examine(ctx, id)
	if !ok {
		return nil
	}
	was := a.watcher.examined[id]
	for other, x := range a.watcher.examined {
		if at.Sub(x.at) > time.Minute {
			delete(a.watcher.examined, other)
		}
	}
	span := at.Sub(was.at)
	if was.at.IsZero() || span > 4*usageEvery {
		was, span = examined{}, usageEvery
	}
	grown := func(is, was int) float64 { return max(0, float64(is-was)) / max(span.Seconds(), 1) }
	began, learnt := grown(is.Connections, was.Connections), grown(is.Neighbours, was.Neighbours)
	a.watcher.examined[id] = examined{is, at, began, learnt}
	// An attacker that has filled a whole table within one look adds nothing by the next. So a part of what was new
	// counts for that one too: half of the connections, and so much of the neighbours that those of a large network,
	// which somebody had before the first look, are no attack.
	began, learnt = max(began, was.began/2), max(learnt, was.learnt/64)
	return []watch.Value{{Signal: watch.Demand, Value: float64(is.Runnable)},
		{Signal: watch.Neighbours, Value: learnt,
			Detail: fmt.Sprintf("%d of them now", is.Neighbours)},
		{Signal: watch.Connections, Value: began, Detail: fmt.Sprintf("%d of them now", is.Connections)}}
}

// examined is what a closer look found, and when.
type examined struct {
	control.Examined
	at     time.Time
	began  float64 // connections a second
	learnt float64 // neighbours a second
}

// suspect tells of an attack, and does what the element's policy says. It returns whether the element was cut off.
func (a *Agent) suspect(e watched, found []watch.Verdict) (cut bool) {
	words := make([]string, len(found))
	provoked := true
	for i, v := range found {
		words[i] = verdictWords(v)
		provoked = provoked && v.Provoked
	}
	what := strings.Join(words, "; ")
	done := ""
	switch {
	case e.policy == model.AttackTell:
		done = fmt.Sprintf("nothing was done, as its policy says (`polyplane policy %s attack=quarantine` would cut "+
			"it off next time, `polyplane quarantine %s` does so now)", e.id.Network, e.id)
	case provoked:
		done = fmt.Sprintf("nothing was done, since what others sent it may have made it do so (`polyplane "+
			"quarantine %s` cuts it off)", e.id)
	default:
		at := time.Now()
		// The clock may have gone back since the manager decided about the last incident. A new one must count all the
		// same.
		if last := time.Unix(0, a.decidedAbout(e.id)); !at.After(last) {
			at = last.Add(1)
		}
		if !a.cuts.add(e.id, model.Incident{At: at, Signal: string(found[0].Signal), What: what, Policy: e.policy}) {
			return true
		}
		cut = true
		if s := a.wanted.Load(); s != nil {
			a.cut(s, false)
		}
		switch e.policy {
		case model.AttackStop:
			done = fmt.Sprintf("its links were cut, and it is stopped (`polyplane start %s` undoes that)", e.id)
		case model.AttackDelete:
			done = "its links were cut, and it is taken out of its network (`polyplane trash list` has its disk, and " +
				"`polyplane apply` of the file makes it anew)"
		default:
			done = fmt.Sprintf("its links were cut; it, its state and a capture of its last packets are kept "+
				"(`polyplane release %s` undoes that, `polyplane quarantine capture %s -w FILE` fetches the capture)",
				e.id, e.id)
		}
	}
	a.event(model.Warning, e.id.String(), "AttackSuspected", what+": "+done)
	return cut
}

// decidedAbout is the number of the latest incident of an element that the manager has decided about.
func (a *Agent) decidedAbout(id model.ID) int64 {
	if s := a.wanted.Load(); s != nil {
		for _, n := range s.Networks {
			for i := range n.Elements {
				if n.Name == id.Network && n.Elements[i].Name == id.Element {
					return n.Elements[i].Decided
				}
			}
		}
	}
	return 0
}

// verdictWords says how much of what was seen, and how much is usual.
func verdictWords(v watch.Verdict) string {
	text := fmt.Sprintf("%s %s (usual: %s, suspicious from %s)", amount(v.Value), watch.RuleOf(v.Signal).Unit,
		amount(v.Usual), amount(v.Limit))
	if v.Detail != "" {
		text += ", " + v.Detail
	}
	return text
}

// amount prints a number with no more digits than people need.
func amount(f float64) string {
	switch {
	case f >= 100:
		return fmt.Sprintf("%.0f", f)
	case f >= 1:
		return fmt.Sprintf("%.3g", f)
	case f == 0:
		return "0"
	}
	return fmt.Sprintf("%.2g", f)
}
