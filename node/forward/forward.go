// Package forward says what a forwarding plane is: the part of a node that forwards an element's packets. The planes
// are packages below this one.
package forward

import (
	"context"
	"errors"
	"maps"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/node/mirror"
)

// Job is one element whose packets this plane shall forward.
type Job struct {
	ID      model.ID
	Element model.NodeElement
	Devices []control.Device
	// Routes is where the element's own stack has its routes; nil if its control plane tells none.
	Routes mirror.Source
	// Quota is what the tables of its network's routers may take on the node.
	Quota model.TableQuota
}

// Steering says where the fabric brings the packets that arrive for an element's ports. The zero value leaves them all to the
// element's own stack, the guest.
type Steering struct {
	// Owner is the plane that asks for it. The agent fills it in.
	Owner model.Forwarding
	// Tables is the number of the forwarding tables that say which packets are forwarded; the guest gets the others. Without
	// it the Devices get all.
	Tables int
	// Devices has these packets handed to devices, by interface: their indices in the node's namespace, which the fabric was
	// told of. Without Devices the fabric forwards them itself. What comes in at an interface without one is for the guest.
	Devices map[string]int
}

// Equal tells whether two steerings are the same.
func (s Steering) Equal(t Steering) bool {
	return s.Owner == t.Owner && s.Tables == t.Tables && (s.Devices == nil) == (t.Devices == nil) && maps.Equal(s.Devices, t.Devices)
}

// Prepared is what became of one Job.
type Prepared struct {
	ID  model.ID
	Err error
	// Steering is what the plane has ready for the element's packets. Nil, they are to go where they went before: with an Err,
	// or while the plane Waits.
	Steering *Steering
	// Waits tells that the plane is not in sync with the element's control plane yet. Only a Watcher answers so.
	Waits bool
}

// Plane forwards packets. Prepare takes everything that this plane shall forward, may be repeated at any time, and does not
// wait for elements' control planes. The results are in the order of the jobs. A plane steers nobody: it returns what it has
// ready, and the agent has the fabric steer, for all elements at once.
type Plane interface {
	// Offers tell what the plane makes on this machine, and what the machine lacks for the rest.
	Offers(ctx context.Context) model.Offers
	Prepare(ctx context.Context, jobs []Job) []Prepared
	// List tells for which elements the plane keeps something.
	List(ctx context.Context) ([]model.ID, error)
	// Retire lets go of it. Nobody is steered there any more.
	Retire(ctx context.Context, ids []model.ID) error
}

// Routed is a control driver whose elements have routes.
type Routed interface {
	Routes(id model.ID) mirror.Source
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
