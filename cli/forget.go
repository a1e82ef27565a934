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
		Long: `Tell nodes to let go of what they hold of networks: they remove what the store does not know. A node holds
what it has and the store does not know. That happens after another store, or an older one, was put in
the place of the store. The node changes nothing until somebody settles it: this command removes what
it holds, ` + "`polyplane recover --from-nodes`" + ` takes it into the store instead.`,
		GroupID: groupNetworks,
		Example: "  polyplane forget lab",
		Args:    args(1, -1, "NET"),
		RunE: c.connected(func(cmd *cobra.Command, cl Client, given []string) error {
			ctx := cmd.Context()
			given, err := c.refs(ctx).networks(given)
			if err != nil {
				return err
			}
			for _, name := range given {
				if err := cl.Forget(ctx, name, now); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				fmt.Fprintf(c.Out, "%s: the nodes let go of what the store does not know\n", name)
			}
			return nil
		}),
		ValidArgsFunction: c.completeEvery(c.completeNetworks),
	}
	cmd.Flags().BoolVar(&now, "now", false, "delete the elements' files at once: they do not go to the trash")
	return cmd
}
