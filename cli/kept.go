package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
)

// shownKept is how many elements are named that keep what was edited inside them.
const shownKept = 20

// keptConfigurations says which elements go on with a configuration of their own although the network's has changed,
// and what to do about it. Otherwise the user would think that the change is in force. Only the nodes know this, and
// only once they have the change, so it is asked after the wait. concerned picks the elements.
func (c *CLI) keptConfigurations(ctx context.Context, cl Client, network string, concerned func(string) bool) error {
	elements, err := cl.Elements(ctx, network)
	if err != nil {
		return err
	}
	// What a router that runs has to say is that it keeps its own configuration.
	kept := each.That(elements, func(e model.ElementView) bool {
		return e.Phase == model.PhaseRunning && e.Message != "" && e.LastTold == 0 && concerned(e.ID.Element)
	})
	left := max(0, len(kept)-shownKept)
	for _, e := range kept[:len(kept)-left] {
		if _, err := fmt.Fprintf(c.Out, "note: %s %s\n", e.ID, c.told(e.Message)); err != nil {
			return err
		}
	}
	if left > 0 {
		_, err = fmt.Fprintf(c.Out, "note: %d more of %s keep their own configuration; %s shows them\n", left, network,
			c.hinted("`polyplane get elements "+network+" -o wide`"))
	}
	return err
}

// keptByApply does this for all networks that an apply has changed. New ones have no configuration of their own yet.
func (c *CLI) keptByApply(ctx context.Context, cl Client, planned []model.ApplyResult) error {
	for _, p := range planned {
		if !p.Changed || p.Before == nil {
			continue
		}
		all := func(string) bool { return true }
		if err := c.keptConfigurations(ctx, cl, p.Record.Network.Name, all); err != nil {
			return err
		}
	}
	return nil
}

// keptBySet does this for the element that was set, or for the two elements of the link that was set.
func (c *CLI) keptBySet(ctx context.Context, cl Client, of ref, net *model.Network) error {
	names := []string{of.element}
	for _, l := range net.Links {
		if l.Name == of.element {
			names = append(names, l.Ends[0].Element, l.Ends[1].Element)
		}
	}
	return c.keptConfigurations(ctx, cl, of.network, func(name string) bool { return slices.Contains(names, name) })
}
