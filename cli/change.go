package cli

import (
	"context"
	"errors"
	"fmt"
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
	tick := time.Tick(pollEvery)
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
		case <-tick:
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
		RunE: c.connected(func(cmd *cobra.Command, cl Client, given []string) error {
			ctx := cmd.Context()
			if links {
				given = joinDashes(cmd, given)
			}
			all, err := c.targets(ctx, cl, given, links) // all names are checked before anything is changed
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
				c.tellAside(id, result.Aside)
			}
			return errors.Join(failures...)
		}),
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
		nodes, err := cl.Nodes(ctx) // before the elements: so what is told of these is not older
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
