package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/model"
)

func (c *CLI) quarantineCommand() *cobra.Command {
	reason := ""
	cmd := &cobra.Command{
		Use:     "quarantine NET/ELEMENT…",
		Short:   "Cut elements' links; they, their state and a capture of their last packets are kept",
		GroupID: groupElements,
		Long: `Cut all links of elements at once, whoever forwards for them. Nothing comes from them or to them any
more, and the far ends lose their carrier. The elements themselves go on: their processes, files and
addresses stay, and exec and console still lead into them. Some of their packets are kept (quarantine
capture): what the node's watch saw last before the cut, and what the elements tried to send in the two
seconds after it.

A quarantine lasts until release, over applies, restarts and reboots. Elements get into it by this
command, or by their policy when they attack (policy).`,
		Example: "  polyplane quarantine lab/h3 --reason 'scans the others'\n  polyplane quarantine list\n  " +
			"polyplane quarantine capture lab/h3 -w h3.pcapng\n  polyplane release lab/h3",
		Args: args(1, -1, "NET/ELEMENT"),
		RunE: func(cmd *cobra.Command, given []string) error {
			ctx := cmd.Context()
			ids := make([]model.ID, len(given))
			refs := c.refs(ctx)
			for i, s := range given {
				id, err := refs.element(s)
				if err != nil {
					return err
				}
				ids[i] = id
			}
			cl, err := c.connect()
			if err != nil {
				return err
			}
			for _, id := range ids { // all names are checked before anything is changed
				if err := lookUp(ctx, cl, ref{network: id.Network, element: id.Element}); err != nil {
					return err
				}
			}
			var failures []error
			for _, id := range ids {
				result, err := cl.Quarantine(ctx, id, reason)
				switch {
				case err != nil:
					failures = append(failures, wrap(ctx, cl, fmt.Errorf("%s: %w", id, err),
						ref{network: id.Network, element: id.Element}))
				case !result.Changed:
					fmt.Fprintf(c.Out, "%s is in quarantine already\n", id)
				default:
					fmt.Fprint(c.Out, c.hinted(fmt.Sprintf("%s is in quarantine; `polyplane release %s` ends it\n", id,
						id)))
					c.tellAside(id, result.Aside)
				}
			}
			return errors.Join(failures...)
		},
		ValidArgsFunction: c.completeEvery(c.completeElements),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, in `WORDS` that everybody sees who sees the element")
	cmd.AddCommand(c.quarantineListCommand(), c.quarantineCaptureCommand())
	return cmd
}

func (c *CLI) quarantineListCommand() *cobra.Command {
	var o output
	cmd := &cobra.Command{
		Use:     "list [NET]",
		Short:   "List the elements in quarantine, and why",
		Example: "  polyplane quarantine list",
		Args:    args(0, 1, "NET"),
		RunE: c.connected(func(cmd *cobra.Command, cl Client, given []string) error {
			of := strings.Join(given, "")
			if of != "" {
				var err error
				if of, err = c.refs(cmd.Context()).network(of); err != nil {
					return err
				}
			}
			all, err := cl.Policies(cmd.Context(), of)
			if err != nil {
				return wrap(cmd.Context(), cl, err, ref{network: of})
			}
			in := []model.PolicyView{}
			for _, v := range all {
				if v.Quarantined {
					in = append(in, v)
				}
			}
			if o.format != formatTable {
				return writeValue(c.Out, o.format, in)
			}
			if len(in) == 0 {
				_, err := fmt.Fprintln(c.Out, "no element is in quarantine")
				return err
			}
			t := table{head: []string{"ELEMENT", "WHY"}}
			for _, v := range in {
				t.add(texts(v.ID.String(), v.Reason)...)
			}
			return t.write(c.Out, c.colour(), true, "")
		}),
		ValidArgsFunction: c.completeFirst(c.completeNetworks),
	}
	o.addFlag(cmd, formatJSON, formatYAML)
	return cmd
}

func (c *CLI) quarantineCaptureCommand() *cobra.Command {
	file := ""
	cmd := &cobra.Command{
		Use:   "capture NET/ELEMENT",
		Short: "Fetch the capture that is kept of an element in quarantine",
		Example: "  polyplane quarantine capture lab/h3 -w h3.pcapng\n  polyplane quarantine capture lab/h3 | " +
			"tcpdump -nr -",
		Args: args(1, 1, "NET/ELEMENT"),
		RunE: func(cmd *cobra.Command, given []string) (err error) {
			ctx := cmd.Context()
			id, err := c.refs(cmd.Context()).element(given[0])
			if err != nil {
				return err
			}
			if _, ok := terminalFD(c.Out); ok && file == "" {
				return usageError(cmd, "a capture is binary data, and standard output is a terminal: write it with "+
					"-w FILE, or pipe it")
			}
			cl, err := c.connect()
			if err != nil {
				return err
			}
			of := ref{network: id.Network, element: id.Element}
			if err := lookUp(ctx, cl, of); err != nil {
				return err
			}
			stream, err := cl.Evidence(ctx, id)
			if err != nil {
				return wrap(ctx, cl, err, of)
			}
			defer stream.Close()
			out := c.Out
			if file != "" && file != "-" {
				f, err := os.Create(file)
				if err != nil {
					return err
				}
				defer func() { err = errors.Join(err, f.Close()) }()
				out = f
			}
			n, err := io.Copy(out, stream)
			if err == nil && file != "" && file != "-" {
				fmt.Fprintf(c.Out, "%s written to %s\n", model.Bytes(n).Rounded(), file)
			}
			return err
		},
		ValidArgsFunction: c.completeFirst(c.completeElements),
	}
	cmd.Flags().StringVarP(&file, "write", "w", "", "write pcapng to this `FILE` (- is standard output)")
	return cmd
}

func (c *CLI) releaseCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "release NET/ELEMENT…",
		Short:   "End elements' quarantine: their links are joined again",
		GroupID: groupElements,
		Example: "  polyplane release lab/h3",
		Args:    args(1, -1, "NET/ELEMENT"),
		RunE: c.connected(func(cmd *cobra.Command, cl Client, given []string) error {
			ctx := cmd.Context()
			var failures []error
			refs := c.refs(ctx)
			for _, s := range given {
				id, err := refs.element(s)
				if err != nil {
					return err
				}
				result, err := cl.Act(ctx, id, model.ActionRelease)
				switch {
				case err != nil:
					failures = append(failures, wrap(ctx, cl, fmt.Errorf("%s: %w", id, err),
						ref{network: id.Network, element: id.Element}))
				case !result.Changed:
					fmt.Fprintf(c.Out, "%s is not in quarantine\n", id)
				default:
					fmt.Fprintf(c.Out, "%s released\n", id)
				}
			}
			return errors.Join(failures...)
		}),
		ValidArgsFunction: c.completeEvery(c.completeElements),
	}
}

// policyKey is the only key that there is so far.
const policyKey = "attack"

func (c *CLI) policyCommand() *cobra.Command {
	var o output
	cmd := &cobra.Command{
		Use:     "policy [NET[/ELEMENT] [attack=POLICY]]",
		Short:   "Show, or set, what is done to elements that attack",
		GroupID: groupNetworks,
		Long: `Show which policy counts for each element, and whose it is; or, as an administrator, set it. An
administrator's policy comes before that of the network's file (policy:). It stays until it is taken
back with attack=.

  tell        an event says so, and nothing else happens (the default)
  quarantine  the element's links are cut; it, its state and a capture of its last packets are kept
  stop        the element is stopped; its files are kept
  delete      the element is taken out of its network; its disk goes to the trash

Others may have provoked what an element does, by what they sent to it. Then an event says so, and nothing
is done to the element.`,
		Example: "  polyplane policy\n  polyplane policy lab attack=quarantine\n  polyplane policy lab/r1 " +
			"attack=tell\n  polyplane policy lab attack=",
		Args: args(0, 2, ""),
		RunE: func(cmd *cobra.Command, given []string) error {
			ctx := cmd.Context()
			var of ref
			if len(given) > 0 {
				var err error
				if of, err = c.refs(ctx).any(given[0]); exitCode(err) == ExitRefused {
					return err
				} else if err != nil || of.iface != "" {
					return usageError(cmd, "%q has no policy: NET or NET/ELEMENT is expected", given[0])
				}
			}
			cl, err := c.connect()
			if err != nil {
				return err
			}
			var all []model.PolicyView
			if len(given) == 2 {
				key, value, ok := strings.Cut(given[1], "=")
				if !ok || key != policyKey {
					return usageError(cmd, "%q sets no policy: attack=tell, quarantine, stop or delete is expected, "+
						"or attack= to take it back", given[1])
				}
				policy := model.AttackPolicy(strings.TrimSpace(value))
				if err := policy.Check(); err != nil {
					return usageError(cmd, "%v", err)
				}
				all, err = cl.SetPolicy(ctx, of.network, model.PolicyRequest{Element: of.element, Attack: policy})
			} else {
				all, err = cl.Policies(ctx, of.network)
			}
			if err != nil {
				return wrap(ctx, cl, err, of)
			}
			return c.showPolicies(all, of, o)
		},
		ValidArgsFunction: c.completeFirst(c.completeElements),
	}
	o.addFlag(cmd, formatJSON, formatYAML)
	return cmd
}

func (c *CLI) showPolicies(all []model.PolicyView, of ref, o output) error {
	shown := []model.PolicyView{}
	for _, v := range all {
		if of.element == "" || v.ID.Element == of.element {
			shown = append(shown, v)
		}
	}
	if o.format != formatTable {
		return writeValue(c.Out, o.format, shown)
	}
	t := table{head: []string{"ELEMENT", "ATTACK", "SET BY"}}
	for _, v := range shown {
		by := "the file, or the default"
		if v.Administrator {
			by = "an administrator"
		}
		t.add(texts(v.ID.String(), string(v.Attack), by)...)
	}
	return t.write(c.Out, c.colour(), true, "")
}

// elementPhase is an element's phase, or that it is in quarantine. If its node says nothing now, it adds how old the
// news is.
func elementPhase(e *model.ElementStatus) cell {
	c := phase(e.Phase)
	if e.Quarantine != "" && e.Phase == model.PhaseRunning {
		c = cell{"quarantined", bad}
	}
	if e.LastTold != 0 {
		c = cell{c.text + ", told " + age(time.Duration(e.LastTold)) + " ago", warn}
	}
	return c
}
