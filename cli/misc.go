package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/server/api/client"
)

func (c *CLI) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Show the version, and whether the instance runs",
		GroupID: groupOther,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Fprintf(c.Out, "polyplane %s (%s, %s/%s)\n", c.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			cl, err := c.connect()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
			defer cancel()
			pong, err := cl.Ping(ctx)
			if err != nil {
				if _, ok := errors.AsType[*client.RemoteError](err); ok {
					fmt.Fprintf(c.Out, "%v\n", err)
					return nil
				}
				fmt.Fprintf(c.Out, "%s: not running\n", c.place())
				return nil
			}
			fmt.Fprintf(c.Out, "instance %s: running for %s, %d networks, %d of %d nodes ready\n", pong.Instance,
				c.since(pong.Started), pong.Networks, pong.Ready, pong.Nodes)
			return nil
		},
	}
}

func (c *CLI) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON Schema of the file format, for editors",
		GroupID: groupOther,
		Example: "  polyplane schema > polyplane.schema.json",
		RunE: func(*cobra.Command, []string) error {
			_, err := c.Out.Write(c.Schema)
			return err
		},
	}
}

func (c *CLI) gendocsCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "gendocs FILE",
		Short:  "Write the reference of all commands",
		Hidden: true,
		Args:   args(1, 1, "FILE"),
		RunE: func(cmd *cobra.Command, given []string) error {
			var b bytes.Buffer
			if err := WriteDocs(&b, cmd.Root()); err != nil {
				return err
			}
			return os.WriteFile(given[0], b.Bytes(), 0o644)
		},
	}
}
