package manager

import (
	"net"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// machine tells admission how the manager's own machine is. The caller holds changing, so the nodes stay what they are.
type machine struct{ m *Manager }

// Devices are those of a node on this machine. If a namespace cannot be looked into, its agent complains of that;
// machines elsewhere are their agents' business altogether.
func (x machine) Devices(node string) ([]string, bool) {
	n := x.m.nodes[node]
	if n == nil || n.Joined {
		return nil, false
	}
	namespace := ""
	if n.Simulated {
		namespace = x.m.dirs.Node(node).NodeNamespace()
	}
	names, err := devicesIn(namespace)
	return names, err == nil
}

// Listener names the process that has a port of this machine.
func (x machine) Listener(node string, f model.Forward) string {
	n := x.m.nodes[node]
	if n == nil || !n.Simulated && !strings.HasPrefix(n.socket, x.m.dirs.Run) {
		return ""
	}
	return listener(f)
}

// listener names the process of this machine that has the port; empty if nobody has.
func listener(f model.Forward) string {
	fd, err := unix.Open("/proc/self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	return linux.Listener(fd, f.Network(), f.Port)
}

// devicesIn are the names of the devices in the network namespace at a path, or in this process's own if path is empty,
// without the loopback and without what polyplane made.
func devicesIn(namespace string) ([]string, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if namespace != "" {
		ns, nsErr := netns.GetFromPath(namespace)
		if nsErr != nil {
			return nil, nsErr
		}
		defer ns.Close()
		h, err = netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	}
	if err != nil {
		return nil, err
	}
	defer h.Close()
	links, err := linux.Whole(h.LinkList)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, l := range links {
		if a := l.Attrs(); a.Flags&net.FlagLoopback == 0 && !strings.HasPrefix(a.Alias, "polyplane") {
			names = append(names, a.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}
