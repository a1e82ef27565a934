package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/convert"
	"github.com/polyplane/polyplane/model"
)

// toContainerlab is the form that networks can be turned into.
const toContainerlab = "clab"

func (c *CLI) convertCommand() *cobra.Command {
	var files fileFlags
	var out string
	to := toContainerlab
	images := convert.Images{FRR: "quay.io/frrouting/frr:10.2.1", BIRD: "bird:2", Host: "alpine:3"}
	cmd := &cobra.Command{
		Use:     "convert -f FILE --to clab -o DIR",
		Short:   "Turn a network's file into a lab of containerlab",
		GroupID: groupNetworks,
		Long: `Write a network as a lab of containerlab into a new directory: NET.clab.yml, each router's configuration, and
what has to be run beside it. The containers get the addresses that a new network would get here; each has no other
interfaces than the network's own. What containerlab has no words for is told on the standard error. A running network
is converted by way of its file: polyplane save NET.`,
		Example: "  polyplane convert -f lab.yaml --to clab -o lab-clab\n" +
			"  polyplane save lab | polyplane convert -f - --to clab -o lab-clab",
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case !files.given():
				return usageError(cmd, "-f is needed: the network's file")
			case out == "":
				return usageError(cmd, "-o is needed: the directory that is made for the lab")
			}
			networks, err := c.readNetworks(cmd.Context(), &files)
			if err != nil {
				return err
			}
			if err := c.checkOutside(&files); err != nil {
				return err
			}
			if len(networks) > 1 {
				return badFile(fmt.Errorf("there are %d networks in it, and a lab is one: give each a file of its own",
					len(networks)))
			}
			_, networks[0].Name, _ = model.SplitReference(networks[0].Name)
			made, err := convert.Write(networks[0], images)
			if err != nil {
				return badFile(fmt.Errorf("converting network %s: %w", networks[0].Name, err))
			}
			for _, n := range made.Notes {
				if _, err := fmt.Fprintln(c.Err, printable(n.Message)); err != nil {
					return err
				}
			}
			made.Files[networks[0].Name+".clab.yml"] = made.Topology
			return writeLab(out, made.Files)
		},
	}
	files.addFlags(cmd, "the network's `FILE`, - for standard input")
	files.addOutsideFlag(cmd)
	f := cmd.Flags()
	f.StringVarP(&out, "output", "o", "", "make this `DIR` for the lab")
	f.Var(&formatFlag{value: &to, allowed: []string{toContainerlab}}, "to", "what to make of it")
	f.StringVar(&images.FRR, "frr-image", images.FRR, "the `IMAGE` of routers with FRR")
	f.StringVar(&images.BIRD, "bird-image", images.BIRD, "the `IMAGE` of routers with BIRD")
	f.StringVar(&images.Host, "host-image", images.Host,
		"the `IMAGE` of hosts, and of routers without routing software")
	mustComplete(cmd.MarkFlagDirname("output"))
	return cmd
}

// writeLab makes a directory with files in it, or nothing.
func writeLab(dir string, files map[string][]byte) (err error) {
	// A directory that is there may hold a lab that somebody has worked on.
	if err := os.Mkdir(dir, 0o755); errors.Is(err, os.ErrExist) {
		return &Error{Code: ExitUsage, Err: fmt.Errorf("%s is there already: remove it, or name "+
			"another directory", dir)}
	} else if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(dir) //nolint:errcheck // the first error counts
		}
	}()
	for _, name := range sortedKeys(files) {
		file := filepath.Join(dir, name)
		mode := os.FileMode(0o644)
		if filepath.Ext(name) == ".sh" {
			mode = 0o755
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, files[name], mode); err != nil {
			return err
		}
	}
	return nil
}
