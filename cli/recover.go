package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/model"
)

func (c *CLI) recoverCommand() *cobra.Command {
	var fromNodes bool
	var request model.RecoverRequest
	cmd := &cobra.Command{
		Use:   "recover --from-nodes [NET…]",
		Short: "Put networks that the store has lost together again, from what nodes were told",
		Long: `Put networks together again from what their nodes were told to have, and take them into the store. These
are the networks that you name, or all that nodes hold and the store does not know. Numbers, addresses,
MACs and places stay as they are, and nothing that runs is touched. This is the last resort: a backup has
more (` + "`polyplane restore`" + `). Nodes do not know what a network expects, tokens, quotas, and which policies for
attacks are an administrator's. These are lost, and the command says so.`,
		GroupID: GroupData,
		Example: "  polyplane recover --from-nodes --dry-run\n  polyplane recover --from-nodes",
		RunE: func(cmd *cobra.Command, given []string) error {
			if !fromNodes {
				return usageError(cmd, "say where to recover from: --from-nodes (a backup is put back by `polyplane "+
					"restore`)")
			}
			ctx := cmd.Context()
			cl, err := c.connect()
			if err != nil {
				return err
			}
			if request.Networks, err = c.refs(ctx).networks(given); err != nil {
				return err
			}
			result, err := cl.Recover(ctx, request)
			if err != nil {
				return wrap(ctx, cl, err, ref{})
			}
			return c.printRecovered(result, request.DryRun)
		},
		ValidArgsFunction: c.completeEvery(c.completeNetworks),
	}
	f := cmd.Flags()
	f.BoolVar(&fromNodes, "from-nodes", false, "from what the nodes keep of what they were told to have")
	f.BoolVar(&request.DryRun, "dry-run", false, "tell what would be done, and do nothing")
	f.BoolVar(&request.Changed, "changed", false,
		"take in also what cannot be put together exactly as it is: running elements may change")
	return cmd
}

func (c *CLI) printRecovered(result model.RecoverResult, dry bool) error {
	for _, s := range result.Silent {
		say(c.Out, "node %s (what it has is not looked at)\n", s)
	}
	if len(result.Networks) == 0 {
		fmt.Fprintln(c.Out, "nothing to recover: the nodes that answer have no network that the store does not know")
		return nil
	}
	word, refusedNames := "recovered", []string(nil)
	if dry {
		word = "can be recovered"
	}
	for _, n := range result.Networks {
		if n.Taken {
			say(c.Out, "%s %s: %d elements, %d links, on %s\n", n.Name, word, n.Elements, n.Links,
				strings.Join(n.Nodes, ", "))
		} else {
			say(c.Out, "%s NOT %s: %s\n", n.Name, word, n.Problem)
			refusedNames = append(refusedNames, n.Name)
		}
		for _, note := range n.Notes {
			say(c.Out, "  %s\n", note)
		}
	}
	if len(refusedNames) > 0 {
		return refused(fmt.Errorf("not recovered: %s", strings.Join(refusedNames, ", ")))
	}
	return nil
}
