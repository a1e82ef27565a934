package main

import (
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/agent"
	"github.com/polyplane/polyplane/node/control/netns"
	"github.com/polyplane/polyplane/node/forward/xdp"
)

// childMain does not return in the short-lived children that make namespaces.
func childMain() { netns.ChildMain() }

// addRouterPlane adds the plane by the node's kernel where the agent has none yet. The calling thread is in the node's namespace.
func addRouterPlane(d agent.Drivers) error {
	if d.Planes[model.ForwardRouter] != nil {
		return nil
	}
	p, err := d.Planes[model.ForwardXDP].(*xdp.Plane).Kernel(model.ForwardRouter)
	if err != nil {
		return err
	}
	d.Planes[model.ForwardRouter] = p
	return nil
}
