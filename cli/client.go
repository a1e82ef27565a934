package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/server/api/client"
)

// Client is what the commands need of a running instance; *client.Client is one.
type Client interface {
	Lister
	Keeper
	Setter
	Watcher
	Gauger
	Opener
	Inspector
	Doorkeeper
	Introducer
	Rescuer
	Carrier
	Imager
	Relocator
}

var _ Client = (*client.Client)(nil)

// Lister tells what there is.
type Lister interface {
	Networks(ctx context.Context) ([]model.NetworkStatus, error)
	NetworkNames(ctx context.Context) (model.NameList, error)
	Nodes(ctx context.Context) ([]model.NodeStatus, error)
	WhatIf(ctx context.Context, ask model.WhatIf) (model.WhatIfResult, error)
	Elements(ctx context.Context, network string) ([]model.ElementView, error)
	Links(ctx context.Context, network string) ([]model.LinkStatus, error)
	Dump(ctx context.Context, network string) (model.Dump, error)
}

// Relocator moves elements between nodes.
type Relocator interface {
	Move(ctx context.Context, id model.ID, request model.MoveRequest) (model.MoveResult, error)
	Moves(ctx context.Context, network string) ([]model.MoveStatus, error)
}

// Imager keeps images.
type Imager interface {
	Images(ctx context.Context) ([]model.Image, error)
	NameImage(ctx context.Context, id, name string) (model.Image, error)
	KeptTree(ctx context.Context, id string) (io.ReadCloser, error)
	PutImage(ctx context.Context, id, name string, size int64, content io.Reader) (model.Image, error)
	RemoveImage(ctx context.Context, of string) (model.Image, error)
}

// Keeper keeps networks, and changes them.
type Keeper interface {
	Network(ctx context.Context, name string) (model.Record, error)
	ApplyAll(ctx context.Context, documents []model.Document, options model.ApplyOptions) ([]model.ApplyResult, error)
	Delete(ctx context.Context, network string, now bool) error
	Forget(ctx context.Context, network string, now bool) error
	Act(ctx context.Context, id model.ID, action model.Action) (model.ActionResult, error)
	Check(ctx context.Context, network string, request model.CheckRequest) (model.CheckResult, error)
	Faults(ctx context.Context, network string, action model.Action) (model.Record, error)
}

// Setter changes things in place.
type Setter interface {
	Set(ctx context.Context, network string, request model.SetRequest) (model.SetResult, error)
	SetPolicy(ctx context.Context, network string, request model.PolicyRequest) ([]model.PolicyView, error)
	Policies(ctx context.Context, network string) ([]model.PolicyView, error)
	Quarantine(ctx context.Context, id model.ID, reason string) (model.ActionResult, error)
	Quotas(ctx context.Context) ([]model.QuotaStatus, error)
	SetQuota(ctx context.Context, kind model.QuotaKind, name string,
		request model.QuotaRequest) (model.QuotaStatus, error)
}

// Watcher tells what changes.
type Watcher interface {
	Ping(ctx context.Context) (model.Pong, error)
	WatchDump(ctx context.Context, network string, f func(model.Dump) error) error
	Events(ctx context.Context, since int64, follow bool, f func(model.Event) error) error
}

// Gauger tells what is measured.
type Gauger interface {
	Metrics(ctx context.Context, w io.Writer) error
	SubstrateLinks(ctx context.Context) ([]model.SubstrateLinkStatus, error)
}

// Opener opens streams into elements.
type Opener interface {
	// Evidence reads the capture that is kept of an element in quarantine.
	Evidence(ctx context.Context, id model.ID) (io.ReadCloser, error)
	Exec(ctx context.Context, id model.ID, command control.Command, stdio control.Stdio) (int, error)
	Console(ctx context.Context, id model.ID, size control.Size, stdio control.Stdio) (int, error)
	Logs(ctx context.Context, id model.ID, follow bool) (io.ReadCloser, error)
	Capture(ctx context.Context, port model.PortID) (io.ReadCloser, error)
}

// Inspector tells what the fast path and elements know.
type Inspector interface {
	Running(ctx context.Context, id model.ID) (model.Running, error)
	Tree(ctx context.Context, id model.ID) (model.Tree, error)
	FIB(ctx context.Context, id model.ID, request model.FIBRequest) (model.FIB, error)
	Trace(ctx context.Context, id model.ID, request model.TraceRequest) (model.Trace, error)
}

// Carrier takes networks along, with what is in them.
type Carrier interface {
	Pack(ctx context.Context, id model.ID) (io.ReadCloser, error)
	Unpack(ctx context.Context, id model.ID, tree []byte) error
	Keep(ctx context.Context, network string) error
}

// Doorkeeper lets others in.
type Doorkeeper interface {
	Tokens(ctx context.Context) ([]model.Token, error)
	CreateToken(ctx context.Context, request model.TokenRequest) (model.TokenResult, error)
	RevokeToken(ctx context.Context, id string) (model.Token, error)
	RemoveNode(ctx context.Context, node string) error
}

// Introducer tells who is who.
type Introducer interface {
	Whoami(ctx context.Context) (model.Whoami, error)
	Authority(ctx context.Context) ([]byte, error)
}

// Rescuer gets back what was lost.
type Rescuer interface {
	Recover(ctx context.Context, request model.RecoverRequest) (model.RecoverResult, error)
	Trash(ctx context.Context) (model.TrashList, error)
	RestoreTrash(ctx context.Context, request model.TrashRequest) error
	EmptyTrash(ctx context.Context, items []string) error
	RenewDisk(ctx context.Context, id model.ID) error
}

// connect returns a client of the manager or the instance that the command line, the environment or a login names.
func (c *CLI) connect() (Client, error) {
	note, err := c.contradiction()
	if err != nil {
		return nil, err
	}
	if note != "" && !c.remote.told {
		c.remote.told = true
		fmt.Fprintf(c.Err, "note: %s\n", printable(note))
	}
	server, token, err := c.chosen()
	if err != nil {
		return nil, err
	}
	if server != "" {
		return c.ConnectServer(server, token)
	}
	cl, err := c.Connect(c.Instance)
	if err != nil {
		return nil, fmt.Errorf("connect to polyplane %q: %w", c.Instance, err)
	}
	return cl, nil
}

// Waits tells what a change waits for that has no answer yet.
func (c *CLI) Waits(what string) { fmt.Fprintf(c.Err, "waiting for %s\n", printable(what)) }

// tellAside tells that the store has not taken yet what was done, and why.
func (c *CLI) tellAside(id model.ID, why string) {
	if why != "" {
		fmt.Fprintf(c.Err, "%s: %s\n", id, printable(why))
	}
}

// connected is what a command does that begins with a connection.
func (c *CLI) connected(run func(*cobra.Command, Client, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, given []string) error {
		cl, err := c.connect()
		if err != nil {
			return err
		}
		return wrap(cmd.Context(), cl, run(cmd, cl, given), ref{})
	}
}

// recorded connects, and returns what the manager has of a network.
func (c *CLI) recorded(ctx context.Context, network string) (Client, model.Record, error) {
	cl, err := c.connect()
	if err != nil {
		return nil, model.Record{}, err
	}
	if network, err = c.refs(ctx).network(network); err != nil {
		return nil, model.Record{}, err
	}
	record, err := cl.Network(ctx, network)
	return cl, record, wrap(ctx, cl, err, ref{network: network})
}

// wrap gives an error of the client's its exit status. If an object is missing, it adds the names that there are.
func wrap(ctx context.Context, cl Client, err error, object ref) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	var down *client.NotRunningError
	var away *client.RemoteError
	var refusal *client.Error
	switch {
	case errors.As(err, &down), errors.As(err, &away):
		return &Error{Code: ExitNotRunning, Err: err}
	case client.IsNotFound(err) && object.network != "":
		if missing := lookUp(ctx, cl, object); missing != nil {
			return missing
		}
		return &Error{Code: ExitNotFound, Err: err}
	case client.IsNotFound(err):
		return &Error{Code: ExitNotFound, Err: err}
	case errors.As(err, &refusal) && refusal.Status < http.StatusInternalServerError:
		return refused(err)
	}
	return err
}

// lookUp returns nil if the object exists. Otherwise its error says which part of the name does not exist, and what
// there is instead.
func lookUp(ctx context.Context, cl Client, object ref) error {
	networks, err := cl.Networks(ctx)
	if err != nil {
		return wrap(ctx, cl, err, ref{})
	}
	names := each.Of(networks, func(n model.NetworkStatus) string { return n.Name })
	if !slices.Contains(names, object.network) {
		return unknown("network", object.network, names)
	}
	if object.element == "" {
		return nil
	}
	elements, err := cl.Elements(ctx, object.network)
	if err != nil {
		return wrap(ctx, cl, err, ref{})
	}
	element, err := findElement(elements, object.id())
	if err != nil || object.iface == "" {
		return err
	}
	_, err = findInterface(element, object.iface)
	return err
}

func findElement(elements []model.ElementView, id model.ID) (*model.ElementView, error) {
	var names []string
	for i := range elements {
		if elements[i].ID == id {
			return &elements[i], nil
		}
		if elements[i].ID.Network == id.Network {
			names = append(names, elements[i].ID.Element)
		}
	}
	if len(names) == 0 {
		return nil, notFound("there is no element %q: network %s has none", id.Element, id.Network)
	}
	return nil, notFound("network %s has no element %q%s", id.Network, id.Element,
		existingNames("element", id.Element, names))
}

func findInterface(e *model.ElementView, name string) (*model.ResolvedInterface, error) {
	var names []string
	for i := range e.Element.Interfaces {
		if e.Element.Interfaces[i].Name == name {
			return &e.Element.Interfaces[i], nil
		}
		names = append(names, e.Element.Interfaces[i].Name)
	}
	if len(names) == 0 {
		return nil, notFound("%s has no interface %q: it has no links", e.ID, name)
	}
	return nil, notFound("%s has no interface %q%s", e.ID, name, existingNames("interface", name, names))
}
