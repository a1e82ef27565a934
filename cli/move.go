package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/model"
)

func (c *CLI) moveCommand() *cobra.Command {
	wait, timeout := true, 10*time.Minute
	var request model.MoveRequest
	var o output
	cmd := &cobra.Command{
		Use:     "move NET/ELEMENT --to NODE",
		Short:   "Move an element to another node, with its files",
		GroupID: groupElements,
		Long: `Move an element to another node of the substrate. Its network stays as it is: names, addresses, links. Its links
take other paths, which have room for them, or the move is refused with the reasons.

A cold move (--cold) is the one that there is so far: the element stands still, its disk is copied, and it starts at
the new node with everything that was written inside it. --dry-run tells what that interrupts, what is kept and what is
lost, where the links will go, and for about how long the element will stand still.

Until the new node has all of the disk, whatever fails takes the move back, and the element goes on where it was. The
disk that it had stays in the trash of its old node (polyplane trash). ^C ends only the waiting.`,
		Example: "  polyplane move lab/r2 --to n4 --dry-run\n  polyplane move lab/r2 --to n4 --cold\n" +
			"  polyplane get moves",
		Args: args(1, 1, "NET/ELEMENT"),
		RunE: func(cmd *cobra.Command, given []string) error {
			id, err := c.refs(cmd.Context()).element(given[0])
			if err != nil {
				return misnamed(cmd, err)
			}
			if request.To == "" {
				return usageError(cmd, "where %s is to go is missing: --to NODE", given[0])
			}
			cl, err := c.connect()
			if err != nil {
				return err
			}
			return c.move(cmd.Context(), cl, id, request, o, wait, timeout)
		},
		ValidArgsFunction: c.completeFirst(c.completeElements),
	}
	o.addFlag(cmd, formatJSON, formatYAML)
	cmd.Flags().StringVar(&request.To, "to", "", "the `NODE` that it is to be on")
	cmd.Flags().BoolVar(&request.Cold, "cold", false, "let it stand still while its disk is copied")
	cmd.Flags().BoolVar(&request.DryRun, "dry-run", false, "tell what would happen, and do nothing")
	cmd.Flags().BoolVar(&wait, "wait", wait, "wait until it runs there")
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "wait at most this long")
	cmd.RegisterFlagCompletionFunc("to", func(cmd *cobra.Command, _ []string, typed string) ( //nolint:errcheck
		[]string, cobra.ShellCompDirective) {
		return c.complete(cmd, typed, func(ctx context.Context, cl Client, typed string) ([]string,
			cobra.ShellCompDirective) {
			nodes, err := cl.Nodes(ctx)
			names := make([]string, len(nodes))
			for i := range nodes {
				names[i] = nodes[i].Name
			}
			if err != nil {
				names = nil
			}
			return matching(names, typed), cobra.ShellCompDirectiveNoFileComp
		})
	})
	return cmd
}

func (c *CLI) move(ctx context.Context, cl Client, id model.ID, request model.MoveRequest, o output, wait bool,
	timeout time.Duration) error {
	of := ref{network: id.Network, element: id.Element}
	result, err := cl.Move(ctx, id, request)
	if err != nil {
		return wrap(ctx, cl, err, of)
	}
	if o.format != formatTable && (request.DryRun || !wait) {
		return writeValue(c.Out, o.format, result)
	}
	if o.format == formatTable {
		if err := c.showMove(&result, request.DryRun); err != nil {
			return err
		}
	}
	if request.DryRun || !wait {
		return nil
	}
	is, err := c.awaitMove(ctx, cl, &result, timeout)
	if err != nil {
		return wrap(ctx, cl, err, of)
	}
	if o.format != formatTable {
		return writeValue(c.Out, o.format, is)
	}
	fmt.Fprintf(c.Out, "%s is on node %s with its disk (%s); it stood still for %s\n", result.ID, is.To,
		is.Sent.Rounded(), elapsed(time.Duration(is.Stands)))
	if is.Message != "" {
		return failed("%s is on node %s, and fails there: %s", result.ID, is.To, oneLine(is.Message))
	}
	return nil
}

// showMove tells what a move does.
func (c *CLI) showMove(r *model.MoveResult, dry bool) error {
	var b strings.Builder
	verb := "moves"
	if dry {
		verb = "would move"
	}
	fmt.Fprintf(&b, "%s %s from node %s to node %s\n", r.ID, verb, r.From, r.To)
	if dry {
		for _, part := range []struct {
			head  string
			lines []string
		}{{"keeps", r.Promise.Keeps}, {"interrupts", r.Promise.Interrupts}, {"loses", r.Promise.Loses}} {
			for _, line := range part.lines {
				fmt.Fprintf(&b, "  %-14s%s\n", part.head, line)
			}
		}
		if r.Most > 0 {
			fmt.Fprintf(&b, "  %-14s%s of its disk, which may have %s\n", "copies", r.Disk.Rounded(), r.Most)
		}
		fmt.Fprintf(&b, "  %-14sfor about %s\n", "stands still", time.Duration(r.Stands))
		for _, l := range r.Links {
			fmt.Fprintf(&b, "  %-14s%s: %s, then %s\n", "link", l.Link, pathOf(l.Before, r.From), pathOf(l.After, r.To))
		}
	}
	for _, note := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", c.told(note))
	}
	_, err := io.WriteString(c.Out, b.String())
	return err
}

// pathOf is where a link leads, of which one end is on a node.
func pathOf(all []model.LinkPath, node string) string {
	if len(all) == 0 {
		return "within " + node
	}
	return paths(all)
}

// awaitMove waits until a move has ended.
func (c *CLI) awaitMove(ctx context.Context, cl Client, r *model.MoveResult, timeout time.Duration) (model.MoveStatus,
	error) {
	var is model.MoveStatus
	err := poll(ctx, timeout, func(ctx context.Context) (bool, error) {
		all, err := cl.Moves(ctx, r.ID.Network)
		if err != nil {
			return false, err
		}
		i := slices.IndexFunc(all, func(s model.MoveStatus) bool { return s.Move == r.Move })
		if i >= 0 {
			is = all[i]
			return !is.Ended.IsZero(), nil
		}
		// The manager was started anew, and remembers none that have ended.
		record, err := cl.Network(ctx, r.ID.Network)
		if err != nil || record.Moving != nil && record.Moving.Move == r.Move {
			return false, err
		}
		is = model.MoveStatus{Moving: model.Moving{Move: r.Move, Element: r.ID.Element, From: r.From, To: r.To,
			Step: model.MoveDone}, ID: r.ID, Sent: is.Sent}
		if record.Assigned.Placement.Elements[r.ID.Element] != r.To {
			is.Step, is.Message = model.MoveUndone, "`polyplane get events` tells why"
		}
		return true, nil
	})
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return is, &Error{Code: ExitTimeout, Err: fmt.Errorf("%s is still being moved after %s (%s%s); `polyplane get "+
			"moves` tells more", r.ID, timeout, is.Step, after(": ", oneLine(is.Message)))}
	case err == nil && is.Step == model.MoveUndone:
		return is, failed("%s was not moved, and goes on at node %s: %s", r.ID, r.From, oneLine(is.Message))
	}
	return is, err
}

func after(before, s string) string {
	if s == "" {
		return ""
	}
	return before + s
}

// moveListing is `get moves`.
func moveListing() listing[model.MoveStatus] {
	return listing[model.MoveStatus]{
		name: "moves", aliases: []string{"move"}, short: "List moves of elements: those under way, and the latest",
		example: "  polyplane get moves\n  polyplane get moves lab",
		fetch: func(ctx context.Context, cl Client, network string) ([]model.MoveStatus, error) {
			return cl.Moves(ctx, network)
		},
		key: func(s model.MoveStatus) string { return s.ID.String() },
		match: func(s model.MoveStatus, r ref) bool {
			return s.ID.Network == r.network && (r.element == "" || s.ID.Element == r.element)
		},
		head: func(bool) []string {
			return []string{"ELEMENT", "FROM", "TO", "STEP", ">SENT", ">STOOD STILL", ">AGE", "MESSAGE"}
		},
		row: func(c *CLI, s model.MoveStatus, _ bool) []cell {
			stood := "-"
			if !s.Ended.IsZero() {
				stood = elapsed(time.Duration(s.Stands))
			}
			return texts(s.ID.String(), s.From, s.To, string(s.Step), s.Sent.Rounded(), stood,
				age(c.Now().Sub(s.Began)), c.told(s.Message))
		},
	}
}
