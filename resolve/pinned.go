package resolve

import (
	"slices"

	"github.com/polyplane/polyplane/model"
)

// Pinned is a record's document with which a new network has the addresses that this one has. Addresses that were
// chosen stand in it only if others would be chosen now: links come and go, and those that stay keep theirs. differ
// names the elements that would have others nevertheless.
func Pinned(record model.Record) (net model.Network, differ []string, err error) {
	is, _, err := Known(record.Network).Resolve(record.Assigned, NewNumbers(record.Assigned))
	if err != nil {
		return record.Network, nil, err
	}
	others := func(n model.Network) ([]string, error) {
		would, _, err := Known(n).Resolve(model.Assigned{}, NewNumbers())
		if err != nil {
			return nil, err
		}
		var names []string
		for i := range is.Elements {
			if !sameAddresses(&is.Elements[i], &would.Elements[i]) {
				names = append(names, is.Elements[i].Name)
			}
		}
		return names, nil
	}
	if differ, err = others(record.Network); err == nil && len(differ) == 0 {
		return record.Network, nil, nil
	}
	net = record.Network
	net.Elements = slices.Clone(net.Elements)
	for i := range net.Elements {
		e, now := &net.Elements[i], &is.Elements[i]
		e.Interfaces = slices.Clone(e.Interfaces)
		for k := range e.Interfaces {
			if f := &now.Interfaces[k]; !f.Internet { // an edge has a subnet of its own
				e.Interfaces[k].Addresses = f.Addresses
			}
		}
		if e.Kind == model.Router {
			e.Loopback, e.RouterID = now.Loopback, now.RouterID
		}
	}
	differ, err = others(net)
	return net, differ, err
}

// sameAddresses tells whether two elements have the same addresses and the same router ID.
func sameAddresses(a, b *model.ResolvedElement) bool {
	return a.RouterID == b.RouterID && slices.Equal(a.Loopback, b.Loopback) &&
		slices.EqualFunc(a.Interfaces, b.Interfaces, func(f, g model.ResolvedInterface) bool {
			return slices.Equal(f.Addresses, g.Addresses)
		})
}
