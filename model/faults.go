package model

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// ActionSet gives fields of a link their values, as a fault.
const ActionSet Action = "set"

// FaultActions, in the order in which people are told of them, are what a schedule of faults may do.
var FaultActions = []Action{ActionStop, ActionStart, ActionRestart, ActionSet}

// MaxFaults is how many faults a network's schedule may have, MaxFaultTime how late the last of them may be.
const (
	MaxFaults    = 1_000
	MaxFaultTime = Duration(24 * time.Hour)
)

// Fault is one step of a network's schedule of faults.
type Fault struct {
	At     Duration `json:"at"`     // after the schedule's start
	Action Action   `json:"action"` // stop, start, restart or set
	Object string   `json:"object"` // an element or a link
	// Values are those that set gives a link.
	Values []Assignment `json:"values,omitempty"`
}

func (f Fault) String() string {
	words := []string{string(f.Action), f.Object}
	for _, v := range f.Values {
		words = append(words, v.Key+"="+v.Value)
	}
	return fmt.Sprintf("at %s %s", f.At, strings.Join(words, " "))
}

// FaultRun is a schedule of faults that was started, and what puts everything back.
type FaultRun struct {
	Began time.Time `json:"began"`
	// Owner is who has started it, where that is an owner: nothing is done that they may not do themselves.
	Owner  string  `json:"owner,omitempty"`
	Faults []Fault `json:"faults"` // in the order of their times
	// Done are those that are over, in the same order.
	Done []FaultDone `json:"done,omitempty"`
	// Links, Set and Overrides are how the links and the elements that it touches were before.
	Links     []Link              `json:"links,omitempty"`
	Set       map[string][]string `json:"set,omitempty"` // by link
	Overrides map[string]Override `json:"overrides,omitempty"`
}

// FaultDone is what became of a fault.
type FaultDone struct {
	At      Duration `json:"at"` // when it was done, after the schedule's start
	Problem string   `json:"problem,omitempty"`
}

// Over tells that there is nothing left to do.
func (r *FaultRun) Over() bool { return len(r.Done) >= len(r.Faults) }

// FaultRequest starts or stops a network's schedule of faults.
type FaultRequest struct {
	Action Action `json:"action" enum:"start,stop"`
}

// BeginFaults is the run of a network's schedule that begins now.
func BeginFaults(r *Record, owner string, now time.Time) *FaultRun {
	run := &FaultRun{Began: now, Owner: owner, Faults: slices.Clone(r.Network.Faults), Set: map[string][]string{},
		Overrides: map[string]Override{}}
	slices.SortStableFunc(run.Faults, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
	touched := map[string]bool{}
	for _, f := range run.Faults {
		touched[f.Object] = true
	}
	for i := range r.Network.Elements {
		if name := r.Network.Elements[i].Name; touched[name] {
			run.Overrides[name] = r.Overrides[name]
			delete(touched, name)
		}
	}
	for i := range r.Network.Links {
		if l := r.Network.Links[i]; touched[l.Name] {
			run.Links = append(run.Links, l)
			if marks := r.Set.Links[l.Name]; len(marks) > 0 {
				run.Set[l.Name] = slices.Clone(marks)
			}
		}
	}
	return run
}

// PutBack returns the network, the marks of what was set on it and its elements' overrides as they were before the run:
// the fields that the run has touched, and no others. What is no longer there is left out.
func (r *FaultRun) PutBack(net Network, marks Settings, overrides map[string]Override) (Network, Settings,
	map[string]Override) {
	touched := map[string]map[string]bool{} // keys, by link
	for _, f := range r.Faults[:len(r.Done)] {
		keys := touched[f.Object]
		if keys == nil {
			keys = map[string]bool{}
			touched[f.Object] = keys
		}
		if f.Action != ActionSet {
			keys["state"] = true
		}
		for _, v := range f.Values {
			keys[v.Key] = true
		}
	}
	net.Links, marks.Links = slices.Clone(net.Links), maps.Clone(marks.Links)
	for k := range r.Links {
		was := &r.Links[k]
		i := slices.IndexFunc(net.Links, func(l Link) bool { return l.Name == was.Name && l.Ends == was.Ends })
		if i < 0 {
			continue
		}
		kept := slices.Clone(marks.Links[was.Name])
		for _, key := range linkKeys {
			if !touched[was.Name][key.Name] {
				continue
			}
			key.Copy(&net.Links[i], was)
			kept = slices.DeleteFunc(kept, func(s string) bool { return s == key.Name })
			if slices.Contains(r.Set[was.Name], key.Name) {
				kept = append(kept, key.Name)
			}
		}
		slices.Sort(kept)
		keep(&marks.Links, was.Name, kept)
	}
	out := maps.Clone(overrides)
	for i := range net.Elements {
		name := net.Elements[i].Name
		was, there := r.Overrides[name]
		if is := out[name]; there && touched[name] != nil && (is.Stopped != was.Stopped ||
			is.Suspended != was.Suspended) {
			is.Stopped, is.Suspended = was.Stopped, was.Suspended
			if out == nil {
				out = map[string]Override{}
			}
			if out[name] = is; is == (Override{}) {
				delete(out, name)
			}
		}
	}
	if len(out) == 0 {
		out = nil
	}
	return net, marks, out
}
