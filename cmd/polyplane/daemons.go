package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/cli"
	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/instance/lifecycle"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/agent"
	"github.com/polyplane/polyplane/node/edge"
	"github.com/polyplane/polyplane/node/substrate"
	"github.com/polyplane/polyplane/server/api/client"
	"github.com/polyplane/polyplane/server/manager"
	"github.com/polyplane/polyplane/server/store"
)

// daemonCommands are the commands that start and end an instance, and those that it consists of.
func daemonCommands(app *cli.CLI) []*cobra.Command {
	return slices.Concat(
		app.OnlyHere(false, upCommand(app), joinCommand(app), downCommand(app), installCommand(app),
			uninstallCommand(app)),
		app.OnlyHere(true, backupCommand(app), restoreCommand(app)),
		[]*cobra.Command{managerCommand(app), agentCommand(app), examineCommand(app)}) // children of `up`
}

func upCommand(app *cli.CLI) *cobra.Command {
	var nodes int
	var host, detach, report bool
	var topology, file string
	var etcd lifecycle.Etcd
	var listen, advertise []string
	var underlay, hook, lldp string
	cmd := &cobra.Command{
		Use:   "up [--nodes N | --substrate FILE | --host] [-d]",
		Short: "Start the platform on this machine",
		Long: `Start the platform: a manager, and an agent for each node. Without --nodes and --substrate the nodes are
those of the last time; the first time, this machine is the only node.

In the foreground, ^C ends the platform's processes only: networks stay and go on forwarding, until the
next ` + "`up`" + ` takes them over or ` + "`down`" + ` removes them. With -d the platform runs on in the background.`,
		Example: "  polyplane up --nodes 3 -d\n  polyplane up --nodes 5 --topology line\n  polyplane up --substrate " +
			"rnp.yaml --name rnp -d",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("nodes") && (nodes < 1 || nodes > substrate.MaxSimulated) {
				return &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf("--nodes %d: from 1 to %d are possible", nodes,
					substrate.MaxSimulated)}
			}
			if etcd.URLs != "" {
				if err := external(etcd).Check(); err != nil {
					return &cli.Error{Code: cli.ExitUsage, Err: err}
				}
			}
			options := lifecycle.Options{Nodes: nodes, Topology: substrate.Topology(topology), File: file, Etcd: etcd,
				Hook: model.Hook(hook), LLDP: lldp}
			if err := checkLLDP(lldp); err != nil {
				return err
			}
			if hook != "" && !slices.Contains(model.Hooks, options.Hook) {
				return &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf("--hook %s: there are auto, tc and xdp", hook)}
			}
			if host {
				options.Nodes = lifecycle.HostOnly
			}
			if cmd.Flags().Changed("listen") {
				options.Listen = &listen
			}
			if cmd.Flags().Changed("advertise") {
				options.Advertise = &advertise
			}
			var err error
			if options.Underlay, err = addressFlag("underlay", underlay); err != nil {
				return err
			}
			return start(cmd, app, &lifecycle.Up{Options: options}, detach, report)
		},
	}
	app.AddNameAlias(cmd)
	f := cmd.Flags()
	f.IntVar(&nodes, "nodes", 0, "simulate this many nodes on this machine")
	f.StringVar(&topology, "topology", "", "how simulated nodes are joined: ring, line or mesh")
	f.StringVar(&file, "substrate", "",
		"a `file` with nodes, links and their capacities, to be simulated (docs/substrate.md)")
	f.BoolVar(&host, "host", false, "this machine itself is the only node, beside those that join")
	f.StringVar(&hook, "hook", "",
		"where the underlay's devices take tunnels' packets of routers with forwarding: xdp: auto (in the driver of "+
			"real devices), tc or xdp")
	lldpFlag(cmd, &lldp)
	reachFlags(cmd, &listen, &advertise, &underlay)
	etcdFlags(cmd, &etcd)
	detachFlags(cmd, &detach, &report)
	cmd.MarkFlagsMutuallyExclusive("nodes", "substrate", "host")
	cmd.MarkFlagsMutuallyExclusive("topology", "substrate")
	cmd.MarkFlagsMutuallyExclusive("topology", "host")
	cmd.MarkFlagFilename("substrate", "yaml", "yml") //nolint:errcheck // it exists
	return cmd
}

// etcdFlags are how `up` and the manager are told of an external cluster.
func etcdFlags(cmd *cobra.Command, etcd *lifecycle.Etcd) {
	f := cmd.Flags()
	f.StringVar(&etcd.URLs, "etcd", "", "keep networks in an external etcd cluster: its `URLs`, separated by commas")
	f.StringVar(&etcd.CA, "etcd-cacert", "",
		"trust an etcd whose certificate the authorities in this `file` (PEM) signed, instead of the system's")
	f.StringVar(&etcd.Cert, "etcd-cert", "", "show this certificate to etcd, a `file` (PEM)")
	f.StringVar(&etcd.Key, "etcd-key", "", "the certificate's key, a `file` (PEM)")
}

func external(e lifecycle.Etcd) *store.ExternalOptions {
	return &store.ExternalOptions{URLs: strings.Split(e.URLs, ","), CA: e.CA, Cert: e.Cert, Key: e.Key}
}

// withStatus gives the errors of `up` and `down` their exit statuses.
func withStatus(err error) error {
	var option *lifecycle.OptionError
	var refused *lifecycle.RefusedError
	var busy *lifecycle.BusyError
	switch {
	case errors.As(err, &option):
		return &cli.Error{Code: cli.ExitUsage, Err: err}
	case errors.As(err, &refused), errors.As(err, &busy):
		return &cli.Error{Code: cli.ExitRefused, Err: err}
	}
	return err
}

func downCommand(app *cli.CLI) *cobra.Command {
	var purge bool
	cmd := &cobra.Command{
		Use:   "down [--purge]",
		Short: "End the platform and remove everything it made",
		Long: `End the platform's processes and remove all elements, namespaces and devices. This works also when some
processes, or all, have ended already.
The data directory stays: ` + "`up`" + ` comes back to the same networks, addresses and files.
With --purge all that polyplane has made there is deleted. Beside it, behind links, and on disks that are mounted at
the data directory or in it, only what has the names that polyplane gives is. All else stays, and is told, as do disks.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// What has no control groups has nothing that runs. What is left of it goes from here as well.
			lifecycle.KeepMounts() //nolint:errcheck // as said
			d := &lifecycle.Down{Dirs: instance.NewDirs(app.Instance), Purge: purge, Out: app.Out,
				Drivers: agent.Purge, Rest: agent.PurgeRest}
			return withStatus(d.Run(cmd.Context()))
		},
	}
	app.AddNameAlias(cmd)
	cmd.Flags().BoolVar(&purge, "purge", false, "delete the data directory as well: networks, addresses, files, logs")
	return cmd
}

func managerCommand(app *cli.CLI) *cobra.Command {
	var file string
	var etcd lifecycle.Etcd
	var listen, advertise []string
	cmd := &cobra.Command{
		Use: "manager", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			daemonLog()
			config := manager.Config{Dirs: instance.NewDirs(app.Instance), Listen: listen, Advertise: advertise}
			var err error
			if config.Substrate, err = lifecycle.ReadSubstrate(file); err != nil {
				return err
			}
			if etcd.URLs != "" {
				config.External = external(etcd)
			}
			return manager.Run(cmd.Context(), config)
		},
	}
	cmd.Flags().StringVar(&file, "substrate-state", "", "")
	cmd.Flags().StringArrayVar(&listen, "listen", nil, "")
	cmd.Flags().StringArrayVar(&advertise, "advertise", nil, "")
	etcdFlags(cmd, &etcd)
	return cmd
}

func agentCommand(app *cli.CLI) *cobra.Command {
	var node, address, outpost, machine, lldp string
	cmd := &cobra.Command{
		Use: "agent", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			daemonLog()
			dirs, err := instance.NewDirs(app.Instance).Real()
			if err != nil {
				return err
			}
			underlay, err := addressFlag("address", address)
			if err != nil {
				return err
			}
			drivers, err := agent.NewDrivers(dirs.Node(node), underlay, machine)
			if err != nil {
				return err
			}
			config := agent.Config{Dirs: dirs.Node(node), Drivers: drivers, Address: underlay, Silent: lldp == "off"}
			c := client.New(dirs)
			if outpost != "" {
				if c, config.Outpost, err = openOutpost(dirs, outpost); err != nil {
					return err
				}
			}
			defer c.Close()
			config.Manager = c
			return agent.Run(cmd.Context(), config)
		},
	}
	cmd.Flags().StringVar(&node, "node", "", "")
	cmd.Flags().StringVar(&address, "address", "", "")
	cmd.Flags().StringVar(&outpost, "outpost", "", "")
	cmd.Flags().StringVar(&machine, "machine", edge.Own, "")
	cmd.Flags().StringVar(&lldp, "lldp", "", "")
	return cmd
}

// daemonLog has a daemon log to its standard error, which `up` keeps in a file.
func daemonLog() {
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)))
}
