package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
)

// await waits until the networks have reached their revisions and run. It gives up early when everything has settled
// and something has stayed failed for failureGrace; before that, the agent's next try may mend a failure.
func (c *CLI) await(ctx context.Context, cl Client, order []string, revisions map[string]int64,
	timeout time.Duration) error {
	bar := c.newProgress("starting")
	var failures failing
	told := false
	err := poll(ctx, timeout, func(ctx context.Context) (bool, error) {
		networks, err := cl.Networks(ctx)
		if err != nil {
			return false, err
		}
		seen, ready, settled, running, all, bad, unknown := 0, 0, 0, 0, 0, 0, false
		for _, n := range networks {
			revision, ours := revisions[n.Name]
			if !ours {
				continue
			}
			seen++
			running += n.Running + n.Stopped + n.Suspended
			all += n.Elements
			bad += n.Failed
			if n.Revision < revision {
				continue
			}
			if n.Phase == model.PhaseRunning || n.Phase == model.PhaseStopped {
				ready++
			}
			if n.Phase != model.PhasePending {
				settled++
			}
			unknown = unknown || n.Phase == model.PhaseUnknown
		}
		if ready == len(revisions) {
			return true, nil
		}
		if seen < len(revisions) {
			return false, failed("%s: removed by somebody else while it was being applied",
				missingNames(order, networks))
		}
		bar.update(running, all)
		if unknown && !told {
			told = true
			c.tellMute(ctx, cl, timeout)
		}
		if !failures.lasts(bad > 0 && settled == len(revisions)) {
			return false, nil
		}
		return false, failed("%s", c.whyNotRunning(ctx, cl, order))
	})
	bar.close()
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		// The context of the wait is over; the question why needs one of its own.
		return &Error{Code: ExitTimeout, Err: fmt.Errorf("not everything runs after %s: %s\nIt goes on being applied; "+
			"`polyplane get elements -w` shows how far it is", timeout, c.whyNotRunning(ctx, cl, order))}
	case errors.Is(err, context.Canceled):
		return &Error{Code: ExitInterrupted,
			Err: fmt.Errorf("interrupted: %s goes on being applied; `polyplane get elements -w` "+
				"shows how far it is, `polyplane delete` takes it back", fewNames(order))}
	case err != nil:
		return wrap(ctx, cl, err, ref{})
	}
	return nil
}

// missingNames lists those of the names that no network has any more.
func missingNames(order []string, networks []model.NetworkStatus) string {
	there := each.SetOf(networks, func(n model.NetworkStatus) string { return n.Name })
	return strings.Join(each.That(order, func(name string) bool { return !there[name] }), ", ")
}

// tellMute tells which nodes say nothing now. The wait goes on: an overloaded machine will be heard of again, a hung
// agent is started again, and from here the two look alike.
func (c *CLI) tellMute(ctx context.Context, cl Client, timeout time.Duration) {
	nodes, err := cl.Nodes(ctx)
	if err != nil {
		return
	}
	for _, n := range nodes {
		if !n.Ready {
			fmt.Fprintf(c.Err, "node %s is %s: %s; waiting for it, at most %s in all\n", n.Name, nodeState(n).text,
				oneLine(n.Problem), timeout)
		}
	}
}

// whyNotRunning names the elements that do not run, and says why.
func (c *CLI) whyNotRunning(ctx context.Context, cl Client, order []string) string {
	const most = 5
	var lines []string
	for _, name := range order {
		elements, err := cl.Elements(ctx, name)
		if err != nil {
			continue
		}
		for _, e := range elements {
			if e.Phase == model.PhaseRunning || e.Phase == model.PhaseStopped || e.Phase == model.PhaseSuspended {
				continue
			}
			line := fmt.Sprintf("%s is %s", e.ID, e.Phase)
			if e.Phase == model.PhaseFailed {
				line = e.ID.String() + " has failed"
			}
			if e.Node != "" {
				line += " on " + e.Node
			}
			if e.Message != "" {
				line += ": " + strings.TrimPrefix(oneLine(e.Message), "element "+e.ID.String()+": ")
			}
			lines = append(lines, line)
		}
	}
	if nodes, err := cl.Nodes(ctx); err == nil {
		for _, n := range nodes {
			if !n.Ready || n.Problem != "" {
				lines = append(lines, strings.TrimSuffix(fmt.Sprintf("node %s is %s: %s", n.Name, nodeState(n).text,
					oneLine(n.Problem)), ": "))
			}
		}
	}
	switch {
	case len(lines) == 0:
		return "its nodes have not told yet"
	case len(lines) == 1:
		return lines[0]
	case len(lines) > most:
		left := len(lines) - most
		lines = append(lines[:most:most], fmt.Sprintf("and %d more", left))
	}
	return "\n  " + strings.Join(lines, "\n  ")
}
