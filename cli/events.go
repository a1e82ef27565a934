package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/model"
)

func (c *CLI) eventsCommand() *cobra.Command {
	var o output
	var follow bool
	var last int
	cmd := &cobra.Command{
		Use:     "events [NET[/ELEMENT[:IF]]|node/NAME]",
		Aliases: []string{"event", "ev"},
		Short:   "Show what happened, to everything or to one object",
		Example: "  polyplane get events lab\n  polyplane get events -w",
		Args:    args(0, 1, "one object"),
		RunE: func(cmd *cobra.Command, given []string) error {
			ctx := cmd.Context()
			of, cl, err := c.about(cmd, given)
			if err != nil {
				return err
			}
			if of.network != "" && of.network != nodeWord {
				// A deleted network still has events, so only what lies below a network must exist.
				if err := lookUp(ctx, cl, of); err != nil && (of.element != "" || exitCode(err) != ExitNotFound) {
					return err
				}
			}
			if follow {
				return wrap(ctx, cl, c.followEvents(cmd, cl, o, of, last), of)
			}
			events, err := pastEvents(cmd, cl, of)
			if err != nil {
				return wrap(ctx, cl, err, of)
			}
			if last > 0 && len(events) > last {
				events = events[len(events)-last:]
			}
			return c.showEvents(events, o, of)
		},
		ValidArgsFunction: c.completeFirst(c.completeNetworks, c.completeElements),
	}
	o.addFlag(cmd, formatJSON, formatYAML, formatWide)
	cmd.Flags().BoolVarP(&follow, "watch", "w", false, "go on: print events as they happen")
	cmd.Flags().IntVarP(&last, "last", "n", 0, "of past events, show only this many, the latest (0: all that are kept)")
	return cmd
}

// nodeWord begins the name of a node where other objects may be named as well: node/n1.
const nodeWord = "node"

func pastEvents(cmd *cobra.Command, cl Client, of ref) ([]model.Event, error) {
	var events []model.Event
	err := cl.Events(cmd.Context(), 0, false, func(e model.Event) error {
		if concerns(e, of) {
			events = append(events, e)
		}
		return nil
	})
	return events, err
}

// concerns tells whether an event is about an object, or about a part of it.
func concerns(e model.Event, of ref) bool {
	switch {
	case of.network == "":
		return true
	case of.network == nodeWord:
		return e.Node == of.element || e.Object == of.element || e.Object == nodeWord+"/"+of.element
	case of.element == "":
		rest, ok := strings.CutPrefix(e.Object, of.network)
		return ok && (rest == "" || rest[0] == '/' || rest[0] == ' ')
	}
	name := of.network + "/" + of.element
	if of.iface != "" {
		return e.Object == name+":"+of.iface
	}
	rest, ok := strings.CutPrefix(e.Object, name)
	return ok && (rest == "" || rest[0] == ':')
}

func eventTable(wide bool) table {
	t := table{head: []string{"TIME", "SEVERITY", "OBJECT", "REASON", "MESSAGE"}}
	if wide {
		t.head = []string{"TIME", "SEVERITY", "OBJECT", "REASON", "NODE", "MESSAGE"}
	}
	return t
}

func (c *CLI) eventRow(e model.Event, wide bool) []cell {
	severity := cell{text: string(e.Severity)}
	switch e.Severity {
	case model.Warning:
		severity.style = warn
	case model.Error:
		severity.style = bad
	}
	row := []cell{text(c.clock(e.Time)), severity, text(e.Object), text(e.Reason)}
	if wide {
		row = append(row, text(e.Node))
	}
	return append(row, text(c.told(e.Message)))
}

func (c *CLI) showEvents(events []model.Event, o output, of ref) error {
	if o.format == formatJSON || o.format == formatYAML {
		if events == nil {
			events = []model.Event{}
		}
		return writeValue(c.Out, o.format, events)
	}
	if len(events) == 0 {
		fmt.Fprintln(c.Err, emptyHint("events", of))
		return nil
	}
	wide := o.format == formatWide
	t := eventTable(wide)
	for _, e := range events {
		t.add(c.eventRow(e, wide)...)
	}
	return t.write(c.Out, c.colour(), !o.noHeading, "")
}

// followEvents prints every event as it comes. The columns have fixed widths, since nobody knows what will come. Of
// earlier events it prints the last so many (0: all).
func (c *CLI) followEvents(cmd *cobra.Command, cl Client, o output, of ref, last int) error {
	wide := o.format == formatWide
	t := eventTable(wide)
	t.add(texts("00:00:00.000", "warning", strings.Repeat("x", 16), strings.Repeat("x", 16))...)
	t.measure()
	heading := !o.noHeading
	since := int64(0)
	if last > 0 {
		past, err := pastEvents(cmd, cl, of)
		if err != nil {
			return err
		}
		if len(past) > last {
			since = past[len(past)-last-1].Seq
		}
	}
	err := cl.Events(cmd.Context(), since, true, func(e model.Event) error {
		if !concerns(e, of) {
			return nil
		}
		if o.format == formatJSON || o.format == formatYAML {
			return writeStreamed(c.Out, o.format, e)
		}
		t.rows = nil
		t.add(c.eventRow(e, wide)...)
		defer func() { heading = false }()
		return t.write(c.Out, c.colour(), heading, "")
	})
	if cmd.Context().Err() != nil {
		return nil // ^C is how a watch ends
	}
	return err
}
