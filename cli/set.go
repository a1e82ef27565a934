package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/plan"
	"github.com/polyplane/polyplane/server/api/client"
)

func (c *CLI) setCommand() *cobra.Command {
	wait, timeout, loseFiles := true, 60*time.Second, false
	var o output
	cmd := &cobra.Command{
		Use:     "set NET[/ELEMENT|/LINK] KEY=VALUE…",
		Short:   "Change a running network, element or link",
		GroupID: groupNetworks,
		Long: `Change fields of a running network, of one element or of one link at once. If one is refused, none is
changed. Values are written and checked as in files; KEY= goes back to the default.

  a network (its slice):  ` + strings.Join(model.SettingsOfNetwork(), " ") + `
  an element:             ` + strings.Join(model.SettingsOfElement(), " ") + `
  a link:                 ` + strings.Join(model.SettingsOfLink(), " ") + `

save prints what is set. It stays until somebody applies a file that names the field: then the field is
as that file says.`,
		Example: "  polyplane set lab/r1 cpu=0.5 memory=512MiB\n  polyplane set lab/r1 forwarding=xdp\n  polyplane " +
			"set lab/r1--r2 bandwidth=100Mbit loss=1%\n  polyplane set lab/r1--r2 loss=",
		Args: args(2, -1, "NET[/ELEMENT|/LINK] KEY=VALUE"),
		RunE: func(cmd *cobra.Command, given []string) error {
			var of ref
			var err error
			refs := c.refs(cmd.Context())
			ends := byEnds.FindStringSubmatch(given[0])
			if ends == nil {
				of, err = refs.any(given[0])
			}
			if exitCode(err) == ExitRefused {
				return err
			}
			if err == nil && of.iface != "" {
				err = fmt.Errorf("%q is an interface: what it has are its link's settings", given[0])
			}
			if err != nil {
				return usageError(cmd, "%s", err)
			}
			values, err := assignments(cmd, given[1:])
			if err != nil {
				return err
			}
			// Values that make no sense for any object are a mistake of the command line.
			object := of.element
			if ends != nil {
				object = given[0]
			}
			if errs := model.CheckAssignments(object, values); len(errs) > 0 {
				return &Error{ExitUsage, fmt.Errorf("%s is not changed: %w", given[0], errors.Join(errs...))}
			}
			cl, err := c.connect()
			if err != nil {
				return err
			}
			if ends != nil {
				network, err := refs.network(ends[1])
				if err != nil {
					return err
				}
				name, err := linkByEnds(cmd.Context(), cl, network, ends[2], ends[3])
				if err != nil {
					return err
				}
				of = ref{network: network, element: name}
			}
			request := model.SetRequest{Object: of.element, Values: values, LoseFiles: loseFiles}
			return c.set(cmd.Context(), cl, of, request, o, wait, timeout)
		},
		ValidArgsFunction: c.completeSet,
	}
	o.addFlag(cmd, formatJSON, formatYAML)
	cmd.Flags().BoolVar(&loseFiles, "lose-files", false,
		"let elements that move to another node for it lose what was written inside them")
	cmd.Flags().BoolVar(&wait, "wait", wait, "wait until it is done")
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "wait at most this long")
	return cmd
}

// assignments reads KEY=VALUE words.
func assignments(cmd *cobra.Command, words []string) ([]model.Assignment, error) {
	values := make([]model.Assignment, len(words))
	for i, w := range words {
		key, value, ok := strings.Cut(w, "=")
		if !ok || key == "" {
			return nil, usageError(cmd, "%q sets nothing: KEY=VALUE is expected, or KEY= for the default", w)
		}
		values[i] = model.Assignment{Key: key, Value: strings.TrimSpace(value)}
	}
	return values, nil
}

// setView is what was set, for -o json and yaml.
type setView struct {
	Network  string       `json:"network"`
	Object   string       `json:"object,omitempty"`
	Changed  bool         `json:"changed"`
	Revision int64        `json:"revision"`
	Changes  plan.Changes `json:"changes,omitempty"`
}

func (c *CLI) set(ctx context.Context, cl Client, of ref, request model.SetRequest, o output, wait bool,
	timeout time.Duration) error {
	result, err := cl.Set(ctx, of.network, request)
	if client.IsNotFound(err) && of.element != "" {
		if missing := lookUpObject(ctx, cl, of); missing != nil {
			return missing
		}
	}
	if err != nil {
		return wrap(ctx, cl, err, ref{network: of.network})
	}
	name := of.network
	if of.element != "" {
		name = of.id().String()
	}
	// A network with a new owner has another name from now on, which is no change of its own.
	of.network, result.Before.Network.Name = result.Record.Network.Name, result.Record.Network.Name
	changes := plan.Diff(result.Before.Network, result.Record.Network)
	if o.format == formatTable {
		for _, change := range changes {
			effect := ""
			if change.Disturbs {
				effect = "  (" + change.Effect + ")"
			}
			for _, d := range change.Details {
				d.Field = strings.TrimPrefix(d.Field, "slice.")
				fmt.Fprintf(c.Out, "%s %s%s\n", name, d, effect)
			}
		}
		if len(changes) == 0 {
			fmt.Fprintf(c.Out, "%s is so already\n", name)
		}
	}
	if wait && result.Changed {
		if err := awaitSet(ctx, cl, of, name, result, timeout); err != nil {
			return wrap(ctx, cl, err, ref{})
		}
		if o.format == formatTable {
			if err := c.keptBySet(ctx, cl, of, &result.Record.Network); err != nil {
				return wrap(ctx, cl, err, ref{})
			}
		}
	}
	if o.format != formatTable {
		return writeValue(c.Out, o.format, setView{of.network, of.element, result.Changed,
			result.Record.Revision, changes})
	}
	return nil
}

// notTold explains why the command does not wait: the node is not heard, so nobody knows when it will do what it shall.
func notTold(done string, n model.NodeStatus) error {
	return failed("%s, and node %s does not do it now: %s. It does as soon as it is back", done,
		n.Name, oneLine(n.Problem))
}

// awaitSet waits until the nodes that were told have done what was set.
func awaitSet(ctx context.Context, cl Client, of ref, name string, result model.SetResult,
	timeout time.Duration) error {
	var late []string
	var failures failing
	err := poll(ctx, timeout, func(ctx context.Context) (bool, error) {
		nodes, err := cl.Nodes(ctx)
		if err != nil {
			return false, err
		}
		late = nil
		for _, n := range nodes {
			if revision, told := result.Nodes[n.Name]; told && n.Revision < revision {
				if late = append(late, n.Name); n.Condition == model.Unknown {
					return false, notTold(name+" is set", n)
				}
			}
		}
		if len(late) > 0 || of.element == "" {
			return len(late) == 0, nil
		}
		elements, err := cl.Elements(ctx, of.network)
		if err != nil {
			return false, err
		}
		e, err := findElement(elements, of.id())
		if err != nil { // it is a link
			return !slices.ContainsFunc(elements, func(e model.ElementView) bool { return e.AtWork }), nil
		}
		if e.AtWork {
			late = []string{e.Node}
			return false, nil
		}
		if failures.lasts(e.Phase == model.PhaseFailed) {
			return false, failed("%s is set, and has failed: %s", name, oneLine(e.Message))
		}
		late = []string{e.Node}
		return e.Phase != model.PhaseFailed, nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return &Error{Code: ExitTimeout,
			Err: fmt.Errorf("%s is set, and not yet in place on %s after %s; `polyplane get nodes` tells more",
				name, strings.Join(late, ", "), timeout)}
	}
	return err
}

// lookUpObject is lookUp for what may be an element or a link.
func lookUpObject(ctx context.Context, cl Client, of ref) error {
	if err := lookUp(ctx, cl, ref{network: of.network}); err != nil {
		return err
	}
	names, err := objects(ctx, cl, of.network)
	if err != nil || slices.Contains(names, of.element) {
		return err
	}
	return notFound("network %s has no element or link %q%s", of.network, of.element,
		existingNames("name", of.element, names))
}

// objects are the names of a network's elements and links.
func objects(ctx context.Context, cl Client, network string) ([]string, error) {
	elements, err := cl.Elements(ctx, network)
	if err != nil {
		return nil, err
	}
	links, err := cl.Links(ctx, network)
	if err != nil {
		return nil, err
	}
	names := each.Of(elements, func(e model.ElementView) string { return e.ID.Element })
	return append(names, each.Of(links, func(l model.LinkStatus) string { return l.Link.Name })...), nil
}

// completeObjects offers networks and, once one is typed, its elements and links.
func (c *CLI) completeObjects(ctx context.Context, cl Client, typed string) ([]string, cobra.ShellCompDirective) {
	network := within(ctx, cl, typed)
	if network == "" {
		return c.completeElements(ctx, cl, typed)
	}
	names, err := objects(ctx, cl, network)
	return offer(each.Of(names, func(name string) string { return network + "/" + name }), err, typed)
}

// completeSet offers what can be set, then keys of it that have not been given.
func (c *CLI) completeSet(cmd *cobra.Command, given []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(given) == 0 {
		return c.complete(cmd, typed, c.completeNetworks, c.completeObjects)
	}
	return c.complete(cmd, typed, func(ctx context.Context, cl Client, typed string) ([]string,
		cobra.ShellCompDirective) {
		of, err := c.refs(ctx).any(given[0])
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		key, _, valued := strings.Cut(typed, "=")
		keys, words := model.SettingsOfNetwork(), model.WordsOfNetwork(key)
		if of.element != "" {
			elements, err := cl.Elements(ctx, of.network)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			keys, words = model.SettingsOfLink(), model.WordsOfLink(key)
			if e, err := findElement(elements, of.id()); err == nil {
				keys, words = model.SettingsOfElement(), model.WordsOfElement(key)
				if key == "forwarding" {
					words = slices.DeleteFunc(words, func(w string) bool {
						return !slices.Contains(model.ForwardingsOf(e.Element.Kind, e.Element.Control),
							model.Forwarding(w))
					})
				}
			}
		}
		if valued && words != nil {
			return offer(each.Of(words, func(w string) string { return key + "=" + w }), nil, typed)
		}
		return freeKeys(keys, given[1:], typed), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	})
}

// freeKeys are the keys, with "=", that have not been given.
func freeKeys(keys, given []string, typed string) []string {
	var free []string
	for _, k := range keys {
		key, _, _ := strings.Cut(k, "=")
		if !slices.ContainsFunc(given, func(g string) bool { return strings.HasPrefix(g, key+"=") }) {
			free = append(free, key+"=")
		}
	}
	return matching(free, typed)
}
