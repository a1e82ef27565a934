package software

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
)

// checkPolicies refuses policies from which no configuration can be made.
func checkPolicies(bgp *model.BGP) error {
	for _, name := range bgp.Used() {
		rules, known := bgp.Policies[name]
		if !known {
			return fmt.Errorf("bgp: there is no policy %q", name)
		}
		for _, r := range rules {
			if _, known := bgp.PrefixLists[r.Match.Prefixes]; r.Match.Prefixes != "" && !known {
				return fmt.Errorf("bgp: policy %s: there is no prefix list %q", name, r.Match.Prefixes)
			}
			s := r.Set
			for _, c := range slices.Concat(r.Match.Community, s.Community, s.AddCommunity, s.DeleteCommunity) {
				if _, err := model.ParseCommunity(c); err != nil {
					return fmt.Errorf("bgp: policy %s: %w", name, err)
				}
			}
		}
	}
	for name, entries := range bgp.PrefixLists {
		for _, e := range entries {
			if _, err := model.ParsePrefixRange(e); err != nil {
				return fmt.Errorf("bgp: prefix list %s: %w", name, err)
			}
		}
	}
	return nil
}

// ranges are those entries of a prefix list that are of the family.
func ranges(bgp *model.BGP, list string, v4 bool) (all []model.PrefixRange) {
	for _, e := range bgp.PrefixLists[list] {
		if r, err := model.ParsePrefixRange(e); err == nil && r.Prefix.Addr().Is4() == v4 {
			all = append(all, r)
		}
	}
	return all
}

// frrPolicies writes the policies that sessions have, as route maps of the same names, and the lists that they match
// and delete by. Rule n is entry 10·n. A rule with prefixes of both families has a second entry, since FRR wants all of
// an entry's matches fulfilled.
func frrPolicies(w *writer, bgp *model.BGP) {
	used := bgp.Used()
	lists := map[string]bool{}
	for _, name := range used {
		for _, r := range bgp.Policies[name] {
			lists[r.Match.Prefixes] = r.Match.Prefixes != ""
		}
	}
	for _, list := range slices.Sorted(maps.Keys(lists)) {
		for _, f := range families {
			for i, r := range ranges(bgp, list, f.v4) {
				words := ""
				if r.Least > r.Prefix.Bits() {
					words += fmt.Sprintf(" ge %d", r.Least)
				}
				if r.Most > r.Prefix.Bits() && (words == "" || r.Most < r.Prefix.Addr().BitLen()) {
					words += fmt.Sprintf(" le %d", r.Most)
				}
				w.line("%s prefix-list %s seq %d permit %s%s", f.frr(), list, 5*(i+1), r.Prefix, words)
			}
		}
	}
	for _, name := range used {
		for i, r := range bgp.Policies[name] {
			seq := 10 * (i + 1)
			if len(r.Match.Community) > 0 { // one line: all of them
				w.line("bgp community-list standard %s-%d seq 5 permit %s", name, seq,
					strings.Join(r.Match.Community, " "))
			}
			for k, c := range r.Set.DeleteCommunity {
				w.line("bgp community-list standard %s-%d-delete seq %d permit %s", name, seq, 5*(k+1), c)
			}
		}
	}
	if len(used) > 0 {
		w.line("!")
	}
	for _, name := range used {
		for i, r := range bgp.Policies[name] {
			seq := 10 * (i + 1)
			if r.Match.Prefixes == "" {
				frrRule(w, bgp, name, seq, seq, "", r)
			}
			for k, f := range families {
				if r.Match.Prefixes != "" && len(ranges(bgp, r.Match.Prefixes, f.v4)) > 0 {
					frrRule(w, bgp, name, seq, seq+5*k, f.frr(), r)
				}
			}
		}
	}
}

// frr is the family as FRR's configuration calls it.
func (f family) frr() string {
	if f.v4 {
		return "ip"
	}
	return "ipv6"
}

// frrRule writes one entry of a route map; seq is the rule's number, at that of the entry.
func frrRule(w *writer, bgp *model.BGP, name string, seq, at int, family string, r model.BGPRule) {
	action := "permit"
	if r.Deny {
		action = "deny"
	}
	w.line("route-map %s %s %d", name, action, at)
	if family != "" {
		w.line(" match %s address prefix-list %s", family, r.Match.Prefixes)
	}
	if len(r.Match.Community) > 0 {
		w.line(" match community %s-%d", name, seq)
	}
	s := r.Set
	if s.Prepend > 0 {
		w.line(" set as-path prepend%s", strings.Repeat(fmt.Sprintf(" %d", bgp.AS), s.Prepend))
	}
	if len(s.DeleteCommunity) > 0 {
		w.line(" set comm-list %s-%d-delete delete", name, seq)
	}
	if len(s.Community) > 0 {
		w.line(" set community %s", strings.Join(s.Community, " "))
	}
	if len(s.AddCommunity) > 0 {
		w.line(" set community %s additive", strings.Join(s.AddCommunity, " "))
	}
	if s.LocalPreference != nil {
		w.line(" set local-preference %d", *s.LocalPreference)
	}
	if s.MED != nil {
		w.line(" set metric %d", *s.MED)
	}
	w.line("exit")
	w.line("!")
}

// birdPolicies writes the policies that sessions have, as a function for each family that tells whether a route passes.
func birdPolicies(w *writer, bgp *model.BGP) {
	for _, name := range bgp.Used() {
		for _, f := range families {
			w.line("function %s() {", birdPolicy(name, f))
			ended := false
			for _, r := range bgp.Policies[name] {
				ended = birdRule(w, bgp, f, r) || ended
			}
			if !ended {
				w.line("\treturn false;")
			}
			w.line("}")
		}
	}
}

// birdPolicy is the name of a policy's function, in quotes because names have marks that are no letters.
func birdPolicy(name string, f family) string { return fmt.Sprintf("'%s-%d'", name, f.n) }

// birdRule writes one rule, and returns whether nothing comes after it.
func birdRule(w *writer, bgp *model.BGP, f family, r model.BGPRule) (ends bool) {
	var match []string
	if r.Match.Prefixes != "" {
		set := each.Of(ranges(bgp, r.Match.Prefixes, f.v4), func(e model.PrefixRange) string {
			return fmt.Sprintf("%s{%d,%d}", e.Prefix, e.Least, e.Most)
		})
		if len(set) == 0 {
			return false // nothing of this family is in it
		}
		match = append(match, "net ~ ["+strings.Join(set, ", ")+"]")
	}
	for _, c := range r.Match.Community {
		match = append(match, birdCommunity(c)+" ~ bgp_community")
	}
	var do []string
	s := r.Set
	for range s.Prepend {
		do = append(do, fmt.Sprintf("bgp_path.prepend(%d);", bgp.AS))
	}
	for _, c := range s.DeleteCommunity {
		do = append(do, "bgp_community.delete("+birdCommunity(c)+");")
	}
	if len(s.Community) > 0 {
		do = append(do, "bgp_community = -empty-;")
	}
	for _, c := range slices.Concat(s.Community, s.AddCommunity) {
		if c != model.NoCommunity {
			do = append(do, "bgp_community.add("+birdCommunity(c)+");")
		}
	}
	if s.LocalPreference != nil {
		do = append(do, fmt.Sprintf("bgp_local_pref = %d;", *s.LocalPreference))
	}
	if s.MED != nil {
		do = append(do, fmt.Sprintf("bgp_med = %d;", *s.MED))
	}
	do = append(do, fmt.Sprintf("return %t;", !r.Deny))
	if len(match) == 0 {
		for _, line := range do {
			w.line("\t%s", line)
		}
		return true
	}
	w.line("\tif %s then { %s }", strings.Join(match, " && "), strings.Join(do, " "))
	return false
}

func birdCommunity(c string) string {
	n, _ := model.CommunityNumbers(c)
	return fmt.Sprintf("(%d,%d)", n[0], n[1])
}
