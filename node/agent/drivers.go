package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/node/control/netns"
	"github.com/polyplane/polyplane/node/edge"
	"github.com/polyplane/polyplane/node/fabric"
	"github.com/polyplane/polyplane/node/forward"
	"github.com/polyplane/polyplane/node/forward/bridge"
	"github.com/polyplane/polyplane/node/forward/fast"
	"github.com/polyplane/polyplane/node/forward/guest"
)

// NewDrivers makes all that this build has. underlay is the node's address for tunnels; invalid means that there are
// none. The calling process must be in the node's network namespace. This is the only place that names drivers.
// machine is the path of the network namespace whose uplink internet edges use.
func NewDrivers(dirs instance.NodeDirs, underlay netip.Addr, machine string) (Drivers, error) {
	namespaces, err := netns.New(dirs, netns.Options{})
	if err != nil {
		return Drivers{}, fmt.Errorf("node %s: control netns: %w", dirs.Node, err)
	}
	panel, err := fabric.New(dirs, underlay)
	if err != nil {
		return Drivers{}, err
	}
	edges, err := edge.New(dirs, machine)
	if err != nil {
		return Drivers{}, err
	}
	// All routers that the fabric or the node's kernel forwards for share one memory for their tables.
	plane := fast.New(dirs, panel.Tables(), nil)
	routed, err := plane.Kernel(model.ForwardRouter)
	if err != nil {
		return Drivers{}, err
	}
	bridged, err := plane.Kernel(model.ForwardBridge)
	if err != nil {
		return Drivers{}, err
	}
	return Drivers{
		Controls: map[model.Control]control.Driver{model.ControlNetns: namespaces},
		Planes: map[model.Forwarding]forward.Plane{
			model.ForwardGuest:  guest.Plane{},
			model.ForwardRouter: routed,
			model.ForwardBridge: bridge.Both(bridge.New(dirs, namespaces), bridged),
			model.ForwardXDP:    plane,
		},
		Fabric: panel,
		Edges:  edges,
	}, nil
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
		for _, e := range entries {
			nodes = append(nodes, e.Name())
		}
		failed = append(failed, edge.Release(d))
	}
	for _, n := range nodes {
		netns.Purge(d.Node(n))
		failed = append(failed, fabric.ReleaseEdges(d.Node(n)))
	}
	return errors.Join(failed...)
}

// PurgeRest removes what of the instance's drivers can go only when all processes have ended and nothing is mounted any
// more.
func PurgeRest(d instance.Dirs) error {
	return netns.PurgeRest(d)
}
