package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
)

const tokenLong = `Tokens let others in. With one, a host joins as a node, once; or a user speaks to the manager from
another machine. The instance must be reachable from there (` + "`polyplane up --listen`" + `).

There are three kinds of users. An admin may do everything. An owner may do everything with networks of
their own, and sees no others. A viewer sees everything but the inside of elements, and changes nothing.`

func (c *CLI) tokenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "token",
		Short:   "Let hosts and users in, or no longer",
		Args:    noCommand,
		RunE:    showHelp,
		Long:    tokenLong,
		GroupID: groupPlatform,
	}
	cmd.AddCommand(c.tokenCreateCommand(), c.tokenListCommand(), c.tokenRevokeCommand())
	return cmd
}

func (c *CLI) tokenCreateCommand() *cobra.Command {
	var o output
	var r model.TokenRequest
	var role string
	ttl := lifeFlag{}
	cmd := &cobra.Command{
		Use:   "create [--node NAME | --user NAME --role ROLE]",
		Short: "Make a token, and print the command for the other machine",
		Long: `Make a token, and print the command to type on the other machine. Nobody can see the token again: only
a hash of its secret is kept.

Without --user the token lets a host join, once, within an hour. With --node the host joins under that
name. If there is a node of that name, the host takes its place.`,
		Example: "  polyplane token create\n  polyplane token create --node rio-1 --ttl 24h\n  polyplane token " +
			"create --user alice --role owner --ttl 90d",
		RunE: func(cmd *cobra.Command, _ []string) error {
			r.Role, r.TTL = model.Role(role), ttl.life
			switch {
			case (r.User == "") != (role == ""):
				return usageError(cmd, "--user and --role go together")
			case ttl.life < 0 && r.User == "":
				return usageError(cmd, "--ttl never is for users; a host's token ends")
			}
			cl, err := c.connect()
			if err != nil {
				return err
			}
			t, err := cl.CreateToken(cmd.Context(), r)
			if err != nil {
				return wrap(cmd.Context(), cl, err, ref{})
			}
			if o.format != formatTable {
				return writeValue(c.Out, o.format, t)
			}
			return c.showToken(t)
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.Node, "node", "", "the `name` under which the host joins")
	f.StringVar(&r.User, "user", "", "the `name` of a user, who owns networks under it")
	oneOf(cmd, &role, "role", "", "what the user may do", string(model.RoleAdmin), string(model.RoleOwner),
		string(model.RoleViewer))
	f.Var(&ttl, "ttl", "how long it is good for, such as 30m, 12h, 90d; a user's also never (default: 1h for hosts, "+
		"365d for users)")
	cmd.MarkFlagsMutuallyExclusive("node", "user")
	o.addFlag(cmd, formatJSON, formatYAML)
	return cmd
}

// showToken prints the command for the other machine, and nothing else, on the standard output.
func (c *CLI) showToken(t model.TokenResult) error {
	server := "HOST:" + strconv.Itoa(model.DefaultPort)
	if len(t.Servers) > 0 {
		server = t.Servers[0]
	}
	until := "for ever"
	if !t.Expires.IsZero() {
		until = "until " + t.Expires.Local().Format("2006-01-02 15:04")
	}
	command := "polyplane join --manager " + server + " --token " + t.Text + " -d"
	what := "On the host that is to join, as root (good once, " + until + "):"
	if t.User != "" {
		command = "polyplane login " + server + " --token " + t.Text
		what = fmt.Sprintf("On the machine of user %s (%s, good %s):", t.User, t.Role, until)
	}
	fmt.Fprintf(c.Err, "%s\n\n", what)
	if _, err := fmt.Fprintln(c.Out, command); err != nil {
		return err
	}
	if len(t.Servers) > 1 {
		fmt.Fprintf(c.Err, "\nThe manager is also at %s.\n", strings.Join(t.Servers[1:], ", "))
	}
	return nil
}

// lifeFlag is the value of --ttl: a time span, which may be in days, or `never`. Then life is negative.
type lifeFlag struct {
	life time.Duration
	text string
}

func (l *lifeFlag) String() string { return l.text }
func (l *lifeFlag) Type() string   { return "time" }
func (l *lifeFlag) Set(s string) error {
	l.text = s
	if s == "never" {
		l.life = -1
		return nil
	}
	d, err := time.ParseDuration(s)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		var n uint64
		if n, err = strconv.ParseUint(days, 10, 16); err == nil {
			d = time.Duration(n) * 24 * time.Hour
		}
	}
	if err != nil || d <= 0 {
		return errors.New("write for example 30m, 12h, 90d or never")
	}
	l.life = d
	return nil
}

func (c *CLI) tokenListCommand() *cobra.Command {
	var o output
	var all bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the tokens",
		RunE: c.connected(func(cmd *cobra.Command, cl Client, _ []string) error {
			tokens, err := cl.Tokens(cmd.Context())
			if err != nil {
				return err
			}
			if o.format != formatTable {
				return writeValue(c.Out, o.format, tokens)
			}
			return c.showTokens(tokens, all)
		}),
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "also show tokens that ended in the last 30 days")
	o.addFlag(cmd, formatJSON, formatYAML)
	return cmd
}

func (c *CLI) showTokens(tokens []model.Token, all bool) error {
	now := c.Now()
	if !all {
		tokens = slices.DeleteFunc(slices.Clone(tokens), func(t model.Token) bool { return t.Unusable(now) != "" })
	}
	if len(tokens) == 0 {
		_, err := fmt.Fprintln(c.Out, "there are no tokens that are good for anything")
		return err
	}
	t := table{head: []string{"ID", "FOR", "MAY", "MADE", "EXPIRES", "STATE"}}
	for _, k := range tokens {
		who, may := "a host", "join as a new node"
		if k.Node != "" {
			may = "join as " + k.Node
		}
		if k.User != "" {
			who, may = k.User, string(k.Role)
		}
		expires := "never"
		if !k.Expires.IsZero() {
			if expires = "in " + age(k.Expires.Sub(now)); !now.Before(k.Expires) {
				expires = age(now.Sub(k.Expires)) + " ago"
			}
		}
		state := "good"
		switch {
		case !k.Revoked.IsZero():
			state = "revoked"
		case !k.Used.IsZero():
			state = "used by " + k.UsedBy
		case k.Unusable(now) != "":
			state = "expired"
		}
		t.add(texts(k.ID, who, may, c.since(k.Created)+" ago", expires, state)...)
	}
	return t.write(c.Out, c.colour(), true, "")
}

func (c *CLI) tokenRevokeCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "revoke ID…",
		Short:   "Make tokens useless, also where they are in use",
		Example: "  polyplane token revoke k3v7qmz2ab",
		Args:    args(1, -1, "ID"),
		RunE: c.connected(func(cmd *cobra.Command, cl Client, ids []string) error {
			for _, id := range ids {
				t, err := cl.RevokeToken(cmd.Context(), id)
				if err != nil {
					return err
				}
				fmt.Fprintf(c.Err, "token %s is revoked\n", t.ID)
				if t.UsedBy != "" {
					fmt.Fprint(c.Err, c.hinted(fmt.Sprintf("  node %s has joined with it and stays; `polyplane node "+
						"remove %s` removes it\n", t.UsedBy, t.UsedBy)))
				}
			}
			return nil
		}),
		ValidArgsFunction: c.completeEvery(func(ctx context.Context, cl Client, typed string) ([]string,
			cobra.ShellCompDirective) {
			tokens, err := cl.Tokens(ctx)
			good := each.That(tokens, func(t model.Token) bool { return t.Unusable(c.Now()) == "" })
			return offer(each.Of(good, func(t model.Token) string { return t.ID }), err, typed)
		}),
	}
}

func (c *CLI) nodeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "node",
		Short:   "Remove nodes that joined",
		Args:    noCommand,
		RunE:    showHelp,
		GroupID: groupPlatform,
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "remove NAME",
		Short: "Take a node out that joined; its certificate is good for nothing any more",
		Long: `Take out a node that joined. Its certificate is worth nothing from then on. To come back, the host joins anew.

A node that runs and has elements is refused: first delete them, or pin them to other nodes (node:). A node
that is away is taken out with its elements, and ` + "`apply`" + ` of their networks places them anew.`,
		Args: args(1, 1, "NAME"),
		RunE: c.connected(func(cmd *cobra.Command, cl Client, given []string) error {
			if err := cl.RemoveNode(cmd.Context(), given[0]); err != nil {
				return err
			}
			fmt.Fprintf(c.Err, "node %s is removed; on its machine, `polyplane down --purge` ends what runs there\n",
				given[0])
			return nil
		}),
		ValidArgsFunction: c.completeFirst(c.completeJoined),
	})
	return cmd
}

func (c *CLI) authorityCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "authority",
		Short:   "Print the certificate that others know the manager by, for Prometheus and curl",
		GroupID: groupPlatform,
		Example: "  polyplane authority > polyplane-ca.pem\n  curl --cacert polyplane-ca.pem -H \"Authorization: " +
			"Bearer $TOKEN\" https://server1:7455/v1/ping",
		RunE: c.connected(func(cmd *cobra.Command, cl Client, _ []string) error {
			b, err := cl.Authority(cmd.Context())
			if err != nil {
				return err
			}
			_, err = c.Out.Write(b)
			return err
		}),
	}
}
