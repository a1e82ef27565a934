package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/server/api/client"
)

func (c *CLI) execCommand() *cobra.Command {
	var tty, noTTY, noStdin, detach bool
	var env []string
	cmd := &cobra.Command{
		Use:     "exec NET/ELEMENT [--] COMMAND [ARG…]",
		Short:   "Run a command inside an element",
		GroupID: groupElements,
		Long: `Run a command inside an element, as its root, and exit with the command's own status.

On a terminal the command gets a terminal; otherwise its standard input, output and error are
those of this command, so that pipes and redirections work as with a local one.

With --detach the command goes on by itself as long as the element runs, and what it prints is in
"polyplane logs". "polyplane stop" and "polyplane restart" end it.`,
		Example: "  polyplane exec lab/r1 -- ip route\n  polyplane exec lab/r1 -- vtysh -c 'show ip route'\n" +
			"  polyplane exec lab/h1 bash\n  polyplane exec -d lab/h1 -- iperf3 " +
			"-s\n  tar c -C src . | polyplane exec lab/h1 -- tar x -C /root",
		Args: args(1, -1, "NET/ELEMENT"),
		RunE: func(cmd *cobra.Command, given []string) error {
			id, err := c.refs(cmd.Context()).element(given[0])
			if err != nil {
				return err
			}
			// Flags may stand between the element and "--" as well.
			argv := given[1:]
			if i := slices.Index(argv, "--"); i == 0 || i > 0 && strings.HasPrefix(argv[0], "-") {
				if err := cmd.Flags().Parse(argv[:i]); err != nil {
					return usageError(cmd, "%s", err)
				}
				if cmd.Flags().NArg() > 0 {
					return usageError(cmd, "unexpected argument %q before \"--\"", cmd.Flags().Arg(0))
				}
				argv = argv[i+1:]
			}
			if len(argv) == 0 {
				return usageError(cmd, "the command to run in %s is missing", id)
			}
			if tty && noTTY {
				return usageError(cmd, "--tty and --no-tty exclude each other")
			}
			command := control.Command{Args: argv, Env: env, Detach: detach}
			if detach {
				if tty {
					return usageError(cmd, "--tty and --detach exclude each other: what is detached has no terminal")
				}
				return c.run(cmd.Context(), id, command, nil)
			}
			command.TTY = tty || !noTTY && !noStdin && c.interactive()
			in := c.In
			if noStdin {
				in = nil
			}
			return c.run(cmd.Context(), id, command, in)
		},
		ValidArgsFunction: c.completeFirst(c.completeElements),
	}
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().BoolVarP(&tty, "tty", "t", false, "give the command a terminal even where this one has none")
	cmd.Flags().BoolVarP(&noTTY, "no-tty", "T", false, "give the command no terminal")
	cmd.Flags().BoolVarP(&noStdin, "no-stdin", "n", false, "give the command no standard input (for use in loops)")
	cmd.Flags().BoolVarP(&detach, "detach", "d", false, "do not wait for the command: it lives as long as the element")
	cmd.Flags().StringArrayVarP(&env, "env", "e", nil, "set an environment `VARIABLE=VALUE`; may be repeated")
	return cmd
}

func (c *CLI) consoleCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "console NET/ELEMENT",
		Short:   "Open an element's console: vtysh, birdc or a shell",
		GroupID: groupElements,
		Example: "  polyplane console lab/r1",
		Args:    args(1, 1, "NET/ELEMENT"),
		RunE: func(cmd *cobra.Command, given []string) error {
			id, err := c.refs(cmd.Context()).element(given[0])
			if err != nil {
				return err
			}
			if !c.interactive() {
				return usageError(cmd, "a console needs a terminal; in a script, use `polyplane exec %s -- COMMAND`",
					id)
			}
			ctx := cmd.Context()
			cl, err := c.connect()
			if err != nil {
				return err
			}
			var code int
			err = c.withTerminal(ctx, func(t *terminal) error {
				var err error
				code, err = cl.Console(ctx, id, t.size(), control.Stdio{In: c.In, Out: c.Out, Resize: t.resized})
				return err
			})
			return c.ended(ctx, cl, code, err, id)
		},
		ValidArgsFunction: c.completeFirst(c.completeElements),
	}
}

// run runs a command inside an element on this process's streams. It returns the command's failure as an exit status.
func (c *CLI) run(ctx context.Context, id model.ID, command control.Command, in io.Reader) error {
	cl, err := c.connect()
	if err != nil {
		return err
	}
	var code int
	if command.TTY {
		err = c.withTerminal(ctx, func(t *terminal) error {
			command.Size = t.size()
			if term := c.Getenv("TERM"); term != "" {
				command.Env = append([]string{"TERM=" + term}, command.Env...)
			}
			var err error
			code, err = cl.Exec(ctx, id, command, control.Stdio{In: in, Out: c.Out, Resize: t.resized})
			return err
		})
	} else {
		code, err = cl.Exec(ctx, id, command, control.Stdio{In: in, Out: c.Out, Err: c.Err})
	}
	return c.ended(ctx, cl, code, err, id)
}

// ended turns the end of a command inside an element into this command's own. If the command could not run at all, it
// says why: the element's state explains more than the broken connection does.
func (c *CLI) ended(ctx context.Context, cl Client, code int, err error, id model.ID) error {
	switch {
	case err == nil && code == 0:
		return nil
	case err == nil:
		return &commandExit{code}
	case ctx.Err() != nil:
		return context.Canceled
	}
	if wrapped := wrap(ctx, cl, err,
		ref{network: id.Network, element: id.Element}); exitCode(wrapped) == ExitNotFound ||
		exitCode(wrapped) == ExitNotRunning || client.IsDenied(err) {
		return wrapped
	}
	if why := stopped(ctx, cl, id); why != nil {
		return why
	}
	return fmt.Errorf("%s: %w", id, err)
}

// stopped explains why nothing can be run in an element that does not run. It returns nil if the element runs.
func stopped(ctx context.Context, cl Client, id model.ID) error {
	elements, err := cl.Elements(ctx, id.Network)
	if err != nil {
		return nil
	}
	e, err := findElement(elements, id)
	if err != nil || e.Phase == model.PhaseRunning {
		return nil
	}
	switch e.Phase {
	case model.PhaseStopped:
		return failed("%s is stopped; start it with `polyplane start %s`", id, id)
	case model.PhaseSuspended:
		return failed("%s is suspended; `polyplane resume %s` lets it go on", id, id)
	case model.PhaseFailed:
		return failed("%s has failed: %s", id, oneLine(e.Message))
	}
	if e.Message != "" {
		return failed("%s is %s: %s; `polyplane get elements %s -w` shows when it is there", id, e.Phase,
			oneLine(e.Message), id.Network)
	}
	return failed("%s is not running yet (%s); `polyplane get elements %s -w` shows when it is", id,
		e.Phase, id.Network)
}

func (c *CLI) logsCommand() *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use:     "logs NET/ELEMENT",
		Aliases: []string{"log"},
		Short:   "Show what an element's processes printed",
		GroupID: groupElements,
		Long: `Show what an element's processes printed and wrote into their log files: the last 4 MiB of each. What
came before that can be read inside the element.`,
		Example: "  polyplane logs lab/r1 -f",
		Args:    args(1, 1, "NET/ELEMENT"),
		RunE: func(cmd *cobra.Command, given []string) error {
			id, err := c.refs(cmd.Context()).element(given[0])
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			cl, err := c.connect()
			if err != nil {
				return err
			}
			stream, err := cl.Logs(ctx, id, follow)
			if err != nil {
				return wrap(ctx, cl, err, ref{network: id.Network, element: id.Element})
			}
			defer stream.Close()
			n, err := io.Copy(c.readable(), stream)
			switch {
			case follow && ctx.Err() != nil:
				return nil // ^C is how following ends
			case err != nil && !errors.Is(err, io.EOF):
				return err
			case n == 0:
				fmt.Fprintf(c.Err, "%s has printed nothing.\n", id)
			}
			return nil
		},
		ValidArgsFunction: c.completeFirst(c.completeElements),
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on: print what comes")
	return cmd
}
