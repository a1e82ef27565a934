package main

import (
	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/cli"
	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/server/api/client"
)

// newApp returns the command line of this process. app.Instance is the instance that --instance (--name of `up` and
// `down`: app.AddNameAlias(cmd)) or POLYPLANE_INSTANCE names; it is set once a command runs.
func newApp() *cli.CLI {
	return cli.New(func(name string) (cli.Client, error) { return client.New(instance.NewDirs(name)), nil })
}

// newRoot returns the command tree that speaks to a running instance; main adds the commands that run one.
func newRoot(app *cli.CLI) *cobra.Command { return app.Root() }
