package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/plan"
	"github.com/polyplane/polyplane/server/api/client"
)

// failureGrace is how long an element may stay failed, with nothing else under way, before a wait gives up. The agents
// try again by themselves, so a failure may go away.
const failureGrace = 3 * time.Second

// failing is since when something has been failed without a break.
type failing struct{ since time.Time }

// lasts notes whether something is failed now, and returns whether a wait gives up on it.
func (f *failing) lasts(failed bool) bool {
	switch {
	case !failed:
		f.since = time.Time{}
	case f.since.IsZero():
		f.since = time.Now()
	}
	return failed && time.Since(f.since) >= failureGrace
}

// shownChanges is how many lines of all plans together `apply` shows before it goes on. minChanges is how many it shows
// of each.
const (
	shownChanges = 40
	minChanges   = 4
)

// networksFor reads the networks of files, and connects to the manager that is asked about them. What is wrong with the
// files is told without a manager.
func (c *CLI) networksFor(cmd *cobra.Command, files *fileFlags) ([]model.Network, Client, error) {
	if !files.given() {
		return nil, nil, usageError(cmd, "-f FILE is missing (- is standard input)")
	}
	networks, err := c.readNetworks(cmd.Context(), files)
	if err == nil {
		err = c.checkOutside(files)
	}
	if err != nil {
		return nil, nil, err
	}
	cl, err := c.connect()
	if err == nil {
		err = files.called(c.refs(cmd.Context()), networks)
	}
	return networks, cl, err
}

func (c *CLI) planCommand() *cobra.Command {
	var files fileFlags
	var exitCode, places bool
	var options model.ApplyOptions
	var o output
	cmd := &cobra.Command{
		Use:     "plan -f FILE|-|DIR",
		Aliases: []string{"diff"},
		Short:   "Show what apply would change, and whether it fits",
		GroupID: groupNetworks,
		Example: "  polyplane plan -f lab.yaml\n  polyplane plan -f lab.yaml --places\n" +
			"  polyplane plan -f lab.yaml --exit-code > /dev/null || echo changed",
		RunE: func(cmd *cobra.Command, _ []string) error {
			networks, cl, err := c.networksFor(cmd, &files)
			if err != nil {
				return err
			}
			if err := c.bringImages(cmd.Context(), cl, networks, false); err != nil {
				return err
			}
			planned, err := c.planAll(cmd.Context(), cl, networks, options)
			if err != nil {
				return files.located(err)
			}
			changes := false
			views := make([]planView, len(planned))
			for i, p := range planned {
				changes = changes || p.Changed
				views[i] = planView{Network: p.Record.Network.Name, New: p.Before == nil, Changed: p.Changed,
					Changes: difference(p), Notes: p.Notes, Placement: p.Record.Assigned.Placement}
				if o.format != formatTable {
					continue
				}
				if err := c.showChanges(p, 0); err != nil {
					return err
				}
			}
			if places && o.format == formatTable {
				if err := c.showPlaces(cmd.Context(), cl, planned); err != nil {
					return err
				}
			}
			if o.format != formatTable {
				if err := writeValue(c.Out, o.format, views); err != nil {
					return err
				}
			}
			if exitCode && changes {
				return &commandExit{ExitFailed}
			}
			return nil
		},
	}
	files.addFlags(cmd, "the networks' `FILE` (- is standard input) or directory")
	files.addOutsideFlag(cmd)
	o.addFlag(cmd, formatJSON, formatYAML)
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit with status 1 if there are changes")
	cmd.Flags().BoolVar(&places, "places", false,
		"show where elements and links would be, too, and what nodes and substrate links would have left")
	cmd.Flags().BoolVar(&options.Overwrite, "overwrite", false, "plan as apply --overwrite would do")
	return cmd
}

func (c *CLI) applyCommand() *cobra.Command {
	var files fileFlags
	wait, timeout := true, 5*time.Minute
	var options model.ApplyOptions
	cmd := &cobra.Command{
		Use:     "apply -f FILE|-|DIR",
		Short:   "Make networks be as a file says",
		GroupID: groupNetworks,
		Long: `Make the file's networks as the file says. New networks are made, existing ones are changed where they
differ, and nothing else is touched. All networks are checked and placed together before anything is
changed: if one is refused, none is made or changed.

What is no longer in the file is removed, or goes back to its default. What was assigned (addresses,
nodes), stopped by hand or edited inside routers stays, and so does what was set (polyplane set) and
the file does not name. A router whose configuration was edited inside keeps it also where the file now
says something else; apply names such routers once everything runs.

An element that apply moves to another node starts anew there. What was written inside it does not move:
its disk stays in the trash of the node where it was (polyplane trash). So apply refuses such a change
unless --lose-files allows it, and plan has a note. To take the files along, move the element first
(polyplane move), and apply then.

apply shows the changes, makes them, and waits until everything runs; ^C ends only the waiting. It
waits up to 10 seconds for agents of nodes that are just starting.`,
		Example: "  polyplane apply -f lab.yaml\n  polyplane apply -f class.yaml --name alice,bob,carol\n  polyplane " +
			"apply -f labs/ --timeout 2m",
		RunE: func(cmd *cobra.Command, _ []string) error {
			networks, cl, err := c.networksFor(cmd, &files)
			if err != nil {
				return err
			}
			return files.located(c.apply(cmd.Context(), cl, networks, options, wait, timeout))
		},
	}
	files.addFlags(cmd, "the networks' `FILE` (- is standard input) or directory")
	files.addOutsideFlag(cmd)
	cmd.Flags().BoolVar(&wait, "wait", wait, "wait until everything runs")
	cmd.Flags().DurationVar(&timeout, "timeout", timeout,
		"wait at most this long, sending images and large files included")
	cmd.Flags().BoolVar(&options.Overwrite, "overwrite", false,
		"replace configuration and files that were edited inside elements by the file's")
	cmd.Flags().BoolVar(&options.LoseFiles, "lose-files", false,
		"let elements move to other nodes without what was written inside them")
	return cmd
}

// naming makes sure that an error says which network it is about.
func naming(network string, err error) error {
	if strings.Contains(err.Error(), network) {
		return err
	}
	return fmt.Errorf("%s: %w", network, err)
}

// agentsWithin is how long apply waits for agents that are starting. agentsEvery is how often it looks which have
// reported.
const (
	agentsWithin = 10 * time.Second
	agentsEvery  = 100 * time.Millisecond
)

// applyAll asks the instance to apply networks, all or none. If they need nodes whose agents are just starting, it
// waits for these: the manager answers 503 meanwhile.
func (c *CLI) applyAll(ctx context.Context, cl Client, documents []model.Document,
	options model.ApplyOptions) ([]model.ApplyResult, error) {
	deadline, told, again := time.Now().Add(c.patience), "", false
	for {
		results, err := cl.ApplyAll(ctx, documents, options)
		var refusal *client.Error
		if err == nil {
			return results, nil
		}
		if len(documents) == 1 {
			err = naming(documents[0].Network.Name, err)
		}
		if !errors.As(err, &refusal) {
			return nil, err
		}
		if refusal.Status != http.StatusServiceUnavailable {
			return nil, wrap(ctx, cl, err, ref{})
		}
		silent := unheard(ctx, cl)
		if len(silent) == 0 && again || !time.Now().Before(deadline) {
			return nil, refused(err)
		}
		if again = len(silent) == 0; again {
			continue // the last of them may have reported between the two questions
		}
		if names := strings.Join(silent, ", "); names != told {
			told = names
			if len(silent) == 1 {
				fmt.Fprintf(c.Err, "waiting for the agent of node %s to report\n", names)
			} else {
				fmt.Fprintf(c.Err, "waiting for the agents of nodes %s to report\n", names)
			}
		}
		for len(silent) > 0 && strings.Join(silent, ", ") == told && time.Now().Before(deadline) {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(agentsEvery):
			}
			silent = unheard(ctx, cl)
		}
	}
}

// unheard returns the nodes whose agents have not reported since the manager started.
func unheard(ctx context.Context, cl Client) []string {
	nodes, err := cl.Nodes(ctx)
	if err != nil {
		return nil
	}
	silent := each.That(nodes, func(n model.NodeStatus) bool { return n.LastSeen.IsZero() })
	return each.Of(silent, func(n model.NodeStatus) string { return n.Name })
}

// planAll asks the instance what an apply of all networks together would do. It tells all refusals together.
func (c *CLI) planAll(ctx context.Context, cl Client, networks []model.Network,
	options model.ApplyOptions) ([]model.ApplyResult, error) {
	documents := make([]model.Document, len(networks))
	for i, n := range networks {
		documents[i].Network = n
	}
	options.DryRun, options.Owner = true, c.User()
	planned, err := c.applyAll(ctx, cl, documents, options)
	return planned, wrap(ctx, cl, err, ref{})
}

// planView is one network's plan, for -o json and yaml.
type planView struct {
	Network string       `json:"network"`
	New     bool         `json:"new,omitempty"`
	Changed bool         `json:"changed"`
	Changes plan.Changes `json:"changes,omitempty"`
	Notes   []string     `json:"notes,omitempty"`
	// Placement is where each element and link would be, also where that is as before.
	Placement model.Placement `json:"placement,omitzero"`
}

// difference is what an apply changes, or nil. A new network differs from an empty one.
func difference(result model.ApplyResult) plan.Changes {
	switch {
	case !result.Changed:
		return nil
	case result.Before == nil:
		return plan.Diff(model.Network{}, result.Record.Network)
	}
	return plan.Diff(result.Before.Network, result.Record.Network)
}

// showChanges prints what an apply does: at most `most` lines of it, or all if that is 0.
func (c *CLI) showChanges(result model.ApplyResult, most int) error {
	if err := c.showDifference(result, most); err != nil {
		return err
	}
	for _, n := range result.Notes {
		if _, err := fmt.Fprintf(c.Out, "  note: %s\n", c.told(n)); err != nil {
			return err
		}
	}
	return nil
}

func (c *CLI) showDifference(result model.ApplyResult, most int) error {
	name := result.Record.Network.Name
	if !result.Changed {
		_, err := fmt.Fprintf(c.Out, "%s: no changes\n", name)
		return err
	}
	changes := difference(result)
	if result.Before != nil && len(changes) == 0 {
		_, err := fmt.Fprintf(c.Out, "network %s: the file says nothing new\n", name)
		return err
	}
	heading := "network " + name
	if result.Before == nil {
		heading += " (new)"
	}
	if n := result.Record.Network; result.Before == nil && most > 0 && len(n.Elements)+len(n.Links) > most {
		_, err := fmt.Fprintf(c.Out, "%s: %s\n", heading, contents(n))
		return err
	}
	lines := strings.Split(strings.TrimSpace(changes.Format(c.colour())), "\n")
	if most > 0 && len(lines) > most {
		left := len(lines) - most
		// The last line is the summary.
		lines = slices.Concat(lines[:most-1], []string{fmt.Sprintf("… and %d more (`polyplane plan` shows all)", left)},
			lines[len(lines)-1:])
	}
	_, err := fmt.Fprintf(c.Out, "%s\n  %s\n", heading, c.hinted(strings.Join(lines, "\n  ")))
	return err
}

// apply shows what will change, changes it, and waits until everything runs. Where networks exist already it asks for a
// plan first, so that the user sees the plan before it is carried out.
func (c *CLI) apply(ctx context.Context, cl Client, networks []model.Network, options model.ApplyOptions,
	wait bool, timeout time.Duration) error {
	begin, began := c.Now(), time.Now()
	if slices.ContainsFunc(networks, bringsAny) {
		if err := c.bringChecked(ctx, cl, networks, options, timeout); err != nil {
			return err
		}
		timeout = max(timeout-time.Since(began), time.Second) // sending is part of what is waited for
	}
	direct, err := allNew(ctx, cl, networks)
	if err != nil {
		return wrap(ctx, cl, err, ref{})
	}
	var planned []model.ApplyResult
	if direct {
		// New networks are refused or made as a whole, and everything about them is new. So a plan first would tell
		// nothing more.
		if planned, err = c.applyPlanned(ctx, cl, networks, make([]model.ApplyResult, len(networks)),
			options); err != nil {
			return err
		}
	} else if planned, err = c.planAll(ctx, cl, networks, options); err != nil {
		return err
	}
	if err := c.showPlans(planned); err != nil {
		return err
	}
	if !direct && anyChanged(planned) {
		if planned, err = c.applyPlanned(ctx, cl, networks, planned, options); err != nil {
			return err
		}
	}
	if !wait {
		return nil
	}
	await := map[string]int64{} // revision by network
	var order []string
	for _, p := range planned {
		name := p.Record.Network.Name
		order = append(order, name)
		await[name] = p.Record.Revision
	}
	if err := c.await(ctx, cl, order, await, timeout); err != nil {
		return err
	}
	if err := c.keptByApply(ctx, cl, planned); err != nil {
		return wrap(ctx, cl, err, ref{})
	}
	return c.summarizeApply(planned, c.Now().Sub(begin))
}

// bringChecked has the networks checked before it brings the manager what they need and it does not have. The time for
// that is bounded.
func (c *CLI) bringChecked(ctx context.Context, cl Client, networks []model.Network, options model.ApplyOptions,
	most time.Duration) error {
	within, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	err := func() error {
		checked := slices.Clone(networks)
		if err := c.bringImages(within, cl, checked, false); err != nil {
			return err
		}
		if _, err := c.planAll(within, cl, checked, options); err != nil {
			return err
		}
		return c.bringImages(within, cl, networks, true)
	}()
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		return &Error{Code: ExitTimeout, Err: fmt.Errorf("what the networks need was not sent within %s (--timeout), "+
			"and nothing was applied: a longer --timeout lets it be sent whole", most)}
	}
	return err
}

// bringsAny tells whether a network has images, or files that are too large for its document.
func bringsAny(n model.Network) bool {
	return slices.ContainsFunc(n.Elements, func(e model.Element) bool {
		if e.Image != "" {
			return true
		}
		for _, f := range e.Contents {
			if path.IsAbs(f.Tree) {
				return true
			}
		}
		return false
	})
}

func (c *CLI) showPlans(planned []model.ApplyResult) error {
	for _, p := range planned {
		if err := c.showChanges(p, max(shownChanges/len(planned), minChanges)); err != nil {
			return err
		}
	}
	return nil
}

func anyChanged(planned []model.ApplyResult) bool {
	return slices.ContainsFunc(planned, func(p model.ApplyResult) bool { return p.Changed })
}

// replans is how often an apply plans anew when somebody else has changed a network between plan and apply.
const replans = 5

// applyPlanned applies what was planned. Each document names the revision that its plan was made from. So what was
// shown is what is done, and nobody else's change in between is lost. If a network has moved on meanwhile, all are
// planned again, the new plans are shown, and these are applied.
func (c *CLI) applyPlanned(ctx context.Context, cl Client, networks []model.Network, planned []model.ApplyResult,
	options model.ApplyOptions) ([]model.ApplyResult, error) {
	options.Owner = c.User()
	for left := replans; ; left-- {
		documents := make([]model.Document, len(networks))
		for i, n := range networks {
			documents[i] = model.Document{Network: n, Base: model.BaseNew}
			if planned[i].Before != nil {
				documents[i].Base = planned[i].Before.Revision
			}
		}
		results, err := c.applyAll(ctx, cl, documents, options)
		if refusal, ok := errors.AsType[*client.Error](err); !ok || refusal.Status != http.StatusConflict || left == 0 {
			return results, wrap(ctx, cl, err, ref{})
		}
		if planned, err = c.planAll(ctx, cl, networks, options); err != nil {
			return nil, err
		}
		what := networks[0].Name + " was"
		if len(networks) > 1 {
			what = "a network of the file was"
		}
		fmt.Fprintf(c.Err, "%s changed by somebody else meanwhile: planned again\n", what)
		if err := c.showPlans(planned); err != nil || !anyChanged(planned) {
			return planned, err
		}
	}
}

// User is the owner of new networks: the person who typed the command, also behind sudo.
func (c *CLI) User() string {
	return cmp.Or(c.Getenv("SUDO_USER"), c.Getenv("USER"), c.Getenv("LOGNAME"), "root")
}

// contents counts what a network has, by kind.
func contents(n model.Network) string {
	kinds := map[model.Kind]int{}
	for _, e := range n.Elements {
		kinds[e.Kind]++
	}
	var parts []string
	for _, k := range []model.Kind{model.Router, model.Host, model.Switch} {
		if kinds[k] > 0 {
			parts = append(parts, strings.Replace(plural(kinds[k], string(k)), "switchs", "switches", 1))
		}
	}
	return strings.Join(append(parts, plural(len(n.Links), "link")), ", ")
}

// allNew tells whether none of the networks exists yet.
func allNew(ctx context.Context, cl Client, networks []model.Network) (bool, error) {
	existing, err := cl.Networks(ctx)
	return !slices.ContainsFunc(existing, func(n model.NetworkStatus) bool {
		return slices.ContainsFunc(networks, func(o model.Network) bool { return o.Name == n.Name })
	}), err
}

func (c *CLI) summarizeApply(planned []model.ApplyResult, took time.Duration) error {
	if !anyChanged(planned) {
		return nil
	}
	var names []string
	elements, links := 0, 0
	for _, p := range planned {
		elements += len(p.Record.Network.Elements)
		links += len(p.Record.Network.Links)
		names = append(names, p.Record.Network.Name)
	}
	_, err := fmt.Fprintf(c.Out, "%s: ready in %s (%s, %s)\n", fewNames(names), elapsed(took),
		plural(elements, "element"), plural(links, "link"))
	return err
}

// fewNames lists networks' names, or only counts them if there are many.
func fewNames(names []string) string {
	const most = 8
	if len(names) > most {
		return fmt.Sprintf("%d networks", len(names))
	}
	return strings.Join(names, ", ")
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
