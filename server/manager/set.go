package manager

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/admission"
	"github.com/polyplane/polyplane/server/api"
)

// maxValues is how many fields one request sets.
const maxValues = 64

// Set changes fields of a network, or of one element or link of it, as an apply of a document that says so would: all
// of them, or none with all reasons. They stay until they are set again or a document names them.
func (m *Manager) Set(ctx context.Context, name string, request model.SetRequest) (result model.SetResult, err error) {
	if onlyStops(request.Values) {
		ctx = urgently(ctx)
	}
	if len(request.Values) > maxValues {
		return result, api.Invalid(fmt.Sprintf("%d values are too many for one request; %d are allowed",
			len(request.Values), maxValues))
	}
	var others []model.Record
	var marks model.Settings
	var d *admission.Draft
	look := func() ([]*network, error) {
		old, err := m.alive(ctx, name)
		return []*network{old}, err
	}
	settled, err := m.settle(ctx, look, func(olds []*network) (err error) {
		old := olds[0]
		var doc model.Network
		var problems []error
		doc, marks, problems = model.Assign(old.record.Network, old.record.Set, request.Object, request.Values)
		switch {
		case len(problems) > 0 && errors.Is(problems[0], model.ErrNoObject):
			return api.NotFound("%v", problems[0])
		case len(problems) > 0:
			return api.Invalid(fmt.Sprintf("%s is not changed", objectName(name, request.Object)), problems...)
		case len(request.Values) == 0:
			return api.Invalid("nothing is to be set; key=value was expected")
		}
		// What is set is what is wanted, not what the document leaves out.
		blank := *old
		blank.record.Set = model.Settings{}
		d, err = draw(doc, &blank, "")
		return problemOf(err)
	})
	if err != nil {
		return result, err
	}
	defer m.changing.Unlock()
	old := settled[0]
	if _, others, err = m.situations([]model.Document{{Network: d.Network()}}); err != nil {
		return result, err
	}
	next, resolved, err := m.workOut(d, others, api.Only(ctx) != "", request.LoseFiles)
	if err != nil {
		return result, err
	}
	next.Set = marks
	if is := next.NetworkName(); is.Owner != old.record.WhoseItIs() {
		if err := m.checkTitle(is); err != nil {
			return result, err
		}
		if err := m.images.inherit(&old.record, &next); err != nil {
			return result, err
		}
	}
	result = model.SetResult{Record: next, Before: old.record, Changed: !same(old.record, next)}
	if !result.Changed && equalSettings(marks, old.record.Set) {
		result.Record = old.record
		return result, nil
	}
	words := each.Of(request.Values, func(v model.Assignment) string { return v.Key + "=" + v.Value })
	change := &change{record: next, resolved: resolved, reason: "NetworkSet",
		message: fmt.Sprintf("revision %d: %s was set: %s", next.Revision, objectName(name, request.Object),
			strings.Join(words, " "))}
	if err := m.commit(ctx, change); err != nil {
		return model.SetResult{}, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	result.Nodes = map[string]int64{}
	for node, p := range m.networks[name].parts {
		if was, ok := old.parts[node]; m.nodes[node] != nil && (!ok || was.revision != p.revision) {
			result.Nodes[node] = p.revision
		}
	}
	return result, nil
}

// onlyStops tells of a request that stops links, or says what is done to elements that attack, and does nothing else.
func onlyStops(values []model.Assignment) bool {
	return !slices.ContainsFunc(values, func(v model.Assignment) bool {
		return v.Key != "attack" && (v.Key != "state" || v.Value != string(model.LinkDown))
	})
}

// equalSettings tells whether the same fields were set.
func equalSettings(a, b model.Settings) bool {
	return slices.Equal(a.Network, b.Network) && reflect.DeepEqual(a.Elements, b.Elements) &&
		reflect.DeepEqual(a.Links, b.Links)
}

func objectName(network, object string) string {
	if object == "" {
		return "network " + network
	}
	return network + "/" + object
}
