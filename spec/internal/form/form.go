// Package form is the file as people write it: the keys, and what they take. The JSON Schema and docs/file-format.md
// are generated from these types and their comments.
package form

import (
	"net/netip"

	"github.com/goccy/go-yaml/ast"

	"github.com/polyplane/polyplane/model"
)

// Network is one document of the file: one virtual network.
type Network struct {
	// The network's name, among its owner's; OWNER/NAME where it is somebody else's. `apply --name` gives a copy
	// another.
	Network string `yaml:"network"`
	// Whose network it is, like alice, and for whom it counts where quotas are by owner; the user who applies it first
	// when left out. Another owner's of the same name is another network: `polyplane set NET owner=` gives one away.
	Owner string `yaml:"owner"`
	// Prefixes that links without prefixes of their own are numbered from, and with them the address families that the
	// network has. 10.0.0.0/8 and fd00:10::/48 when empty.
	Pools Prefixes `yaml:"pools"`
	// The network's share of the substrate.
	Slice *Slice `yaml:"slice"`
	// How its elements are placed on the nodes. What is placed already stays where it is.
	Placement *Placement `yaml:"placement"`
	// What is done to elements that do what they should not.
	Policy *Policy `yaml:"policy"`
	// What routers, hosts, switches and links have unless they say otherwise.
	Defaults Defaults `yaml:"defaults"`
	// Where every router's routing software and protocol stack run, unless it says otherwise.
	Control model.Control `yaml:"control"`
	// Where every router's packets are forwarded, unless it says otherwise.
	Forwarding model.Forwarding `yaml:"forwarding"`
	// Every router's routing software, unless it says otherwise.
	Software model.Software `yaml:"software"`
	// Whether links are given addresses, unless they say otherwise: auto (the default) or none. It is short for
	// `defaults: {links: {addressing: …}}`.
	Addressing model.Addressing `yaml:"addressing"`

	Intents `yaml:",inline"`

	// The routers: names, or names with what they are. `r[1-100]` stands for r1 to r100, `r[01-20]` for r01 to r20.
	Routers Routers `yaml:"routers"`
	// The hosts: names, or names with what they are.
	Hosts Hosts `yaml:"hosts"`
	// The switches, each a layer-2 segment: names, or names with what they are. Connected switches are one segment.
	Switches Switches `yaml:"switches"`
	// The links: `a -- b`, with interfaces `a:eth0 -- b:eth1`, with prefixes `a -- b: 10.0.0.0/30`, or with a mapping
	// of what they have. `h[1-9] -- s1` and `h[1-9] -- r[1-9]` stand for nine links; `line`, `ring`, `mesh`, `grid
	// 10x10` and `clos spines 3 leaves 6 hosts 2` for the links of such a shape.
	Links Links `yaml:"links"`
	// Where the network meets the world, by name: `a -- eth1` for a real device, `a -- internet` for the machine's
	// uplink with NAT, or a mapping.
	Edges Edges `yaml:"edges"`
	// Copies of what passes links, for hosts that look at them.
	Mirrors []Mirror `yaml:"mirrors"`
	// What `polyplane check` verifies: `h1 reaches h2`, `h1 reaches h2 over ipv6`, `h1 does not reach h3`; and what
	// routing knows: `r1 ospf neighbor r2`, `r1 bgp route 10.0.0.0/8 via r2`, `r1 no route 10.9.0.0/16`, `r1 vrrp
	// master`.
	Expect []Expect `yaml:"expect"`
	// A schedule of faults for lessons that can be repeated: `polyplane faults start` begins it, and `stop` puts back
	// what it has changed.
	Faults []Fault `yaml:"faults"`

	Node ast.Node `yaml:"-"`
}

// Intents are the routing protocols that a router shall speak; FRR's or BIRD's configuration is generated from them.
// For a whole network they are every router's, and a router's own fields come before them; `false` takes a protocol
// away.
type Intents struct {
	// OSPF version 2 (RFC 2328), which carries IPv4; `{}` puts all interfaces and the loopback into area 0.
	OSPF *OSPF `yaml:"ospf"`
	// OSPF version 3 (RFC 5340), which carries IPv6; `{}` puts all interfaces and the loopback into area 0.
	OSPF6 *OSPF `yaml:"ospf6"`
	// IS-IS (ISO 10589, RFC 1195) for both address families; FRR only.
	ISIS *ISIS `yaml:"isis"`
	// BGP (RFC 4271) with every directly linked router that has BGP as well, or with the neighbors given, for both
	// address families.
	BGP *BGP `yaml:"bgp"`
	// RIP version 2 (RFC 2453) for IPv4 and RIPng (RFC 2080) for IPv6.
	RIP *RIP `yaml:"rip"`
}

// OSPF is what counts for all of a router's interfaces that do not say otherwise.
type OSPF struct {
	Off bool `yaml:"-"`
	// The area, as a number or in dotted form; 0.0.0.0 when left out. Interfaces may say another one.
	Area Area `yaml:"area"`
	// The cost of each interface, 1 to 65535; 10 when left out. Interfaces may say another one.
	Cost int `yaml:"cost"`
	// What is announced beside the interfaces: connected, static, kernel, bgp, ospf, ospf6, isis, rip.
	Redistribute Words                  `yaml:"redistribute"`
	Said         Said[model.OSPFTimers] `yaml:",inline"`
}

// ISIS is one area for all of a router's interfaces.
type ISIS struct {
	Off bool `yaml:"-"`
	// The area address; 49.0001 when left out.
	Area string `yaml:"area"`
	// 1 or 2; both when left out.
	Level int                    `yaml:"level"`
	Said  Said[model.ISISTimers] `yaml:",inline"`
}

// BGP is one router's part in BGP.
type BGP struct {
	Off bool `yaml:"-"`
	// The router's autonomous system, 1 to 4294967295. Needed, here or for the whole network.
	AS uint32 `yaml:"as"`
	// What is announced; the connected subnets that have hosts, and the loopback, when left out.
	Networks Prefixes `yaml:"networks"`
	// The sessions, as a list; every directly linked router that has BGP when left out. A mapping says something of
	// these by their names: `{r2: {in: customers}}`.
	Neighbors Neighbors `yaml:"neighbors"`
	// Whether it is a route reflector (RFC 4456): what one neighbour of its autonomous system says it tells the others.
	// All of them are its clients, but for those that are reflectors, too. Next hops stay as they are, so an IGP such
	// as ospf must lead to them.
	Reflector *bool `yaml:"reflector"`
	// Whether its sessions with directly linked routers that say so, too, lead over the interfaces, by their link-local
	// addresses, and carry both address families (RFC 8950). Such links get no other addresses unless they or their
	// ends state some.
	Unnumbered *bool `yaml:"unnumbered"`
	// Lists of prefixes by name, for rules of policies: `10.1.0.0/16`, or with the lengths of those within it,
	// `10.1.0.0/16 le 24`, `10.0.0.0/8 ge 16 le 24`.
	PrefixLists PrefixLists `yaml:"prefix-lists"`
	// Policies by name, each a list of rules: the first that a route matches decides, and what matches none is denied.
	Policies Policies              `yaml:"policies"`
	Said     Said[model.BGPTimers] `yaml:",inline"`
}

// Neighbor is one BGP session.
type Neighbor struct {
	// The neighbour's address.
	Address netip.Addr `yaml:"address"`
	// Instead of an address, the interface that the neighbour is at: the session is by link-local addresses.
	Interface string `yaml:"interface"`
	// The neighbour's autonomous system.
	AS uint32 `yaml:"as"`
	// What people call it.
	Name string `yaml:"name"`
	// Whether it is a client of this router, also if that is no reflector for its other neighbours.
	Client bool `yaml:"client"`
	// The policy for what it tells; all of that is taken when left out.
	In string `yaml:"in"`
	// The policy for what it is told; it is told everything when left out.
	Out string `yaml:"out"`
}

// Toward is what is said of a router with which sessions follow from links.
type Toward struct {
	// The policy for what it tells; all of that is taken when left out.
	In string `yaml:"in"`
	// The policy for what it is told; it is told everything when left out.
	Out string `yaml:"out"`
}

// PolicyRule is one rule of a policy.
type PolicyRule struct {
	// What a route must have, all of it; every route matches when left out.
	Match *PolicyMatch `yaml:"match"`
	// Whether routes that match are denied; else they pass.
	Deny bool `yaml:"deny"`
	// What routes that match get.
	Set *PolicySet `yaml:"set"`
}

// PolicyMatch is what a route must have.
type PolicyMatch struct {
	// The name of a prefix list that the route is in.
	Prefixes string `yaml:"prefixes"`
	// Communities (RFC 1997) that it has, all of them: `65001:80`, no-export or no-advertise.
	Community Communities `yaml:"community"`
}

// PolicySet is what a route gets.
type PolicySet struct {
	// The local preference, 0 to 4294967295: more is better; 100 without a word. Only the own autonomous system hears
	// of it.
	LocalPreference *uint32 `yaml:"local-preference"`
	// The multi-exit discriminator, 0 to 4294967295: less is better, among routes by the same neighbouring autonomous
	// system.
	MED *uint32 `yaml:"med"`
	// How often the router's autonomous system is put before the path once more, 1 to 10, so that others prefer other
	// ways. For what is told to other autonomous systems.
	Prepend int `yaml:"prepend"`
	// Communities in place of all that it has; none takes them away.
	Community Communities `yaml:"community"`
	// Communities that it gets beside those that it has.
	AddCommunity Communities `yaml:"add-community"`
	// Communities that are taken from it.
	DeleteCommunity Communities `yaml:"delete-community"`
}

// RIP is on all of a router's interfaces.
type RIP struct {
	Off bool `yaml:"-"`
	// What is announced beside the interfaces: connected, static, kernel, bgp, ospf, isis.
	Redistribute Words                 `yaml:"redistribute"`
	Said         Said[model.RIPTimers] `yaml:",inline"`
}

// Common is what every element may say.
type Common struct {
	// Where its routing software and protocol stack run: netns (the default), vm or controller.
	Control model.Control `yaml:"control"`
	// Where its packets are forwarded: guest, router, bridge, openflow or xdp. A router has guest by default, a switch
	// bridge; a host always guest.
	Forwarding model.Forwarding    `yaml:"forwarding"`
	Said       Said[model.Amounts] `yaml:",inline"`
	// The node that it must be on.
	Node string `yaml:"node"`
	// The location that its node must be in.
	Location string `yaml:"location"`
	// What is done to it when it does what it should not; what the network says when left out.
	Policy *Policy `yaml:"policy"`
}

// Policy is what is done to elements that do what they should not.
type Policy struct {
	// When the node's watch finds that it attacks: tell (an event says so, nothing else happens: the default),
	// quarantine (its links are cut; it, its state and a capture of its last packets are kept, until `polyplane
	// release`), stop, or delete (it is taken out of the network; its disk goes to the trash). An administrator's
	// `polyplane policy` comes before it.
	Attack model.AttackPolicy `yaml:"attack"`
}

// Router is what a router says of itself.
type Router struct {
	Common  `yaml:",inline"`
	Intents `yaml:",inline"`
	// The routing software: frr (the default where there is an intent or a configuration), bird, static (the kernel's
	// own routes and no process: the default elsewhere) or none.
	Software model.Software `yaml:"software"`
	// Where the node takes its packets with forwarding: xdp: auto (in the driver of real devices that have such a hook;
	// on the tc hook of veths), tc (on the tc hook everywhere), or xdp (in the driver everywhere: for elements that
	// send and receive frames by XDP; TCP of others loses its large segments). auto when left out.
	Hook model.Hook `yaml:"hook"`
	// Its interfaces by name, with addresses or with a mapping. Interfaces that only links mention need no entry.
	Interfaces Interfaces `yaml:"interfaces"`
	// Addresses of its only interface, like 10.0.0.1/24.
	Addresses Prefixes `yaml:"addresses"`
	// Addresses on lo, like 10.255.0.1. Routers with an intent get them by themselves.
	Loopback Loopbacks `yaml:"loopback"`
	// Next hops of the default routes, one an address family.
	Gateway Addrs `yaml:"gateway"`
	// Static routes: `10.1.0.0/16 via 10.0.0.2`, or mappings.
	Routes []Route `yaml:"routes"`
	// The static label-switched paths that it is on (MPLS, RFC 3031).
	MPLS []LSP `yaml:"mpls"`
	// Its VRFs by name: tables of their own for some of its interfaces, whose names alone are enough: `{red: [a1, a2],
	// blue: {interfaces: [b1], ospf: {}}}`. An interface is in one of them, or in none.
	VRFs VRFs `yaml:"vrfs"`
	// The protocols' 32-bit identifier, like 10.255.0.1; the IPv4 loopback when left out.
	RouterID netip.Addr `yaml:"router-id"`
	// The software's own configuration instead of a generated one: text, `{file: PATH}` (relative to this file), or
	// several by the names that the software knows them by (frr.conf, bird.conf). It seeds the router; what is written
	// inside the router later persists.
	Config Config `yaml:"config"`

	Service `yaml:",inline"`
}

// VRF is a table of a router for some of its interfaces.
type VRF struct {
	// The interfaces that are in it, by name.
	Interfaces Words `yaml:"interfaces"`
	// OSPF version 2 on these interfaces, apart from all other OSPF of the router; it is not spoken when left out,
	// whatever the router speaks elsewhere.
	OSPF *OSPF `yaml:"ospf"`
	// OSPF version 3 likewise.
	OSPF6 *OSPF `yaml:"ospf6"`
	// The protocols' 32-bit identifier there; the router's when left out.
	RouterID netip.Addr `yaml:"router-id"`
	// Next hops of its default routes, one an address family.
	Gateway Addrs `yaml:"gateway"`
	// Its static routes: `10.1.0.0/16 via 10.0.0.2`, or mappings.
	Routes []Route `yaml:"routes"`
}

// Host is what a host says of itself.
type Host struct {
	Common `yaml:",inline"`
	// Its interfaces by name, with addresses or with a mapping. Interfaces that only links mention need no entry.
	Interfaces Interfaces `yaml:"interfaces"`
	// Addresses of its only interface, like 10.0.0.5/24.
	Addresses Prefixes `yaml:"addresses"`
	// Next hops of the default routes, one an address family; the first router on its segment when left out.
	Gateway Addrs `yaml:"gateway"`
	// Addresses on lo.
	Loopback Loopbacks `yaml:"loopback"`
	// Static routes: `10.1.0.0/16 via 10.0.0.2`, or mappings.
	Routes []Route `yaml:"routes"`

	Service `yaml:",inline"`
}

// Switch is what a switch says of itself.
type Switch struct {
	Common `yaml:",inline"`
	// The segment's subnets, one an address family: its members are numbered from them.
	Prefixes Prefixes `yaml:"prefixes"`
	// Whether it runs the spanning tree protocol (IEEE 802.1D): true, or its priority among the switches, a multiple of
	// 4096 up to 61440, of which the lowest becomes the root; 32768 with true. Switches may be connected in loops where
	// all of them run it. A port that comes up passes nothing for 8 s, and after a cut the next way is there within 14.
	STP model.STP `yaml:"stp"`
	// A virtual router of its segment (VRRP version 3, RFC 5798), or a list of several: routers with FRR share its
	// address, which is the gateway of the segment's hosts unless they say otherwise.
	VRRP VRRPs `yaml:"vrrp"`
	// The subnets of its VLANs, by their numbers: `{10: 10.0.10.0/24}`. Which VLANs there are, and at which ports, is
	// said by the links.
	VLANs VLANs `yaml:"vlans"`
}

// VRRP is a virtual router of a segment.
type VRRP struct {
	// The virtual router's address, of IPv4, which no interface has; the segment's last one when left out.
	Address netip.Addr `yaml:"address"`
	// The routers that take part, with their priorities, 1 to 254: `{r1: 200, r2: 100}`. The highest is the master. All
	// routers of the segment take part, with 100 each, when left out.
	Priority Priorities `yaml:"priority"`
	// Whether a router with a higher priority becomes the master again when it comes back; true when left out.
	Preempt *bool                `yaml:"preempt"`
	Said    Said[model.VRRPKeys] `yaml:",inline"`
}

// Interface is one interface of a router or a host.
type Interface struct {
	// Its addresses, like 10.0.0.1/24.
	Addresses Prefixes `yaml:"addresses"`
	// Its MAC address; made from the names when left out.
	MAC string `yaml:"mac"`
	// What OSPF version 2 does at it, where that is not as the router says; false where it does not run.
	OSPF *OSPFPort `yaml:"ospf"`
	// What OSPF version 3 does at it, where that is not as the router says; false where it does not run.
	OSPF6 *OSPFPort `yaml:"ospf6"`
}

// OSPFPort is what OSPF does at one interface.
type OSPFPort struct {
	Off bool `yaml:"-"`
	// The interface's area, as a number or in dotted form; the router's when left out. Neighbours must have the same.
	Area Area `yaml:"area"`
	// Whether the interface's subnet is announced and nobody spoken to; when left out, where there are only hosts, or
	// an internet edge.
	Passive *bool                    `yaml:"passive"`
	Said    Said[model.OSPFPortKeys] `yaml:",inline"`
}

// Route is a static route.
type Route struct {
	// Where it leads: a prefix, or default.
	To RouteTo `yaml:"to"`
	// The next hop; several are equal-cost next hops.
	Via Addrs `yaml:"via"`
	// The interface that it leaves by.
	Interface string `yaml:"interface"`
	// unicast (the default), blackhole, unreachable or prohibit.
	Type model.RouteType `yaml:"type"`
	// The kernel's metric; lower comes first.
	Metric int `yaml:"metric"`

	Node ast.Node `yaml:"-"`
}

// LSP is what a router does with packets of a static label-switched path. With `to` and `push` it labels packets, with
// `in` and `out` it sends them on with another label, with `in` alone it takes the label off.
type LSP struct {
	// The label of packets that come in, 16 to 65535.
	In Labels `yaml:"in"`
	// The label that they leave with instead, or several, the outermost first; none when left out.
	Out Labels `yaml:"out"`
	// The prefix whose packets get labels here.
	To netip.Prefix `yaml:"to"`
	// The label that they get, or several, the outermost first.
	Push Labels `yaml:"push"`
	// The neighbour that they are sent to: its name, or its address. Without it the label is taken off, and the packet
	// goes as the router's own routes say.
	Via string `yaml:"via"`

	Node ast.Node `yaml:"-"`
}

// LinkAttributes is what a link has.
type LinkAttributes struct {
	Said Said[model.Link] `yaml:",inline"`
}

// LinkValue is what stands after a link's `a -- b:` when it is a mapping.
type LinkValue struct {
	LinkAttributes `yaml:",inline"`
	// The link's name; `a--b` when left out, `a--b.2` for the second one.
	Name string `yaml:"name"`
	// The link's subnets, one an address family: the first end gets .1, the second .2. From the pools when left out.
	Prefixes Prefixes `yaml:"prefixes"`
}

// Defaults are what elements and links have unless they say otherwise.
type Defaults struct {
	// For routers; their intents and software may also stand at the top of the document.
	Routers RouterDefaults `yaml:"routers"`
	// For hosts. Variables, and file systems in memory, are taken one by one.
	Hosts HostDefaults `yaml:"hosts"`
	// For switches.
	Switches Common `yaml:"switches"`
	// For links.
	Links LinkAttributes `yaml:"links"`
}

// RouterDefaults are what routers have unless they say otherwise.
type RouterDefaults struct {
	Common  `yaml:",inline"`
	Intents `yaml:",inline"`
	// The routing software: frr, bird, static or none.
	Software model.Software `yaml:"software"`
	// Where the node takes their packets with forwarding: xdp: auto, tc or xdp.
	Hook model.Hook `yaml:"hook"`

	Service `yaml:",inline"`
}

// Edge is where the network meets a real device of a node, or the uplink of the node's machine.
type Edge struct {
	// The element, or element:interface, that the device or the gateway is joined to.
	End string `yaml:"end"`
	// The device's name on its node, like eth1.
	Device string `yaml:"device"`
	// 1 to 4094; untagged when left out.
	VLAN int `yaml:"vlan"`
	// Whether frames with VLAN tags of their own pass, both ways; else they are dropped. Without `vlan` a trunk takes
	// all of the device, which no other edge, of no network, can then have a part of.
	Trunk bool `yaml:"trunk"`
	// The node that has the device; needed where there are several. An internet edge needs none.
	Node string `yaml:"node"`
	// Instead of a device the way out by the machine's uplink, with source NAT: `{}`. Routers at its end (of a switch:
	// on the segment), or hosts where there is no router, get it as their default gateway.
	Internet *Internet `yaml:"internet"`
}

// Mirror copies what passes a link, both ways, to a host. There the copies come in by an interface of their own,
// without addresses; what is sent from it goes nowhere. The link itself notices nothing.
type Mirror struct {
	// The link's name, like h1--r1. A link has one mirror.
	Link string `yaml:"link"`
	// The host, or host:interface, that gets the copies; the interface is mirror0, mirror1 and so on when left out.
	To string `yaml:"to"`
	// What all copies together may take; 100Mbit when left out, and never more than the slice's. Packets beyond it are
	// not copied.
	Bandwidth *model.Bandwidth `yaml:"bandwidth"`

	Node ast.Node `yaml:"-"`
}

// Fault is one step of the schedule of faults. It has one of stop, start, restart and set.
type Fault struct {
	// When it happens, after the schedule's start, like 30s; at most 24h.
	At model.Duration `yaml:"at"`
	// The element or the link that is stopped: `r1`, `r1--r2` or `r1 -- r2`.
	Stop string `yaml:"stop"`
	// The element or the link that is started.
	Start string `yaml:"start"`
	// The element that is restarted.
	Restart string `yaml:"restart"`
	// The link that gets the values beside it, which are a link's: `{at: 70s, set: r1 -- r2, loss: 5%}`.
	Set  string           `yaml:"set"`
	Said Said[model.Link] `yaml:",inline"`

	Node ast.Node `yaml:"-"`
}

// Internet is what an edge to the machine's uplink has.
type Internet struct {
	// Ports of the machine that lead to an element's: `2222:h1:22`, `5353:h2:53/udp`, `127.0.0.1:8080:h1:80`. Below
	// 61000.
	Forwards Forwards `yaml:"forwards"`
	// Whether a router at the edge tells its neighbours of the default route, by whatever it speaks; true when left
	// out.
	Announce *bool `yaml:"announce"`
}

// Placement is how a network's elements are placed on the nodes.
type Placement struct {
	Said Said[model.Placing] `yaml:",inline"`
}

// Slice is the network's share of the substrate.
type Slice struct {
	Said Said[model.Slice] `yaml:",inline"`
}
