package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
)

// listing is one kind of thing that `get` shows, and how: as a list, as a table, and in a watch.
type listing[T any] struct {
	name    string // in the plural
	aliases []string
	short   string
	example string
	// fetch reads them all, pick takes them from a watched dump.
	fetch func(ctx context.Context, cl Client, network string) ([]T, error)
	pick  func(model.Dump) []T
	key   func(T) string
	match func(T, ref) bool // nil: the command takes no argument
	// head and row are the table's.
	head func(wide bool) []string
	row  func(c *CLI, v T, wide bool) []cell
	// noise are the columns that change all the time: a change in these alone prints no line in a watch.
	noise []string
}

func (c *CLI) getCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "get",
		Short:   "List networks, nodes, elements, links, the substrate, moves, events or forwarding tables",
		GroupID: groupLook,
		Args:    noKind,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usageError(cmd, "what to get is missing: networks, nodes, elements, links, substrate, moves, "+
				"events or fib")
		},
		Example: "  polyplane get networks\n  polyplane get elements lab -o wide\n  polyplane get links -w\n" +
			"  polyplane get elements -o name | xargs -n1 polyplane describe",
	}
	cmd.AddCommand(
		listCommand(c, networkListing()),
		listCommand(c, nodeListing()),
		listCommand(c, elementListing()),
		listCommand(c, linkListing()),
		listCommand(c, substrateListing()),
		listCommand(c, moveListing()),
		c.eventsCommand(),
		c.fibCommand(),
	)
	return cmd
}

func noKind(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	kinds := []string{"networks", "nodes", "elements", "links", "substrate", "moves", "events", "fib"}
	return usageError(cmd, "there is nothing called %q to get%s; there are %s",
		args[0], didYouMean(args[0], kinds), strings.Join(kinds, ", "))
}

// about connects to the manager to ask about one object, or about all if none is given.
func (c *CLI) about(cmd *cobra.Command, given []string) (of ref, cl Client, err error) {
	if len(given) > 0 {
		if of, err = c.refs(cmd.Context()).any(given[0]); err != nil {
			return of, nil, misnamed(cmd, err)
		}
	}
	cl, err = c.connect()
	return of, cl, err
}

func listCommand[T any](c *CLI, l listing[T]) *cobra.Command {
	var o output
	var watch bool
	cmd := &cobra.Command{
		Use:     l.name,
		Aliases: l.aliases,
		Short:   l.short,
		Example: l.example,
		RunE: func(cmd *cobra.Command, given []string) error {
			of, cl, err := c.about(cmd, given)
			if err != nil {
				return err
			}
			if watch {
				return wrap(cmd.Context(), cl, watchList(cmd.Context(), c, cl, l, o, of), of)
			}
			return wrap(cmd.Context(), cl, showList(cmd.Context(), c, cl, l, o, of), of)
		},
	}
	if l.match != nil {
		cmd.Use += " [NET[/ELEMENT]]"
		cmd.Args = args(0, 1, "NET or NET/ELEMENT")
		cmd.ValidArgsFunction = c.completeFirst(c.completeNetworks, c.completeElements)
	}
	o.addFlag(cmd, formatJSON, formatYAML, formatWide, formatName)
	if l.pick != nil {
		cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on: print a line for whatever changes")
	}
	return cmd
}

// showList prints a list once, in the form that -o asks for.
func showList[T any](ctx context.Context, c *CLI, cl Client, l listing[T], o output, of ref) error {
	all, err := l.fetch(ctx, cl, of.network)
	if err != nil {
		return err
	}
	values := l.of(all, of)
	if len(values) == 0 && of.network != "" {
		if err := lookUp(ctx, cl, of); err != nil {
			return err
		}
	}
	switch o.format {
	case formatJSON, formatYAML:
		if values == nil {
			values = []T{} // an empty list, not null
		}
		return writeValue(c.Out, o.format, values)
	case formatName:
		for _, v := range values {
			if _, err := fmt.Fprintln(c.Out, l.key(v)); err != nil {
				return err
			}
		}
		return nil
	}
	if len(values) == 0 {
		fmt.Fprintln(c.Err, emptyHint(l.name, of))
		return nil
	}
	wide := o.format == formatWide
	t := table{head: l.head(wide)}
	for _, v := range values {
		t.add(l.row(c, v, wide)...)
	}
	return t.write(c.Out, c.colour(), !o.noHeading, "")
}

// of chooses from all values those that the command's argument names.
func (l *listing[T]) of(all []T, of ref) []T {
	if l.match == nil || of.network == "" {
		return all
	}
	return each.That(all, func(v T) bool { return l.match(v, of) })
}

// emptyHint says that there is nothing to list. A new user also learns what to type.
func emptyHint(what string, of ref) string {
	switch {
	case of.element != "":
		return fmt.Sprintf("%s/%s has no %s.", of.network, of.element, what)
	case of.network != "":
		return fmt.Sprintf("%s has no %s.", of.network, what)
	case what == "networks":
		return "There are no networks yet. `polyplane example duo | polyplane apply -f -` makes one."
	}
	return "There are no " + what + "."
}

// watchList prints the list, then a line for everything that changes.
func watchList[T any](ctx context.Context, c *CLI, cl Client, l listing[T], o output, of ref) error {
	if of.network != "" {
		if err := lookUp(ctx, cl, of); err != nil {
			return err
		}
	}
	wide := o.format == formatWide
	t := table{head: l.head(wide)}
	noise := map[int]bool{}
	for i, h := range t.head {
		for _, n := range l.noise {
			noise[i] = noise[i] || strings.TrimPrefix(h, ">") == n
		}
	}
	shown := map[string]string{}
	first := true
	err := cl.WatchDump(ctx, of.network, func(d model.Dump) error {
		values := l.of(l.pick(d), of)
		t.rows = nil
		alive := make(map[string]bool, len(values))
		for _, v := range values {
			key, row := l.key(v), l.row(c, v, wide)
			alive[key] = true
			if fingerprint := steady(row, noise); shown[key] != fingerprint {
				shown[key] = fingerprint
				switch o.format {
				case formatJSON, formatYAML:
					if err := writeStreamed(c.Out, o.format, v); err != nil {
						return err
					}
				case formatName:
					t.rows = append(t.rows, texts(key))
				default:
					t.rows = append(t.rows, row)
				}
			}
		}
		for _, key := range missingKeys(shown, alive) {
			delete(shown, key)
			if err := l.sayGone(c, o, &t, key); err != nil {
				return err
			}
		}
		heading := first && !o.noHeading && o.format != formatName
		if o.format == formatJSON || o.format == formatYAML || len(t.rows) == 0 {
			return nil
		}
		first = false
		if o.format == formatName {
			for _, row := range t.rows {
				if _, err := fmt.Fprintln(c.Out, row[0].text); err != nil {
					return err
				}
			}
			return nil
		}
		return t.write(c.Out, c.colour(), heading, "")
	})
	if ctx.Err() != nil {
		return nil // ^C is how a watch ends
	}
	return err
}

// sayGone tells in a watch that something does not exist any more.
func (l *listing[T]) sayGone(c *CLI, o output, t *table, key string) error {
	switch o.format {
	case formatJSON, formatYAML:
		return writeStreamed(c.Out, o.format, map[string]string{"gone": key})
	case formatName:
		return nil
	}
	row := make([]cell, len(t.head))
	row[0] = text(key)
	row[1] = cell{"gone", faint}
	t.rows = append(t.rows, row)
	return nil
}

// steady is the part of a row that a watch compares: everything but the noise.
func steady(row []cell, noise map[int]bool) string {
	var b strings.Builder
	for i, c := range row {
		if !noise[i] {
			b.WriteString(c.text)
		}
		b.WriteByte(0)
	}
	return b.String()
}
