package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
	"github.com/polyplane/polyplane/server/api/client"
)

// Trash is what removed elements owned on disk, the oldest first. An owner sees what was the owner's.
func (a agents) Trash(ctx context.Context) (list model.TrashList, err error) {
	only := api.Only(ctx)
	var mu sync.Mutex
	silent := a.ask(ctx, func(ctx context.Context, node string, agent *client.Client) error {
		own, err := agent.Trash(ctx)
		mu.Lock()
		defer mu.Unlock()
		for _, i := range own.Items {
			if !listable(i) {
				continue
			}
			if checkOwner(i.Owner) != nil || len(i.Owner) > model.MaxOwnerNoted {
				i.Owner = ""
			}
			if only != "" && i.Owner != only {
				continue
			}
			i.Node = node
			list.Items = append(list.Items, i)
		}
		return err
	})
	for _, node := range slices.Sorted(maps.Keys(silent)) {
		list.Silent = append(list.Silent, node+": "+silent[node])
	}
	slices.SortFunc(list.Items,
		func(a, b model.TrashItem) int { return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.ID, b.ID)) })
	return list, nil
}

// listable tells whether an item is one that nodes have: what a node says is shown to people, and compared with what
// they name.
func listable(i model.TrashItem) bool {
	at, found := strings.CutPrefix(i.ID, i.Element.String()+"@")
	return found && model.CheckName(i.Element.Network) == nil && model.CheckName(i.Element.Element) == nil &&
		at != "" && len(at) <= maxToldName && !strings.ContainsFunc(at,
		func(r rune) bool { return (r < '0' || r > '9') && r != 'T' && r != 'Z' && r != '.' })
}

// RestoreTrash gives disks out of the trash back to elements of their names. Whether the element is of whose the item
// was, its node finds out, which knows both. Agents of before do not look; they do not tell whose an item was either,
// so that nobody gets it without being said that it may be anybody's.
func (a agents) RestoreTrash(ctx context.Context, request model.TrashRequest) error {
	if len(request.Items) == 0 {
		return api.Invalid("say which items of the trash are to be restored")
	}
	if only := api.Only(ctx); only != "" && request.AnyOwner {
		return api.Forbidden("user %s is an owner and may not get what was somebody else's: an admin may", only)
	}
	into := map[string]model.ID{} // read by all nodes once it is whole
	return a.changeTrash(ctx, request.Items, func(i model.TrashItem) error {
		if to := a.gets(i); to != i.Element {
			into[i.ID] = to
		}
		if i.Owner == "" && !request.AnyOwner {
			return api.Conflict("nobody noted whose %s was: look at what it is, and at whose network %s is now, and "+
				"say `polyplane trash restore --any-owner` if that may have it", i.ID, i.Element.Network)
		}
		return nil
	}, func(agent *client.Client, ctx context.Context, items []string) error {
		order := model.TrashOrder{TrashRequest: model.TrashRequest{Items: items, AnyOwner: request.AnyOwner}}
		for _, item := range items {
			if to, other := into[item]; other {
				if order.Into == nil {
					order.Into = map[string]model.ID{}
				}
				order.Into[item] = to
			}
		}
		return agent.OrderTrash(ctx, order)
	})
}

// heir is the element that an item of the trash goes back to: the one of its name; or, if that has no network any more,
// the one of the network that the item's owner calls so now. Owners' networks had their titles for keys before names
// were owners' own, and have other keys when they are made anew.
func (k *known) heir(i model.TrashItem) model.ID {
	k.mu.RLock()
	defer k.mu.RUnlock()
	key := i.Element.Network
	if k.networks[key] != nil || i.Owner == "" {
		return i.Element
	}
	title := key
	if is := k.nameOf(key); is.Owner == i.Owner {
		title = is.Title
	}
	for key, n := range k.networks {
		if n.damaged == nil && n.record.WhoseItIs() == i.Owner && n.record.Network.Called() == title {
			return model.ID{Network: key, Element: i.Element.Element}
		}
	}
	return i.Element
}

// EmptyTrash deletes items of the trash; all, where none is named.
func (a agents) EmptyTrash(ctx context.Context, items []string) error {
	return a.changeTrash(ctx, items, func(model.TrashItem) error { return nil }, (*client.Client).EmptyTrash)
}

// changeTrash has each node do something with its items. Nothing is done if one of them is not there, or not allowed.
func (a agents) changeTrash(ctx context.Context, items []string, allowed func(model.TrashItem) error,
	change func(*client.Client, context.Context, []string) error) error {
	list, err := a.Trash(ctx)
	if err != nil {
		return err
	}
	of := map[string][]string{} // by node
	for _, i := range list.Items {
		if len(items) == 0 || slices.Contains(items, i.ID) {
			if err := allowed(i); err != nil {
				return err
			}
			of[i.Node] = append(of[i.Node], i.ID)
		}
	}
	for _, item := range items {
		if !slices.ContainsFunc(list.Items, func(i model.TrashItem) bool { return i.ID == item }) {
			return api.NotFound("there is no %s in the trash of the nodes that answer; `polyplane trash list` tells "+
				"what there is", item)
		}
	}
	var mu sync.Mutex
	var errs []error
	a.ask(ctx, func(ctx context.Context, node string, agent *client.Client) error {
		if len(of[node]) == 0 {
			return nil
		}
		err := change(agent, ctx, of[node])
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, fmt.Errorf("node %s: %s", node, reasonOf(err.Error())))
		}
		return err
	})
	if err := errors.Join(errs...); err != nil {
		return api.Conflict("%v", err)
	}
	return nil
}
