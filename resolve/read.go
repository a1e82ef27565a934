// Package resolve makes a network's document complete, says what is wrong with it, and works out what it leaves open:
// addresses, MACs, neighbours, numbers. It does no I/O and keeps nothing.
package resolve

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/model"
)

// Document is a complete description by a user: it has every interface that a link or an edge implies, and each
// element's control, forwarding and software.
type Document struct{ net model.Network }

// Read completes a document, and tells everything that is wrong with it, as far as the network alone can tell: whether
// it fits onto the substrate is the embedding's matter. The problems are in the order: network, elements, links,
// addresses, edges, expectations. A network without problems can be resolved, unless its pools run out. The argument is
// not changed.
//
// Switches that form a loop are refused where not all of them run a spanning tree: one broadcast would circle for ever,
// at the expense of everybody on the node.
func Read(n model.Network) (Document, []model.Problem) { return ReadPart(n, nil) }

// ReadPart reads a document of which a part is not known: only what is wrong for certain is told.
func ReadPart(n model.Network, unknown *Unknown) (Document, []model.Problem) {
	if large := Bounds(&n); len(large) > 0 {
		return Document{n}, large
	}
	stated := n.Elements
	n = complete(n)
	ps := &problems{net: &n, unknown: unknown}
	_, ps.v6 = Families(&n)
	l := newLayout(&n)
	if unknown != nil {
		l = newPartLayout(&n, ps.unsureVRFs)
	}
	ps.checkNetwork()
	for i := range n.Elements {
		ps.checkElement(i, len(stated[i].Interfaces))
	}
	ps.checkResources()
	ps.checkLinks(l)
	ps.checkVRRP(l)
	ps.checkVLANs(l)
	ps.checkMPLS(l)
	ps.checkInVRFs(l)
	ps.checkAddresses(l)
	ps.checkEdges(l)
	ps.checkExpectations(l)
	ps.checkFaults(l)
	return Document{n}, ps.all()
}

// Known is a document that Read has completed and accepted before, such as a stored one.
func Known(net model.Network) Document { return Document{net} }

// Network is the document, complete.
func (d Document) Network() model.Network { return d.net }

// checkNetwork looks at what is said of the network as a whole.
func (ps *problems) checkNetwork() {
	n := ps.net
	if err := model.CheckReference(n.Name); err != nil && !(ps.unknown != nil && ps.unknown.Name) {
		ps.network("network", "%v", err)
	}
	if err := n.Attack.Check(); err != nil {
		ps.network("attack", "policy: attack: %v", err)
	}
	if n.Owner != "" {
		if err := model.CheckName(n.Owner); err != nil {
			ps.network("owner", "owner: %v", err)
		}
	}
	for i, p := range n.Pools {
		smallest := subnetBits6
		if p.Addr().Is4() {
			smallest = linkBits4
		}
		switch {
		case !p.IsValid():
			ps.network("pools", "a pool is no prefix")
		case p != p.Masked():
			ps.network("pools", "the pool %s is an address; its prefix is %s", p, p.Masked())
		case p.Bits() > smallest:
			ps.network("pools", "the pool %s is smaller than the /%d that one link takes", p, smallest)
		case slices.ContainsFunc(n.Pools[:i], p.Overlaps):
			ps.network("pools", "the pool %s overlaps another; leave one out", p)
		}
	}
	model.CheckKeys(model.Slice{}.Keys(), &n.Slice,
		func(key, problem string) { ps.network("slice/"+key, "slice: %s", problem) })
	model.CheckKeys(model.Placing{}.Keys(), &n.Placing,
		func(key, problem string) { ps.network("placement/"+key, "placement: %s", problem) })
	if n.Slice.Mode == model.Strict {
		ps.checkStrict()
	}
}

// What FRR needs to start, measured with 8.4: zebra, staticd, watchfrr and reading the configuration take up to 16 MiB,
// and the daemon of each protocol up to 6 MiB more. BIRD needs 3 MiB, which is less than MinMemory.
const (
	frrMemory         = model.Bytes(24 << 20)
	frrProtocolMemory = model.Bytes(6 << 20)
)

// softwareMemory is the least memory with which the element's routing software starts.
func softwareMemory(e *model.Element) model.Bytes {
	if e.Kind != model.Router || e.Software != model.SoftwareFRR {
		return 0
	}
	return frrMemory + model.Bytes(len(e.Spoken()))*frrProtocolMemory
}

func protocolWords(e *model.Element) string {
	if names := e.Spoken(); len(names) > 0 {
		return " with " + strings.Join(names, ", ")
	}
	return ""
}

// checkResources compares the sums of what elements ask for with the slice. A sum counts each memory as the most that
// any may be: larger ones are told by themselves, and must not overflow it.
func (ps *problems) checkResources() {
	s := ps.net.Slice
	var cpu uint64
	var memory model.Bytes
	for _, e := range ps.net.Elements {
		cpu += uint64(e.CPU)
		memory += min(e.Memory, model.MaxMemory)
	}
	if s.CPU != 0 && cpu > uint64(s.CPU) {
		ps.network("slice/cpu", "slice: its elements ask for %s cores together, which is more than the slice's %s",
			model.CPU(min(cpu, 1<<32-1)), s.CPU)
	}
	if s.Memory != 0 && memory > s.Memory {
		ps.network("slice/memory",
			"slice: its elements ask for %s of memory together, which is more than the slice's %s", memory, s.Memory)
	}
}

// checkElement checks one element. The first stated of its interfaces are the ones that the document lists.
func (ps *problems) checkElement(i, stated int) {
	e := &ps.net.Elements[i]
	switch e.Kind {
	case model.Router, model.Host, model.Switch:
	default:
		ps.element(i, "kind", "the kind %q is unknown; there are router, host and switch", e.Kind)
		return
	}
	if err := model.CheckName(e.Name); err != nil {
		ps.element(i, "", "%v", err)
	}
	if err := ps.checkAxes(i); err != nil {
		field := "forwarding"
		if strings.HasPrefix(err.Error(), "control") {
			field = "control"
		}
		ps.element(i, field, "%v", err)
	}
	switch {
	case e.Hook != "" && !slices.Contains(model.Hooks, e.Hook):
		ps.element(i, "hook", "the hook %q is unknown; there are %s", e.Hook, model.Either(model.Hooks))
	case e.Hook != "" && e.Kind != model.Router:
		ps.element(i, "hook", "a %s has no hook: it says where packets of routers with forwarding: xdp are taken",
			e.Kind)
	}
	switch is, err := model.ParseSTP(string(cmp.Or(e.STP, "false"))); {
	case e.STP == "":
	case e.Kind != model.Switch:
		ps.element(i, "stp", "a %s runs no spanning tree: stp is for switches", e.Kind)
	case err != nil:
		ps.element(i, "stp", "stp: %v", err)
	case is != e.STP:
		ps.element(i, "stp", "stp %q is written as %q", string(e.STP), string(is))
	case e.Forwarding != model.ForwardBridge && !ps.ofElement(i, "forwarding"):
		ps.element(i, "stp", "stp is the kernel's bridge's: it takes forwarding: bridge, and not %s", e.Forwarding)
	}
	if err := e.Attack.Check(); err != nil {
		ps.element(i, "attack", "policy: attack: %v", err)
	}
	model.CheckKeys(model.Amounts{}.Keys(), &e.Amounts, func(key, problem string) { ps.element(i, key, "%s", problem) })
	if need := softwareMemory(e); e.Memory >= model.MinMemory && e.Memory < need && !ps.ofElement(i, "software") {
		ps.element(i, "memory", "memory %s is less than the %s that FRR needs to start%s", e.Memory,
			need, protocolWords(e))
	}
	if e.Node != "" && e.Location != "" {
		ps.element(i, "location", "it has both a node and a location; the node says it all")
	}
	ps.checkSoftware(i)
	ps.checkService(i)
	if e.Kind == model.Switch {
		ps.checkSwitch(i)
		return
	}
	if len(e.Prefixes) > 0 {
		ps.element(i, "prefixes", "prefixes are a switch's; a %s has addresses", e.Kind)
	}
	devices := make(map[string]string, len(e.Interfaces))
	for k, f := range e.Interfaces {
		field := "interfaces/" + f.Name
		if err := model.CheckInterfaceName(f.Name); err != nil {
			ps.element(i, field, "%v", err)
			continue
		}
		d := model.DeviceName(f.Name)
		if other, twice := devices[d]; twice {
			if other == f.Name {
				ps.element(i, field, "it has the interface %s twice", f.Name)
			} else {
				ps.element(i, field, "its interfaces %s and %s would both be %s to Linux; rename one", other, f.Name, d)
			}
		}
		devices[d] = f.Name
		if f.MAC != "" {
			if m, err := net.ParseMAC(f.MAC); err != nil || len(m) != 6 || m[0]&1 != 0 ||
				strings.Trim(f.MAC, "0:") == "" {
				ps.element(i, field+"/mac",
					"interface %s: %q is no interface's MAC address; write six bytes like 02:00:00:00:00:01, the "+
						"first one even", f.Name, f.MAC)
			}
		}
		if k < stated {
			ps.checkInterfaceAddresses(i, field, f)
		}
	}
	for _, p := range e.Loopback {
		if !p.IsValid() || p.Addr().IsMulticast() || p.Addr().IsUnspecified() {
			ps.element(i, "loopback", "%s is no address that a loopback can have", p)
		}
	}
	ps.checkRoutes(i)
	ps.checkVRFs(i)
}

// checkAxes tells what is wrong with an element's control and forwarding, whatever one of them is that is not known.
func (ps *problems) checkAxes(i int) (err error) {
	e := &ps.net.Elements[i]
	controls, forwardings := []model.Control{e.Control}, []model.Forwarding{e.Forwarding}
	if ps.ofElement(i, "control") {
		controls = model.Controls
	}
	if ps.ofElement(i, "forwarding") {
		forwardings = model.Forwardings
	}
	for _, c := range controls {
		for _, f := range forwardings {
			is := model.CheckAxes(e.Kind, c, f)
			if is == nil || err != nil && is.Error() != err.Error() {
				return nil
			}
			err = is
		}
	}
	return err
}

func (ps *problems) checkInterfaceAddresses(i int, field string, f model.Interface) {
	for _, a := range f.Addresses {
		switch {
		case !a.IsValid():
			ps.element(i, field, "interface %s: an address is invalid", f.Name)
		case a.Addr().IsMulticast() || a.Addr().IsUnspecified() || a.Addr().IsLoopback():
			ps.element(i, field, "interface %s: %s is no address that an interface can have", f.Name, a)
		case a.Addr().Is4() && a.Bits() <= 30 && (a.Addr() == a.Masked().Addr() || a.Addr() == lastOf(a)):
			ps.element(i, field, "interface %s: %s is the network or broadcast address of %s; %s is its first usable "+
				"one", f.Name, a.Addr(), a.Masked(), nth(a, 1))
		}
	}
}

// lastOf is the last address of an IPv4 prefix.
func lastOf(p netip.Prefix) netip.Addr { return nth(p, 1<<(32-p.Bits())-1) }

// checkSwitch refuses what needs addresses.
func (ps *problems) checkSwitch(i int) {
	e := &ps.net.Elements[i]
	ps.checkPrefixes(e.Prefixes, func(format string, args ...any) { ps.element(i, "prefixes", format, args...) })
	for _, f := range e.Interfaces {
		if len(f.Addresses) > 0 {
			ps.element(i, "interfaces/"+f.Name,
				"a switch's interface has no address; give it to a router or a host on the segment")
		}
		if err := model.CheckInterfaceName(f.Name); err != nil {
			ps.element(i, "interfaces/"+f.Name, "%v", err)
		}
	}
	if len(e.Loopback) > 0 || len(e.Gateways) > 0 || len(e.Routes) > 0 {
		ps.element(i, "", "a switch has no loopback, gateway or routes: it knows no addresses")
	}
	ps.checkVRFs(i)
}

// checkPrefixes checks the subnets that a link or a switch states.
func (ps *problems) checkPrefixes(prefixes []netip.Prefix, report func(string, ...any)) {
	var v4, v6 netip.Prefix
	for _, p := range prefixes {
		same := &v4
		if p.Addr().Is6() {
			same = &v6
		}
		switch {
		case !p.IsValid():
			report("a prefix is invalid")
			continue
		case p != p.Masked():
			report("%s is an address; its prefix is %s (an interface's own address goes under its element's "+
				"interfaces)", p, p.Masked())
		case p.Addr().IsMulticast() || p.Addr().IsLoopback() || p.Addr().IsLinkLocalUnicast():
			report("%s cannot be a link's prefix: it is multicast, loopback or link-local", p)
		case p.Bits() == 0:
			report("%s is every address; state the link's own prefix", p)
		case same.IsValid() && same.Addr().Is4():
			report("it has two IPv4 prefixes, %s and %s; one an address family is allowed", *same, p)
		case same.IsValid():
			report("it has two IPv6 prefixes, %s and %s; one an address family is allowed", *same, p)
		}
		*same = p
	}
}
