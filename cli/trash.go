package cli

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/model"
)

func (c *CLI) trashCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trash",
		Short: "What removed elements owned on disk, and getting it back",
		Long: `The files of removed elements go to the trash of the node that they were on: after ` + "`delete`" + `, after an
` + "`apply`" + ` that removes or moves elements, or after ` + "`restart --new-disk`" + `. They stay for a week. When the trash
takes more than a tenth of the node's disk, or less than a twentieth of that disk (10 GiB at most; 256 MiB, or a fourth
of a small disk, at least) is free, the oldest item goes earlier, first of the network that has most there. ` + "`down --purge`" + ` deletes the trash too.`,
		GroupID: GroupData,
	}
	cmd.AddCommand(c.trashList(), c.trashRestore(), c.trashEmpty())
	return cmd
}

func (c *CLI) trashList() *cobra.Command {
	var o output
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List what is in the trash, the oldest first",
		Long: `List what is in the trash, the oldest first, and whose it was. An owner sees what was the owner's. Of what was
thrown away before nodes noted that, nobody knows whose it was (-): administrators see it.`,
		RunE: c.connected(func(cmd *cobra.Command, cl Client, _ []string) error {
			ctx := cmd.Context()
			list, err := cl.Trash(ctx)
			if err != nil {
				return err
			}
			for _, s := range list.Silent {
				say(c.Err, "node %s (its trash is not listed)\n", s)
			}
			wide := false
			switch o.format {
			case formatTable:
			case formatWide:
				wide = true
			default:
				return writeValue(c.Out, o.format, append([]model.TrashItem{}, list.Items...))
			}
			if len(list.Items) == 0 {
				fmt.Fprintln(c.Out, "the trash is empty")
				return nil
			}
			t := table{head: []string{"ITEM", "OWNER", "NODE", ">SIZE", "SINCE"}}
			if wide {
				t.head = append(t.head, ">BYTES")
			}
			for _, i := range list.Items {
				row := texts(i.ID, cmp.Or(i.Owner, "-"), i.Node, byteCount(uint64(i.Size)),
					i.Time.Local().Format(time.DateTime))
				if wide {
					row = append(row, text(strconv.FormatUint(uint64(i.Size), 10)))
				}
				t.add(row...)
			}
			return t.write(c.Out, c.colour(), !o.noHeading, "")
		}),
	}
	o.addFlag(cmd, formatWide, formatJSON, formatYAML)
	return cmd
}

func (c *CLI) trashRestore() *cobra.Command {
	anyOwner := false
	cmd := &cobra.Command{
		Use: "restore NET/ELEMENT@TIME…", Short: "Give elements back the disks that they had",
		Long: `Give disks back to the elements whose names they bear. An element must exist, on the node where its disk
is, and be stopped, and its ` + "`disk`" + ` not smaller. The disk that it has then goes to the trash. If the network is
gone, apply its file again first (with ` + "`node:`" + ` if it would get another place), stop the element, restore its
disk, and start it.

What was one owner's is not given to a network that is another's by now. Administrators may do so with --any-owner, which
also gives back what was thrown away before nodes noted whose it was.`,
		Example: "  polyplane trash list\n  polyplane stop lab/r1\n  polyplane trash restore " +
			"lab/r1@20261122T120000.000000Z\n  polyplane start lab/r1",
		Args: args(1, -1, "NET/ELEMENT@TIME"),
		RunE: func(cmd *cobra.Command, given []string) error {
			return c.changeTrash(cmd, func(cl Client) error {
				return cl.RestoreTrash(cmd.Context(), model.TrashRequest{Items: given, AnyOwner: anyOwner})
			}, fmt.Sprintf("restored: %s", fewNames(given)))
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().BoolVar(&anyOwner, "any-owner", false,
		"also to an element of somebody else than whose it was (administrators)")
	return cmd
}

func (c *CLI) trashEmpty() *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use: "empty NET/ELEMENT@TIME… | --all", Short: "Delete what is in the trash for good",
		RunE: func(cmd *cobra.Command, given []string) error {
			if all == (len(given) > 0) {
				return usageError(cmd, "say what to delete for good: NET/ELEMENT@TIME…, or --all")
			}
			return c.changeTrash(cmd, func(cl Client) error { return cl.EmptyTrash(cmd.Context(), given) },
				"deleted for good")
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().BoolVar(&all, "all", false, "everything in it")
	return cmd
}

func (c *CLI) changeTrash(cmd *cobra.Command, change func(Client) error, done string) error {
	cl, err := c.connect()
	if err != nil {
		return err
	}
	if err := change(cl); err != nil {
		return wrap(cmd.Context(), cl, err, ref{})
	}
	fmt.Fprintln(c.Out, done)
	return nil
}
