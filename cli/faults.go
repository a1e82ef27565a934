package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/model"
)

func (c *CLI) faultsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "faults",
		Short:   "Start, stop or show a network's schedule of faults",
		GroupID: groupNetworks,
		Long: `A network's file may have a schedule of faults, for lessons and measurements that can be repeated:

  faults:
    - {at: 30s, stop: r1 -- r2}
    - {at: 60s, start: r1 -- r2}
    - {at: 70s, set: r1 -- r2, loss: 5%}
    - {at: 90s, restart: r3}

Times count from the start. The manager carries it out: whoever started it may go away. An event tells of each fault and
of the real time.`,
		Example: "  polyplane faults start lab\n  polyplane faults show lab\n  polyplane faults stop lab",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usageError(cmd, "what to do with the faults is missing: start, stop or show")
		},
	}
	for _, a := range []struct {
		action            model.Action
		short, done, long string
	}{
		{model.ActionStart, "Start the schedule of faults", "started", ""},
		{model.ActionStop, "End the schedule of faults, and put back what it has changed", "stopped",
			"End the schedule, if it is not over, and make the elements and links that it has touched as they were " +
				"before.\nWhat it has not changed stays as it is."},
	} {
		cmd.AddCommand(&cobra.Command{
			Use: string(a.action) + " NET", Short: a.short, Long: a.long, Args: args(1, 1, "NET"),
			RunE: c.connected(func(cmd *cobra.Command, cl Client, given []string) error {
				network, err := c.refs(cmd.Context()).network(given[0])
				if err != nil {
					return err
				}
				of := ref{network: network}
				before, err := cl.Network(cmd.Context(), of.network)
				if err == nil && a.action == model.ActionStop && before.FaultRun == nil {
					fmt.Fprintf(c.Out, "%s: no faults are running\n", of.network)
					return nil
				}
				var r model.Record
				if err == nil {
					r, err = cl.Faults(cmd.Context(), of.network, a.action)
				}
				if err != nil {
					return wrap(cmd.Context(), cl, err, of)
				}
				if a.action == model.ActionStop {
					fmt.Fprintf(c.Out, "%s: faults stopped, and what they had changed is put back\n", of.network)
					return nil
				}
				faults := r.FaultRun.Faults
				fmt.Fprintf(c.Out, "%s: faults started; the last of %d is at %s\n", of.network, len(faults),
					faults[len(faults)-1].At)
				return nil
			}),
			ValidArgsFunction: c.completeFirst(c.completeNetworks),
		})
	}
	var o output
	show := &cobra.Command{
		Use: "show NET", Short: "Show the schedule of faults, and what of it is done", Args: args(1, 1, "NET"),
		RunE: func(cmd *cobra.Command, given []string) error {
			_, r, err := c.recorded(cmd.Context(), given[0])
			if err != nil {
				return err
			}
			return c.showFaults(r, o)
		},
		ValidArgsFunction: c.completeFirst(c.completeNetworks),
	}
	o.addFlag(show, formatJSON, formatYAML)
	cmd.AddCommand(show)
	return cmd
}

// faultsView is a schedule, and the run of it that was started last.
type faultsView struct {
	Network string          `json:"network"`
	Faults  []model.Fault   `json:"faults"`
	Run     *model.FaultRun `json:"run,omitempty"`
}

func (c *CLI) showFaults(r model.Record, o output) error {
	run, faults := r.FaultRun, r.Network.Faults
	if o.format != formatTable {
		return writeValue(c.Out, o.format, faultsView{r.Network.Name, faults, run})
	}
	switch {
	case run != nil:
		faults = run.Faults
		state := "running"
		if run.Over() {
			state = "over; `polyplane faults stop " + r.Network.Name + "` puts back what they have changed"
		}
		fmt.Fprintf(c.Out, "%s: faults started %s ago, %s\n", r.Network.Name, age(c.Now().Sub(run.Began)), state)
	case len(faults) == 0:
		fmt.Fprintf(c.Out, "%s has no schedule of faults\n", r.Network.Name)
		return nil
	}
	t := table{head: []string{">AT", "FAULT", ">DONE", "RESULT"}}
	for i, f := range faults {
		what := f
		what.At = 0
		row := []cell{text(time.Duration(f.At).String()), text(what.String()[len("at 0s "):]), text(""), text("")}
		if run != nil && i < len(run.Done) {
			d := run.Done[i]
			row[2], row[3] = text(time.Duration(d.At).String()), cell{"made", good}
			if d.Problem != "" {
				row[3] = cell{c.told(d.Problem), bad}
			}
		}
		t.add(row...)
	}
	return t.write(c.Out, c.colour(), true, "")
}
