package cli

import (
	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/spec"
)

func (c *CLI) saveCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "save NET",
		Short:   "Print a network as a file that apply takes",
		GroupID: groupNetworks,
		Example: "  polyplane save lab > lab.yaml",
		Args:    args(1, 1, "NET"),
		RunE: func(cmd *cobra.Command, given []string) error {
			cl, err := c.connect()
			if err != nil {
				return err
			}
			record, err := cl.Network(cmd.Context(), given[0])
			if err != nil {
				return wrap(cmd.Context(), cl, err, ref{network: given[0]})
			}
			text, err := spec.Format(record.Network)
			if err != nil {
				return err
			}
			_, err = c.Out.Write(text)
			return err
		},
		ValidArgsFunction: c.completeFirst(c.completeNetworks),
	}
}
