// Package plan says what changes from one description of a virtual network to another, in order and in words. It is
// pure.
package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
)

// Action is what happens to an object.
type Action string

const (
	Create Action = "create"
	Modify Action = "change"
	Delete Action = "delete"
)

// Change is what happens to one object.
type Change struct {
	Action Action `json:"action"`
	// Kind is what the object is ("network", "router", "host", "switch", "interface", "link", "edge", "expectation");
	// Object is its name, "element:interface" for an interface.
	Kind   string `json:"kind"`
	Object string `json:"object"`
	// Details are the fields: all that are set when the object is created, those that differ when it changes.
	Details []Detail `json:"details,omitempty"`
	// Effect says in words what running traffic notices; "in place" means nothing. Disturbs tells whether it notices
	// anything.
	Effect   string `json:"effect,omitempty"`
	Disturbs bool   `json:"disturbs,omitempty"`
}

// Detail is one field; Old is empty for a field that was not set, New for one that no longer is.
type Detail struct {
	Field string `json:"field"` // as the model's JSON names it, "routing.ospf.cost"
	Old   string `json:"old,omitempty"`
	New   string `json:"new,omitempty"`
}

func (d Detail) String() string {
	const unset = "unset"
	return visible(fmt.Sprintf("%s: %s → %s", d.Field, cmp.Or(d.Old, unset), cmp.Or(d.New, unset)))
}

// visible keeps values, which are somebody else's, in one line and from controlling a terminal.
func visible(s string) string { return model.Printable(s, "") }

// Changes are in an order in which they can be read and made: first what goes, from the links to the elements; then
// what changes; then what comes, from the elements to the links. So a link that goes frees its name and interfaces for
// one that comes.
type Changes []Change

// inPlace is the effect of changes that no packet notices.
const inPlace = "in place"

// Diff says what changes from old to new. Either may be empty (the zero Network); then everything is created or
// deleted. It leaves out what follows from the rest of the document, such as an interface's link and far end.
func Diff(old, new model.Network) Changes {
	var gone, changed, come Changes
	emit := func(c Change) {
		switch c.Action {
		case Delete:
			gone = append(gone, c)
		case Modify:
			changed = append(changed, c)
		default:
			come = append(come, c)
		}
	}
	if old.Name != "" && new.Name != "" {
		if d := fields(old, new); len(d) > 0 {
			emit(networkChange(new.Name, d))
		}
	}
	diffElements(old, new, emit)
	diffNamed(old.Links, new.Links, linkRules, emit)
	diffNamed(old.Edges, new.Edges, edgeRules, emit)
	diffExpectations(old.Expect, new.Expect, emit)

	order := func(c Change) int {
		return slices.Index([]string{"network", "router", "host", "switch", "interface", "link", "edge",
			"expectation"}, c.Kind)
	}
	slices.SortStableFunc(gone, func(a, b Change) int { return order(b) - order(a) })
	slices.SortStableFunc(changed, func(a, b Change) int { return order(a) - order(b) })
	slices.SortStableFunc(come, func(a, b Change) int { return order(a) - order(b) })
	return slices.Concat(gone, changed, come)
}

func networkChange(name string, details []Detail) Change {
	c := Change{Action: Modify, Kind: "network", Object: name, Details: details, Effect: inPlace}
	for _, d := range details {
		if d.Field == "name" {
			c.Effect, c.Disturbs = "is another network", true
		}
	}
	return c
}

// rules say how objects that have names are compared.
type rules[T any] struct {
	kind string
	name func(T) string
	// anew tells that an object of the same name is a different one: the old one goes, the new one comes.
	anew   func(old, new T) bool
	remove string
	change func(new T, details []Detail) (effect string, disturbs bool)
}

var linkRules = rules[model.Link]{
	kind: "link", name: func(l model.Link) string { return l.Name },
	anew:   func(a, b model.Link) bool { return a.Ends != b.Ends },
	remove: "cuts what goes over it",
	change: func(l model.Link, details []Detail) (string, bool) {
		for _, d := range details {
			switch {
			case d.Field == "prefixes" || d.Field == "addressing":
				return "renumbers its interfaces", true
			case d.Field == "vlan" || d.Field == "vlans":
				return "moves its ends to other VLANs", true
			case d.Field == "bfd":
				return "its routers load it; FRR is restarted where it begins or ends with BFD", true
			case d.Field == "state" && l.State == model.LinkDown:
				return "its ends lose their carrier, and nothing passes", true
			}
		}
		return inPlace, false
	},
}

var edgeRules = rules[model.Edge]{
	kind: "edge", name: func(e model.Edge) string { return e.Name },
	anew:   func(a, b model.Edge) bool { return a.End != b.End },
	remove: "cuts what goes over it",
	change: func(e model.Edge, details []Detail) (string, bool) {
		for _, d := range details {
			if d.Field == "internet.unannounced" {
				return "reloads " + e.End.Element, true
			}
			if d.Field != "internet.forwards" && d.Field != "trunk" && !strings.HasPrefix(d.Field, "mirror.") {
				return "plugs into another device", true
			}
		}
		return inPlace, false
	},
}

// diffNamed compares objects by name.
func diffNamed[T any](old, new []T, r rules[T], emit func(Change)) {
	before := each.By(old, r.name)
	after := make(map[string]bool, len(new))
	create := func(n T) {
		emit(Change{Action: Create, Kind: r.kind, Object: r.name(n), Details: set(n), Effect: inPlace})
	}
	remove := func(o T) {
		emit(Change{Action: Delete, Kind: r.kind, Object: r.name(o), Effect: r.remove, Disturbs: true})
	}
	for _, n := range new {
		name := r.name(n)
		after[name] = true
		o, was := before[name]
		switch {
		case !was:
			create(n)
		case r.anew(o, n):
			remove(o)
			create(n)
		default:
			if d := fields(o, n); len(d) > 0 {
				c := Change{Action: Modify, Kind: r.kind, Object: name, Details: d}
				c.Effect, c.Disturbs = r.change(n, d)
				emit(c)
			}
		}
	}
	for _, o := range old {
		if !after[r.name(o)] {
			remove(o)
		}
	}
}

// diffExpectations compares expectations. They have no names, so each is identified by what it says.
func diffExpectations(old, new []model.Expectation, emit func(Change)) {
	count := map[model.Expectation]int{}
	for _, e := range old {
		count[e]++
	}
	for _, e := range new {
		if count[e]--; count[e] < 0 {
			emit(Change{Action: Create, Kind: "expectation", Object: e.String(), Effect: inPlace})
		}
	}
	for _, e := range old {
		if count[e] > 0 {
			count[e]--
			emit(Change{Action: Delete, Kind: "expectation", Object: e.String(), Effect: inPlace})
		}
	}
}

// Count tells how many objects are created, changed and deleted.
func (cs Changes) Count() (create, change, remove int) {
	for _, c := range cs {
		switch c.Action {
		case Create:
			create++
		case Modify:
			change++
		default:
			remove++
		}
	}
	return create, change, remove
}

// Summary is one line: "3 to create, 1 to change, 0 to delete".
func (cs Changes) Summary() string {
	create, change, remove := cs.Count()
	return fmt.Sprintf("%d to create, %d to change, %d to delete", create, change, remove)
}

// The terminal's colours of the actions (ECMA-48 SGR).
const (
	green, yellow, red, plain = "\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[0m"
)

// Format writes the changes for people: a line for each change and each field that differs, with its effect if there is
// one, and the summary last.
func (cs Changes) Format(colour bool) string {
	var b strings.Builder
	for _, c := range cs {
		mark, paint := "+", green
		switch c.Action {
		case Modify:
			mark, paint = "~", yellow
		case Delete:
			mark, paint = "-", red
		}
		for _, line := range c.lines() {
			line = visible(line)
			if colour {
				fmt.Fprintf(&b, "%s%s%s %s\n", paint, mark, plain, line)
			} else {
				fmt.Fprintf(&b, "%s %s\n", mark, line)
			}
		}
	}
	b.WriteString(cs.Summary())
	b.WriteByte('\n')
	return b.String()
}

func (c Change) lines() []string {
	effect := ""
	if c.Effect != "" && (c.Disturbs || c.Action == Modify) {
		effect = "  (" + c.Effect + ")"
	}
	switch c.Action {
	case Modify:
		var out []string
		for _, d := range c.Details {
			prefix := c.Object + "."
			if c.Kind == "link" || c.Kind == "edge" || c.Kind == "network" {
				prefix = c.Kind + " " + prefix
			}
			out = append(out, prefix+d.String()+effect)
		}
		return out
	case Create:
		set := each.Of(c.Details, func(d Detail) string { return d.Field + " " + d.New })
		line := c.Kind + " " + c.Object
		if len(set) > 0 {
			line += ": " + strings.Join(set, ", ")
		}
		return []string{line + effect}
	}
	return []string{c.Kind + " " + c.Object + effect}
}
