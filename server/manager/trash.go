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

// askAgents calls the agents of all nodes that are there, all at once. Silent tells which could not be asked, and why.
func (m *Manager) askAgents(ctx context.Context, call func(ctx context.Context, node string,
	agent *client.Client) error) (silent map[string]string) {
	ctx, cancel := context.WithTimeout(ctx, keptWithin)
	defer cancel()
	dials := map[string]api.Dial{}
	silent = map[string]string{}
	m.mu.RLock()
	for name, n := range m.nodes {
		if n.watches == 0 {
			silent[name] = "its agent is away"
			continue
		}
		dials[name] = n.dial()
	}
	m.mu.RUnlock()
	var mu sync.Mutex
	each(dials, func(name string, dial api.Dial) {
		agent := client.NewAgent(dial, name)
		defer agent.Close()
		if err := call(ctx, name, agent); err != nil {
			mu.Lock()
			defer mu.Unlock()
			silent[name] = reasonOf(err.Error()) // in it may be the agent's own words
		}
	})
	return silent
}

// Trash is what removed elements owned on disk, the oldest first.
func (m *Manager) Trash(ctx context.Context) (list model.TrashList, err error) {
	var mu sync.Mutex
	silent := m.askAgents(ctx, func(ctx context.Context, node string, agent *client.Client) error {
		own, err := agent.Trash(ctx)
		mu.Lock()
		defer mu.Unlock()
		for _, i := range own.Items {
			if !listable(i) {
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

// RestoreTrash gives disks out of the trash back to elements of their names.
func (m *Manager) RestoreTrash(ctx context.Context, items []string) error {
	if len(items) == 0 {
		return api.Invalid("say which items of the trash are to be restored")
	}
	return m.changeTrash(ctx, items, (*client.Client).RestoreTrash)
}

// EmptyTrash deletes items of the trash; all, where none is named.
func (m *Manager) EmptyTrash(ctx context.Context, items []string) error {
	return m.changeTrash(ctx, items, (*client.Client).EmptyTrash)
}

func (m *Manager) changeTrash(ctx context.Context, items []string, change func(*client.Client, context.Context,
	[]string) error) error {
	list, err := m.Trash(ctx)
	if err != nil {
		return err
	}
	of := map[string][]string{} // by node
	for _, i := range list.Items {
		if len(items) == 0 || slices.Contains(items, i.ID) {
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
	m.askAgents(ctx, func(ctx context.Context, node string, agent *client.Client) error {
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
