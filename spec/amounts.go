package spec

import (
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/spec/internal/form"
)

// checkZeros refuses amounts of nothing where a reader could only take them for "no limit" or the default. To leave
// them out says the same. Where defaults state an amount, a zero takes it back.
func (b *builder) checkZeros() {
	d := &b.form.Defaults
	whole := place{node: b.form.Node}
	if s := b.form.Slice; s != nil {
		checkNothings(b, whole, []string{"slice"}, "slice", &s.Said, &form.Said[model.Slice]{}, "")
	}
	if p := b.form.Placement; p != nil {
		checkNothings(b, whole, []string{"placement"}, "placement", &p.Said, &form.Said[model.Placing]{}, "")
	}
	var none form.Said[model.Amounts]
	checkNothings(b, whole, []string{"defaults", "routers"}, "defaults: routers", &d.Routers.Said, &none, "")
	checkNothings(b, whole, []string{"defaults", "hosts"}, "defaults: hosts", &d.Hosts.Said, &none, "")
	checkNothings(b, whole, []string{"defaults", "switches"}, "defaults: switches", &d.Switches.Said, &none, "")
	checkNothings(b, whole, []string{"defaults", "links"}, "defaults: links", &d.Links.Said, &form.Said[model.Link]{},
		"")
	for i := range b.form.Routers {
		item := &b.form.Routers[i]
		checkNothings(b, place{item.Key, item.Node, item.Said}, nil, "router "+item.Name, &item.Value.Said,
			&d.Routers.Said, "routers")
	}
	for i := range b.form.Hosts {
		item := &b.form.Hosts[i]
		checkNothings(b, place{item.Key, item.Node, item.Said}, nil, "host "+item.Name, &item.Value.Said,
			&d.Hosts.Said, "hosts")
	}
	for i := range b.form.Switches {
		item := &b.form.Switches[i]
		checkNothings(b, place{item.Key, item.Node, item.Said}, nil, "switch "+item.Name, &item.Value.Said,
			&d.Switches.Said, "switches")
	}
	for i := range b.form.Links {
		checkNothings(b, b.links[i], nil, "link "+b.net.Links[i].Name, &b.form.Links[i].Value.Said, &d.Links.Said,
			"links")
	}
}

// checkNothings checks one mapping, at a path below the document or below an object's place in its section.
func checkNothings[T interface{ Keys() []model.Key[T] }](b *builder, at place, path []string, who string,
	said, defaults *form.Said[T], section string) {
	said.Nothings(defaults, func(key, why string) {
		if section != "" && b.blanks.has("defaults", section, key) {
			return // it may take something back
		}
		blank := append(path[:len(path):len(path)], key)
		if section != "" {
			blank = []string{section, at.path, key}
		}
		b.failAt(locateIn(at, append(path[:len(path):len(path)], key)),
			"%s: %s 0 %s; leave the key out for the default", who, key, why)
		b.blanks.add(blank...)
	})
}
