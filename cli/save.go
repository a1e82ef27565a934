package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/spec"
)

const (
	// askedAtOnce is how many elements are asked at a time what they are by now.
	askedAtOnce = 8
	// elementPatience bounds how long one of them is waited for. Its node waits a shorter time for its software.
	elementPatience = 30 * time.Second
)

func (c *CLI) saveCommand() *cobra.Command {
	running := false
	cmd := &cobra.Command{
		Use:   "save NET",
		Short: "Print a network as a file that apply takes",
		Long: `Print a network as a file that apply takes.

Without --running it is what was applied and set. With --running it is what the network is by now: each router with
FRR or BIRD has the configuration that it runs with, also what was typed into vtysh and never written; BIRD's is its
file. Where links have come and gone, the addresses that the network has now are written down. So a new network of this
file has the same routers. A router that does not answer, since it is stopped or hangs, has the configuration that it
wrote last. Files that were made or changed inside elements are listed in comments at the end (1000 of each element).`,
		GroupID: groupNetworks,
		Example: "  polyplane save lab > lab.yaml\n  polyplane save lab --running > handed-in.yaml",
		Args:    args(1, 1, "NET"),
		RunE: func(cmd *cobra.Command, given []string) error {
			cl, record, err := c.recorded(cmd.Context(), given[0])
			if err != nil {
				return err
			}
			if running {
				return c.saveRunning(cmd.Context(), cl, record)
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
	cmd.Flags().BoolVar(&running, "running", false, "with the configuration that routers have by now, also what was "+
		"edited inside")
	return cmd
}

// saveRunning prints a network as it is by now. If an element did not answer, it still prints the file, but then says
// so and fails: no script shall take such a file for a whole one.
func (c *CLI) saveRunning(ctx context.Context, cl Client, record model.Record) error {
	running, notes, err := askRunning(ctx, cl, &record.Network)
	if err != nil {
		return err
	}
	text, more, err := spec.FormatRunning(record, running)
	if err != nil {
		return err
	}
	if _, err := c.Out.Write(text); err != nil {
		return err
	}
	if notes = append(notes, more...); len(notes) > 0 {
		problems := each.Of(notes, errors.New)
		return &Error{Code: ExitFailed, Err: errors.Join(problems...)}
	}
	return nil
}

// askRunning asks all elements of a network what they are by now. The notes say of which elements that is not known.
func askRunning(ctx context.Context, cl Client, net *model.Network) (map[string]model.Running, []string, error) {
	answers, errs := make([]model.Running, len(net.Elements)), make([]error, len(net.Elements))
	var all sync.WaitGroup
	turn := make(chan struct{}, askedAtOnce)
	for i := range net.Elements {
		all.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			within, cancel := context.WithTimeout(ctx, elementPatience)
			defer cancel()
			answers[i], errs[i] = cl.Running(within, model.ID{Network: net.Name, Element: net.Elements[i].Name})
		})
	}
	all.Wait()
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	running, notes := map[string]model.Running{}, []string(nil)
	for i := range net.Elements {
		name := net.Name + "/" + net.Elements[i].Name
		switch {
		case errs[i] != nil:
			notes = append(notes, fmt.Sprintf("%s is as it was applied, since it cannot be asked: %s", name,
				oneLine(errs[i].Error())))
			continue
		case answers[i].Stale != "" && len(answers[i].Config) > 0:
			notes = append(notes, fmt.Sprintf("%s has the configuration that it wrote last: %s", name,
				oneLine(answers[i].Stale)))
		case answers[i].Stale != "":
			notes = append(notes, fmt.Sprintf("%s has the configuration that was applied: %s", name,
				oneLine(answers[i].Stale)))
		}
		running[net.Elements[i].Name] = answers[i]
	}
	return running, notes, nil
}
