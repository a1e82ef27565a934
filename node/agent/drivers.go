package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/node/control/netns"
	"github.com/polyplane/polyplane/node/edge"
	"github.com/polyplane/polyplane/node/fabric"
	"github.com/polyplane/polyplane/node/forward"
	"github.com/polyplane/polyplane/node/forward/bridge"
	"github.com/polyplane/polyplane/node/forward/fast"
	"github.com/polyplane/polyplane/node/forward/guest"
	kernelplane "github.com/polyplane/polyplane/node/forward/kernel"
	"github.com/polyplane/polyplane/node/images"
)

// registration is all that the agent knows of one driver, or of several that share something: how to make it, and how
// to remove what it has in the kernel once its agent has ended. What goes with a node's mounts and devices needs no
// removing.
type registration struct {
	make func(*site) error               // adds it to the site's drivers
	node func(d instance.NodeDirs) error // removes what it has for a node
	all  func(d instance.Dirs) error     // removes what it has for all nodes together
	// last removes what can go only when all processes have ended and nothing is mounted any more.
	last func(d instance.Dirs) error
}

// registered are all drivers of this build. This is the only place that names them. Those below may use those above.
var registered = []registration{
	{make: (*site).namespaces, node: netns.Purge, last: netns.PurgeRest},
	{make: (*site).panel, node: fabric.ReleaseEdges},
	{make: (*site).edges, all: edge.Release},
	{make: (*site).guests},
	{make: (*site).routers},
	{make: (*site).switches},
}

// site is where drivers are made.
type site struct {
	Drivers
	dirs     instance.NodeDirs
	underlay netip.Addr
	machine  string
}

// NewDrivers makes all that are registered. underlay is the node's address for tunnels; invalid means that there are
// none. The calling process must be in the node's network namespace. machine is the path of the network namespace whose
// uplink internet edges use.
func NewDrivers(dirs instance.NodeDirs, underlay netip.Addr, machine string) (Drivers, error) {
	s := &site{dirs: dirs, underlay: underlay, machine: machine, Drivers: Drivers{
		Controls: map[model.Control]control.Driver{}, Planes: map[PlaneOf]forward.Plane{}}}
	for _, r := range registered {
		if err := r.make(s); err != nil {
			return Drivers{}, err
		}
	}
	return s.Drivers, nil
}

func (s *site) namespaces() error {
	rooms := linux.NewRooms(s.dirs.Rooms())
	s.Images = images.New(s.dirs.Images(), s.dirs.ImageMounts(), rooms, nil)
	driver, err := netns.New(s.dirs, netns.Options{Images: s.Images, Rooms: rooms})
	if err != nil {
		return fmt.Errorf("node %s: control netns: %w", s.dirs.Node, err)
	}
	s.Controls[model.ControlNetns] = driver
	return nil
}

func (s *site) panel() (err error) {
	s.Fabric, err = fabric.New(s.dirs, s.underlay)
	return err
}

func (s *site) edges() (err error) {
	s.Edges, err = edge.New(s.dirs, s.machine)
	return err
}

func (s *site) guests() error {
	s.Planes[PlaneOf{Forwarding: model.ForwardGuest}] = guest.Plane{}
	return nil
}

// routers makes the planes of routers that the fabric or the node's kernel forwards for. They share one memory for
// their tables.
func (s *site) routers() error {
	tables := fast.New(s.Fabric.(*fabric.Fabric).Tables(), nil)
	s.Planes[PlaneOf{Forwarding: model.ForwardXDP}] = tables
	for _, way := range []model.Forwarding{model.ForwardRouter, model.ForwardBridge} {
		plane, err := kernelplane.New(s.dirs, tables, way)
		if err != nil {
			return err
		}
		s.Planes[PlaneOf{Forwarding: way}] = plane
	}
	return nil
}

func (s *site) switches() error {
	s.Planes[PlaneOf{Forwarding: model.ForwardBridge, Switches: true}] = bridge.New(s.dirs, s.enter)
	return nil
}

// enter runs f in an element's network namespace, whichever control driver made the element.
func (s *site) enter(id model.ID, f func() error) error {
	for _, driver := range s.Controls {
		if enterer, is := driver.(control.Enterer); is {
			if err := enterer.Enter(id, f); !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return fmt.Errorf("enter element %s: no control driver has a network namespace of it: %w", id, fs.ErrNotExist)
}

// Purge removes what drivers have in the kernel and what does not vanish with a node's mounts and devices. It does so
// for the nodes named, or for all nodes and the instance. It needs no agent.
func Purge(d instance.Dirs, nodes ...string) error {
	var failed []error
	if len(nodes) == 0 {
		entries, err := os.ReadDir(filepath.Join(d.Run, "nodes"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		nodes = append(nodes, each.Of(entries, func(e os.DirEntry) string { return e.Name() })...)
		for _, r := range registered {
			if r.all != nil {
				failed = append(failed, r.all(d))
			}
		}
	}
	for _, n := range nodes {
		for _, r := range registered {
			if r.node != nil {
				failed = append(failed, r.node(d.Node(n)))
			}
		}
	}
	return errors.Join(failed...)
}

// PurgeRest removes what of the instance's drivers can go only when all processes have ended and nothing is mounted any
// more.
func PurgeRest(d instance.Dirs) error {
	var failed []error
	for _, r := range registered {
		if r.last != nil {
			failed = append(failed, r.last(d))
		}
	}
	return errors.Join(failed...)
}
