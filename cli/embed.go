package cli

import (
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/embedding/virne"
)

// replayResult is what a replay came to, for programs.
type replayResult struct {
	Nodes         int     `json:"nodes"`
	Links         int     `json:"links"`
	Requests      int     `json:"requests"`
	Accepted      int     `json:"accepted"`
	Acceptance    float64 `json:"acceptance"`
	RevenueToCost float64 `json:"revenueToCost"`
	MeanSeconds   float64 `json:"meanSeconds"`
	MostSeconds   float64 `json:"mostSeconds"`
}

func (c *CLI) embedCommand() *cobra.Command {
	var o output
	var dataSet, physical, generate string
	settings := virne.Settings{Topology: "waxman", Requests: 1000, Rate: 0.14}
	cmd := &cobra.Command{
		Use:     "embed --virne DIR",
		Short:   "Compare how networks are placed with other methods",
		GroupID: groupOther,
		Long: `Replay a data set of Virne, a simulator that many methods of placing networks were compared with
(https://github.com/GeminiLight/virne): requests arrive, are placed with each of their nodes on a node of its own, and
leave. Every placement is checked by an account of its own. No instance has to be up, and nothing is made.

DIR has what the simulator saves: v_nets/*.gml, events.yaml, and p_net.gml, unless --physical says where that is.
--generate makes such a directory by the published settings, for this command and for the simulator.

Acceptance is the share of requests that found a place. Revenue is what the accepted ones asked for, cores and
bandwidth; cost counts bandwidth for each link of its way. The time is that of the processor.`,
		Example: "  polyplane embed --generate data --topology waxman --rate 0.14 --seed 7\n" +
			"  polyplane embed --virne data",
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case dataSet == "" && generate == "":
				return usageError(cmd, "--virne DIR is needed, the data set that is replayed, or --generate DIR")
			case dataSet != "" && generate != "":
				return usageError(cmd, "--virne and --generate are two commands: one reads a directory, one makes it")
			case generate != "":
				return c.generateDataSet(settings, generate)
			}
			return c.replay(dataSet, physical, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&dataSet, "virne", "", "replay the data set in this `DIR`")
	f.StringVar(&physical, "physical", "", "the `FILE` of the physical network, if it is not p_net.gml in DIR")
	f.StringVar(&generate, "generate", "", "make this `DIR` with a data set")
	f.Var(&formatFlag{value: &settings.Topology, allowed: virne.Topologies()}, "topology",
		"the physical network that is made")
	f.Float64Var(&settings.Rate, "rate", settings.Rate, "how many requests arrive in a unit of time")
	f.IntVar(&settings.Requests, "requests", settings.Requests, "how many requests are made")
	f.Uint64Var(&settings.Seed, "seed", 0, "the same `NUMBER` makes the same data set")
	f.BoolVar(&settings.Process, "process", false,
		"arrivals are a Poisson process; else the times between them are Poisson distributed, as the simulator's")
	mustComplete(cmd.MarkFlagDirname("virne"))
	mustComplete(cmd.MarkFlagDirname("generate"))
	mustComplete(cmd.MarkFlagFilename("physical", "gml"))
	o.addFlag(cmd, formatJSON, formatYAML)
	return cmd
}

func (c *CLI) generateDataSet(settings virne.Settings, dir string) error {
	d, err := virne.Generate(settings)
	if err != nil {
		return badFile(err)
	}
	if err := virne.Write(d, dir); err != nil {
		return badFile(fmt.Errorf("making the data set: %w", err))
	}
	_, err = fmt.Fprintf(c.Out, "%s has %d requests for %d nodes and %d links; polyplane embed --virne %s replays "+
		"them\n", dir, len(d.Requests), len(d.Physical.Nodes), len(d.Physical.Links), dir)
	return err
}

func (c *CLI) replay(dir, physical string, o output) error {
	d, err := virne.Read(dir, physical)
	if err != nil {
		return badFile(fmt.Errorf("reading the data set: %w", err))
	}
	r, err := virne.Replay(d, processorTime)
	if err != nil {
		return fmt.Errorf("replaying %s: %w", dir, err)
	}
	if o.format != formatTable {
		return writeValue(c.Out, o.format, replayResult{len(d.Physical.Nodes), len(d.Physical.Links), r.Requests,
			r.Accepted, r.Acceptance(), r.RevenueToCost(), r.Mean().Seconds(), r.Longest.Seconds()})
	}
	var b strings.Builder
	line := func(key, format string, args ...any) {
		fmt.Fprintf(&b, "%-20s"+format+"\n", append([]any{key}, args...)...)
	}
	line("Substrate", "%d nodes, %d links", len(d.Physical.Nodes), len(d.Physical.Links))
	line("Accepted", "%d of %d requests (%.3f)", r.Accepted, r.Requests, r.Acceptance())
	line("Revenue to cost", "%.3f", r.RevenueToCost())
	line("Time of a request", "%s, at most %s", millis(r.Mean()), millis(r.Longest))
	line("Checked", "no node and no link was ever given more than it has")
	_, err = fmt.Fprint(c.Out, b.String())
	return err
}

func millis(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }

// processorTime is what this process has had of the processors.
func processorTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
