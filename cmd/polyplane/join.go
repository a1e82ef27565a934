package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/cli"
	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/instance/lifecycle"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/agent"
	"github.com/polyplane/polyplane/server/api/client"
	"github.com/polyplane/polyplane/trust"
)

func joinCommand(app *cli.CLI) *cobra.Command {
	var detach, report, install bool
	var j joinFlags
	cmd := &cobra.Command{
		Use:   "join --manager HOST:PORT --token TOKEN [-d]",
		Short: "Make this machine a node of an instance on another machine",
		Long: `Make this machine a node of an instance whose manager is on another machine, and start its agent. There,
` + "`polyplane token create`" + ` prints this command with a token, which is good once. The agent connects to the manager
over TLS and holds that connection: nobody has to reach this machine, but the other nodes by VXLAN (UDP
port 4789), whose address on this machine is the one that it reaches the manager from (or --underlay).

Like ` + "`up`" + `, it runs in the foreground or (-d) in the background; ` + "`up`" + ` starts it again, ` + "`down`" + ` ends it. With --install
systemd runs it, also after a reboot.`,
		Example: "  polyplane join --manager server1:7455 --token pp1.… -d",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			join, err := j.join()
			if err != nil {
				return err
			}
			if err := checkLLDP(j.lldp); err != nil {
				return err
			}
			up := &lifecycle.Up{Join: join, Options: lifecycle.Options{LLDP: j.lldp}}
			if !install {
				return start(cmd, app, up, detach, report)
			}
			if err := lifecycle.KeepMounts(); err != nil {
				return withStatus(err)
			}
			defer equip(app, up).Close()
			service := &lifecycle.Install{Dirs: up.Dirs, Out: app.Out}
			if err := service.Check(); err != nil { // before the token is used up
				return withStatus(err)
			}
			if err := up.JoinOnly(cmd.Context()); err != nil {
				return withStatus(err)
			}
			return withStatus(service.Run())
		},
	}
	app.AddNameAlias(cmd)
	j.add(cmd)
	cmd.Flags().BoolVar(&install, "install", false, "have systemd run it, now and after every reboot (see install)")
	detachFlags(cmd, &detach, &report)
	cmd.MarkFlagsMutuallyExclusive("install", "detach")
	return cmd
}

// joinFlags are what says how this machine joins.
type joinFlags struct {
	manager, token, tokenFile, node, underlay, bandwidth, location, lldp string
}

func (j *joinFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&j.manager, "manager", "", "where the manager is: `HOST:PORT`")
	f.StringVar(&j.token, "token", "", "the `token` that `polyplane token create` printed")
	f.StringVar(&j.tokenFile, "token-file", "", "a `file` with the token, instead of --token")
	f.StringVar(&j.node, "node", "", "the node's `name` (default: this machine's)")
	f.StringVar(&j.underlay, "underlay", "", "this machine's `address` for other nodes")
	f.StringVar(&j.bandwidth, "bandwidth", "",
		"what this machine can send to other nodes, such as `10Gbit`, for admission")
	f.StringVar(&j.location, "location", "", "where this machine is, in one `word`")
	lldpFlag(cmd, &j.lldp)
	cmd.MarkFlagsMutuallyExclusive("token", "token-file")
}

// join reads the flags.
func (j *joinFlags) join() (*lifecycle.Join, error) {
	wrong := func(err error) error { return &cli.Error{Code: cli.ExitUsage, Err: err} }
	if j.manager == "" || j.token == "" && j.tokenFile == "" {
		return nil, wrong(errors.New("--manager and --token are needed; `polyplane token create` on the manager's " +
			"machine prints the whole command"))
	}
	server, err := model.ServerAddress(j.manager)
	if err != nil {
		return nil, wrong(fmt.Errorf("--manager: %w", err))
	}
	text := j.token
	if j.tokenFile != "" {
		b, err := os.ReadFile(j.tokenFile)
		if err != nil {
			return nil, wrong(err)
		}
		text = string(b)
	}
	out := &lifecycle.Join{Server: server, Node: j.node, Location: j.location}
	if out.Token, err = trust.ParseToken(text); err != nil {
		return nil, wrong(err)
	}
	if out.Underlay, err = addressFlag("underlay", j.underlay); err != nil {
		return nil, err
	}
	if j.bandwidth != "" {
		if out.Bandwidth, err = model.ParseBandwidth(j.bandwidth); err != nil {
			return nil, wrong(fmt.Errorf("--bandwidth: %w", err))
		}
	}
	return out, nil
}

// start starts an instance, in the foreground or not.
func start(cmd *cobra.Command, app *cli.CLI, up *lifecycle.Up, detach, report bool) error {
	if err := lifecycle.KeepMounts(); err != nil {
		return withStatus(err)
	}
	defer equip(app, up).Close()
	switch {
	case report:
		return up.RunDetached(cmd.Context())
	case detach:
		return withStatus(up.Detach(cmd.Context(), append(os.Args[1:], "--report")))
	}
	return withStatus(up.Run(cmd.Context(), nil))
}

// equip gives an `up` what all have.
func equip(app *cli.CLI, up *lifecycle.Up) *client.Client {
	dirs := instance.NewDirs(app.Instance)
	c := client.New(dirs)
	up.Dirs, up.Manager, up.Reach, up.Out, up.Version = dirs, c, reach{}, app.Out, app.Version
	up.Drivers = agent.Purge
	up.Examine = func(ctx context.Context) error { return examine(ctx, app.Instance) }
	return c
}

func detachFlags(cmd *cobra.Command, detach, report *bool) {
	f := cmd.Flags()
	f.BoolVarP(detach, "detach", "d", false, "run in the background; return when everything is ready")
	f.BoolVar(report, "report", false, "")
	f.MarkHidden("report") //nolint:errcheck // it exists
}

// reachFlags are how other machines reach this one.
func reachFlags(cmd *cobra.Command, listen, advertise *[]string, underlay *string) {
	f := cmd.Flags()
	f.StringSliceVar(listen, "listen", nil,
		fmt.Sprintf("serve other machines, over TLS, at this `ADDRESS:PORT` (:%d for all addresses)",
			model.DefaultPort))
	f.StringSliceVar(advertise, "advertise", nil,
		"the `HOST:PORT` by which others reach this machine, if it is not the address listened on")
	f.StringVar(underlay, "underlay", "", "this machine's `address` for other nodes")
}

func lldpFlag(cmd *cobra.Command, lldp *string) {
	cmd.Flags().StringVar(lldp, "lldp", "",
		"whether nodes announce themselves by LLDP to each other, and so on this machine's network: `on` or off")
}

func checkLLDP(text string) error {
	if text != "" && text != "on" && text != "off" {
		return &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf("--lldp %s: there are on and off", text)}
	}
	return nil
}

// addressFlag reads an address, which may be left out.
func addressFlag(flag, text string) (netip.Addr, error) {
	if text == "" {
		return netip.Addr{}, nil
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return a, &cli.Error{Code: cli.ExitUsage,
			Err: fmt.Errorf("--%s %s: an IP address of this machine was expected", flag, text)}
	}
	return a, nil
}

// reach is how `up` speaks to a manager elsewhere.
type reach struct{}

func (reach) Join(ctx context.Context, server string, pin trust.Pin,
	request model.JoinRequest) (model.JoinResult, error) {
	c := client.NewHost(server, pin)
	defer c.Close()
	return c.Join(ctx, request)
}

func (reach) Node(ctx context.Context, server string, identity *trust.Identity) (model.NodeStatus, error) {
	node, _, err := identity.Node()
	if err != nil {
		return model.NodeStatus{}, err
	}
	c, err := client.NewNode(server, identity)
	if err != nil {
		return model.NodeStatus{}, err
	}
	defer c.Close()
	return c.Node(ctx, node.Name)
}

// openOutpost is what the agent of a machine that joined speaks to its manager with.
func openOutpost(dirs instance.Dirs, path string) (*client.Client, *agent.Outpost, error) {
	o, err := lifecycle.ReadOutpost(path)
	if err != nil {
		return nil, nil, err
	}
	identity, err := trust.OpenIdentity(lifecycle.IdentityDir(dirs))
	if err != nil {
		return nil, nil, err
	}
	c, err := client.NewNode(o.Server, identity)
	if err != nil {
		return nil, nil, err
	}
	early, err := renewAfter()
	return c, &agent.Outpost{Headquarters: c, Identity: identity, Machine: o.Machine, RenewAfter: early}, err
}

// renewVariable shortens the time after which a node renews its certificate (such as 2s), so that tests see it done.
const renewVariable = "POLYPLANE_RENEW_AFTER"

func renewAfter() (time.Duration, error) {
	text := os.Getenv(renewVariable)
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		err = fmt.Errorf("%s=%s: %w", renewVariable, text, err)
	}
	return d, err
}
