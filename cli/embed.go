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

// settingFlags are the flags of what is generated.
var settingFlags = []string{"topology", "rate", "requests", "seed", "process"}

func (c *CLI) embedCommand() *cobra.Command {
	var o output
	var dataSet, physical, generate string
	var whatIf bool
	settings := virne.Settings{Topology: "waxman", Requests: 1000, Rate: 0.14}
	cmd := &cobra.Command{
		Use:               "embed --what-if NODE down|+NODE...|--virne DIR",
		Short:             "Tell where networks would go if nodes went or came; compare how they are placed",
		GroupID:           groupOther,
		ValidArgsFunction: c.completeWhatIf,
		Long: `With --what-if, tell what would become of what runs if nodes went (NODE down) or came (+NODE): which
elements would go where, which links would take which path, what would not fit and why, and what would be left.
Nothing is changed. What a node that comes has stands behind its name: cpu=8 memory=16GiB bandwidth=10Gbit (of its
links) location=rio, or like=NODE for what is not said; the name of a node that is there means one more like it.
Networks that are concerned are placed again one after the other, by name; what they have elsewhere stays.

With --virne, replay a data set of Virne, a simulator that many methods of placing networks were compared with
(https://github.com/GeminiLight/virne): requests arrive, are placed with each of their nodes on a node of its own, and
leave. Every placement is checked by an account of its own. No instance has to be up, and nothing is made.

DIR has what the simulator saves: v_nets/*.gml, events.yaml, and p_net.gml, unless --physical says where that is.
--generate makes such a directory by the published settings, for this command and for the simulator.

Acceptance is the share of requests that found a place. Revenue is what the accepted ones asked for, cores and
bandwidth; cost counts bandwidth for each link of its way. The time is that of the processor.`,
		Example: "  polyplane embed --what-if n2 down\n" +
			"  polyplane embed --what-if n2 down n3 down -o json\n" +
			"  polyplane embed --what-if +n9 cpu=16 memory=64GiB bandwidth=10Gbit\n" +
			"  polyplane embed --generate data --topology waxman --rate 0.14 --seed 7\n" +
			"  polyplane embed --virne data",
		Args: args(0, -1, ""),
		RunE: func(cmd *cobra.Command, given []string) error {
			kinds := 0
			for _, is := range []bool{whatIf, dataSet != "", generate != ""} {
				if is {
					kinds++
				}
			}
			for _, of := range settingFlags {
				if generate == "" && cmd.Flags().Changed(of) {
					return usageError(cmd, "--%s is of --generate", of)
				}
			}
			switch {
			case kinds == 0:
				return usageError(cmd, "--what-if NODE down is needed, or --virne DIR, the data set that is "+
					"replayed, or --generate DIR")
			case whatIf && kinds > 1:
				return usageError(cmd, "--what-if is about what runs, and has no data set (--virne, --generate)")
			case kinds > 1:
				return usageError(cmd, "--virne and --generate are two commands: one reads a directory, one makes it")
			case physical != "" && dataSet == "":
				return usageError(cmd, "--physical is of --virne")
			case whatIf:
				return c.whatIf(cmd, given, o)
			case len(given) > 0:
				return usageError(cmd, "unexpected argument %q", given[0])
			case generate != "" && o.format != formatTable:
				return usageError(cmd, "--generate makes a directory, and has no other output (-o)")
			case generate != "":
				return c.generateDataSet(settings, generate)
			}
			return c.replay(dataSet, physical, o)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&whatIf, "what-if", false, "tell what would be: NODE down, or +NODE with what it has")
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
