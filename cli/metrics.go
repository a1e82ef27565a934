package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
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
		Args: args(0, 0, ""),
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
		ValidArgsFunction: cobra.NoFileCompletions,
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
	// The new file is in the same directory, since only then is the replacement one step. The collector does not read
	// files of this name.
	f, err := os.CreateTemp(filepath.Dir(path), ".polyplane-*.new")
	if err != nil {
		return fmt.Errorf("write the metrics to %s: %w", path, err)
	}
	_, err = f.Write(b.Bytes())
	if err == nil {
		err = f.Chmod(0o644) // the node exporter is another user, and nothing in it is a secret
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name()) //nolint:errcheck // the first error counts
		return fmt.Errorf("write the metrics to %s: %w", path, err)
	}
	return nil
}
