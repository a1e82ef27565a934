package api

import (
	"context"

	"github.com/polyplane/polyplane/model"
)

// Networks is what users do with networks. Refusals are *Problem.
type Networks interface {
	// Apply applies all documents or none; each has its own Base.
	Apply(ctx context.Context, documents []model.Document, options model.ApplyOptions) ([]model.ApplyResult, error)
	Delete(ctx context.Context, network string) error
	Network(name string) (model.Record, error)
	Act(ctx context.Context, id model.ID, action model.Action) (model.ActionResult, error)
	Check(ctx context.Context, network string, request model.CheckRequest) (model.CheckResult, error)
}

// Settings is what is changed in place: fields of networks, and quotas.
type Settings interface {
	Set(ctx context.Context, network string, request model.SetRequest) (model.SetResult, error)
	Quotas() []model.QuotaStatus
	SetQuota(ctx context.Context, kind model.QuotaKind, name string, request model.QuotaRequest) (model.QuotaStatus, error)
}

// Parts selects what Dump fills; Nodes includes the substrate's links.
type Parts struct{ Networks, Nodes, Elements, Links bool }

// Views is what users see.
type Views interface {
	Ping() model.Pong
	Substrate() model.Substrate
	// Dump tells of one network, or of all when network is empty; nodes and the substrate's links are always told of all.
	Dump(network string, parts Parts) (model.Dump, error)
	// Changed returns a channel that is closed when something that Dump tells has changed.
	Changed() <-chan struct{}
	// Events returns what is kept of the events after since, at most a few thousand, and a channel that is closed when
	// there are more.
	Events(since int64) ([]model.Event, <-chan struct{})
}

// Agents is what nodes' agents do.
type Agents interface {
	Register(node string, r model.Registration) error
	// Watch begins a watch of the node's desired state. The node counts as alive until end is called.
	Watch(node string) (next func() Desired, end func(), err error)
	Report(report model.Report) error
	// Measure takes what a node's agent has measured.
	Measure(measures model.Measures) error
	// Agent tells which node an element is on and where that node's agent listens.
	Agent(id model.ID) (node, socket string, err error)
}

// Desired is a node's desired state, ready to be sent.
type Desired struct {
	Revision int64
	// Line is one model.Update in JSON, in pieces that nobody may change, with the newline.
	Line [][]byte
	// Changed is closed when there is a newer one.
	Changed <-chan struct{}
}
