package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/model"
)

// shownProbes is the number of probes up to which all are listed. If there are more, only those that failed are.
const shownProbes = 60

func (c *CLI) checkCommand() *cobra.Command {
	var o output
	var request model.CheckRequest
	var all bool
	cmd := &cobra.Command{
		Use:     "check NET",
		Short:   "Prove that a network does what its file expects",
		GroupID: groupLook,
		Long: `Probe what the network's file expects ("h1 reaches h2", "h1 does not reach h3") and, with --mesh,
every pair of hosts. Each element answers with a secret of its own, so that reaching somebody else
with the same address is a failure. Routers are asked what the file expects of their routing ("r1
ospf neighbor r2", "r1 bgp route 10.0.0.0/8 via r2"). The exit status is 0 when everything is as it
shall be, else 1.`,
		Example: "  polyplane check lab\n  polyplane check lab --mesh --wait 60s",
		Args:    args(1, 1, "NET"),
		RunE: func(cmd *cobra.Command, given []string) error {
			network, err := c.refs(cmd.Context()).network(given[0])
			if err != nil {
				return err
			}
			of := ref{network: network}
			if request.Routers || request.Sample > 0 {
				request.Mesh = true
			}
			ctx := cmd.Context()
			cl, err := c.connect()
			if err != nil {
				return err
			}
			begin := c.Now()
			if request.Wait > 0 && c.terminal() {
				fmt.Fprintf(c.Err, "checking %s for up to %s…\n", of.network, request.Wait)
			}
			result, err := cl.Check(ctx, of.network, request)
			if err != nil {
				return wrap(ctx, cl, err, of)
			}
			if o.format != formatTable {
				if err := writeValue(c.Out, o.format, result); err != nil {
					return err
				}
			} else if err := c.showCheck(result, all, c.Now().Sub(begin)); err != nil {
				return err
			}
			switch {
			case len(result.Probes)+len(result.States) == 0 && request.Mesh:
				return failed("%s has no pair of hosts to probe, and expects nothing, so nothing was checked: a pair "+
					"is two hosts with addresses (`polyplane get elements %s`); --routers probes routers as well, "+
					"and `expect:` in its file says what is to be", of.network, of.network)
			case len(result.Probes)+len(result.States) == 0:
				return failed("%s expects nothing, so nothing was checked; add `expect:` to its file, or probe all "+
					"pairs of hosts with `polyplane check %s --mesh`", of.network, of.network)
			case !result.OK:
				return &commandExit{ExitFailed}
			}
			return nil
		},
		ValidArgsFunction: c.completeFirst(c.completeNetworks),
	}
	o.addFlag(cmd, formatJSON, formatYAML)
	f := cmd.Flags()
	f.BoolVar(&request.Mesh, "mesh", false, "probe every pair of hosts, both ways, as well")
	f.BoolVar(&request.Routers, "routers", false, "with --mesh: also every pair of router loopbacks")
	f.IntVar(&request.Sample, "sample", 0, "with --mesh: only this many pairs, chosen at random")
	f.Int64Var(&request.Seed, "seed", 1, "the seed by which --sample and --neighbours choose")
	f.IntVar(&request.Neighbours, "neighbours", 0, "also probe this many pairs of directly linked elements")
	f.DurationVar(&request.Wait, "wait", 0, "try again until all is well or so long has passed, such as 60s")
	f.BoolVarP(&all, "all", "a", false, fmt.Sprintf("list every probe, even if there are more than %d", shownProbes))
	return cmd
}

func (c *CLI) showCheck(result model.CheckResult, all bool, took time.Duration) error {
	t := table{head: []string{"", "FROM", "TO", "ADDRESS", "RESULT", ">RTT"}}
	bad := 0
	for _, p := range result.Probes {
		if !p.OK {
			bad++
		}
		if p.OK && !all && len(result.Probes) > shownProbes {
			continue
		}
		rtt := ""
		if p.Reached {
			rtt = fmt.Sprintf("%.2f ms", float64(p.RTT.Microseconds())/1000)
		}
		t.add(mark(p.OK), text(p.From), text(p.To), text(p.Address.String()), text(outcome(p)), text(rtt))
	}
	if len(t.rows) > 0 {
		if err := t.write(c.Out, c.colour(), true, ""); err != nil {
			return err
		}
	}
	states := table{head: []string{"", "EXPECTED", "RESULT"}}
	for _, x := range result.States {
		if !x.OK {
			bad++
		}
		if x.OK && !all && len(result.States) > shownProbes {
			continue
		}
		said := x.Message
		switch {
		case said == "" && x.OK:
			said = "so it is"
		case said == "":
			said = "it is not so"
		}
		states.add(mark(x.OK), text(x.Expected), text(oneLine(said)))
	}
	if len(states.rows) > 0 {
		if err := states.write(c.Out, c.colour(), true, ""); err != nil {
			return err
		}
	}
	var err error
	switch asked := asked(result); {
	case asked == "":
	case bad == 0 && result.OK:
		_, err = fmt.Fprintf(c.Out, "%s: all %s as expected (%s)\n", result.Network, asked, elapsed(took))
	default:
		_, err = fmt.Fprintf(c.Out, "%s: %d of %s not as expected (%s)\n", result.Network, bad, asked, elapsed(took))
	}
	return err
}

// asked says how much was asked; nothing if nothing was.
func asked(result model.CheckResult) string {
	probes, states := len(result.Probes), len(result.States)
	switch {
	case states == 0 && probes == 0:
		return ""
	case states == 0:
		return fmt.Sprintf("%d probes", probes)
	case probes == 0:
		return fmt.Sprintf("%d states", states)
	}
	return fmt.Sprintf("%d probes and states", probes+states)
}

func mark(ok bool) cell {
	if ok {
		return cell{"ok", good}
	}
	return cell{"FAIL", bad}
}

func outcome(p model.ProbeResult) string {
	if p.Message != "" && (p.Answered != "" || p.Not && p.Reached) {
		return oneLine(p.Message) // says it all
	}
	s := "not reached"
	switch {
	case p.Answered != "" && p.Answered != p.To:
		s = "answered by " + p.Answered
	case p.Reached:
		s = "reached"
	}
	switch {
	case !p.OK && p.Not:
		s += ", and must not be"
	case p.OK && p.Not:
		s += ", as it must be"
	}
	if p.Message != "" {
		s += ": " + oneLine(p.Message)
	}
	return s
}
