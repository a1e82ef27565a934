package admission

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/resolve"
)

// Draft is what can be decided about a network without looking at others. So many can be drawn at the same time, and a
// large one holds nobody up.
type Draft struct {
	old      *Network // what it was worked out from; nil for a new one
	next     model.Record
	resolved model.Resolved
	assigned model.Assigned // numbered by itself alone
	was      model.Assigned
}

// Network is the complete document.
func (d *Draft) Network() model.Network { return d.next.Network }

// Fresh are the edges that the network did not have, or not so. What they are at is to be in a Situation's Seen.
func (d *Draft) Fresh() []model.Edge {
	return slices.DeleteFunc(slices.Clone(d.next.Network.Edges), func(e model.Edge) bool {
		return d.old != nil && slices.ContainsFunc(d.old.Record.Network.Edges, func(was model.Edge) bool {
			return reflect.DeepEqual(e, was)
		})
	})
}

// Resolved is what it becomes.
func (d *Draft) Resolved() model.Resolved { return d.resolved }

// Draw decides what follows from a document, and from what was there before. What was set at run time and the document
// does not name stays. The owner, who made it, and the time are those of a new network.
func Draw(doc model.Network, old *Network, owner string, now time.Time) (*Draft, error) {
	if large := resolve.Bounds(&doc); len(large) > 0 {
		return nil, unfit(doc.Name, large)
	}
	if old != nil {
		if m := old.Record.Moving; m != nil && m.Step == model.MoveCopying {
			return nil, &Refusal{Kind: Conflict, Detail: fmt.Sprintf("network %s is not changed: %s is being moved "+
				"from node %s to node %s; try again when that is done (`polyplane get moves`)", doc.Name, m.Element,
				m.From, m.To)}
		}
	}
	var marks model.Settings
	if old != nil {
		doc, marks = model.Inherit(doc, old.Record.Network, old.Record.Set)
		owner = old.Record.Owner
	}
	document, problems := resolve.Read(doc)
	if len(problems) > 0 {
		return nil, unfit(doc.Name, problems)
	}
	d := &Draft{old: old, next: model.Record{Network: document.Network(), Set: marks, Owner: owner, Revision: 1,
		Created: now, Modified: now}}
	if old != nil {
		d.was = old.Record.Assigned
		d.next.Revision, d.next.Created = old.Record.Revision+1, old.Record.Created
		d.next.Provisional = old.Record.Provisional
		d.next.Overrides = remaining(old.Record.Overrides, doc)
		d.next.FaultRun = old.Record.FaultRun
		d.next.Policies = remainingPolicies(old.Record.Policies, doc)
	}
	var err error
	if d.resolved, d.assigned, err = document.Resolve(d.was, resolve.NewNumbers(d.was)); err != nil {
		return nil, wrong(doc.Name, "is refused", withoutName(doc.Name, err))
	}
	if problems := document.Check(&d.resolved); len(problems) > 0 {
		return nil, unfit(doc.Name, problems)
	}
	return d, nil
}

// remaining are the overrides of the elements that the document still has.
func remaining(overrides map[string]model.Override, doc model.Network) map[string]model.Override {
	if len(overrides) == 0 {
		return nil
	}
	kept := map[string]model.Override{}
	for i := range doc.Elements {
		if o, ok := overrides[doc.Elements[i].Name]; ok {
			kept[doc.Elements[i].Name] = o
		}
	}
	if len(kept) == 0 {
		return nil
	}
	return kept
}

// overwriteAll asks every element with configuration or files of its own to take the document's.
func overwriteAll(overrides map[string]model.Override, resolved *model.Resolved) map[string]model.Override {
	out := map[string]model.Override{}
	maps.Copy(out, overrides)
	for i := range resolved.Elements {
		e := &resolved.Elements[i]
		if e.IsSeeded() {
			o := out[e.Name]
			o.Overwrites++
			out[e.Name] = o
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// remainingPolicies are those of the elements that the document still has.
func remainingPolicies(policies model.Policies, doc model.Network) model.Policies {
	if len(policies) == 0 {
		return nil
	}
	kept := model.Policies{}
	if p := policies[""]; p != "" {
		kept[""] = p
	}
	for i := range doc.Elements {
		if p := policies[doc.Elements[i].Name]; p != "" {
			kept[doc.Elements[i].Name] = p
		}
	}
	return kept
}
