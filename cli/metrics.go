package cli

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"
)

const metricsLong = `Print the instance's metrics in Prometheus's text format: of the platform, nodes, networks, elements, ports
and the substrate's links. docs/monitoring.md says what each means and how Prometheus gets at them.

With --textfile the metrics are written to a file, which is replaced in one step: for the textfile collector of
Prometheus's node exporter, whose files must end in .prom. If the metrics cannot be had, the file stays as it is.`

func (c *CLI) metricsCommand() *cobra.Command {
	var textfile string
	cmd := &cobra.Command{
		Use:     "metrics",
		Short:   "Print metrics for Prometheus",
		Long:    metricsLong,
		GroupID: groupLook,
		Example: "  polyplane metrics | grep polyplane_port_receive_bytes_total\n" +
			"  polyplane metrics --textfile /var/lib/prometheus/node-exporter/polyplane.prom",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if textfile != "" && filepath.Ext(textfile) != ".prom" {
				return usageError(cmd, "--textfile %s: the node exporter reads files that end in .prom only", textfile)
			}
			cl, err := c.connect()
			if err != nil {
				return err
			}
			if textfile == "" {
				return wrap(cmd.Context(), cl, cl.Metrics(cmd.Context(), c.Out), ref{})
			}
			return wrap(cmd.Context(), cl, writeTextfile(cmd.Context(), cl, textfile), ref{})
		},
	}
	cmd.Flags().StringVar(&textfile, "textfile", "", "write to this `file`, in one step")
	return cmd
}

// writeTextfile replaces the file by the present metrics. A reader sees the old ones or the new ones, always whole.
func writeTextfile(ctx context.Context, cl Client, path string) error {
	var b bytes.Buffer
	if err := cl.Metrics(ctx, &b); err != nil {
		return err
	}
	// The node exporter is another user, and nothing in it is a secret. It does not read the new file before that has
	// its name.
	if err := writeWhole(path, b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write the metrics to %s: %w", path, err)
	}
	return nil
}
