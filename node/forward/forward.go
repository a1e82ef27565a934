// Package forward says what a forwarding plane is: the part of a node that forwards an element's packets. The planes
// are packages below this one.
package forward

import (
	"context"
	"errors"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
)

// Job is one element whose packets this plane shall forward.
type Job struct {
	ID      model.ID
	Element model.NodeElement
	Devices []control.Device
	// Quota is what the tables of its network's routers may take on the node.
	Quota model.TableQuota
}

// Prepared is what became of one Job.
type Prepared struct {
	ID  model.ID
	Err error
	// Waits tells that the plane is not in sync with the element's control plane yet. Until it is, the element is forwarded
	// for as before. Only a Watcher that need not wait answers so.
	Waits bool
}

// Plane forwards packets. Prepare takes everything that this plane shall forward and may be repeated at any time; it
// returns when the plane is in sync with the elements' control planes, or says of which it is not. The results are in the
// order of the jobs.
type Plane interface {
	// Probe returns nil, or what this machine lacks for the plane, in words.
	Probe(ctx context.Context) error
	Prepare(ctx context.Context, jobs []Job) []Prepared
	List(ctx context.Context) ([]model.ID, error)
	Retire(ctx context.Context, ids []model.ID) error
}

// Watcher is a plane that gets in sync in its own time. Watch calls changed when elements that it was said to wait for are in
// sync, or cannot be: the next Prepare tells.
type Watcher interface {
	Watch(ctx context.Context, changed func()) error
}

// Inspector is a plane that can tell what its data path knows of an element. Both answer ErrNotForwarded where it does not
// forward for the element.
type Inspector interface {
	FIB(id model.ID, request model.FIBRequest) (model.FIB, error)
	// Trace tells what the data path would do with a packet, by what it reads itself.
	Trace(id model.ID, request model.TraceRequest) (model.Trace, error)
}

// Accountant is a plane whose data path has tables for elements: it tells what these are, of all elements.
type Accountant interface {
	Accounts() map[model.ID]model.FastTables
}

// ErrNotForwarded says that a plane does not forward an element's packets.
var ErrNotForwarded = errors.New("its packets are forwarded by its own stack")
