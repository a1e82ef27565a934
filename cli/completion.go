package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
)

// completionPatience is how long a completion waits for the instance: pressing a key must never hang the shell.
const completionPatience = 500 * time.Millisecond

// completer offers names for what was typed so far. It offers nothing if the instance does not answer.
type completer func(ctx context.Context, cl Client, typed string) ([]string, cobra.ShellCompDirective)

func (c *CLI) completeNetworks(ctx context.Context, cl Client, typed string) ([]string, cobra.ShellCompDirective) {
	networks, err := cl.Networks(ctx)
	return offer(each.Of(networks, func(n model.NetworkStatus) string { return n.Name }), err, typed)
}

// within is the network in which what was typed so far is an object; empty while no network is whole.
func within(ctx context.Context, cl Client, typed string) string {
	networks, err := cl.Networks(ctx)
	if err != nil {
		return ""
	}
	best := ""
	for _, n := range networks {
		if strings.HasPrefix(typed, n.Name+"/") && len(n.Name) > len(best) {
			best = n.Name
		}
	}
	return best
}

// completeElements offers networks first and, once one is typed, its elements.
func (c *CLI) completeElements(ctx context.Context, cl Client, typed string) ([]string, cobra.ShellCompDirective) {
	network := within(ctx, cl, typed)
	more, directive := c.completeNetworks(ctx, cl, typed)
	for i := range more {
		more[i] += "/"
	}
	if network == "" {
		return more, directive | cobra.ShellCompDirectiveNoSpace
	}
	elements, err := cl.Elements(ctx, network)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names := each.Of(elements, func(e model.ElementView) string { return e.ID.String() })
	if len(more) > 0 { // an owner has the same name as this network
		directive |= cobra.ShellCompDirectiveNoSpace
	}
	return append(matching(names, typed), more...), directive
}

// completePorts offers networks, then elements, then interfaces.
func (c *CLI) completePorts(ctx context.Context, cl Client, typed string) ([]string, cobra.ShellCompDirective) {
	before, _, inside := strings.Cut(typed, ":")
	if !inside {
		names, directive := c.completeElements(ctx, cl, typed)
		for i := range names {
			if !strings.HasSuffix(names[i], "/") {
				names[i] += ":"
			}
			directive |= cobra.ShellCompDirectiveNoSpace
		}
		return names, directive
	}
	r, err := c.refs(ctx).elementOrPort(before)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	elements, err := cl.Elements(ctx, r.network)
	var names []string
	for _, e := range elements {
		if e.ID == r.id() {
			for _, i := range e.Element.Interfaces {
				names = append(names, before+":"+i.Name)
			}
		}
	}
	return offer(names, err, typed)
}

// completeNodes offers node/NAME.
func (c *CLI) completeNodes(ctx context.Context, cl Client, typed string) ([]string, cobra.ShellCompDirective) {
	nodes, err := cl.Nodes(ctx)
	return offer(each.Of(nodes, func(n model.NodeStatus) string { return nodeWord + "/" + n.Name }), err, typed)
}

// completeJoined offers the nodes that joined.
func (c *CLI) completeJoined(ctx context.Context, cl Client, typed string) ([]string, cobra.ShellCompDirective) {
	nodes, err := cl.Nodes(ctx)
	joined := each.That(nodes, func(n model.NodeStatus) bool { return n.Joined })
	return offer(each.Of(joined, func(n model.NodeStatus) string { return n.Name }), err, typed)
}

// completeFirst completes the first argument from several completers together.
func (c *CLI) completeFirst(completers ...completer) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return c.complete(cmd, typed, completers...)
	}
}

// completeEvery completes every argument, without those given before.
func (c *CLI) completeEvery(completers ...completer) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		names, directive := c.complete(cmd, typed, completers...)
		return slices.DeleteFunc(names, func(n string) bool { return slices.Contains(args, n) }), directive
	}
}

// complete asks several completers, and offers together what they know. All of them together may take no longer than a
// person waits for a key.
func (c *CLI) complete(cmd *cobra.Command, typed string, completers ...completer) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionPatience)
	defer cancel()
	cl, err := c.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var all []string
	directive := cobra.ShellCompDirectiveNoFileComp
	for _, f := range completers {
		names, d := f(ctx, cl, typed)
		all = append(all, names...)
		if len(names) > 0 {
			directive |= d
		}
	}
	slices.Sort(all)
	return slices.Compact(all), directive
}

// offer returns the names that begin with what was typed. If they could not be had, it offers nothing: no key that
// somebody presses may print an error.
func offer(names []string, err error, typed string) ([]string, cobra.ShellCompDirective) {
	if err != nil {
		names = nil
	}
	return matching(names, typed), cobra.ShellCompDirectiveNoFileComp
}

func matching(names []string, typed string) []string {
	return each.That(names, func(n string) bool { return strings.HasPrefix(n, typed) })
}
