package embedding

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/model"
)

// asked is what the answer to a want depends on. Links and edges that ask for the same get one answer.
type asked struct {
	feature, driver model.Feature
	kind            model.Kind
}

// judge says which nodes meet wants.
type judge struct {
	e      *embedder
	offers map[string]model.Offers
	known  map[asked][]string // node → why it does not meet it; nil where all do
}

// lacks are the nodes' reasons not to meet the want; nil where all meet it.
func (j *judge) lacks(w model.Want) []string {
	key := asked{w.Feature, w.Driver, w.Kind}
	whys, ok := j.known[key]
	if ok {
		return whys
	}
	for n := range j.e.nodes {
		if why := j.offers[j.e.nodes[n].Name].Lack(w); why != "" {
			if whys == nil {
				whys = make([]string, len(j.e.nodes))
			}
			whys[n] = why
		}
	}
	j.known[key] = whys
	return whys
}

// choose works out which nodes offer what each element wants, and tells those that can be nowhere.
func (e *embedder) choose(offers map[string]model.Offers, current Current) {
	j := &judge{e, offers, map[asked][]string{}}
	had := map[string][]model.Want{}
	for i, w := range model.Wants(&current.Network) {
		had[current.Network.Elements[i].Name] = w
	}
	told := map[string]bool{}
	for i, wants := range model.Wants(&e.net) {
		el, pin := &e.net.Elements[i], e.pin[i]
		var may []bool // by what they offer
		var lacking []model.Want
		for _, w := range wants {
			if pin >= 0 && e.nodes[pin].Name == current.Elements[el.Name] && slices.Contains(had[el.Name], w) {
				continue
			}
			if whys := j.lacks(w); whys != nil {
				lacking = append(lacking, w)
				may = without(may, whys)
			}
		}
		if pin < 0 && len(current.Shut) > 0 {
			may = e.open(may, current.Shut)
			if lacking == nil && !slices.ContainsFunc(e.candidates(i), func(n int32) bool { return may[n] }) {
				e.refuse(model.AboutElement, el.Name, "node", "%s is new, and no node that it may be on takes what is "+
					"new", el.Name)
				continue
			}
		}
		switch {
		case may == nil:
			continue
		case pin >= 0 && may[pin]:
			continue // the pin says more
		case pin < 0 && slices.ContainsFunc(e.candidates(i), func(n int32) bool { return may[n] }):
			e.may[i] = may
			continue
		}
		if p := e.refusedWants(i, lacking, wants, j); !told[p.Message] { // both ends of a link
			told[p.Message] = true
			e.problems = append(e.problems, p)
		}
	}
}

// without takes nodes that lack something from those that an element may be on.
func without(may []bool, whys []string) []bool {
	if may == nil {
		may = slices.Repeat([]bool{true}, len(whys))
	}
	for n, why := range whys {
		may[n] = may[n] && why == ""
	}
	return may
}

// open leaves of the nodes that an element may be on those that take something new.
func (e *embedder) open(may []bool, shut map[string]string) []bool {
	if may == nil {
		may = slices.Repeat([]bool{true}, len(e.nodes))
	}
	for n := range e.nodes {
		may[n] = may[n] && shut[e.nodes[n].Name] == ""
	}
	return may
}

// candidates are the nodes that the element may be on whatever they offer.
func (e *embedder) candidates(i int) (nodes []int32) {
	for n := range e.nodes {
		if e.pin[i] == int32(n) || e.pin[i] < 0 && (e.location[i] == "" || e.nodes[n].Location == e.location[i]) {
			nodes = append(nodes, int32(n))
		}
	}
	return nodes
}

// refusedWants tells that an element can be on no node that offers all that is wanted, and what each node lacks. all
// are the wants together with those that every node meets.
func (e *embedder) refusedWants(i int, wants, all []model.Want, j *judge) model.Problem {
	el, pin, nodes := &e.net.Elements[i], e.pin[i], e.candidates(i)
	met := func(w model.Want) bool {
		whys := j.lacks(w)
		return slices.ContainsFunc(nodes, func(n int32) bool { return whys[n] == "" })
	}
	if k := slices.IndexFunc(wants, func(w model.Want) bool { return !met(w) }); k >= 0 {
		wants = wants[k : k+1] // the others may be right
	}
	first, where := wants[0], ""
	var features []string
	for _, w := range wants {
		if f := string(w.Feature); !slices.Contains(features, f) { // two links may ask for it
			features = append(features, f)
		}
	}
	switch {
	case pin >= 0 && e.stays[i]:
		where = fmt.Sprintf("; %s is on %s", el.Name, e.nodes[pin].Name)
	case pin >= 0:
		where = fmt.Sprintf("; %s is pinned to %s", el.Name, e.nodes[pin].Name)
	case e.location[i] != "":
		where = fmt.Sprintf("; %s is pinned to location %s", el.Name, e.location[i])
	}
	lacks := func(n int32) string {
		for _, w := range wants {
			switch whys := j.lacks(w); {
			case whys[n] == "":
			case len(features) == 1:
				return "it: " + whys[n]
			default:
				return string(w.Feature) + ": " + whys[n]
			}
		}
		return ""
	}
	var reasons []string
	for len(nodes) > 0 { // nodes that lack the same for the same reason are told of together
		what, verb := lacks(nodes[0]), "lacks"
		var same []string
		nodes = slices.DeleteFunc(nodes, func(n int32) bool {
			if lacks(n) != what {
				return false
			}
			same = append(same, e.nodes[n].Name)
			return true
		})
		if len(same) > 1 {
			verb = "lack"
		}
		reasons = append(reasons, list(same)+" "+verb+" "+what)
	}
	if pin >= 0 {
		reasons = append(reasons, e.hint(el.Name, all, j)...)
	}
	message := fmt.Sprintf("wants %s%s; %s", strings.Join(features, " and "), where, strings.Join(reasons, "; "))
	if first.About == model.AboutElement {
		return problem(first.About, first.Name, first.Feature.Field(), "%s %s %s", el.Kind, el.Name, message)
	}
	return problem(first.About, first.Name, first.Feature.Field(), "%s %s %s", first.About, first.Name, message)
}

// hint names nodes that an element could be pinned to instead.
func (e *embedder) hint(element string, wants []model.Want, j *judge) []string {
	var others []string
	for n := range e.nodes {
		_, told := j.offers[e.nodes[n].Name]
		if told && !slices.ContainsFunc(wants,
			func(w model.Want) bool { whys := j.lacks(w); return whys != nil && whys[n] != "" }) {
			others = append(others, e.nodes[n].Name)
		}
	}
	switch len(others) {
	case 0:
		return nil
	case 1:
		return []string{fmt.Sprintf("%s has it: pin %s to it (node:)", others[0], element)}
	}
	return []string{fmt.Sprintf("%s have it: pin %s to one of them (node:)", list(others), element)}
}

// both are the nodes that two groups may be on together. ok is false where there is none.
func (e *embedder) both(a, b int32) (may []bool, ok bool) {
	if may = e.may[a]; may == nil {
		may = e.may[b]
	} else if e.may[b] != nil {
		may = slices.Clone(may)
		for n := range may {
			may[n] = may[n] && e.may[b][n]
		}
	}
	pin := max(e.pin[a], e.pin[b])
	return may, may == nil || pin < 0 && slices.Contains(may, true) || pin >= 0 && may[pin]
}

// turns groups the units that may be on the same nodes. Those with the fewest nodes come first, since the others can go
// elsewhere.
func (e *embedder) turns(units []unit, free []int32) (groups [][]int32) {
	key := func(u int32) (few int, nodes string) {
		if units[u].may == nil {
			return len(e.nodes), ""
		}
		var b strings.Builder
		for n, may := range units[u].may {
			if may {
				few++
				fmt.Fprintf(&b, "%d ", n)
			}
		}
		return few, b.String()
	}
	of := map[string][]int32{}
	size := map[string]int{}
	var keys []string
	for _, u := range free {
		few, nodes := key(u)
		if of[nodes] == nil {
			keys = append(keys, nodes)
		}
		of[nodes], size[nodes] = append(of[nodes], u), few
	}
	slices.SortFunc(keys, func(a, b string) int { return cmp.Or(cmp.Compare(size[a], size[b]), cmp.Compare(a, b)) })
	for turn, k := range keys {
		for _, u := range of[k] {
			units[u].turn = turn
		}
		groups = append(groups, of[k])
	}
	return groups
}
