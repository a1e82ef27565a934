package resolve

import (
	"fmt"
	"slices"

	"github.com/polyplane/polyplane/model"
)

// FaultKey is what Unknown calls a key of the network's i-th fault; all that a set sets are its values.
func FaultKey(i int, key string) string { return fmt.Sprintf("faults/%d/%s", i, key) }

// checkFaults checks the schedule of faults: all that can be known before it runs.
func (ps *problems) checkFaults(l *layout) {
	n := ps.net
	if len(n.Faults) > model.MaxFaults {
		ps.network("faults", "faults: there are %d; a network may have %d", len(n.Faults), model.MaxFaults)
		return
	}
	links := make(map[string]int, len(n.Links))
	for i := range n.Links {
		links[n.Links[i].Name] = i
	}
	for i, f := range n.Faults {
		what, time := f.String(), !ps.ofNetwork(FaultKey(i, "at"))
		if !time { // nobody knows when
			what = string(f.Action) + " " + f.Object
		}
		report := func(format string, args ...any) {
			ps.network("faults", "faults: "+what+": "+format, args...)
		}
		if time && (f.At < 0 || f.At > model.MaxFaultTime) {
			report("the time is not between 0s and %s", model.MaxFaultTime)
		}
		_, element := l.elements[f.Object]
		link, isLink := links[f.Object]
		switch {
		case !slices.Contains(model.FaultActions, f.Action):
			report("there are %s", model.Either(model.FaultActions))
		case !element && !isLink && (ps.mayBe(f.Object) || ps.mayBeLink(f.Object)):
		case !element && !isLink:
			report("there is no element or link %s%s", f.Object, ps.near(f.Object))
		case f.Action == model.ActionSet && len(f.Values) == 0 && ps.ofNetwork(FaultKey(i, "values")):
		case f.Action == model.ActionSet && (element || len(f.Values) == 0):
			report("set takes a link, and what it is to have, like {at: 70s, set: r1 -- r2, loss: 5%%}")
		case f.Action != model.ActionSet && len(f.Values) > 0:
			report("%s goes with set", f.Values[0].Key)
		case f.Action == model.ActionRestart && !element:
			report("%s is a link; only elements are restarted", f.Object)
		case f.Action == model.ActionSet:
			one := model.Network{Name: n.Name, Links: []model.Link{n.Links[link]}}
			set, _, errs := model.Assign(one, model.Settings{}, f.Object, f.Values)
			for _, err := range errs {
				report("%v", err)
			}
			model.CheckKeys(model.Link{}.Keys(), &set.Links[0], func(_, problem string) { report("%s", problem) })
		}
	}
}
