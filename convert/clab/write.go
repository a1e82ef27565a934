package clab

import (
	"fmt"
	"net"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/polyplane/polyplane/convert/internal/lab"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/software"
)

// Images are those that nodes run, by what they are there.
type Images struct{ FRR, BIRD, Host string }

// Lab is a network in containerlab's form.
type Lab struct {
	Topology []byte
	Files    map[string][]byte // that it names, by path relative to it
	Notes    []lab.Note        // of what it could not carry over
}

type writer struct {
	net     model.Network
	images  Images
	notes   *lab.Notes
	files   map[string][]byte
	bridges map[string]int // ports that bridges have so far
	// bridgesMade, vlans and impaired are commands.
	bridgesMade, vlans, impaired []string
}

// Write makes a lab of a network: net is its document, complete, and resolved what follows from it.
func Write(net model.Network, resolved model.Resolved, images Images) (*Lab, error) {
	w := &writer{net: net, images: images, notes: &lab.Notes{}, files: map[string][]byte{}, bridges: map[string]int{}}
	doc := &lab.Map{}
	doc.Set("name", net.Name)
	nodes := doc.Child("topology").Child("nodes")
	for i := range resolved.Elements {
		e := &resolved.Elements[i]
		said, err := w.node(e)
		if err != nil {
			return nil, err
		}
		nodes.Set(e.Name, said)
	}
	var links lab.Lines
	for i := range net.Links {
		made, err := w.link(&net.Links[i], resolved.Elements)
		if err != nil {
			return nil, err
		}
		links = append(links, made)
	}
	if len(links) > 0 {
		doc.Child("topology").Set("links", links)
	}
	w.rest()
	return &Lab{doc.YAML(), w.files, w.notes.Sorted()}, nil
}

// note is about no line: what is written is not a file but a network.
func (w *writer) note(format string, args ...any) { w.notes.Add(0, format, args...) }

// node is an element's entry.
func (w *writer) node(e *model.ResolvedElement) (*lab.Map, error) {
	said := &lab.Map{}
	if e.Kind == model.Switch {
		if len(e.Name) > 15 { // IFNAMSIZ
			return nil, fmt.Errorf("switch %s: it becomes a bridge of the machine, whose name has at most 15 letters",
				e.Name)
		}
		said.Set("kind", "bridge")
		w.bridgesMade = append(w.bridgesMade, "ip link add name "+e.Name+" type bridge"+spanningTree(e.STP),
			"ip link set dev "+e.Name+" up") // `ip` takes a bare a for the option address
		if slices.ContainsFunc(e.Interfaces, model.ResolvedInterface.HasVLANs) {
			// Before it has ports, so that nothing passes from one to another. No default is taken after that.
			w.bridgesMade = append(w.bridgesMade, "ip link set dev "+e.Name+" type bridge vlan_default_pvid 0",
				"ip link set dev "+e.Name+" type bridge vlan_filtering 1")
		}
		return said, nil
	}
	said.Set("kind", "linux")
	// All interfaces are the network's own, whatever they are called; ours have no management network either.
	plan, err := software.Render(w.net.Name, *e)
	if err != nil {
		return nil, err
	}
	said.Set("image", map[model.Software]string{model.SoftwareFRR: w.images.FRR,
		model.SoftwareBIRD: w.images.BIRD}[e.Software])
	if e.Kind == model.Host || said.Get("image") == "" {
		said.Set("image", w.images.Host)
	}
	said.Set("network-mode", "none")
	w.limits(said, e)
	for _, f := range plan.Files {
		if !strings.HasPrefix(f.Path, "/etc/pam.d/") {
			file := path.Join(e.Name, path.Base(f.Path))
			w.files[file] = []byte(f.Content)
			said.Append("binds", file+":"+f.Path)
		}
	}
	if commands := w.commands(e); len(commands) > 0 {
		said.Set("exec", commands)
	}
	w.elementRest(e)
	return said, nil
}

func (w *writer) limits(said *lab.Map, e *model.ResolvedElement) {
	if e.CPU != 0 {
		said.Set("cpu", lab.Raw(e.CPU.String()))
	}
	if e.Memory != 0 {
		said.Set("memory", e.Memory.String())
	}
}

// commands give an element what our nodes give it from outside: forwarding, addresses, and routes where no routing
// software makes them.
func (w *writer) commands(e *model.ResolvedElement) (all lab.Lines) {
	v6 := slices.ContainsFunc(e.Loopback, isV6)
	var interfaces []model.ResolvedInterface // those that are there: edges are not
	var outside []netip.Prefix
	for _, i := range e.Interfaces {
		if i.Edge != "" {
			outside = append(outside, i.Addresses...)
			continue
		}
		interfaces = append(interfaces, i)
		v6 = v6 || slices.ContainsFunc(i.Addresses, isV6)
	}
	run := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if v6 {
		run("sysctl -w net.ipv6.conf.all.disable_ipv6=0")
	}
	if e.Kind == model.Router {
		run("sysctl -w net.ipv4.ip_forward=1")
		if v6 {
			run("sysctl -w net.ipv6.conf.all.forwarding=1")
		}
	}
	for _, a := range e.Loopback {
		run("ip address add %s dev lo", a)
	}
	for _, i := range interfaces {
		if i.VLAN != 0 {
			run("ip link add link %s name %s type vlan id %d", device(i.On, interfaces), i.LinuxName(), i.VLAN)
			run("ip link set dev %s up", i.LinuxName())
		}
	}
	vrfs(e, interfaces, run)
	for _, i := range interfaces {
		for _, a := range i.Addresses {
			run("ip address add %s dev %s", a, i.LinuxName())
		}
		for _, v := range i.VRRP { // FRR looks for the device with that MAC address
			mac := v.MAC()
			run("sysctl -w net.ipv4.conf.%s.arp_ignore=1 net.ipv4.conf.%s.arp_announce=2", i.LinuxName(), i.LinuxName())
			run("ip link add %s link %s address %s type macvlan mode bridge", v.Device, i.LinuxName(),
				net.HardwareAddr(mac[:]))
			run("ip link set dev %s protodown on", v.Device) // until FRR says otherwise
			run("ip address add %s/32 dev %s", v.Address, v.Device)
			run("ip link set dev %s up", v.Device)
		}
	}
	leadsOut := func(hop netip.Addr) bool {
		return slices.ContainsFunc(outside, func(p netip.Prefix) bool { return p.Contains(hop) })
	}
	for _, g := range e.Gateways {
		if !leadsOut(g) {
			run("ip route add default via %s", g)
		}
	}
	w.labels(e, interfaces, run)
	if e.Kind == model.Router && (e.Software == model.SoftwareFRR || e.Software == model.SoftwareBIRD) {
		return all // it makes the routes
	}
	for _, vrf := range append([]string{""}, e.VRFNames()...) {
		of := model.InVRF(*e, vrf)
		if vrf != "" {
			for _, g := range of.Gateways {
				run("ip route add vrf %s default via %s", vrf, g)
			}
		}
		for _, r := range of.Routes {
			if slices.ContainsFunc(r.Via, leadsOut) || r.Interface != "" && device(r.Interface, interfaces) == "" {
				w.note("%s %s: the route to %s leads to an edge and is not carried over", e.Kind, e.Name, r.To)
				continue
			}
			run("%s", route(r, vrf, interfaces))
		}
	}
	return all
}

// labels are the commands that put an element on label-switched paths.
func (w *writer) labels(e *model.ResolvedElement, interfaces []model.ResolvedInterface, run func(string, ...any)) {
	if len(e.MPLS) == 0 {
		return
	}
	w.note("router %s: it needs the modules mpls_router and mpls_iptunnel in the machine's kernel", e.Name)
	run("sysctl -w net.mpls.platform_labels=%d", model.MaxLabel+1)
	run("sysctl -w net.mpls.conf.lo.input=1")
	for _, i := range interfaces {
		run("sysctl -w net.mpls.conf.%s.input=1", i.LinuxName())
	}
	for _, p := range e.MPLS {
		device := device(p.Interface, interfaces)
		family := "inet"
		if p.NextHop.Is6() {
			family = "inet6"
		}
		switch {
		case p.Via == "":
			run("ip -f mpls route add %d dev lo", p.In)
		case device == "":
			w.note("router %s: the label-switched path %s leads to an edge and is not carried over", e.Name, p)
		case p.To.IsValid():
			run("ip route add %s encap mpls %s via %s dev %s", p.To, model.LabelsText(p.Out), p.NextHop, device)
		case len(p.Out) > 0:
			run("ip -f mpls route add %d as %s via %s %s dev %s", p.In, model.LabelsText(p.Out), family, p.NextHop,
				device)
		default:
			run("ip -f mpls route add %d via %s %s dev %s", p.In, family, p.NextHop, device)
		}
	}
}

// device is what Linux calls an interface; empty when it is none of these.
func device(name string, interfaces []model.ResolvedInterface) string {
	for _, i := range interfaces {
		if i.Name == name {
			return i.LinuxName()
		}
	}
	return ""
}

// route is the command that makes a static route.
func route(r model.Route, vrf string, interfaces []model.ResolvedInterface) string {
	words := []string{"ip", "route", "add"}
	if vrf != "" {
		words = append(words, "vrf", vrf)
	}
	if r.Type != "" && r.Type != model.RouteUnicast {
		words = append(words, string(r.Type))
	}
	words = append(words, r.To.String())
	device := device(r.Interface, interfaces)
	switch {
	case len(r.Via) > 1:
		for _, via := range r.Via {
			words = append(words, "nexthop", "via", via.String())
		}
	case len(r.Via) == 1:
		words = append(words, "via", r.Via[0].String())
		fallthrough
	default:
		if device != "" {
			words = append(words, "dev", device)
		}
	}
	if r.Metric != 0 {
		words = append(words, "metric", strconv.Itoa(r.Metric))
	}
	return strings.Join(words, " ")
}

// spanningTree are the words by which a bridge is made as a part of a spanning tree. It must be one before it has
// ports: in a loop of bridges without it, the first broadcast circles for ever.
func spanningTree(stp model.STP) string {
	priority, on := stp.Priority()
	if !on {
		return ""
	}
	ticks := func(d model.Duration) int64 { return time.Duration(d).Milliseconds() / 10 } // hundredths of a second
	return fmt.Sprintf(" forward_delay %d hello_time %d max_age %d stp_state 1 priority %d",
		ticks(model.STPForwardDelay), ticks(model.STPHello), ticks(model.STPMaxAge), priority)
}

func isV6(p netip.Prefix) bool { return p.Addr().Is6() }

// link is a link's entry, in the brief form where that says all.
func (w *writer) link(l *model.Link, elements []model.ResolvedElement) (any, error) {
	var ends [2]struct{ element, device, mac string }
	for i, end := range l.Ends {
		at := slices.IndexFunc(elements, func(e model.ResolvedElement) bool { return e.Name == end.Element })
		e := &elements[at]
		k := slices.IndexFunc(e.Interfaces, func(i model.ResolvedInterface) bool { return i.Name == end.Interface })
		ends[i].element, ends[i].device = e.Name, e.Interfaces[k].LinuxName()
		if e.Kind == model.Switch { // its ends are devices of the machine, which share one space of names
			w.bridges[e.Name]++
			ends[i].device = fmt.Sprintf("%s-%d", e.Name, w.bridges[e.Name])
			if len(ends[i].device) > 15 {
				return nil, fmt.Errorf("switch %s: its ports become devices of the machine, whose names have at most "+
					"15 letters, and %s has more", e.Name, ends[i].device)
			}
			w.portVLANs(ends[i].device, &e.Interfaces[k])
		} else {
			ends[i].mac = w.stated(end)
		}
	}
	if w.knownByMAC(l, elements) {
		for i, end := range l.Ends {
			ends[i].mac = interfaceOf(elements, end).MAC
		}
	}
	for i, end := range ends {
		w.impair(l, end.element, end.device, elementKind(elements, l.Ends[i].Element))
	}
	if l.State == model.LinkDown {
		w.note("link %s is up there: it has no state", l.Name)
	}
	made := &lab.Map{}
	if ends[0].mac == "" && ends[1].mac == "" {
		for _, e := range ends {
			made.Append("endpoints", e.element+":"+e.device)
		}
	} else {
		made.Set("type", "veth")
		for _, e := range ends {
			point := &lab.Map{}
			point.Set("node", e.element)
			point.Set("interface", e.device)
			if e.mac != "" {
				point.Set("mac", e.mac)
			}
			made.Append("endpoints", point)
		}
	}
	if l.MTU != 0 {
		made.Set("mtu", lab.Raw(strconv.Itoa(l.MTU)))
	} else {
		made.Set("mtu", lab.Raw(strconv.Itoa(model.DefaultMTU))) // theirs is 9500
	}
	return made, nil
}

// portVLANs adds a switch's port to VLANs, by commands of vlans.sh: a topology has no words for them.
func (w *writer) portVLANs(device string, f *model.ResolvedInterface) {
	if f.Untagged != 0 {
		w.vlans = append(w.vlans, fmt.Sprintf("bridge vlan add dev %s vid %d pvid untagged", device, f.Untagged))
	}
	if f.Tagged == "" {
		return
	}
	for _, part := range f.Tagged.Parts() {
		w.vlans = append(w.vlans, fmt.Sprintf("bridge vlan add dev %s vid %s", device, part))
	}
}

// impair adds what a link does to packets that leave by one of its ends to the commands of impair.sh: a topology has no
// words for it.
func (w *writer) impair(l *model.Link, element, device string, kind model.Kind) {
	netem, tc := "", ""
	add := func(flag, text, word, parameter string) {
		netem += " --" + flag + " " + text
		tc += " " + word + " " + parameter
	}
	if l.Delay != 0 || l.Jitter != 0 {
		add("delay", l.Delay.String(), "delay", l.Delay.String()+" "+l.Jitter.String())
		netem += " --jitter " + l.Jitter.String()
	}
	if l.Loss != 0 {
		percent := strconv.FormatFloat(l.Loss*100, 'f', -1, 64)
		add("loss", percent, "loss", percent+"%")
	}
	if l.Bandwidth != 0 {
		kbit := strconv.FormatUint((uint64(l.Bandwidth)+999)/1000, 10)
		add("rate", kbit, "rate", kbit+"kbit")
	}
	switch {
	case netem == "":
	case kind == model.Switch:
		w.impaired = append(w.impaired, "tc qdisc replace dev "+device+" root netem"+tc)
	default:
		w.impaired = append(w.impaired,
			"containerlab tools netem set -n clab-"+w.net.Name+"-"+element+" -i "+device+netem)
	}
}

func elementKind(all []model.ResolvedElement, name string) model.Kind {
	return all[slices.IndexFunc(all, func(e model.ResolvedElement) bool { return e.Name == name })].Kind
}

// script is a file of commands, which is run by hand.
func (w *writer) script(name string, commands []string, what string) {
	if len(commands) == 0 {
		return
	}
	w.files[name] = []byte("#!/bin/sh -e\n" + strings.Join(commands, "\n") + "\n")
	w.note("%s", what)
}

// rest notes what a topology has no words for.
func (w *writer) rest() {
	w.script("bridges.sh", w.bridgesMade, "switches become bridges of the machine, which must be there: run "+
		"bridges.sh before `containerlab deploy`")
	w.script("vlans.sh", w.vlans, "switches' VLANs are not in a topology: run vlans.sh after `containerlab deploy`")
	w.script("impair.sh", w.impaired, "links' delay, jitter, loss and bandwidth are not in a topology: run impair.sh "+
		"after `containerlab deploy`; nothing reserves the bandwidth")
	for _, e := range w.net.Edges {
		w.note("edge %s is not carried over", e.Name)
	}
	w.lacks("the network", []word{{"owner", w.net.Owner != ""}, {"slice", w.net.Slice != model.Slice{}},
		{"placement", w.net.Placing != model.Placing{}}, {"attack", w.net.Attack != ""},
		{"expect", len(w.net.Expect) > 0}, {"faults", len(w.net.Faults) > 0}})
}

// elementRest notes of an element what a topology has no words for.
func (w *writer) elementRest(e *model.ResolvedElement) {
	own := e.Amounts
	own.CPU, own.Memory = 0, 0
	w.lacks(fmt.Sprintf("%s %s", e.Kind, e.Name), []word{
		{"forwarding: " + string(e.Forwarding), e.Forwarding != "" && e.Forwarding != model.ForwardGuest},
		{"hook", e.Hook != ""}, {"node", e.Node != ""}, {"location", e.Location != ""}, {"attack", e.Attack != ""},
		{"what limits it beside cpu and memory", own != model.Amounts{}},
		{"start", len(e.Start) > 0}, {"run", e.Run != ""}, {"stop", len(e.Stop) > 0}, {"ready", e.Ready != nil},
		{"restart", e.Restart != ""}, {"env", len(e.Env) > 0}, {"tmpfs", len(e.Tmpfs) > 0},
		{"files", len(e.Contents) > 0}})
}

// word is one that a topology has not; said tells whether the object says something by it.
type word struct {
	text string
	said bool
}

func (w *writer) lacks(what string, all []word) {
	for _, one := range all {
		if one.said {
			w.note("%s: %s is not carried over", what, one.text)
		}
	}
}

// knownByMAC tells whether BIRD at an end of a link is told the address that follows from the other end's MAC.
func (w *writer) knownByMAC(l *model.Link, elements []model.ResolvedElement) bool {
	return slices.ContainsFunc(l.Ends[:], func(end model.End) bool {
		at := slices.IndexFunc(elements, func(e model.ResolvedElement) bool { return e.Name == end.Element })
		e := &elements[at]
		return e.Software == model.SoftwareBIRD && e.Routing.BGP != nil && slices.ContainsFunc(e.Routing.BGP.Neighbors,
			func(n model.BGPNeighbor) bool { return n.Interface == end.Interface })
	})
}

func interfaceOf(elements []model.ResolvedElement, end model.End) model.ResolvedInterface {
	at := slices.IndexFunc(elements, func(e model.ResolvedElement) bool { return e.Name == end.Element })
	all := elements[at].Interfaces
	return all[slices.IndexFunc(all, func(i model.ResolvedInterface) bool { return i.Name == end.Interface })]
}

// stated is the MAC address that the document gives an interface.
func (w *writer) stated(end model.End) string {
	for _, e := range w.net.Elements {
		for _, i := range e.Interfaces {
			if e.Name == end.Element && i.Name == end.Interface {
				return i.MAC
			}
		}
	}
	return ""
}
