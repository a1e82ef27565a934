package resolve

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/model"
)

// policyName is what FRR and BIRD take as the name of a policy or a list.
var policyName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,31}$`)

// checkPolicies looks at a router's prefix lists and policies, and at what uses them.
func (ps *problems) checkPolicies(i int) {
	b := ps.net.Elements[i].Routing.BGP
	known := func(field, name, session string) {
		if _, there := b.Policies[name]; name != "" && !there &&
			(len(b.Policies) > 0 || !ps.ofElement(i, "bgp/policies")) {
			ps.element(i, field, "%s: there is no policy %s; there %s", session, name,
				thereAre(slices.Sorted(maps.Keys(b.Policies))))
		}
	}
	for _, n := range b.Neighbors {
		known("routing/bgp/neighbors", n.In, "in for the BGP neighbour "+n.Where())
		known("routing/bgp/neighbors", n.Out, "out for the BGP neighbour "+n.Where())
	}
	if len(b.Toward) > 0 && len(b.Neighbors) > 0 {
		ps.element(i, "routing/bgp/neighbors", "neighbors are either a list of sessions or a mapping by name")
	}
	for _, name := range slices.Sorted(maps.Keys(b.Toward)) {
		at := "routing/bgp/neighbors/" + name
		far := slices.IndexFunc(ps.net.Elements, func(e model.Element) bool { return e.Name == name })
		switch {
		case far < 0 && ps.mayBe(name):
		case far < 0:
			ps.element(i, at, "neighbors: there is no router %s%s", name, ps.near(name))
		case ps.net.Elements[far].Kind != model.Router:
			ps.element(i, at, "neighbors: %s is a %s, and BGP is spoken with routers", name, ps.net.Elements[far].Kind)
		}
		known(at, b.Toward[name].In, "in for "+name)
		known(at, b.Toward[name].Out, "out for "+name)
	}
	if before := ps.speakerBefore(i); before != nil && reflect.DeepEqual(before.Policies, b.Policies) &&
		reflect.DeepEqual(before.PrefixLists, b.PrefixLists) {
		return // what is wrong with them has been told
	}
	for _, name := range slices.Sorted(maps.Keys(b.PrefixLists)) {
		at := "routing/bgp/prefix-lists/" + name
		ps.checkPolicyName(i, at, "prefix list", name)
		for _, entry := range b.PrefixLists[name] {
			if _, err := model.ParsePrefixRange(entry); err != nil {
				ps.element(i, at, "prefix list %s: %v", name, err)
			}
		}
		if len(b.PrefixLists[name]) == 0 && !ps.ofElement(i, "bgp/prefix-lists") {
			ps.element(i, at, "prefix list %s has no prefixes, so that nothing is in it; write %[1]s: 10.1.0.0/16",
				name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.Policies)) {
		ps.checkPolicyName(i, "routing/bgp/policies/"+name, "policy", name)
		ps.checkRules(i, name, b)
	}
}

// speakerBefore is what the router before this one that speaks BGP says of it.
func (ps *problems) speakerBefore(i int) *model.BGP {
	for i--; i >= 0; i-- {
		if b := ps.net.Elements[i].Routing.BGP; b != nil {
			return b
		}
	}
	return nil
}

func (ps *problems) checkPolicyName(i int, field, what, name string) {
	switch {
	case !policyName.MatchString(name):
		ps.element(i, field, "the %s %q has no name that routing software takes: a letter, and at most 31 letters, "+
			"digits and marks of . _ - after it", what, model.Shorten(name, model.MaxName))
	case strings.HasPrefix(name, "polyplane-"):
		ps.element(i, field, "the %s %s has a name that generated configurations use; take one without polyplane-",
			what, name)
	}
}

// checkRules looks at the rules of one policy.
func (ps *problems) checkRules(i int, name string, b *model.BGP) {
	rules := b.Policies[name]
	report := func(k int, format string, args ...any) {
		ps.element(i, "routing/bgp/policies/"+name, "policy %s, rule %d: %s", name, k+1, fmt.Sprintf(format, args...))
	}
	if len(rules) == 0 && !ps.ofElement(i, "bgp/policies") {
		ps.element(i, "routing/bgp/policies/"+name, "policy %s has no rules, so that it denies everything; if that is "+
			"meant, write %[1]s: [deny: true]", name)
	}
	last := -1
	for k, r := range rules {
		if last >= 0 {
			report(k, "no route comes to it, since all match rule %d; change their order", last+1)
			last = -1
		}
		if r.Match.Prefixes == "" && len(r.Match.Community) == 0 {
			last = k
		}
		list := r.Match.Prefixes
		if _, there := b.PrefixLists[list]; list != "" && !there &&
			(len(b.PrefixLists) > 0 || !ps.ofElement(i, "bgp/prefix-lists")) {
			report(k, "there is no prefix list %s; there %s", model.Shorten(list, model.MaxName),
				thereAre(slices.Sorted(maps.Keys(b.PrefixLists))))
		}
		s := r.Set
		if r.Deny && !reflect.DeepEqual(s, model.BGPSet{}) {
			report(k, "what is denied gets nothing; leave set or deny out")
		}
		if s.Prepend < 0 || s.Prepend > model.MostPrepended {
			report(k, "prepend %d is not between 1 and %d", s.Prepend, model.MostPrepended)
		}
		for _, c := range slices.Concat(r.Match.Community, s.Community, s.AddCommunity, s.DeleteCommunity) {
			if _, err := model.ParseCommunity(c); err != nil {
				report(k, "%v", err)
			}
		}
		none := func(all []string) bool { return slices.Contains(all, model.NoCommunity) }
		switch {
		case none(slices.Concat(r.Match.Community, s.AddCommunity, s.DeleteCommunity)),
			none(s.Community) && len(s.Community) > 1:
			report(k, "none stands alone, for what a route's community is set to")
		case len(s.Community) > 0 && len(s.AddCommunity)+len(s.DeleteCommunity) > 0:
			report(k, "community replaces all that there are; leave it out, or add-community and delete-community")
		}
		for _, c := range s.AddCommunity {
			if slices.Contains(s.DeleteCommunity, c) {
				report(k, "the community %s is both added and deleted", c)
			}
		}
	}
}

func thereAre(names []string) string {
	if len(names) == 0 {
		return "are none"
	}
	if len(names) == 1 {
		return "is " + names[0]
	}
	if more := len(names) - model.MostNamed; more > 0 {
		names = append(names[:model.MostNamed:model.MostNamed], "others")
	}
	return "are " + strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}
