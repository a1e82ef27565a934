package port

import (
	"fmt"
	"net"
	"os"

	"github.com/polyplane/polyplane/linux"
)

// Behind is the interface at the other side of a port. Only the control driver knows where that is, and how to change
// it: in a namespace, or in a virtual machine by its hypervisor.
type Behind interface {
	// Offloads gives it the offloads that change makes of those that it has. If change fails, nothing is done.
	Offloads(change func(*linux.Offloads) error) error
}

// Peer is the other end of a device pair.
type Peer struct {
	Namespace string // the path of the network namespace that it is in
	Index     int    // its interface index there
}

var _ Behind = Peer{}

// Offloads is Behind's.
func (p Peer) Offloads(change func(*linux.Offloads) error) error {
	namespace, err := os.Open(p.Namespace)
	if err != nil {
		return fmt.Errorf("open the network namespace of a port's other end: %w", err)
	}
	defer namespace.Close()
	return linux.InsideWith(int(namespace.Fd()), func(c *linux.Rtnetlink) error {
		end, err := net.InterfaceByIndex(p.Index)
		if err != nil {
			return fmt.Errorf("look for a port's other end: %w", err)
		}
		return c.ChangeOffloads(end.Name, change)
	})
}

// Device is a device of the node itself, reached by a connection to its namespace.
type Device struct {
	*linux.Rtnetlink
	Name string
}

var _ Behind = Device{}

// Offloads is Behind's.
func (d Device) Offloads(change func(*linux.Offloads) error) error {
	return d.ChangeOffloads(d.Name, change)
}
