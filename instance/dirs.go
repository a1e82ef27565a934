// Package instance is one running polyplane on this machine: its directories, its lock, its processes. Several
// instances (a test's and a live one) run side by side, told apart by name.
package instance

import (
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/polyplane/polyplane/model"
)

// DefaultName is the instance that commands speak to unless --instance or the environment variable Variable says
// otherwise.
const (
	DefaultName = "default"
	Variable    = "POLYPLANE_INSTANCE"
)

// Command is the command that a user types to the named instance. It names the instance only where that is needed.
func Command(name, words string) string {
	if name != DefaultName && name != os.Getenv(Variable) {
		words += " --instance " + name
	}
	return "polyplane " + words
}

// Dirs tells where an instance keeps things. Run (sockets, namespace mounts, pinned maps) is lost at a reboot. Data is
// kept until `down --purge`.
type Dirs struct {
	Name string
	Run  string
	Data string
}

// NewDirs returns the directories of the named instance.
func NewDirs(name string) Dirs {
	return Dirs{Name: name, Run: filepath.Join("/run/polyplane", name), Data: filepath.Join("/var/lib/polyplane", name)}
}

// Real has the data directory without symbolic links, if it is there: what is mounted below is known by that path only,
// and nothing runs in a root directory behind a link.
func (d Dirs) Real() (Dirs, error) {
	at, err := filepath.EvalSymlinks(d.Data)
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil
	}
	if err != nil {
		return d, fmt.Errorf("find the data of polyplane '%s': %w", d.Name, err)
	}
	d.Data = at
	return d, nil
}

// Lock is the file that is locked by the process that keeps the instance running. It is beside Run, since `down`
// deletes Run.
func (d Dirs) Lock() string { return d.Run + ".lock" }

// ManagerSocket is where the manager serves the API.
func (d Dirs) ManagerSocket() string { return filepath.Join(d.Run, "manager.sock") }

// Store is etcd's data directory.
func (d Dirs) Store() string { return filepath.Join(d.Data, "etcd") }

// Reserve is the file that holds room on the disk for what must be stored although the disk is full.
func (d Dirs) Reserve() string { return filepath.Join(d.Data, "etcd.reserve") }

// Aside keeps what was decided while an external cluster took nothing.
func (d Dirs) Aside() string { return filepath.Join(d.Data, "aside") }

// Backups is where the backups are that are made by themselves.
func (d Dirs) Backups() string { return filepath.Join(d.Data, "backups") }

// Images is where the manager keeps images.
func (d Dirs) Images() string { return filepath.Join(d.Data, "images") }

// What Kept names.
const (
	SettingsFile  = "settings.json"
	AuthorityFile = "authority/authority.pem"
)

// Kept are the files of Data that a backup holds beside the store, by their paths in it: the settings that `up` comes
// back to, and the authority that everybody who joined trusts.
func (d Dirs) Kept() []string {
	return []string{SettingsFile, AuthorityFile}
}

// DiskNote is the file that says where the disk of Data is mounted, if it is one of its own. It is beside the directory
// of all instances' data, so that it is there without them.
func (d Dirs) DiskNote() string { return filepath.Dir(d.Data) + "-" + d.Name + ".disk" }

// Logs is where the logs of the instance's processes are.
func (d Dirs) Logs() string { return filepath.Join(d.Data, "log") }

// Rooms is the account of what the manager and the nodes on this machine have promised of its disks.
func (d Dirs) Rooms() string { return filepath.Join(d.Run, "rooms") }

// Outlet is where the namespace of the instance's internet edges is mounted, see NodeDirs.
func (d Dirs) Outlet() string { return filepath.Join(d.Run, "outlet.net") }

// Node returns the directories of one node of the instance.
func (d Dirs) Node(node string) NodeDirs {
	return NodeDirs{Instance: d.Name, Node: node, Run: filepath.Join(d.Run, "nodes", node),
		Data: filepath.Join(d.Data, "nodes", node)}
}

// NodeDirs tells where one node keeps things.
type NodeDirs struct {
	Instance string
	Node     string
	Run      string // lost at a reboot
	Data     string // kept until `down --purge`
}

// AgentSocket is where the node's agent serves its own API (exec, capture, probes) to the manager.
func (d NodeDirs) AgentSocket() string { return filepath.Join(d.Run, "agent.sock") }

// Desired is where the agent keeps the last state that its node was told to have.
func (d NodeDirs) Desired() string { return filepath.Join(d.Data, "desired.json") }

// Incidents is where the agent keeps which elements it has cut off by itself. Usual is what its watch has found to be
// usual. Evidence is the directory of captures of elements in quarantine.
func (d NodeDirs) Incidents() string { return filepath.Join(d.Data, "incidents.json") }

// Usual is beside Incidents.
func (d NodeDirs) Usual() string { return filepath.Join(d.Data, "usual.json") }

// Evidence is the capture of an element's last packets before, and its first after, its quarantine began.
func (d NodeDirs) Evidence(id model.ID) string {
	return filepath.Join(d.Data, "evidence", id.Network, id.Element+".pcapng")
}

// Images is where a node keeps the images of its elements.
func (d NodeDirs) Images() string { return filepath.Join(d.Data, "images") }

// ImageMounts is where a node's images are mounted.
func (d NodeDirs) ImageMounts() string { return filepath.Join(d.Run, "images") }

// NodeNamespace is where a simulated node's own network namespace is mounted.
func (d NodeDirs) NodeNamespace() string { return filepath.Join(d.Run, "node.net") }

// UserNamespace is where the user namespace of a network is mounted.
func (d NodeDirs) UserNamespace(network string) string {
	return filepath.Join(d.Run, "networks", network, "user")
}

// Namespace is where an element's network namespace is mounted.
func (d NodeDirs) Namespace(id model.ID) string {
	return filepath.Join(d.Run, "networks", id.Network, "net", id.Element)
}

// Bundle is an element's OCI bundle.
func (d NodeDirs) Bundle(id model.ID) string {
	return filepath.Join(d.Run, "networks", id.Network, "bundle", id.Element)
}

// Files is the directory of what an element owns on disk: its /etc, /var, /root and logs. It outlives restarts and
// reboots.
func (d NodeDirs) Files(id model.ID) string {
	return filepath.Join(d.Data, "networks", id.Network, id.Element)
}

// Disk is the image of the file system that is mounted at Files, where the element has processes.
func (d NodeDirs) Disk(id model.ID) string {
	return filepath.Join(d.Data, "disks", id.Network, id.Element+".ext4")
}

// Companions is the directory of the namespaces in which the node's kernel forwards for routers; Companion is where
// that of one router is mounted, for one way of doing so.
func (d NodeDirs) Companions() string { return filepath.Join(d.Run, "companions") }

// Companion is in Companions.
func (d NodeDirs) Companion(id model.ID, way model.Forwarding) string {
	return filepath.Join(d.Companions(), string(way), id.Network, id.Element)
}

// Outlet is where the network namespace is mounted in which the packets of internet edges get this machine's address.
// All nodes of the instance that are on the machine share it.
func (d NodeDirs) Outlet() string { return d.instance().Outlet() }

// Rooms is the account of what is promised of the machine's disks. All nodes of the instance that are on the machine
// share it.
func (d NodeDirs) Rooms() string { return d.instance().Rooms() }

func (d NodeDirs) instance() Dirs { return Dirs{Run: filepath.Dir(filepath.Dir(d.Run))} }

// Gateways is the directory of the node's internet edges; Gateway is that of one.
func (d NodeDirs) Gateways() string { return filepath.Join(d.Run, "edges") }

// Gateway is the directory of an internet edge.
func (d NodeDirs) Gateway(network, edge string) string {
	return filepath.Join(d.Gateways(), network, edge)
}

// OutletAlias begins the alias of the devices between internet edges and the machine's uplink. No port's alias begins
// so.
func (d NodeDirs) OutletAlias() string { return "polyplane " + d.Instance + " outlet: " }

// Runc is runc's state directory.
func (d NodeDirs) Runc() string { return filepath.Join(d.Run, "runc") }

// Cgroup is the control group that all processes of the node's elements are in, below each hierarchy's root.
func (d NodeDirs) Cgroup() string { return filepath.Join("/polyplane", d.Instance, d.Node) }

// BPF is the mount point of the node's own bpffs, where maps and programs are pinned.
func (d NodeDirs) BPF() string { return filepath.Join(d.Run, "bpf") }

// PortDevicePrefix starts the name of every port's device on a node.
const PortDevicePrefix = "pp"

// PortDevice is the name of a port's device on the node: 15 characters, the same for the same port in every life of
// the instance, and different between instances that share a network namespace.
func (d NodeDirs) PortDevice(p model.PortID) string {
	h := sha256.Sum256([]byte(d.Instance + "\x00" + d.Node + "\x00" + p.String()))
	return PortDevicePrefix + strings.ToLower(base32.StdEncoding.EncodeToString(h[:]))[:13]
}

// CompanionDevice is the name of the node's end of a port's device in a companion.
func (d NodeDirs) CompanionDevice(p model.PortID, way model.Forwarding) string {
	return d.PortDevice(model.PortID{ID: p.ID, Interface: string(way) + "\x00" + p.Interface})
}

// CompanionAlias marks such a device. It is no port's alias.
func (d NodeDirs) CompanionAlias(p model.PortID, way model.Forwarding) string {
	return d.AliasPrefix() + "companion " + string(way) + " " + p.Network + " " + p.Element + " " + p.Interface
}

// Alias marks a device as ours (IFLA_IFALIAS): "polyplane INSTANCE NODE NET/ELEMENT:INTERFACE".
func (d NodeDirs) Alias(p model.PortID) string {
	return d.AliasPrefix() + p.String()
}

// UnderlayAlias begins the alias of an instance's simulated underlay devices. It is no port's, since no node can be
// called "underlay:".
func (d NodeDirs) UnderlayAlias() string { return "polyplane " + d.Instance + " underlay: " }

// AliasPrefix is what every alias of the node's devices begins with.
func (d NodeDirs) AliasPrefix() string {
	return "polyplane " + d.Instance + " " + d.Node + " "
}
