package spec

import (
	"slices"
	"strconv"
	"strings"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/spec/internal/form"
)

const faultHelp = "a fault has a time and one of stop, start, restart and set, like {at: 30s, stop: r1 -- r2}"

// faults reads the schedule of faults. Links are named by their ends there, or by their names.
func (b *builder) faults() {
	for i := range b.form.Faults {
		f := &b.form.Faults[i]
		fault := model.Fault{At: f.At}
		if slices.ContainsFunc([]string{"stop", "start", "restart", "set"}, func(key string) bool {
			return b.blanks.has("faults", strconv.Itoa(i), key)
		}) {
			continue // what it is of is not known
		}
		said, known := 0, true
		for _, s := range []struct {
			action model.Action
			object string
		}{{model.ActionStop, f.Stop}, {model.ActionStart, f.Start}, {model.ActionRestart, f.Restart},
			{model.ActionSet, f.Set}} {
			if s.object != "" {
				said++
				fault.Action = s.action
				if fault.Object = b.linkNamed(s.object, f); fault.Object == "" {
					known = false
				}
			}
		}
		f.Said.Each(func(key, value string) {
			fault.Values = append(fault.Values, model.Assignment{Key: key, Value: value})
		})
		if said != 1 {
			b.failAt(tokenOf(f.Node), "faults: it says %s of these; %s",
				[]string{"none", "one", "two", "three", "all"}[said], faultHelp)
			continue
		}
		if !known {
			continue
		}
		b.net.Faults = append(b.net.Faults, fault)
		b.faultsAt = append(b.faultsAt, strconv.Itoa(i))
	}
}

// linkNamed is the name of the link between two ends, or nothing if there is none. Any other text is a name already.
func (b *builder) linkNamed(text string, f *form.Fault) string {
	words := strings.Fields(text)
	if len(words) != 3 || words[1] != "--" {
		return text
	}
	var ends [2]model.End
	for k := range ends {
		ends[k].Element, ends[k].Interface = cutEnd(words[2*k])
	}
	is := func(e, said model.End) bool {
		return e.Element == said.Element && (said.Interface == "" || e.Interface == said.Interface)
	}
	var names []string
	for i := range b.net.Links {
		l := &b.net.Links[i]
		if is(l.Ends[0], ends[0]) && is(l.Ends[1], ends[1]) || is(l.Ends[0], ends[1]) && is(l.Ends[1], ends[0]) {
			names = append(names, l.Name)
		}
	}
	switch {
	case len(names) == 1:
		return names[0]
	case len(names) == 0 && b.blanks.links.Has(ends[0].Element) && b.blanks.links.Has(ends[1].Element):
	case len(names) == 0:
		b.failAt(tokenOf(f.Node), "faults: there is no link %s", strings.Join(words, " "))
	default:
		b.failAt(tokenOf(f.Node), "faults: there are %d links %s; name one of %s", len(names), strings.Join(words, " "),
			strings.Join(names[:min(len(names), model.MostNamed)], ", "))
	}
	return ""
}

// putFaults writes the schedule of faults.
func putFaults(doc *yamlNode, faults []model.Fault) {
	all := yamlNode{kind: yamlList, wide: true}
	for _, f := range faults {
		n := yamlNode{}
		n.put("at", num(f.At))
		n.set(string(f.Action), f.Object)
		for _, v := range f.Values {
			n.put(v.Key, raw(v.Value))
		}
		all.list = append(all.list, n)
	}
	if len(all.list) > 0 {
		doc.put("faults", all)
	}
}
