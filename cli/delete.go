package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
)

// deletion says which networks a `delete` is about.
type deletion struct {
	files fileFlags
	// all means the caller's own networks, everybody also those of others; yes asks no question about the latter.
	all, everybody, yes bool
}

func (c *CLI) deleteCommand() *cobra.Command {
	wait, timeout, missingOK, now := true, 5*time.Minute, false, false
	var what deletion
	cmd := &cobra.Command{
		Use:     "delete NET… | -f FILE",
		Aliases: []string{"rm", "destroy"},
		Short:   "Remove networks, with everything in them",
		Long: `Remove networks, with everything in them. The files of their elements go to the trash (` + "`polyplane trash`" + `), for
a week at most. If only nodes still have a network, since the store does not know it ("held"), the nodes let go of
it; --all leaves such networks alone.

--all removes the caller's own networks: those that belong to the user's name, on the manager's machine to the name of
whoever typed the command, also behind sudo. --all-owners removes everybody's, and asks before it removes others'.`,
		GroupID: groupNetworks,
		Example: "  polyplane delete lab\n  polyplane delete -f lab.yaml\n  polyplane delete --all",
		RunE: c.connected(func(cmd *cobra.Command, cl Client, given []string) error {
			ctx := cmd.Context()
			names, err := c.namesToDelete(cmd, cl, given, &what)
			if err != nil {
				return err
			}
			existing, err := cl.Networks(ctx)
			if err != nil {
				return err
			}
			if names, err = onlyExisting(names, existing, missingOK); err != nil {
				return err
			}
			return c.deleteAll(ctx, cl, names, now, wait, timeout)
		}),
		ValidArgsFunction: c.completeEvery(c.completeNetworks),
	}
	what.files.addFlags(cmd, "remove the networks of this `FILE` (- is standard input) or directory")
	cmd.Flags().BoolVar(&what.all, "all", false, "remove all of your own networks")
	cmd.Flags().BoolVar(&what.everybody, "all-owners", false, "remove every network, also those of other owners")
	cmd.Flags().BoolVarP(&what.yes, "yes", "y", false, "do not ask whether others' networks shall be removed")
	cmd.Flags().BoolVar(&now, "now", false, "delete the elements' files at once: they do not go to the trash")
	cmd.Flags().BoolVar(&missingOK, "ignore-not-found", false, "a network that does not exist is no failure")
	cmd.Flags().BoolVar(&wait, "wait", wait, "wait until everything is gone")
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "wait at most this long")
	return cmd
}

// namesToDelete works out which networks a `delete` is about.
func (c *CLI) namesToDelete(cmd *cobra.Command, cl Client, given []string, what *deletion) ([]string, error) {
	files := &what.files
	switch {
	case (what.all || what.everybody) && (len(given) > 0 || files.given()):
		return nil, usageError(cmd, "--all and names exclude each other")
	case what.yes && !what.everybody:
		return nil, usageError(cmd, "--yes answers what --all-owners asks: it needs --all-owners")
	case what.all || what.everybody:
		return c.allToDelete(cmd.Context(), cl, what)
	case files.given() && len(given) > 0:
		return nil, usageError(cmd, "networks by name and -f exclude each other")
	case files.renames() && !files.given():
		return nil, usageError(cmd, "--name says what a file's network is called: it needs -f FILE")
	case files.given():
		networks, err := c.readNetworks(cmd.Context(), files)
		if err != nil {
			return nil, err
		}
		if err := files.called(c.refs(cmd.Context()), networks); err != nil {
			return nil, err
		}
		return each.Of(networks, func(n model.Network) string { return n.Name }), nil
	case len(given) == 0:
		return nil, usageError(cmd, "the networks to remove are missing: NET…, -f FILE or --all")
	}
	refs := c.refs(cmd.Context())
	for _, name := range given {
		owner, title, owned := strings.Cut(name, "/")
		if _, err := refs.known().Find(name); owned && err != nil && (strings.Contains(title, "/") ||
			refs.has(ref{network: owner, element: title})) {
			return nil, usageError(cmd,
				"%q is not a network: whole networks are removed; an element goes when its file no "+
					"longer has it (`polyplane apply`)", name)
		}
	}
	return refs.networks(given)
}

// allToDelete are the caller's own networks, or everybody's. It leaves out networks that only nodes still have: nobody
// has named these, and the store's loss is no reason to remove them.
func (c *CLI) allToDelete(ctx context.Context, cl Client, what *deletion) ([]string, error) {
	networks, err := cl.Networks(ctx)
	var who model.Whoami
	if err == nil {
		who, err = cl.Whoami(ctx)
	}
	if err != nil {
		return nil, wrap(ctx, cl, err, ref{})
	}
	me := cmp.Or(who.User, c.User()) // as apply names the owner
	var own []string
	others := map[string][]string{} // by owner
	count := 0
	for _, n := range networks {
		switch {
		case n.Phase == model.PhaseHeld:
		case n.Owner == me, n.Owner == "" && who.User == "":
			own = append(own, n.Name)
		default:
			others[n.Owner] = append(others[n.Owner], n.Name)
			count++
		}
	}
	if count == 0 {
		return own, nil
	}
	words := each.Of(slices.Sorted(maps.Keys(others)), func(owner string) string {
		return fmt.Sprintf("%s: %s", cmp.Or(owner, "without an owner"), fewNames(others[owner]))
	})
	list := strings.Join(words, "; ")
	if !what.everybody {
		fmt.Fprintf(c.Err, "%s not yours and stay%s (%s); --all-owners removes them as well\n",
			countNetworks(count, "is", "are"), map[bool]string{true: "s"}[count == 1], list)
		return own, nil
	}
	if !what.yes {
		fmt.Fprintf(c.Err, "%s of other owners (%s). Remove them, with everything in them? [y/N] ",
			countNetworks(count, "is", "are"), list)
		answer, _ := bufio.NewReader(c.In).ReadString('\n') // no answer is no
		if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
			return nil, refused(errors.New("nothing was removed: that was not answered with y; --yes answers it"))
		}
	}
	for _, owner := range slices.Sorted(maps.Keys(others)) {
		own = append(own, others[owner]...)
	}
	return own, nil
}

// countNetworks is "1 network is" or "5 networks are".
func countNetworks(n int, one, many string) string {
	if n == 1 {
		return "1 network " + one
	}
	return fmt.Sprintf("%d networks %s", n, many)
}

// onlyExisting refuses names that do not exist, before anything is removed; with missingOK it leaves them out.
func onlyExisting(names []string, networks []model.NetworkStatus, missingOK bool) ([]string, error) {
	existing := each.Of(networks, func(n model.NetworkStatus) string { return n.Name })
	var out []string
	for _, name := range names {
		found := slices.Contains(existing, name)
		switch {
		case !found && missingOK || slices.Contains(out, name):
			continue
		case !found:
			return nil, unknown("network", name, existing)
		}
		out = append(out, name)
	}
	return out, nil
}

// deleteAll removes networks and, with wait, waits until their nodes have let go of them.
func (c *CLI) deleteAll(ctx context.Context, cl Client, names []string, now, wait bool, timeout time.Duration) error {
	if len(names) == 0 {
		fmt.Fprintln(c.Out, "nothing to remove")
		return nil
	}
	begin := c.Now()
	for _, name := range names {
		if err := cl.Delete(ctx, name, now); err != nil {
			return wrap(ctx, cl, fmt.Errorf("%s: %w", name, err), ref{network: name})
		}
	}
	if !wait {
		fmt.Fprintf(c.Out, "removing %s\n", fewNames(names))
		return nil
	}
	left := names
	progress := c.newProgress("removing")
	err := poll(ctx, timeout, func(ctx context.Context) (bool, error) {
		networks, err := cl.Networks(ctx)
		if err != nil {
			return false, err
		}
		left = nil
		elements := 0
		for _, n := range networks {
			for _, name := range names {
				if n.Name == name {
					left = append(left, name)
					elements += n.Elements
				}
			}
		}
		progress.left(elements)
		return len(left) == 0, nil
	})
	progress.close()
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{Code: ExitTimeout,
			Err: fmt.Errorf("%s not gone after %s; the removal goes on; `polyplane get nodes` shows "+
				"whether a node is lost", fewNames(left), timeout)}
	case errors.Is(err, context.Canceled):
		return &Error{Code: ExitInterrupted, Err: errors.New("interrupted; the removal goes on")}
	case err != nil:
		return wrap(ctx, cl, err, ref{})
	}
	fmt.Fprintf(c.Out, "%s removed in %s\n", fewNames(names), elapsed(c.Now().Sub(begin)))
	return nil
}
