package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

func (c *CLI) forgetCommand() *cobra.Command {
	now := false
	cmd := &cobra.Command{
		Use:   "forget NET…",
		Short: "Have nodes let go of what the store does not know of networks",
		Long: `Have nodes let go of what they hold of networks: what the store does not know of them is removed. A node holds
what it has and the store does not know – after another store was put in the place of its own, or an older one –,
and changes nothing until that is settled; ` + "`polyplane recover --from-nodes`" + ` takes it in instead.`,
		GroupID: groupNetworks,
		Example: "  polyplane forget lab",
		Args:    args(1, -1, "NET"),
		RunE: func(cmd *cobra.Command, given []string) error {
			ctx := cmd.Context()
			cl, err := c.connect()
			if err != nil {
				return err
			}
			for _, name := range given {
				if err := cl.Forget(ctx, name, now); err != nil {
					return wrap(ctx, cl, fmt.Errorf("%s: %w", name, err), ref{})
				}
				fmt.Fprintf(c.Out, "%s: the nodes let go of what the store does not know\n", name)
			}
			return nil
		},
		ValidArgsFunction: c.completeEvery(c.completeNetworks),
	}
	cmd.Flags().BoolVar(&now, "now", false, "delete the elements' files at once: they do not go to the trash")
	return cmd
}
