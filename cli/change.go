package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/model"
)

// pollEvery is how often a waiting command asks for the state.
const pollEvery = 50 * time.Millisecond

// poll calls f until f says that all is well, or fails. A timeout of zero means none.
func poll(ctx context.Context, timeout time.Duration, f func(context.Context) (bool, error)) error {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		done, err := f(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil || done:
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// actCommand is the command of one action on elements: start, stop, restart, suspend, resume; the first two are also
// for links. It checks all names before it changes anything. One element's failure does not keep it from the others.
func (c *CLI) actCommand(action model.Action, short, done string) *cobra.Command {
	wait, timeout, newDisk := true, 60*time.Second, false
	links := action == model.ActionStart || action == model.ActionStop
	use, example, completers := " NET/ELEMENT…", "", []completer{c.completeElements}
	if links {
		use, example = " NET/ELEMENT… | NET/LINK…", "\n  polyplane "+string(action)+" lab/r1--r2\n  polyplane "+
			string(action)+" 'lab/r1 -- r2'"
		completers = append(completers, c.completeLinks)
	}
	cmd := &cobra.Command{
		Use:     string(action) + use,
		Short:   short,
		GroupID: groupElements,
		Example: "  polyplane " + string(action) + " lab/r1" + example,
		Args:    args(1, -1, "NET/ELEMENT"),
		RunE: func(cmd *cobra.Command, given []string) error {
			ctx := cmd.Context()
			cl, err := c.connect()
			if err != nil {
				return err
			}
			if links {
				given = joinDashes(cmd, given)
			}
			all, err := targets(ctx, cl, given, links) // all names are checked before anything is changed
			if err != nil {
				return err
			}
			var failures []error
			for _, t := range all {
				id := t.id
				if t.link {
					changed, err := c.actOnLink(ctx, cl, id, action, wait, timeout)
					switch {
					case err != nil:
						failures = append(failures, wrap(ctx, cl, fmt.Errorf("%s: %w", id, err),
							ref{network: id.Network}))
					case changed:
						fmt.Fprintf(c.Out, "%s %s\n", id, done)
					default:
						fmt.Fprintf(c.Out, "%s is %s already\n", id, done)
					}
					continue
				}
				var err error
				if newDisk {
					err = cl.RenewDisk(ctx, id)
				}
				var result model.ActionResult
				if err == nil {
					result, err = cl.Act(ctx, id, action)
				}
				if err == nil && wait {
					err = awaitAction(ctx, cl, id, action, result.Revision, timeout)
				}
				if err != nil {
					failures = append(failures, wrap(ctx, cl, fmt.Errorf("%s: %w", id, err),
						ref{network: id.Network, element: id.Element}))
					continue
				}
				if !result.Changed {
					fmt.Fprintf(c.Out, "%s is %s already\n", id, wanted(action))
					continue
				}
				fmt.Fprintf(c.Out, "%s %s\n", id, done)
			}
			return errors.Join(failures...)
		},
		ValidArgsFunction: c.completeEvery(completers...),
	}
	if links {
		cmd.Long = map[model.Action]string{
			model.ActionStop: `Stop elements; what they own on disk stays. Or stop links, as one pulls a cable out: both ends stay and lose
their carrier, so that routing software notices at once, and nothing passes any more. What is stopped stays so, also
over restarts of the node, until it is started, or until a file is applied that says otherwise of it.`,
			model.ActionStart: `Start stopped elements, or links that were stopped or whose file says state: down.`}[action]
	}
	if action == model.ActionRestart {
		cmd.Flags().BoolVar(&newDisk, "new-disk", false,
			"give them new disks, without what was on theirs, which go to the trash")
	}
	cmd.Flags().BoolVar(&wait, "wait", wait, "wait until it is done")
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "wait at most this long")
	return cmd
}

// awaitAction waits until the element's node has carried out an action, which is in this revision of the node's desired
// state.
func awaitAction(ctx context.Context, cl Client, id model.ID, action model.Action, revision int64,
	timeout time.Duration) error {
	last := model.PhasePending
	var failures failing
	err := poll(ctx, timeout, func(ctx context.Context) (bool, error) {
		nodes, err := cl.Nodes(ctx) // first: what is told of elements is not older then
		if err != nil {
			return false, err
		}
		elements, err := cl.Elements(ctx, id.Network)
		if err != nil {
			return false, err
		}
		e, err := findElement(elements, id)
		if err != nil {
			return false, err
		}
		last = e.Phase
		for _, n := range nodes {
			if n.Name == e.Node && n.Revision < revision {
				if n.Condition == model.Unknown {
					return false, notTold("it is stored", n)
				}
				return false, nil
			}
		}
		if e.AtWork {
			return false, nil
		}
		if failures.lasts(e.Phase == model.PhaseFailed) {
			return false, failed("it has failed: %s", oneLine(e.Message))
		}
		return e.Phase == wanted(action), nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return &Error{Code: ExitTimeout,
			Err: fmt.Errorf("still %s after %s; `polyplane describe %s` tells more", last, timeout, id)}
	}
	return err
}

// wanted is the phase of an element once an action is done.
func wanted(a model.Action) model.Phase {
	switch a {
	case model.ActionStop:
		return model.PhaseStopped
	case model.ActionSuspend:
		return model.PhaseSuspended
	}
	return model.PhaseRunning
}

func (c *CLI) deleteCommand() *cobra.Command {
	wait, timeout, all, missingOK, now := true, 5*time.Minute, false, false, false
	var files fileFlags
	cmd := &cobra.Command{
		Use:     "delete NET… | -f FILE",
		Aliases: []string{"rm", "destroy"},
		Short:   "Remove networks, with everything in them",
		Long: `Remove networks, with everything in them. The files of their elements go to the trash (` + "`polyplane trash`" + `), for
a week at most. If only nodes still have a network, since the store does not know it ("held"), the nodes let go of it;
--all leaves such networks alone.`,
		GroupID: groupNetworks,
		Example: "  polyplane delete lab\n  polyplane delete -f lab.yaml\n  polyplane delete --all",
		RunE: func(cmd *cobra.Command, given []string) error {
			ctx := cmd.Context()
			cl, err := c.connect()
			if err != nil {
				return err
			}
			names, err := c.namesToDelete(cmd, cl, given, files, all)
			if err != nil {
				return err
			}
			existing, err := cl.Networks(ctx)
			if err != nil {
				return wrap(ctx, cl, err, ref{})
			}
			if names, err = onlyExisting(names, existing, missingOK); err != nil {
				return err
			}
			return c.deleteAll(ctx, cl, names, now, wait, timeout)
		},
		ValidArgsFunction: c.completeEvery(c.completeNetworks),
	}
	files.addFlags(cmd, "remove the networks of this `FILE` (- is standard input) or directory")
	cmd.Flags().BoolVar(&all, "all", false, "remove every network")
	cmd.Flags().BoolVar(&now, "now", false, "delete the elements' files at once: they do not go to the trash")
	cmd.Flags().BoolVar(&missingOK, "ignore-not-found", false, "a network that does not exist is no failure")
	cmd.Flags().BoolVar(&wait, "wait", wait, "wait until everything is gone")
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "wait at most this long")
	return cmd
}

// namesToDelete works out which networks a `delete` is about. --all leaves out networks that only nodes still have:
// nobody has named these, and the store's loss is no reason to remove them.
func (c *CLI) namesToDelete(cmd *cobra.Command, cl Client, given []string, files fileFlags,
	all bool) ([]string, error) {
	switch {
	case all && (len(given) > 0 || files.given()):
		return nil, usageError(cmd, "--all and names exclude each other")
	case all:
		networks, err := cl.Networks(cmd.Context())
		if err != nil {
			return nil, wrap(cmd.Context(), cl, err, ref{})
		}
		var names []string
		for _, n := range networks {
			if n.Phase != model.PhaseHeld { // nobody has named it
				names = append(names, n.Name)
			}
		}
		return names, nil
	case files.given() && len(given) > 0:
		return nil, usageError(cmd, "networks by name and -f exclude each other")
	case files.renames() && !files.given():
		return nil, usageError(cmd, "--name says what a file's network is called: it needs -f FILE")
	case files.given():
		networks, err := c.readNetworks(cmd.Context(), &files)
		if err != nil {
			return nil, err
		}
		var names []string
		for _, n := range networks {
			names = append(names, n.Name)
		}
		return names, nil
	case len(given) == 0:
		return nil, usageError(cmd, "the networks to remove are missing: NET…, -f FILE or --all")
	}
	for _, name := range given {
		if strings.Contains(name, "/") {
			return nil, usageError(cmd,
				"%q is not a network: whole networks are removed; an element goes when its file no "+
					"longer has it (`polyplane apply`)", name)
		}
	}
	return given, nil
}

// onlyExisting refuses names that do not exist, before anything is removed; with missingOK it leaves them out.
func onlyExisting(names []string, networks []model.NetworkStatus, missingOK bool) ([]string, error) {
	var existing, out []string
	for _, n := range networks {
		existing = append(existing, n.Name)
	}
	seen := map[string]bool{}
	for _, name := range names {
		found := false
		for _, e := range existing {
			found = found || e == name
		}
		switch {
		case !found && missingOK || seen[name]:
			continue
		case !found:
			return nil, unknown("network", name, existing)
		}
		seen[name] = true
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
