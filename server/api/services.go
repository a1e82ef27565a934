package api

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/trust"
)

// Services are what the API is made of.
type Services struct {
	Networks Networks
	Moves    Moves
	Views    Views
	Agents   Agents
	Settings Settings
	Gate     Gate
	Tokens   Tokens
	Members  Members
	Data     Data
	Images   Images
	// Metrics answers GET /metrics; there is none when nil.
	Metrics http.Handler
}

// Networks is what users do with networks. Refusals are *Problem.
type Networks interface {
	// Apply applies all documents or none; each has its own Base.
	Apply(ctx context.Context, documents []model.Document, options model.ApplyOptions) ([]model.ApplyResult, error)
	Delete(ctx context.Context, network string, now bool) error
	// Keep says that a provisional network stays.
	Keep(ctx context.Context, network string) error
	Network(name string) (model.Record, error)
	// Forget has nodes give up what they hold of a network and the store does not know.
	Forget(ctx context.Context, network string, now bool) error
	Act(ctx context.Context, id model.ID, action model.Action) (model.ActionResult, error)
	Check(ctx context.Context, network string, request model.CheckRequest) (model.CheckResult, error)
	// Faults starts or stops the network's schedule of faults.
	Faults(ctx context.Context, network string, request model.FaultRequest) (model.Record, error)
}

// Settings is what is changed in place: fields of networks, and quotas.
type Settings interface {
	Set(ctx context.Context, network string, request model.SetRequest) (model.SetResult, error)
	// Quarantine is Act's, with a reason in words.
	Quarantine(ctx context.Context, id model.ID, reason string) (model.ActionResult, error)
	SetPolicy(ctx context.Context, network string, request model.PolicyRequest) ([]model.PolicyView, error)
	// Policies are those of one network's elements, or of all that whoever asks may see.
	Policies(ctx context.Context, network string) ([]model.PolicyView, error)
	Quotas() []model.QuotaStatus
	SetQuota(ctx context.Context, kind model.QuotaKind, name string,
		request model.QuotaRequest) (model.QuotaStatus, error)
}

// Parts selects what Dump fills; Nodes includes the substrate's links.
type Parts struct{ Networks, Nodes, Elements, Links bool }

// Views is what users see.
type Views interface {
	Ping() model.Pong
	Substrate() model.Substrate
	// Dump tells of one network, or of all when network is empty; nodes and the substrate's links are always told of
	// all.
	Dump(network string, parts Parts) (model.Dump, error)
	// WhatIf tells what would become of all networks if nodes went and others came; it changes nothing.
	WhatIf(ctx context.Context, ask model.WhatIf) (model.WhatIfResult, error)
	// Changed returns a channel that is closed when something that Dump tells has changed.
	Changed() <-chan struct{}
	// Events returns what is kept of the events after since, at most a few thousand, and a channel that is closed when
	// there are more.
	Events(since int64) ([]model.Event, <-chan struct{})
}

// Agents is what nodes' agents do.
type Agents interface {
	Register(node string, r model.Registration) error
	// Watch begins a watch of the node's desired state: whole each time, or only what has changed since it was told
	// last. The node counts as alive until end is called.
	Watch(node string, changes bool) (next func() Desired, end func(), err error)
	Report(report model.Report) error
	// Beat takes a sign of life of a node's agent.
	Beat(beat model.Beat) error
	// Measure takes what a node's agent has measured.
	Measure(measures model.Measures) error
	// Discover takes what a node's agent has found, and returns the keys of other nodes that it asks for.
	Discover(found model.Discovery) (model.DiscoveryAnswer, error)
	// Agent tells which node an element is on and how that node's agent is reached, if whoever asks may (see Only).
	Agent(ctx context.Context, id model.ID) (Reach, error)
}

// Reach is how an element is reached.
type Reach struct {
	// Node is the node that the element is on, Dial opens connections to its agent.
	Node string
	Dial Dial
	// Lost tells, beside an error, that the node says nothing, and that nobody should wait for it.
	Lost bool
	// Alive ends when the element's network is another's, or is no more.
	Alive context.Context
}

// Dial opens a connection to an agent's own API.
type Dial func(context.Context) (net.Conn, error)

// Gate tells who callers are, and what is whose.
type Gate interface {
	// User tells whose token it is.
	User(token trust.Token) (Caller, error)
	// Host tells why no host can join with a token. Like the others it answers out of memory.
	Host(token trust.Token) error
	// Member tells of the node whose joining the certificate is of; an error, when it is a member no longer.
	Member(node trust.Node) (Caller, error)
	// Allowed is what a user who is an owner may have.
	Allowed(user string) model.Quota
	// Names are all that the networks of an owner are called, or all networks if owner is empty; Left those of which
	// only something is left.
	Names(owner string) []model.NetworkName
	Left(owner string) []model.NetworkName
	// Owned are an owner's networks, with when they were made.
	Owned(owner string) map[string]time.Time
	// CutOff tells whether an administrator, or an administrator's policy, has put an element into quarantine.
	CutOff(id model.ID) bool
}

// Tokens hands out tokens, and takes them back.
type Tokens interface {
	CreateToken(ctx context.Context, request model.TokenRequest) (model.TokenResult, error)
	ListTokens() []model.Token
	RevokeToken(ctx context.Context, id string) (model.Token, error)
}

// Members takes hosts in as nodes.
type Members interface {
	Join(ctx context.Context, token trust.Token, request model.JoinRequest) (model.JoinResult, error)
	Renew(node trust.Node, request model.RenewRequest) (model.JoinResult, error)
	RemoveNode(ctx context.Context, name string) error
	// Tunnel takes over a connection on which the node's agent is reached from now on.
	Tunnel(node trust.Node, conn net.Conn) error
	// Authority is the certificate authority's certificate in PEM; nil when nothing is served outside this machine.
	Authority() []byte
}

// Desired is a node's desired state, ready to be sent.
type Desired struct {
	Revision int64
	// Lines are model.Updates in JSON, in pieces that nobody may change, with the newlines.
	Lines [][]byte
	// Changed is closed when there is a newer one.
	Changed <-chan struct{}
}
