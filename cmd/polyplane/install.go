package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/polyplane/polyplane/cli"
	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/instance/lifecycle"
)

func installCommand(app *cli.CLI) *cobra.Command {
	i := &lifecycle.Install{}
	cmd := &cobra.Command{
		Use:   "install [-- OPTIONS OF UP]",
		Short: "Have systemd run the platform, now and after every reboot",
		Long: `Have systemd run the platform, now and after every reboot. This writes, enables and starts a unit. Networks
come back with it, with their addresses and files. What follows -- is given to ` + "`up`" + ` at every start; without it
` + "`up`" + ` comes back to what the instance was. One that runs already goes on, and no packet is lost.

` + "`systemctl stop`" + ` ends the platform's processes only, like ^C at ` + "`up`" + `; ` + "`down`" + ` removes the networks from the
machine too. With --root the unit is written for another machine's root directory, and nothing is started.`,
		Example: "  polyplane install -- --host --listen :7455\n  polyplane join --manager server1:7455 --token " +
			"pp1.… --install",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 0 && len(args) > 0 {
				return cobra.NoArgs(cmd, args)
			}
			if err := checkUpOptions(app, args); err != nil {
				return &cli.Error{Code: cli.ExitUsage, Err: err}
			}
			return withStatus(prepare(app, i, args).Run())
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	app.AddNameAlias(cmd)
	rootFlag(cmd, &i.Root)
	cmd.Flags().StringVar(&i.Executable, "executable", "",
		"the `path` of this program on that machine (default: where it is)")
	return cmd
}

// checkUpOptions tells what `up` would not understand, or not as it is meant: now, and not at the next boot.
func checkUpOptions(app *cli.CLI, args []string) error {
	name := app.Instance
	defer func() { app.Instance = name }()
	up := upCommand(app)
	if err := up.ParseFlags(args); err != nil {
		return fmt.Errorf("`up` would say: %w", err)
	}
	if rest := up.Flags().Args(); len(rest) > 0 {
		return fmt.Errorf("`up` takes no argument %q", rest[0])
	}
	var problem error
	up.Flags().Visit(func(f *pflag.Flag) {
		switch f.Name {
		case "name", "detach", "report":
			problem = fmt.Errorf("--%s is not for systemd; the instance's name is given before the --", f.Name)
		case "substrate", "etcd-cacert", "etcd-cert", "etcd-key":
			if path := f.Value.String(); !filepath.IsAbs(path) {
				problem = fmt.Errorf("--%s %s: systemd starts in another directory; write the whole path", f.Name, path)
			}
		}
	})
	return problem
}

func uninstallCommand(app *cli.CLI) *cobra.Command {
	i := &lifecycle.Install{}
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Have systemd no longer run the platform",
		Long: `Have systemd no longer run the platform: its processes end, and its unit is removed. Networks stay as they
are and go on forwarding until ` + "`down`" + `, or the next boot.`,
		Args:              cobra.NoArgs,
		RunE:              func(*cobra.Command, []string) error { return withStatus(prepare(app, i, nil).Remove()) },
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	app.AddNameAlias(cmd)
	rootFlag(cmd, &i.Root)
	return cmd
}

func prepare(app *cli.CLI, i *lifecycle.Install, args []string) *lifecycle.Install {
	i.Dirs, i.Args, i.Out = instance.NewDirs(app.Instance), args, app.Out
	if i.Root != "" {
		i.Root = filepath.Clean(i.Root)
	}
	return i
}

func rootFlag(cmd *cobra.Command, root *string) {
	cmd.Flags().StringVar(root, "root", "", "the `directory` that is another machine's root, instead of this machine's")
	cmd.MarkFlagDirname("root") //nolint:errcheck // it exists
}
