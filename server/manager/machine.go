package manager

import (
	"net"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/admission"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// machine looks at the manager's own machine. The caller holds changing, so the nodes stay what they are.
type machine struct{ *Manager }

// see looks at the nodes of this machine, for what drafts want of them.
func (m machine) see(drafts []*admission.Draft) map[string]admission.Seen {
	seen, listeners := map[string]admission.Seen{}, map[admission.Port]string{}
	for _, d := range drafts {
		for _, e := range d.Fresh() {
			for name, n := range m.nodes {
				// An edge of a device says on which node that is, where there are several.
				if _, looked := seen[name]; looked || e.Device == "" || n.Joined || e.Node != "" && e.Node != name {
					continue
				}
				seen[name] = admission.Seen{Devices: m.devicesOf(n)}
			}
			if e.Internet == nil {
				continue
			}
			for _, f := range e.Internet.Forwards {
				listeners[admission.Port{Network: f.Network(), Number: f.Port}] = listener(f)
			}
		}
	}
	for name, n := range m.nodes {
		if len(listeners) > 0 && (n.Simulated || strings.HasPrefix(n.socket, m.dirs.Run)) {
			seen[name] = admission.Seen{Devices: seen[name].Devices, Listeners: listeners}
		}
	}
	return seen
}

// devicesOf are the devices of a node on this machine. If a namespace cannot be looked into, its agent complains of
// that.
func (m machine) devicesOf(n *node) []string {
	namespace := ""
	if n.Simulated {
		namespace = m.dirs.Node(n.Name).NodeNamespace()
	}
	names, err := devicesIn(namespace)
	if err != nil {
		return nil
	}
	return append([]string{}, names...) // one without any has been seen as well
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
