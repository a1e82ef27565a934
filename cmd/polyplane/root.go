package main

//go:generate go run . gendocs ../../docs/cli.md

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/cli"
	"github.com/polyplane/polyplane/examples"
	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/schema"
	"github.com/polyplane/polyplane/server/api/client"
	"github.com/polyplane/polyplane/trust"
)

// version is the release, set when it is linked (-X main.version=…).
var version = "development"

// newApp returns the command line of this process. app.Instance is the instance that --instance (--name of `up` and
// `down`: app.AddNameAlias(cmd)) or POLYPLANE_INSTANCE names; it is set once a command runs.
func newApp() *cli.CLI {
	var app *cli.CLI
	app = cli.New(func(name string) (cli.Client, error) {
		return client.New(instance.NewDirs(name)).Patient(3 * time.Second).Naming(app.User()).Telling(app.Waits), nil
	})
	app.ConnectServer = func(server string, token trust.Token) (cli.Client, error) {
		return client.NewUser(server, token).Naming("").Telling(app.Waits), nil
	}
	app.Version = version
	app.Examples = examples.Files
	app.Schema = schema.JSON
	return app
}

// newRoot returns the command tree that speaks to a running instance; main adds the commands that run one.
func newRoot(app *cli.CLI) *cobra.Command { return app.Root() }
