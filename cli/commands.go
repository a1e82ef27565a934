package cli

import "github.com/spf13/cobra"

// addCommands gives the root all commands that speak to an instance.
func (c *CLI) addCommands(root *cobra.Command) {
	root.AddCommand(
		c.getCommand(),
	)
}
