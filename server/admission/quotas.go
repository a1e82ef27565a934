package admission

import (
	"maps"
	"slices"

	"github.com/polyplane/polyplane/model"
)

// checkQuotas tells what of a network its own quota, or its owner's, refuses.
func (s *Situation) checkQuotas(next *model.Record, old *Network) []error {
	demand, unbound := model.DemandOf(next.Network)
	var was, besides model.Quota
	var before []string
	owner := next.WhoseItIs()
	if old != nil {
		was, before = model.DemandOf(old.Record.Network)
	}
	fresh := slices.DeleteFunc(slices.Clone(unbound), func(name string) bool { return slices.Contains(before, name) })
	var problems []error
	if q, ok := s.Quotas.Networks[next.Network.Name]; ok {
		problems = q.Refuses("network "+next.Network.Name, demand, was, besides, fresh)
	}
	q, ok := s.Quotas.Owners[owner]
	if s.Owner { // whom the defaults bind, too
		q = s.Quotas.OfOwner(owner)
	} else if !ok {
		return problems
	}
	if old != nil && old.Record.WhoseItIs() != owner {
		was, fresh = model.Quota{}, unbound // for this owner all of it is new
	}
	for i := range s.Others {
		if s.Others[i].Network.Name != "" && s.Others[i].WhoseItIs() == owner {
			d, _ := model.DemandOf(s.Others[i].Network)
			besides = besides.Add(d)
		}
	}
	return append(problems, q.Refuses("owner "+owner, demand, was, besides, fresh)...)
}

// has tells whether there is another network of a key.
func (s *Situation) has(key string) bool {
	return slices.ContainsFunc(s.Others, func(r model.Record) bool { return r.Network.Name == key })
}

// restrain enters what administrators have decided about elements that come anew. What was decided before owners had
// names of their own is of a network whose title was its key.
func (s *Situation) restrain(next *model.Record, old *Network) {
	comes := map[string]bool{"": old == nil}
	had := old.elements()
	for i := range next.Network.Elements {
		name := next.Network.Elements[i].Name
		comes[name] = had[name] == nil
	}
	owner, cloned := next.WhoseItIs(), false
	for _, r := range s.Restraints {
		if r.Owner != owner || !comes[r.ID.Element] || r.ID.Network != next.Network.Name &&
			(r.ID.Network != next.Network.Called() || s.has(r.ID.Network)) {
			continue
		}
		if !cloned {
			overrides, policies := map[string]model.Override{}, model.Policies{}
			maps.Copy(overrides, next.Overrides)
			maps.Copy(policies, next.Policies)
			next.Overrides, next.Policies, cloned = overrides, policies, true
		}
		if r.Quarantined {
			o := next.Overrides[r.ID.Element]
			o.Quarantined, o.Reason, o.Held = true, r.Reason, true
			next.Overrides[r.ID.Element] = o
		}
		if r.Attack != "" {
			next.Policies[r.ID.Element] = r.Attack
		}
	}
}
