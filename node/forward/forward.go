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

// Job is one element for which this plane shall forward.
type Job struct {
	ID      model.ID
	Element model.NodeElement
	Devices []control.Device
	// Routes tells the routes of the element's own stack; nil if its control plane tells none.
	Routes mirror.Source
	// Quota bounds what the tables of the network's routers may take on this node.
	Quota model.TableQuota
	// Place is where the plane gets ready what the data path needs for the element.
	Place Place
}

// Place is an element's place in the node's data path. The agent gives it with the job, and it stays valid. What a
// plane does there concerns this element only. Leave and Restrict give packets back to the guest, at once; only the
// agent makes packets go anywhere else, by a Steering. Its methods may be called beside the agent's loop.
type Place interface {
	// Ports returns the numbers by which the data path knows the element's interfaces, even before these have devices.
	// Numbers of interfaces that the element does not have become free again.
	Ports(interfaces []string) (map[string]uint32, error)
	// Tables returns the number of the element's forwarding tables. Whoever fills them keeps it until Leave. Their
	// counters begin at zero.
	Tables() (int, error)
	// Leave says that nobody fills the tables any more. Packets that they would still forward go to the guest at once.
	Leave() error
	// Restrict says which packets, by interface and family, are for the guest only although the tables forward. It
	// holds from now on, whenever the element is steered to these tables. So whoever fills them need not wait for the
	// agent before they are no longer used.
	Restrict(off map[string]Off) error
	// Join makes the data path take what comes out of devices, as if the element's interfaces had sent it. They are
	// given by their indices in the node's namespace, and Ports must have been asked for their interfaces. They get
	// packets once a Steering says so, and must be down until Join has returned.
	Join(devices map[string]int) error
}

// Off says which packets that come in at an interface are not forwarded by the data path.
type Off struct{ IPv4, IPv6 bool }

// Steering says where the fabric brings the packets that arrive at an element's ports. The zero value leaves all of
// them to the element's own stack, the guest.
type Steering struct {
	// Owner is the plane that asks for it. The agent fills it in.
	Owner model.Forwarding
	// Tables is the number of the forwarding tables. They say which packets are forwarded; the guest gets the others.
	// Without Tables the Devices get all packets.
	Tables int
	// Devices are the devices that get these packets, by interface: indices in the node's namespace, which were joined
	// to the element's Place before. Without Devices the fabric forwards the packets itself. Packets that come in at an
	// interface without a device are for the guest.
	Devices map[string]int
}

// Equal tells whether two steerings are the same.
func (s Steering) Equal(t Steering) bool {
	return s.Owner == t.Owner && s.Tables == t.Tables && (s.Devices == nil) == (t.Devices == nil) &&
		maps.Equal(s.Devices, t.Devices)
}

// Prepared is what became of one Job.
type Prepared struct {
	ID  model.ID
	Err error
	// Steering is where the element's packets shall go. Nil means that they go where they went before: with an Err, or
	// while the plane Waits.
	Steering *Steering
	// Waits says that the plane's tables do not yet have what the element's control plane has. Only a Watcher returns
	// it.
	Waits bool
}

// Plane forwards packets. Prepare gets all elements that this plane shall forward for. It may be repeated at any time,
// and does not wait for elements' control planes. Its results are in the order of the jobs. A plane steers nobody
// itself: it returns what it has ready, and the agent makes the fabric steer, for all elements at once.
type Plane interface {
	// Offers tell what the plane can make on this machine, and what the machine lacks for the rest.
	Offers(ctx context.Context) model.Offers
	Prepare(ctx context.Context, jobs []Job) []Prepared
	// List tells for which elements the plane keeps something.
	List(ctx context.Context) ([]model.ID, error)
	// Retire lets go of what the plane keeps for elements. The agent calls it when nobody is steered there any more,
	// and again in later passes for those that the plane still lists. It does not wait: a plane that needs time for it
	// has its Watch tell when the next pass is due.
	Retire(ctx context.Context, ids []model.ID) error
}

// Routed is a control driver whose elements have routes.
type Routed interface {
	Routes(id model.ID) mirror.Source
}

// Watcher is a plane that needs time: until its tables have what a control plane has, or until it can let go of
// something. Watch calls changed when an element for which Prepare said Waits is ready, or cannot be, and when Retire
// has something to do again. The next pass finds out which.
type Watcher interface {
	Watch(ctx context.Context, changed func()) error
}

// Inspector is a plane that can tell what its data path knows about an element. Both methods return ErrNotForwarded if
// it does not forward for the element.
type Inspector interface {
	FIB(id model.ID, request model.FIBRequest) (model.FIB, error)
	// Trace tells what the data path would do with a packet for an element that is steered so now. It reads the same
	// memory as the data path.
	Trace(id model.ID, now Steering, request model.TraceRequest) (model.Trace, error)
}

// Confirmer is a plane whose elements' own kernels do not send what is forwarded for them, and so do not notice when a
// neighbour has gone. Confirm has those that forwarded something since the last call ask their neighbours. forwarded is
// how many packets the data path has forwarded for each element.
type Confirmer interface {
	Confirm(ctx context.Context, forwarded map[model.ID]uint64)
}

// Accountant is a plane whose data path has tables for elements. It tells how large they are, of all elements.
type Accountant interface {
	Accounts() map[model.ID]model.FastTables
}

// Treed is a plane whose elements may run a spanning tree. Tree tells what one knows of it, and returns ErrNotForwarded
// where it runs none.
type Treed interface {
	Tree(id model.ID) (model.Tree, error)
}

// ErrNotForwarded says that a plane does not forward an element's packets.
var ErrNotForwarded = errors.New("its packets are forwarded by its own stack")
