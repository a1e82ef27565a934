package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/instance"
)

const trafficLong = `Send measured frames from one element to another through the virtual network. Count and time every frame:
offered, received, lost, reordered, duplicated, corrupted, its delay and the delay's variation.

Frames leave A's interface as its own would, with A's address, to the first hop that A's routes name. They
are taken at B's interface before B's stack sees them. Several pairs (A B C D: from A to B and from C to D)
send at the same time. With --compare they are measured in turn, in random order.

Where there are two cores the loop is open: one core sends, the other one forwards, so that frames can be
lost. --self-test finds out what the instrument itself can do on this machine, and keeps that. Later trials
beyond it are refused. docs/measuring.md explains every figure.

As root on the machine that has the elements, it opens their own devices. To users who speak to a manager
elsewhere (and with --inside) it gives what processes inside the elements can measure, by iperf3: datagrams
sent, lost and reordered, their jitter, or (--tcp) TCP's bit rate. These processes count for the elements,
so the load is within the limits of these and of the network's slice, as with any command inside.`

const trafficExample = `  polyplane traffic lab/h1 lab/h2
  polyplane traffic lab/h1 lab/h2 --rate 100kpps --size imix --flows 4096 --repeat 10
  polyplane traffic lab/h1 lab/h2 --search mlr --latency-at 50% -o json --out result.json
  polyplane traffic --compare lab/h1 lab/h2 xen/h1 xen/h2 --repeat 20
  polyplane traffic lab/h1 lab/h2 --tcp --streams 4 --duration 10s
  polyplane traffic lab/h1 lab/h2 --inside --rate 1kpps
  polyplane traffic --self-test`

func (c *CLI) trafficCommand() *cobra.Command {
	var f trafficFlags
	cmd := &cobra.Command{
		Use:     "traffic NET/A[:IF] NET/B[:IF]… | --self-test",
		Short:   "Measure what passes between elements: loss, delay, throughput",
		GroupID: groupLook,
		Long:    trafficLong,
		Example: trafficExample,
		RunE: func(cmd *cobra.Command, given []string) error {
			f.seen(cmd)
			p, err := f.plan(given)
			if err != nil {
				return usageError(cmd, "%s", err)
			}
			return c.traffic(cmd.Context(), p)
		},
		ValidArgsFunction: func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
			return c.complete(cmd, typed, c.completePorts)
		},
	}
	f.add(cmd)
	return cmd
}

// resolve finds out which networks the pairs are of.
func (p *trafficPlan) resolve(named *refs) error {
	p.named = named
	for i := range p.pairs {
		for _, r := range []*ref{&p.pairs[i].from, &p.pairs[i].to} {
			var err error
			if r.network, err = named.network(r.network); err != nil {
				return err
			}
		}
		if pair := p.pairs[i]; pair.from.network != pair.to.network {
			return usageError(nil, "%s", separate(pair))
		}
	}
	return nil
}

func separate(pair trafficPair) error {
	return fmt.Errorf("%s and %s are separate networks: nothing leads from one to the other", pair.from.network,
		pair.to.network)
}

// traffic does what a plan says.
func (c *CLI) traffic(ctx context.Context, p *trafficPlan) error {
	server, _, err := c.chosen()
	switch {
	case err != nil:
		return err
	case p.inside || server != "":
		return c.trafficInside(ctx, p)
	}
	if err := needRoot(); err != nil {
		return err
	}
	if err := p.resolve(c.refs(ctx)); err != nil {
		return err
	}
	dirs := instance.NewDirs(c.Instance)
	if p.mode == modeSelfTest {
		return c.selfTest(ctx, p, dirs)
	}
	paths, err := c.trafficPaths(ctx, p, dirs)
	if err != nil {
		return err
	}
	bench, err := openTrafficLock(dirs)
	if err != nil {
		return err
	}
	defer bench.close()
	t := &trafficRun{c: c, plan: p, paths: paths, bench: bench}
	t.report.Name, t.report.Title = "traffic", p.title()
	if err := t.prepare(ctx, dirs); err != nil {
		return err
	}
	err = t.measure(ctx)
	t.clear()
	if err != nil {
		return err
	}
	return c.printTraffic(p, &t.report)
}

// seconds is a duration as people write it: 2 s, 100 ms.
func seconds(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%g ms", float64(d)/1e6)
	}
	return fmt.Sprintf("%g s", d.Seconds())
}
