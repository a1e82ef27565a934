// Package cli is polyplane's command line: what users type, and what they see. It speaks to a running instance through
// Client and does nothing else to the machine; only `traffic` opens the elements' own devices.
package cli

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/trust"
)

// CLI is what all commands share: the streams, the instance they speak to, and how it is reached.
type CLI struct {
	In       io.Reader
	Out, Err io.Writer
	// Getenv reads the environment, and Now the clock. Tests replace both.
	Getenv func(string) string
	Now    func() time.Time
	// Connect returns a client of the named instance; it need not find out whether the instance runs.
	Connect func(instance string) (Client, error)
	// ConnectServer returns a client of the manager at HOST:PORT, over TLS.
	ConnectServer func(server string, token trust.Token) (Client, error)
	// Instance is the name that --instance, --name of `up` and `down`, or the environment gave.
	Instance string
	// Version is what `version` prints.
	Version string
	// Examples are the files that `example` prints, NAME.yaml; Schema is the file format's JSON Schema.
	Examples fs.FS
	Schema   []byte

	patience time.Duration // of apply and plan with agents that are starting
	remote   remote
	trees    map[treeSource]string // what was looked at, for a plan
}

// New returns the command line of this process: its streams and its environment.
func New(connect func(instance string) (Client, error)) *CLI {
	return &CLI{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Now: time.Now, Connect: connect,
		Examples: embed.FS{}, patience: agentsWithin}
}

const rootLong = `polyplane runs many virtual networks on one set of Linux machines, each with its own
routing software and addresses, from one file:

  polyplane up --nodes 3 -d          start the platform with three simulated nodes
  polyplane example duo > duo.yaml   an eight-line network to begin with
  polyplane apply -f duo.yaml        make it so, and wait until it runs
  polyplane ping duo/h1 duo/h2       see that it works
  polyplane console duo/r1           the router's own command line

NET/ELEMENT names an element of a network, NET/ELEMENT:IF one of its interfaces. Names of networks are
their owners': OWNER/NET, OWNER/NET/ELEMENT and OWNER/NET/ELEMENT:IF name others'.`

// Root returns the command tree without the commands that run the platform itself (those are the caller's to add).
func (c *CLI) Root() *cobra.Command {
	cobra.EnableCommandSorting = false // the order of the help text is that of the work
	root := &cobra.Command{
		Use:           "polyplane",
		Short:         "Many virtual networks on one substrate",
		Long:          rootLong,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noCommand,
		RunE:          showHelp,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetIn(c.In)
	root.SetOut(c.Out)
	root.SetErr(c.Err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if before := cmd.Flags().Args(); cmd == root && len(before) > 0 {
			return noCommand(cmd, before) // what follows a mistyped command are no flags of ours
		}
		return usageError(cmd, "%s", err)
	})
	c.AddInstanceFlag(root)
	c.addRemoteFlags(root)
	root.AddGroup(
		&cobra.Group{ID: groupPlatform, Title: "The platform:"},
		&cobra.Group{ID: groupNetworks, Title: "Networks:"},
		&cobra.Group{ID: groupLook, Title: "Look:"},
		&cobra.Group{ID: groupElements, Title: "Elements:"},
		&cobra.Group{ID: GroupData, Title: "Data:"},
		&cobra.Group{ID: groupOther, Title: "Other:"},
	)
	c.addCommands(root)
	for _, cmd := range root.Commands() {
		flagsBeforeNouns(cmd)
		takesNothing(cmd)
	}
	root.SetHelpCommandGroupID(groupOther)
	return root
}

// showHelp is what a command does that only groups others.
func showHelp(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// The groups of the help text.
const (
	groupPlatform = "platform"
	groupNetworks = "networks"
	groupLook     = "look"
	groupElements = "elements"
	GroupData     = "data"
	groupOther    = "other"
)

// AddInstanceFlag gives the root its --instance flag.
func (c *CLI) AddInstanceFlag(root *cobra.Command) {
	c.addInstance(root.PersistentFlags(), "instance", "I",
		"the instance to speak to ("+instance.Variable+" sets the default)")
}

// AddNameAlias makes --name another way to say --instance, for the commands that start and stop an instance.
func (c *CLI) AddNameAlias(cmd *cobra.Command) {
	c.addInstance(cmd.Flags(), "name", "", "the instance's name (the same as --instance)")
	cmd.GroupID = groupPlatform
}

// addInstance adds a flag that names the instance. The default that is shown does not depend on the environment of the
// person who generates the documentation.
func (c *CLI) addInstance(flags *pflag.FlagSet, flag, short, usage string) {
	flags.StringVarP(&c.Instance, flag, short, cmp.Or(c.Getenv(instance.Variable), instance.DefaultName), usage)
	flags.Lookup(flag).DefValue = instance.DefaultName
}

// Execute runs one command line and returns the process's exit status. An error is printed on Err, in one message.
// The context that commands see ends at SIGINT, SIGTERM and SIGHUP; a second one ends the process at once.
func (c *CLI) Execute(root *cobra.Command, args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop)
	return c.ExecuteContext(ctx, root, args)
}

// ExecuteContext is Execute under a context of the caller's.
func (c *CLI) ExecuteContext(ctx context.Context, root *cobra.Command, args []string) (code int) {
	defer func() {
		// A stack trace on their screen helps no user.
		if r := recover(); r != nil {
			if text := fmt.Sprint(r); strings.Contains(text, syscall.ENOSPC.Error()) {
				fmt.Fprintf(c.Err, "polyplane: the disk is full: %s\n", text)
			} else {
				fmt.Fprintf(c.Err, "polyplane: a mistake in polyplane itself: %s; please report it with the command "+
					"line\n", text)
			}
			code = ExitFailed
		}
	}()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitOK
	}
	if code = exitCode(err); isCobraUsage(err) {
		code = ExitUsage
	}
	if exit, ok := errors.AsType[*commandExit](err); ok {
		return exit.status
	}
	if errors.Is(err, syscall.EPIPE) { // the reader of a pipe has gone: nobody is there to be told
		return code
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return ExitInterrupted
	}
	fmt.Fprintln(c.Err, printable(c.hinted(message(root, cmd, err))))
	return code
}

// isCobraUsage tells whether cobra itself complains about the command line. cobra has no error types for that.
func isCobraUsage(err error) bool {
	own := []string{"unknown command ", "if any flags in the group ", "required flag"}
	return slices.ContainsFunc(own, func(s string) bool { return strings.HasPrefix(err.Error(), s) })
}

// message is an error as users see it: what was being done, what is wrong, what would be right.
func message(root, cmd *cobra.Command, err error) string {
	text := strings.TrimSpace(err.Error())
	if isCobraUsage(err) {
		text = cobraWords(text)
		return fmt.Sprintf("%s: %s\nUsage: %s", cmd.CommandPath(), text, cmd.UseLine())
	}
	prefix := strings.TrimSpace(strings.TrimPrefix(cmd.CommandPath(), root.Name()))
	if _, ok := errors.AsType[*usage](err); ok {
		return fmt.Sprintf("%s: %s\nUsage: %s", strings.TrimSpace(root.Name()+" "+prefix), text, cmd.UseLine())
	}
	if prefix == "" {
		return root.Name() + ": " + text
	}
	return root.Name() + " " + prefix + ": " + text
}

var (
	cobraGroup    = regexp.MustCompile(`^if any flags in the group \[(.*)\] are set none of the others can be; \[(.*)\] were all set$`)
	cobraArgument = regexp.MustCompile(`^unknown command (".*") for ".*"$`)
)

// cobraWords turns cobra's own complaints into this program's words.
func cobraWords(text string) string {
	flags := func(names string) string {
		list := strings.Fields(names)
		for i := range list {
			list[i] = "--" + list[i]
		}
		return strings.Replace(orList(list), " or ", " and ", 1)
	}
	if m := cobraGroup.FindStringSubmatch(text); m != nil {
		return flags(m[2]) + " exclude each other"
	}
	if m := cobraArgument.FindStringSubmatch(text); m != nil {
		return "unexpected argument " + m[1]
	}
	return text
}

// noCommand is the error for a word that is no command. It names those that are alike.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	known := each.That(cmd.Commands(), func(sub *cobra.Command) bool { return !sub.Hidden })
	names := each.Of(known, (*cobra.Command).Name)
	return &Error{Code: ExitUsage, Err: fmt.Errorf("there is no command %q%s; `%s --help` lists all",
		args[0], didYouMean(args[0], names), cmd.CommandPath())}
}

// takesNothing refuses arguments of commands that say nothing of arguments.
func takesNothing(cmd *cobra.Command) {
	for _, noun := range cmd.Commands() {
		takesNothing(noun)
	}
	if cmd.Args == nil && cmd.ValidArgsFunction == nil && !cmd.HasSubCommands() {
		cmd.Args, cmd.ValidArgsFunction = args(0, 0, ""), cobra.NoFileCompletions
	}
}

// flagsBeforeNouns allows flags before a command's own commands (`get -w elements`). cobra would take the word after a
// flag that it does not know for the flag's value.
func flagsBeforeNouns(cmd *cobra.Command) {
	for _, noun := range cmd.Commands() {
		flagsBeforeNouns(noun)
		noun.Flags().VisitAll(func(f *pflag.Flag) {
			if cmd.Flags().Lookup(f.Name) != nil || f.Shorthand != "" &&
				cmd.Flags().ShorthandLookup(f.Shorthand) != nil {
				return
			}
			known := *f
			known.Hidden = true
			cmd.Flags().AddFlag(&known)
		})
	}
}
