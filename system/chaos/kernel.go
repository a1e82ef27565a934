package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/fabric/pipeline"

	"github.com/polyplane/polyplane/system/sandbox"
)

// lookAtNode compares what the kernel and the disk have of a node with what is wanted there, and returns every
// difference. It asks neither the agent nor the manager.
func lookAtNode(d instance.NodeDirs, networks []*network) []string {
	var found differences
	wanted := map[model.ID]*element{}
	of := map[model.ID]*network{}
	ports := map[string]int{} // bandwidth by device
	names := map[string]bool{}
	for _, n := range networks {
		for _, e := range n.elements {
			if e.node != d.Node {
				continue
			}
			id := model.ID{Network: n.name, Element: e.name}
			wanted[id], of[id] = e, n
			if e.stopped {
				continue // its ports may be there or not
			}
			for _, i := range n.interfaces(e) {
				ports[d.PortDevice(model.PortID{ID: id, Interface: i})] = n.bandwidth(e.name, i)
				names[id.String()+":"+i] = true
			}
		}
	}
	found.look("namespaces", func() error {
		mounted, err := filepath.Glob(filepath.Join(d.Run, "networks", "*", "net", "*"))
		for _, path := range mounted {
			id := model.ID{Network: filepath.Base(filepath.Dir(filepath.Dir(path))), Element: filepath.Base(path)}
			if wanted[id] == nil {
				found.add("the namespace of %s is left", id)
			}
		}
		return err
	})
	for id, e := range wanted {
		if !e.stopped {
			found.look(id.String(), func() error { return lookAtElement(&found, d, of[id], e) })
		}
	}
	found.look("ports", func() error {
		return sandbox.Within(d.NodeNamespace(), func() error { return lookAtPorts(&found, d, ports, wanted) })
	})
	found.look("the fabric's table of ports", func() error { return lookAtTable(&found, d, names, wanted) })
	found.look("containers", func() error { return lookAtContainers(&found, d, wanted, of) })
	found.look("files", func() error {
		for _, pattern := range []string{"networks/*/*", "disks/*/*.ext4"} {
			paths, err := filepath.Glob(filepath.Join(d.Data, pattern))
			if err != nil {
				return err
			}
			for _, path := range paths {
				id := model.ID{Network: filepath.Base(filepath.Dir(path)),
					Element: strings.TrimSuffix(filepath.Base(path), ".ext4")}
				if wanted[id] == nil {
					found.add("%s is left of %s", path, id)
				}
			}
		}
		return nil
	})
	slices.Sort(found)
	return found
}

// differences lists in words what is not as it must be.
type differences []string

func (d *differences) add(format string, a ...any) { *d = append(*d, fmt.Sprintf(format, a...)) }

func (d *differences) look(what string, f func() error) {
	if err := f(); err != nil {
		d.add("%s: %v", what, err)
	}
}

// bandwidth is that of the link of an element's interface.
func (n *network) bandwidth(element, ifc string) int {
	for _, l := range n.links {
		if l.a == element && l.b == ifc || l.b == element && l.a == ifc {
			return l.bandwidth
		}
	}
	return 0
}

// switchBridge is the device that a switch forwards with.
const switchBridge = "pp-bridge"

// lookAtElement compares the devices and addresses in an element's namespace with what is wanted.
func lookAtElement(found *differences, d instance.NodeDirs, n *network, e *element) error {
	id := model.ID{Network: n.name, Element: e.name}
	want := map[string]bool{"lo": true}
	for _, i := range n.interfaces(e) {
		want[i] = true
	}
	if e.kind == model.Switch {
		want[switchBridge] = true
	}
	return sandbox.Within(d.Namespace(id), func() error {
		links, err := linux.Whole(netlink.LinkList)
		if err != nil {
			return err
		}
		for _, l := range links {
			name := l.Attrs().Name
			if !want[name] {
				found.add("%s has a device %s", id, name)
			}
			delete(want, name)
			if e.kind == model.Switch || name == "lo" {
				continue
			}
			addresses, err := linux.Whole(func() ([]netlink.Addr, error) {
				return netlink.AddrList(l, netlink.FAMILY_V4)
			})
			if err != nil {
				return err
			}
			if len(addresses) != 1 {
				found.add("%s has the addresses %v on %s, one is wanted", id, addresses, name)
			}
		}
		for name := range want {
			found.add("%s has no device %s", id, name)
		}
		return nil
	})
}

// lookAtPorts compares the ports' devices, and the rates of their links, in the node's namespace.
func lookAtPorts(found *differences, d instance.NodeDirs, want map[string]int, wanted map[model.ID]*element) error {
	links, err := linux.Whole(netlink.LinkList)
	if err != nil {
		return err
	}
	missing := maps.Clone(want)
	// Where the data path forwards for a router, the queues of its ports are separate devices.
	apart := map[string]float64{} // rates, by "net element interface"
	for _, l := range links {
		if port, ours := strings.CutPrefix(l.Attrs().Alias, d.AliasPrefix()+"queue "); ours {
			rate, err := rateOf(l)
			if err != nil {
				return err
			}
			apart[port] += rate // of two devices one has it
		}
	}
	for _, l := range links {
		port, ours := strings.CutPrefix(l.Attrs().Alias, d.AliasPrefix())
		element, _, isPort := strings.Cut(port, ":")
		if !ours || !isPort {
			continue
		}
		name := l.Attrs().Name
		bandwidth, expected := want[name]
		delete(missing, name)
		if !expected {
			network, e, _ := strings.Cut(element, "/")
			if e := wanted[model.ID{Network: network, Element: e}]; e == nil || !e.stopped {
				found.add("the device %s of port %s is left", name, port)
			}
			continue
		}
		rate, err := rateOf(l)
		if err != nil {
			return err
		}
		if at := strings.NewReplacer("/", " ", ":", " ").Replace(port); apart[at] != 0 {
			rate = apart[at]
		}
		if wish := float64(bandwidth) * 1e6; (rate == 0) != (wish == 0) || rate < wish*0.97 || rate > wish*1.03 {
			found.add("port %s has a rate of %.0f bit/s, wanted %.0f (0: none)", port, rate, wish)
		}
	}
	for name := range missing {
		found.add("the port's device %s is missing", name)
	}
	return nil
}

// rateOf is the rate of a device's token bucket, in bit/s; zero if it has none.
func rateOf(l netlink.Link) (float64, error) {
	queues, err := linux.Whole(func() ([]netlink.Qdisc, error) { return netlink.QdiscList(l) })
	if err != nil {
		return 0, err
	}
	for _, q := range queues {
		if tbf, ok := q.(*netlink.Tbf); ok {
			return float64(tbf.Rate) * 8, nil
		}
	}
	return 0, nil
}

// lookAtTable compares the ports that the fabric knows.
func lookAtTable(found *differences, d instance.NodeDirs, names map[string]bool, wanted map[model.ID]*element) error {
	table, err := ebpf.LoadPinnedMap(filepath.Join(d.BPF(), pipeline.Layout, "identities"),
		&ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer table.Close()
	missing := maps.Clone(names)
	var k pipeline.IdentityKey
	var e pipeline.Identity
	entries := table.Iterate()
	for entries.Next(&k, &e) {
		name := pipeline.NameOf(&e)
		delete(missing, name)
		element, _, _ := strings.Cut(name, ":")
		network, in, _ := strings.Cut(element, "/")
		if wanted[model.ID{Network: network, Element: in}] == nil {
			found.add("the fabric's table has the port %s", name)
		}
	}
	for name := range missing {
		found.add("the fabric's table lacks the port %s", name)
	}
	return entries.Err()
}

// lookAtContainers compares what runs in elements.
func lookAtContainers(found *differences, d instance.NodeDirs, wanted map[model.ID]*element,
	of map[model.ID]*network) error {
	out, err := exec.Command("runc", "--root", d.Runc(), "list", "-f", "json").Output()
	if err != nil {
		return err
	}
	var containers []struct {
		ID, Status string
		Pid        int
	}
	if err := json.Unmarshal(out, &containers); err != nil {
		return err
	}
	status := map[string]string{}
	for _, c := range containers {
		status[c.ID] = c.Status
		network, element, _ := strings.Cut(c.ID, "+")
		id := model.ID{Network: network, Element: element}
		if wanted[id] == nil || c.Status != "stopped" && (wanted[id].stopped || !of[id].processes() ||
			wanted[id].kind != model.Router) {
			found.add("the container %s is %s, and not wanted", c.ID, c.Status)
		}
	}
	for id, e := range wanted {
		if e.stopped || !of[id].processes() || e.kind != model.Router {
			continue
		}
		name, want := id.Network+"+"+id.Element, "running"
		if e.suspended {
			want = "paused"
		}
		if status[name] != want {
			found.add("the container %s is %q, wanted %s", name, status[name], want)
			continue
		}
		if e.suspended {
			continue // what had not started will, and limits are changed, when its processes go on
		}
		daemon := map[sort]string{bird: "bird", frr: "zebra"}[of[id].sort]
		if pids, err := processesIn(d.Namespace(id), daemon); err != nil || len(pids) == 0 {
			found.add("%s does not run in %s: %v", daemon, id, err)
		}
		if e.memory == 0 {
			continue
		}
		limit, err := memoryLimit(filepath.Join(d.Cgroup(), name))
		if err != nil || limit != e.memory<<20 {
			found.add("%s may use %d bytes of memory (%v), wanted %d", id, limit, err, e.memory<<20)
		}
	}
	return nil
}

// memoryLimit is that of a control group, in bytes.
func memoryLimit(group string) (int, error) {
	b, err := os.ReadFile(filepath.Join("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes"))
	if errors.Is(err, os.ErrNotExist) { // control groups v2
		b, err = os.ReadFile(filepath.Join("/sys/fs/cgroup", group, "memory.max"))
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}

// processesIn are the processes in a network namespace, of one command's name where it is given.
func processesIn(namespace, command string) ([]int, error) {
	var its unix.Stat_t
	if err := unix.Stat(namespace, &its); err != nil {
		return nil, err
	}
	var found []int
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is right
	for _, dir := range dirs {
		var net unix.Stat_t
		if unix.Stat(dir+"/ns/net", &net) != nil || net.Ino != its.Ino {
			continue
		}
		if comm, _ := os.ReadFile(dir + "/comm"); command == "" || strings.TrimSpace(string(comm)) == command {
			pid, _ := strconv.Atoi(filepath.Base(dir))
			found = append(found, pid)
		}
	}
	return found, nil
}

// indices adds the indices of a namespace's devices.
func indices(all map[string]int, owner, namespace string) error {
	return sandbox.Within(namespace, func() error {
		links, err := linux.Whole(netlink.LinkList)
		for _, l := range links {
			all[owner+" "+l.Attrs().Name] = l.Attrs().Index
		}
		return err
	})
}
