package cli

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
)

// ownerWord begins the names of owners, as nodeWord does those of nodes.
const ownerWord = "owner"

func (c *CLI) quotaCommand() *cobra.Command {
	var o output
	usual := model.Quotas{}.OfOwner("")
	cmd := &cobra.Command{
		Use:     "quota [NET|owner/NAME [KEY=VALUE…]]",
		Short:   "Show, or set, what networks and their owners may have",
		GroupID: groupNetworks,
		Long: `Show how much networks and their owners may have, and how much they ask for; or set it. An apply or
set that would ask for more is refused before anything is changed. What is there already stays.

A network belongs to the owner that its file names (owner:), else to the user who applied it first.
Elements count with the cpu, memory and disk that they state. Elements with routing software count with
at least the defaults. Under a quota of cpu each of them must state its share, since it would otherwise
be unlimited.

An owner, who asks with a token, has default bounds: ` + strconv.Itoa(usual.Networks) + ` networks, ` + strconv.Itoa(usual.Elements) + ` elements, ` + usual.Stored.String() + `
of descriptions with their configuration files (stored), ` + strconv.Itoa(usual.Requests) + ` requests under way, ` + strconv.Itoa(usual.Streams) + ` streams
(exec, console, capture, logs, check, watches), ` + usual.Images.String() + ` of images and of large files that networks put into elements
(images). Of these counts what each takes on a node, unpacked, or as the manager keeps it, whichever is more:
unpacked, it is a sixteenth and 8 MiB more than its files. An earlier version of large files that no network
uses any more counts for an hour after it was sent; ` + "`polyplane image remove ID`" + ` removes it at once.

The bounds of owner/* count for every owner without bounds of their own.

  the keys:  ` + strings.Join(model.SettingsOfQuota(), " ") + `  (KEY= takes a bound away)`,
		Example: "  polyplane quota\n  polyplane quota owner/alice networks=3 cpu=4 memory=8GiB\n  polyplane quota " +
			"'owner/*' elements=500 stored=64MiB\n  polyplane quota lab elements=50",
		Args: args(0, -1, ""),
		RunE: func(cmd *cobra.Command, given []string) error {
			ctx := cmd.Context()
			var kind model.QuotaKind
			name := ""
			if len(given) > 0 {
				kind, name = model.QuotaOfNetwork, given[0]
				if who, ok := strings.CutPrefix(name, ownerWord+"/"); ok {
					kind, name = model.QuotaOfOwner, who
				}
				if name == "" || strings.Contains(name, "=") ||
					kind == model.QuotaOfOwner && strings.Contains(name, "/") {
					return usageError(cmd, "%q has no quota: NET or owner/NAME is expected", given[0])
				}
				if kind == model.QuotaOfNetwork {
					var err error
					refs := c.refs(ctx)
					if _, err := refs.known().Find(name); err != nil && strings.Contains(name, "/") {
						return usageError(cmd, "%q has no quota: NET or owner/NAME is expected", given[0])
					}
					if name, err = refs.network(name); err != nil {
						return err
					}
				}
			}
			cl, err := c.connect()
			if err != nil {
				return err
			}
			if len(given) > 1 {
				values, err := assignments(cmd, given[1:])
				if err != nil {
					return err
				}
				q, err := cl.SetQuota(ctx, kind, name, model.QuotaRequest{Values: values})
				if err != nil {
					return wrap(ctx, cl, err, ref{})
				}
				return c.showQuotas([]model.QuotaStatus{q}, o)
			}
			all, err := cl.Quotas(ctx)
			if err != nil {
				return wrap(ctx, cl, err, ref{})
			}
			if kind == "" {
				return c.showQuotas(all, o)
			}
			var names []string
			for _, q := range all {
				if q.Kind == kind && q.Name == name {
					return c.showQuotas([]model.QuotaStatus{q}, o)
				}
				if q.Kind == kind {
					names = append(names, q.Name)
				}
			}
			return unknown(string(kind), name, names)
		},
		ValidArgsFunction: c.completeQuota,
	}
	o.addFlag(cmd, formatJSON, formatYAML)
	return cmd
}

func (c *CLI) showQuotas(all []model.QuotaStatus, o output) error {
	if o.format != formatTable {
		return writeValue(c.Out, o.format, all)
	}
	if len(all) == 0 {
		_, err := fmt.Fprintln(c.Out, "there are no networks and no quotas yet")
		return err
	}
	t := table{head: []string{"OF", ">NETWORKS", ">ELEMENTS", ">CPU", ">MEMORY", ">DISK", ">STORED", ">IMAGES"}}
	for _, q := range all {
		name, networks, images := q.Name, "", ""
		if q.Kind == model.QuotaOfOwner {
			name, networks = ownerWord+"/"+name, boundOf(strconv.Itoa(q.Used.Networks), q.Limit.Networks, strconv.Itoa)
			images = boundOf(q.Used.Images.Rounded(), q.Limit.Images, model.Bytes.String)
		}
		t.add(texts(name, networks, boundOf(strconv.Itoa(q.Used.Elements), q.Limit.Elements, strconv.Itoa),
			boundOf(q.Used.CPU.String(), q.Limit.CPU, model.CPU.String),
			boundOf(q.Used.Memory.Rounded(), q.Limit.Memory, model.Bytes.String),
			boundOf(q.Used.Disk.Rounded(), q.Limit.Disk, model.Bytes.String),
			boundOf(q.Used.Stored.Rounded(), q.Limit.Stored, model.Bytes.String), images)...)
	}
	return t.write(c.Out, c.colour(), true, "")
}

// boundOf writes what is used and, if there is a limit, of how much.
func boundOf[T cmp.Ordered](used string, limit T, text func(T) string) string {
	var none T
	if limit == none {
		return used
	}
	return used + " of " + text(limit)
}

func (c *CLI) completeQuota(cmd *cobra.Command, given []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(given) > 0 {
		return freeKeys(model.SettingsOfQuota(), given[1:], typed),
			cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	return c.complete(cmd, typed, func(ctx context.Context, cl Client, typed string) ([]string,
		cobra.ShellCompDirective) {
		all, err := cl.Quotas(ctx)
		return offer(each.Of(all, func(q model.QuotaStatus) string {
			if q.Kind == model.QuotaOfOwner {
				return ownerWord + "/" + q.Name
			}
			return q.Name
		}), err, typed)
	})
}
