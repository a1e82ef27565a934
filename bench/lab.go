package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/measure/netdev"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/agent"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/node/fabric"
	"github.com/polyplane/polyplane/node/forward"
)

// way is how the routers of a chain forward.
type way string

const (
	byKernel way = "kernel"   // the routers' own, by veths that join the namespaces directly
	byGuest  way = "guest"    // the same, but the fabric joins the namespaces
	byRouter way = "router"   // the node's kernel
	byTC     way = "xdp (tc)" // the fabric, in the hook that keeps GSO packets whole
	byXDP    way = "xdp"      // the fabric, in the drivers' hook
)

// chain is h1 – r1 – … – rn – h2, a network of its own. Link i has 10.0.i.0/24: .1 to the left, .2 to the right, except
// that link 0 has r1 at .1.
type chain struct {
	*lab
	network string
	routers int
	way     way
	packets int // a second that the network may send; 0: unlimited
}

// lab is a node in a network namespace of its own, with the drivers that an agent has, and with chains on it. There is
// no agent and no manager: the benchmark itself gives the drivers their desired state.
type lab struct {
	ctx      context.Context
	dirs     instance.NodeDirs
	all      instance.Dirs
	home     string // the node's namespace
	drivers  agent.Drivers
	fabric   *fabric.Fabric
	chains   []*chain
	jobs     []control.Job
	devices  map[model.PortID]control.Device
	steering map[model.ID]forward.Steering // as planes asked for last
}

// onNode runs f on a node of its own, and removes all of it afterwards.
func onNode(ctx context.Context, f func(*lab) error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: its namespace is of no use to others
		done <- func() (err error) {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("make a network namespace: %w", err)
			}
			l, err := newLab(ctx)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, l.close()) }()
			return f(l)
		}()
	}()
	return <-done
}

func newLab(ctx context.Context) (*lab, error) {
	word := make([]byte, 4)
	rand.Read(word) //nolint:errcheck // it never fails
	l := &lab{ctx: ctx, all: instance.NewDirs("bench" + hex.EncodeToString(word)),
		devices:  map[model.PortID]control.Device{},
		steering: map[model.ID]forward.Steering{},
		home:     fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())}
	l.dirs = l.all.Node(node)
	var err error
	if l.drivers, err = agent.NewDrivers(l.dirs, netip.Addr{}, l.home); err != nil {
		return nil, err
	}
	l.fabric = l.drivers.Fabric.(*fabric.Fabric)
	return l, nil
}

// retire has a plane let go of everything, in as many passes as it needs.
func retire(ctx context.Context, p forward.Plane) error {
	for {
		ids, err := p.List(ctx)
		if err != nil || len(ids) == 0 {
			return err
		}
		if err := p.Retire(ctx, ids); err != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (l *lab) close() error {
	ctx := context.WithoutCancel(l.ctx)
	var errs []error
	for _, p := range l.drivers.Planes {
		errs = append(errs, retire(ctx, p))
		if c, ok := p.(interface{ Close() }); ok {
			c.Close()
		}
	}
	errs = append(errs, l.fabric.Destroy())
	d := l.drivers.Controls[model.ControlNetns]
	ids := each.Of(l.jobs, func(j control.Job) model.ID { return j.ID })
	errs = append(errs, d.Remove(ctx, ids, false))
	if c, ok := d.(interface{ Close() error }); ok {
		errs = append(errs, c.Close())
	}
	if c, ok := l.drivers.Edges.(interface{ Close() }); ok {
		c.Close()
	}
	return errors.Join(append(errs, os.RemoveAll(l.all.Run), os.RemoveAll(l.all.Data))...)
}

// chain adds a chain, which build makes.
func (l *lab) chain(network string, routers int, w way) *chain {
	c := &chain{lab: l, network: network, routers: routers, way: w}
	l.chains = append(l.chains, c)
	return c
}

// build makes all chains, with addresses and routes, and makes the planes take their routers.
func (l *lab) build() error {
	for i, c := range l.chains {
		l.jobs = append(l.jobs, c.jobs(uint32(i+1))...)
	}
	if err := l.make(); err != nil {
		return err
	}
	if err := l.apply(); err != nil {
		return err
	}
	for _, c := range l.chains {
		if err := c.join(); err != nil {
			return fmt.Errorf("chain %s: %w", c.network, err)
		}
	}
	for _, f := range []model.Forwarding{model.ForwardXDP, model.ForwardRouter} {
		if err := l.prepare(f); err != nil {
			return err
		}
	}
	return l.apply()
}

// make makes the elements and their devices.
func (l *lab) make() error {
	for _, r := range l.drivers.Controls[model.ControlNetns].Apply(l.ctx, l.jobs) {
		if r.Err != nil {
			return r.Err
		}
		for _, d := range r.Devices {
			l.devices[model.PortID{ID: r.ID, Interface: d.Interface}] = d
		}
	}
	return nil
}

// prepare makes a plane take all routers of the chains that forward in its way.
func (l *lab) prepare(f model.Forwarding) error {
	var jobs []forward.Job
	for _, c := range l.chains {
		if c.forwarding() != f {
			continue
		}
		for _, j := range l.jobs {
			if j.ID.Network == c.network && j.Element.Kind == model.Router {
				jobs = append(jobs, l.job(&j))
			}
		}
	}
	return l.take(f, jobs)
}

// job is what a plane is told of an element.
func (l *lab) job(j *control.Job) forward.Job {
	routed := l.drivers.Controls[model.ControlNetns].(forward.Routed)
	return forward.Job{ID: j.ID, Element: j.Element, Routes: routed.Routes(j.ID), Place: l.fabric.Place(j.ID)}
}

// take makes a plane ready for elements. The next apply steers them there.
func (l *lab) take(f model.Forwarding, jobs []forward.Job) error {
	if len(jobs) == 0 {
		return nil
	}
	for waits := true; waits; {
		waits = false
		for _, r := range l.drivers.Planes[agent.PlaneOf{Forwarding: f}].Prepare(l.ctx, jobs) {
			if r.Err != nil {
				return r.Err
			}
			if waits = waits || r.Waits; r.Steering != nil {
				r.Steering.Owner = f
				l.steering[r.ID] = *r.Steering
			}
		}
		if waits {
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

// apply gives the fabric all ports of all chains, as an agent would.
func (l *lab) apply() error {
	s := fabric.State{Packets: map[string]int{}, Steering: l.steering}
	for _, c := range l.chains {
		if c.packets > 0 {
			s.Packets[c.network] = c.packets
		}
	}
	for _, j := range l.jobs {
		c := l.chains[slices.IndexFunc(l.chains, func(c *chain) bool { return c.network == j.ID.Network })]
		for _, ifc := range j.Element.Interfaces {
			p := fabric.Port{ID: model.PortID{ID: j.ID, Interface: ifc.Name}}
			p.Index, p.Behind = l.devices[p.ID].Index, l.devices[p.ID].Behind
			p.MAC, _ = net.ParseMAC(ifc.MAC)
			p.Local = model.PortID{ID: c.id(ifc.Name), Interface: j.ID.Element}
			if j.Element.Kind == model.Router {
				p.Hook = model.HookTC
				if c.way == byXDP {
					p.Hook = model.HookXDP
				}
			}
			s.Ports = append(s.Ports, p)
		}
	}
	_, err := l.put(s)
	return err
}

// put applies s to the fabric.
func (l *lab) put(s fabric.State) (fabric.Report, error) {
	r := l.fabric.Apply(l.ctx, s)
	for _, err := range r.Failed {
		return r, err
	}
	return r, r.Problem
}

func (c *chain) id(element string) model.ID { return model.ID{Network: c.network, Element: element} }

// name returns the name of the ith element, from h1 on.
func (c *chain) name(i int) string {
	switch i {
	case 0:
		return "h1"
	case c.routers + 1:
		return "h2"
	}
	return fmt.Sprintf("r%d", i)
}

func (c *chain) forwarding() model.Forwarding {
	switch c.way {
	case byTC, byXDP:
		return model.ForwardXDP
	case byRouter:
		return model.ForwardRouter
	}
	return model.ForwardGuest
}

// ends are the two on link i: their elements and addresses.
func (c *chain) ends(i int) (elements, addresses [2]string) {
	hosts := [2]int{1, 2}
	if i == 0 {
		hosts = [2]int{2, 1}
	}
	for side := range 2 {
		elements[side], addresses[side] = c.name(i+side), fmt.Sprintf("10.0.%d.%d", i, hosts[side])
	}
	return elements, addresses
}

func (c *chain) jobs(index uint32) []control.Job {
	jobs := make([]control.Job, c.routers+2)
	for i := range jobs {
		e := model.PlacedElement{Name: c.name(i), Kind: model.Router, Control: model.ControlNetns,
			Software: model.SoftwareStatic, Forwarding: c.forwarding()}
		if i == 0 || i == c.routers+1 {
			e.Kind, e.Software, e.Forwarding = model.Host, "", model.ForwardGuest
		}
		jobs[i] = control.Job{ID: c.id(e.Name), Index: index, Element: model.NodeElement{PlacedElement: e}}
	}
	for i := range c.routers + 1 {
		if c.way == byKernel {
			break // join makes the veths
		}
		elements, addresses := c.ends(i)
		for side := range 2 {
			j := &jobs[i+side]
			far := elements[1-side]
			j.Element.Interfaces = append(j.Element.Interfaces, model.PlacedInterface{
				ResolvedInterface: model.ResolvedInterface{Name: far, MTU: 1500,
					MAC:       model.MAC(model.PortID{ID: j.ID, Interface: far}),
					Addresses: []netip.Prefix{netip.MustParsePrefix(addresses[side] + "/24")}}})
		}
	}
	return jobs
}

// join gives the kernel's chain its veths, and every chain its neighbours and routes: what lies beyond h2 is
// 10.64.0.0/10.
func (c *chain) join() error {
	for i := range c.routers + 1 {
		elements, addresses := c.ends(i)
		if c.way == byKernel {
			if err := c.in(elements[0], fmt.Sprintf("ip link add %s type veth peer name %s netns %s", elements[1],
				elements[0], c.space(elements[1]))); err != nil {
				return err
			}
		}
		for side := range 2 {
			if c.way != byKernel {
				break
			}
			if err := c.in(elements[side], fmt.Sprintf("ip addr add %s/24 dev %s; ip link set %[2]s up",
				addresses[side], elements[1-side])); err != nil {
				return err
			}
		}
		for side := range 2 { // GRO, when the other end is up: NAPI, which XDP frames need, begins with it
			far := elements[1-side]
			mac, err := c.mac(far, elements[side])
			if err != nil {
				return err
			}
			command := fmt.Sprintf("ip neigh replace %s lladdr %s dev %s nud permanent", addresses[1-side], mac, far)
			if c.way == byKernel || i == c.routers && side == 1 {
				command += "; ethtool -K " + far + " gro on"
			}
			if err := c.in(elements[side], command); err != nil {
				return err
			}
		}
	}
	for i := range c.routers + 2 {
		var commands []string
		if i <= c.routers {
			_, at := c.ends(i)
			commands = append(commands, "ip route replace 10.64.0.0/10 via "+at[1])
			if i < c.routers {
				commands = append(commands, fmt.Sprintf("ip route replace 10.0.%d.0/24 via %s", c.routers, at[1]))
			}
		}
		if i > 1 {
			_, at := c.ends(i - 1)
			commands = append(commands, "ip route replace 10.0.0.0/24 via "+at[0])
		}
		if err := c.in(c.name(i), strings.Join(commands, ";")); err != nil {
			return err
		}
	}
	return nil
}

func (c *chain) space(element string) string { return c.dirs.Namespace(c.id(element)) }

func (c *chain) in(element, command string) error {
	_, err := c.output(element, command)
	return err
}

func (c *chain) output(element, command string) (string, error) {
	out, err := exec.CommandContext(c.ctx, "nsenter", "--net="+c.space(element), "sh", "-ec", command).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %s: %w: %s", element, command, err, lastLine(string(out)))
	}
	return strings.TrimSpace(string(out)), nil
}

// mac is the MAC address of an element's interface.
func (c *chain) mac(element, ifc string) (net.HardwareAddr, error) {
	var mac net.HardwareAddr
	err := netdev.In(c.space(element), func() error {
		d, err := net.InterfaceByName(ifc)
		if err == nil {
			mac = d.HardwareAddr
		}
		return err
	})
	return mac, err
}

// from and to are where frames enter and leave a chain; before is what sends to the last.
func (c *chain) from() netdev.Ref { return netdev.Ref{Namespace: c.space("h1"), Name: c.name(1)} }
func (c *chain) to() netdev.Ref   { return netdev.Ref{Namespace: c.space("h2"), Name: c.name(c.routers)} }

func (c *chain) before() netdev.Ref {
	last := c.name(c.routers)
	if c.way == byKernel {
		return netdev.Ref{Namespace: c.space(last), Name: "h2"}
	}
	return netdev.Ref{Namespace: c.home, Name: c.dirs.PortDevice(model.PortID{ID: c.id("h2"), Interface: last})}
}

// entrance is the other end of from: the first that receives.
func (c *chain) entrance() netdev.Ref {
	if c.way == byKernel {
		return netdev.Ref{Namespace: c.space(c.name(1)), Name: "h1"}
	}
	return netdev.Ref{Namespace: c.home, Name: c.dirs.PortDevice(model.PortID{ID: c.id("h1"), Interface: "r1"})}
}
