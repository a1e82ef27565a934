package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
)

// recentEvents is how many events a description ends with.
const recentEvents = 8

func (c *CLI) describeCommand() *cobra.Command {
	var o output
	cmd := &cobra.Command{
		Use:     "describe NET[/ELEMENT[:IF]|/LINK] | node/NAME",
		Aliases: []string{"desc", "show"},
		Short:   "Show everything about a network, an element, an interface, a link or a node",
		GroupID: groupLook,
		Example: "  polyplane describe lab\n  polyplane describe lab/r1\n  polyplane describe lab/r1:h1\n  polyplane " +
			"describe node/n1",
		Args: args(1, 1, "NET, NET/ELEMENT, NET/ELEMENT:IF or node/NAME"),
		RunE: func(cmd *cobra.Command, given []string) error {
			of, err := c.refs(cmd.Context()).any(given[0])
			if err != nil {
				return misnamed(cmd, err)
			}
			cl, err := c.connect()
			if err != nil {
				return err
			}
			return wrap(cmd.Context(), cl, c.describe(cmd, cl, o, of), of)
		},
		ValidArgsFunction: c.completeFirst(c.completeNetworks, c.completePorts, c.completeNodes),
	}
	o.addFlag(cmd, formatJSON, formatYAML)
	return cmd
}

func (c *CLI) describe(cmd *cobra.Command, cl Client, o output, of ref) error {
	ctx := cmd.Context()
	if of.network == nodeWord && of.element != "" {
		return c.describeNode(cmd, cl, o, of)
	}
	if of.element == "" {
		return c.describeNetwork(cmd, cl, o, of)
	}
	elements, err := cl.Elements(ctx, of.network)
	if err != nil {
		return err
	}
	links, err := cl.Links(ctx, of.network)
	if err != nil {
		return err
	}
	element, missing := findElement(elements, of.id())
	if missing != nil {
		for _, l := range links {
			if of.iface == "" && l.Network == of.network && l.Link.Name == of.element {
				return c.describeLink(cmd, cl, o, l)
			}
		}
		if err := lookUp(ctx, cl, of); err != nil {
			return err
		}
		return missing
	}
	if of.iface == "" {
		return c.describeElement(cmd, cl, o, element, links)
	}
	i, err := findInterface(element, of.iface)
	if err != nil {
		return err
	}
	return c.describeInterface(o, element, i, links)
}

// sheet prints headed sections of "key: value" lines and tables.
type sheet struct {
	c   *CLI
	w   io.Writer
	err error
}

func (s *sheet) title(name string, state cell) {
	s.print(s.paint(cell{name, strong}), "  ", s.paint(state), "\n")
}

// line prints a value unless it is empty.
func (s *sheet) line(key, value string) {
	if value != "" {
		s.print(fmt.Sprintf("  %-13s", key+":"), printable(value), "\n")
	}
}

func (s *sheet) table(heading string, t table) {
	if len(t.rows) == 0 || s.err != nil {
		return
	}
	s.print("\n", s.paint(cell{heading, strong}), "\n")
	if s.err == nil {
		s.err = t.write(s.w, s.c.colour(), true, "  ")
	}
}

func (s *sheet) print(parts ...string) {
	if s.err == nil {
		_, s.err = io.WriteString(s.w, s.c.hinted(strings.Join(parts, "")))
	}
}

func (s *sheet) paint(c cell) string {
	if !s.c.colour() || c.style == plain || c.text == "" {
		return c.text
	}
	return string(c.style) + c.text + resetStyle
}

// events ends a description. It is no failure if there are none, or if they cannot be had.
func (s *sheet) events(cmd *cobra.Command, cl Client, of ref) {
	events, err := pastEvents(cmd, cl, of)
	if err != nil {
		return
	}
	if len(events) > recentEvents {
		events = events[len(events)-recentEvents:]
	}
	t := eventTable(false)
	for _, e := range events {
		t.add(s.c.eventRow(e, false)...)
	}
	s.table("Events", t)
}

// described is a network with its parts, for -o json and yaml.
type described struct {
	model.NetworkStatus
	Record       model.Record        `json:"record"`
	ElementViews []model.ElementView `json:"elementStates"`
	LinkStates   []model.LinkStatus  `json:"linkStates"`
}

// describeNetwork shows a network with its elements, links, edges and recent events.
func (c *CLI) describeNetwork(cmd *cobra.Command, cl Client, o output, of ref) error {
	ctx := cmd.Context()
	record, err := cl.Network(ctx, of.network)
	if err != nil {
		return err
	}
	d, err := cl.Dump(ctx, of.network)
	if err != nil {
		return err
	}
	status := model.NetworkStatus{Name: of.network}
	for _, n := range d.Networks {
		if n.Name == of.network {
			status = n
		}
	}
	if o.format != formatTable {
		return writeValue(c.Out, o.format, described{status, record, d.Elements, d.Links})
	}
	s := &sheet{c: c, w: c.Out}
	s.title("network "+status.Name, networkPhase(status))
	s.line("Message", oneLine(status.Message))
	s.line("Owner", status.Owner)
	s.line("Key", status.Key)
	counts := fmt.Sprintf("%d, %d running", status.Elements, status.Running)
	if status.Stopped > 0 {
		counts += fmt.Sprintf(", %d stopped", status.Stopped)
	}
	if status.Suspended > 0 {
		counts += fmt.Sprintf(", %d suspended", status.Suspended)
	}
	if status.Failed > 0 {
		counts += fmt.Sprintf(", %d failed", status.Failed)
	}
	if status.Unknown > 0 {
		counts += fmt.Sprintf(", %d on nodes that say nothing now", status.Unknown)
	}
	s.line("Elements", counts)
	s.line("Links", strconv.Itoa(status.Links))
	s.line("Nodes", strings.Join(status.Nodes, ", "))
	s.line("Slice", sliceText(record.Network.Slice))
	s.line("Placement", placementText(record.Network.Placing))
	s.line("Pools", join(record.Network.Pools))
	s.line("Revision", fmt.Sprintf("%d, made %s ago, changed %s ago", status.Revision, c.since(status.Created),
		c.since(status.Modified)))

	elements, links, edges, expect := elementListing(), linkListing(),
		table{head: []string{"EDGE", "ELEMENT", "NODE", "DEVICE", ">VLAN"}}, table{head: []string{"EXPECTATION"}}
	et := table{head: elements.head(false)}
	for _, e := range d.Elements {
		row := elements.row(c, e, false)
		row[0] = text(e.ID.Element)
		et.add(row...)
		if e.Message != "" {
			// A failed element's reason belongs beside it, however long it is.
			row[len(row)-1] = cell{s.c.told(e.Message), bad}
		}
	}
	lt := table{head: links.head(false)}
	for _, l := range d.Links {
		row := links.row(c, l, false)
		row[0] = text(l.Link.Name)
		lt.add(row...)
	}
	internet := slices.ContainsFunc(record.Network.Edges, func(e model.Edge) bool { return e.Internet != nil })
	if internet {
		edges.head = append(edges.head, "GATEWAY", "FORWARDS")
	}
	for _, e := range record.Network.Edges {
		device, gateway, forwards := e.Device, "", ""
		if e.Mirror != nil {
			device = model.LeadsTo(&e)
		}
		if e.Internet != nil {
			device, gateway, forwards = model.LeadsTo(&e), join(record.Assigned.EdgeAddresses(e.Name)),
				join(e.Internet.Forwards)
		}
		if e.Trunk {
			device += " (trunk)"
		}
		node := cmp.Or(e.Node, record.Assigned.Placement.Elements[e.End.Element])
		row := []string{e.Name, end(e.End), node, device, mtuText(e.VLAN)}
		if internet {
			row = append(row, gateway, forwards)
		}
		edges.add(texts(row...)...)
	}
	for _, e := range record.Network.Expect {
		expect.add(text(e.String()))
	}
	s.table("Elements", et)
	s.table("Links", lt)
	s.table("Edges", edges)
	s.table("Expected (`polyplane check "+of.network+"`)", expect)
	s.events(cmd, cl, of)
	return s.err
}

func placementText(p model.Placing) string {
	return said(p, func(k model.Key[model.Placing]) string { return k.Name + " " + k.Text(&p) })
}

func sliceText(s model.Slice) string {
	return said(s, func(k model.Key[model.Slice]) string { return k.Text(&s) + k.Unit })
}

// said writes those of an object's keys that have a value.
func said[T interface{ Keys() []model.Key[T] }](of T, text func(model.Key[T]) string) string {
	return strings.Join(each.Of(each.That(of.Keys(), func(k model.Key[T]) bool { return !k.Zero(&of) }), text), ", ")
}

// describeElement shows an element: where it is, what it uses, its interfaces, and what the node's data path does for
// it.
func (c *CLI) describeElement(cmd *cobra.Command, cl Client, o output, e *model.ElementView,
	links []model.LinkStatus) error {
	if o.format != formatTable {
		return writeValue(c.Out, o.format, e)
	}
	s := &sheet{c: c, w: c.Out}
	s.title(string(e.Element.Kind)+" "+e.ID.String(), elementPhase(&e.ElementStatus))
	s.line("Message", oneLine(e.Message))
	if e.Quarantine != "" {
		s.line("Quarantine", oneLine(e.Quarantine)+
			fmt.Sprintf(" (`polyplane quarantine capture %s -w FILE` fetches its last packets, `polyplane release "+
				"%s` ends it)", e.ID, e.ID))
	}
	s.line("Node", e.Node)
	s.line("Control", string(e.Element.Control))
	s.line("Forwarding", string(e.Element.Forwarding))
	s.line("Hook", string(e.Element.Hook))
	if f := e.Fast; f != nil {
		s.fast(e.ID, f)
	}
	s.line("Software", string(e.Element.Software))
	s.line("Routing", strings.Join(intents(e.Element.Routing), ", "))
	if e.Element.RouterID.IsValid() {
		s.line("Router ID", e.Element.RouterID.String())
	}
	s.line("Loopback", join(e.Element.Loopback))
	s.line("Subnets", join(e.Element.Prefixes))
	var tree *model.Tree
	if priority, on := e.Element.STP.Priority(); on {
		s.line("STP", fmt.Sprintf("priority %d", priority))
		tree = s.root(cmd, cl, e, links)
	}
	s.line("VRRP", virtualRouters(&e.Element))
	for _, p := range e.Element.MPLS {
		s.line("MPLS", p.String())
	}
	s.line("Gateways", join(e.Element.Gateways))
	s.limits(e)
	if e.Restarts > 0 {
		s.line("Restarts", strconv.Itoa(e.Restarts))
	}
	if len(e.Element.Config) > 0 {
		s.line("Config", strings.Join(sortedKeys(e.Element.Config), ", ")+" (its own)")
	}
	s.service(&e.Element.Service)

	t := table{head: []string{"INTERFACE", "STATE", "ADDRESSES", "TO", "LINK", ">MTU", ">SENT", ">RECEIVED"}}
	ports := portsByID(links)
	for i := range e.Element.Interfaces {
		ifc := &e.Element.Interfaces[i]
		state, sent, received := cell{"unknown", warn}, "", ""
		if p, ok := ports[(model.PortID{ID: e.ID, Interface: ifc.Name})]; ok {
			state, sent, received = upDown(p.Up), byteCount(p.RxBytes), byteCount(p.TxBytes)
		} else if p, ok := ports[(model.PortID{ID: e.ID, Interface: ifc.On})]; ok && ifc.VLAN != 0 {
			state = upDown(p.Up) // packets of a VLAN are counted at the interface that carries it
		}
		link := ifc.Link
		if ifc.Edge != "" {
			link = ifc.Edge + " (edge)"
		}
		t.add(text(ifc.Name), state, text(join(ifc.Addresses)), text(farEnd(ifc)), text(link), text(mtuText(ifc.MTU)),
			text(sent), text(received))
	}
	s.table("Interfaces", t)
	s.vlans(&e.Element)
	s.tree(tree)

	if e.Fast != nil {
		hooks := table{head: []string{"INTERFACE", "HOOK", "WHY"}}
		for i := range e.Element.Interfaces {
			name := e.Element.Interfaces[i].Name
			if use, ok := e.Fast.Hooks[name]; ok {
				hooks.add(texts(name, string(use.Hook), use.Why)...)
			}
		}
		s.table("Hooks", hooks)
	}

	s.vrfs(&e.Element)
	s.routes("Routes", e.Element.Routes)
	for _, name := range e.Element.VRFNames() {
		s.routes("Routes of the VRF "+name, e.Element.VRFs[name].Routes)
	}
	s.events(cmd, cl, ref{network: e.ID.Network, element: e.ID.Element})
	return s.err
}

// fast shows what a router's node does for it, and knows of it.
func (s *sheet) fast(id model.ID, f *model.FastPath) {
	s.line("Fast path", fmt.Sprintf("%d packets (%s) forwarded", f.Packets, byteCount(f.Bytes)))
	if f.Companion > 0 {
		s.line("By kernel", fmt.Sprintf("%d of these packets, in its companion", f.Companion))
	}
	if f.Driver > 0 {
		s.line("By driver", fmt.Sprintf("%d of these packets, in a driver's hook", f.Driver))
	}
	for _, reason := range sortedKeys(f.Punted) {
		s.line("To guest", fmt.Sprintf("%d packets: %s", f.Punted[reason], reason))
	}
	if f.Blackholed > 0 {
		s.line("Dropped", fmt.Sprintf("%d packets: blackhole", f.Blackholed))
	}
	if f.Refused > 0 {
		s.line("Dropped", fmt.Sprintf("%d packets: more than the slice's punts a second", f.Refused))
	}
	t := f.Tables
	if t == nil {
		return
	}
	state, copied := "in sync", 0
	if !t.InSync {
		state = "not in sync: the router itself forwards"
	}
	s.line("Tables", state)
	for _, x := range t.Families {
		copied += x.Copy
		words := fmt.Sprintf("%d routes in %s (%s)", x.Routes, byteCount(uint64(x.Bytes)), x.Shape)
		if why := t.Punted[x.Family]; why != "" {
			words += "; the router itself forwards: " + why
		}
		s.line(familyName(x.Family), words)
	}
	hops := strconv.Itoa(t.NextHops)
	if t.Groups > 0 {
		hops += fmt.Sprintf(", %d of them groups", t.Groups)
	}
	s.line("Next hops", hops)
	s.line("Agent copy", byteCount(uint64(copied)))
	s.line("Slice share", fmt.Sprintf("%s of %s tables, %d of %d next hops, %d of %d routes",
		byteCount(uint64(t.Used.Tables)), t.Quota.Tables,
		t.Used.NextHops, t.Quota.NextHops, t.Used.Routes, t.Quota.Routes))
	if l := t.Lack; l != nil {
		of := "the slice's"
		if l.Node {
			of = "the node's"
		}
		s.line("Full", fmt.Sprintf("%s %s are used up: what does not fit the router itself forwards (`polyplane get "+
			"events %s` tells what helps)", of, l.Quota, id.Network))
	}
}

// intents names the routing protocols that an element shall speak.
func intents(r model.Routing) []string {
	var list []string
	if r.OSPF != nil {
		list = append(list, "OSPF"+inArea(r.OSPF.Area)+timers(r.OSPF.OSPFTimers))
	}
	if r.OSPF6 != nil {
		list = append(list, "OSPFv3"+inArea(r.OSPF6.Area)+timers(r.OSPF6.OSPFTimers))
	}
	if r.ISIS != nil {
		list = append(list, "IS-IS"+inArea(r.ISIS.Area)+timers(r.ISIS.ISISTimers))
	}
	if r.BGP != nil {
		words := fmt.Sprintf("BGP AS %d", r.BGP.AS)
		if r.BGP.Unnumbered {
			words += ", unnumbered"
		}
		if used := r.BGP.Used(); len(used) > 0 {
			slices.Sort(used)
			words += ", policies " + strings.Join(used, " and ")
		}
		list = append(list, words+timers(r.BGP.BGPTimers))
	}
	if r.RIP != nil {
		list = append(list, "RIP"+timers(r.RIP.RIPTimers))
	}
	return list
}

// timers are those that were said, like " (hello 10s, dead 40s)".
func timers[T interface{ Keys() []model.Key[T] }](of T) string {
	words := said(of, func(k model.Key[T]) string { return k.Name + " " + k.Text(&of) })
	if words == "" {
		return ""
	}
	return " (" + words + ")"
}

func inArea(area string) string {
	if area == "" {
		return ""
	}
	return " area " + area
}

// describeNode shows a node: what it has, offers and lacks, what its neighbours answer, and the elements on it.
func (c *CLI) describeNode(cmd *cobra.Command, cl Client, o output, of ref) error {
	ctx := cmd.Context()
	node, err := findNode(ctx, cl, of.element)
	if err != nil {
		return err
	}
	if o.format != formatTable {
		return writeValue(c.Out, o.format, node)
	}
	elements, err := cl.Elements(ctx, "")
	if err != nil {
		return err
	}
	s := &sheet{c: c, w: c.Out}
	s.title("node "+node.Name, nodeState(*node))
	s.line("Problem", oneLine(node.Problem))
	s.line("Kind", nodeKind(*node))
	s.line("Location", node.Location)
	s.line("Address", addressText(*node))
	s.line("MTU", mtuText(node.MTU))
	s.line("CPU", usedOf(cores(node.CPUReserved), cores(node.CPU))+" cores reserved, "+
		strconv.FormatFloat(node.CPUUsed, 'f', 2, 64)+" used")
	s.line("Memory", reservedMemory(*node)+" reserved, "+byteCount(uint64(node.MemoryUsed))+" used")
	if node.Disk != 0 {
		s.line("Disk", freeDisk(*node)+" free")
	}
	s.line("Processor", processor(*node))
	s.line("Ports", strconv.Itoa(node.Ports))
	if node.Found != nil {
		s.line("LLDP", oneLine(node.Found.Off))
	}
	s.line("Seen", c.since(node.LastSeen)+" ago")
	s.table("Offers", offersTable(node.Offers))
	hooks := table{head: []string{"DEVICE", "HOOK", "WHY"}}
	for _, name := range sortedKeys(node.Underlay) {
		hooks.add(texts(name, string(node.Underlay[name].Hook), node.Underlay[name].Why)...)
	}
	s.table("Hooks of the underlay", hooks)
	s.table("Interfaces", interfaces(node.Found))
	// If nothing is known of its links, the rest of the node is still worth showing.
	if links, err := cl.SubstrateLinks(ctx); err == nil {
		s.table("Links to neighbours", neighbours(links, node.Name))
	}
	l := elementListing()
	t := table{head: []string{"ELEMENT", "KIND", "PHASE"}}
	for _, e := range elements {
		if e.Node == node.Name {
			t.add(l.row(c, e, false)[:3]...)
		}
	}
	s.table("Elements", t)
	s.events(cmd, cl, of)
	return s.err
}

func findNode(ctx context.Context, cl Client, name string) (*model.NodeStatus, error) {
	nodes, err := cl.Nodes(ctx)
	if err != nil {
		return nil, wrap(ctx, cl, err, ref{})
	}
	var names []string
	for i := range nodes {
		if nodes[i].Name == name {
			return &nodes[i], nil
		}
		names = append(names, nodes[i].Name)
	}
	return nil, unknown("node", name, names)
}

func portsByID(links []model.LinkStatus) map[model.PortID]model.PortStatus {
	ports := map[model.PortID]model.PortStatus{}
	for _, l := range links {
		for _, p := range l.Ports {
			ports[p.ID] = p
		}
	}
	return ports
}

func upDown(up bool) cell {
	if up {
		return cell{"up", good}
	}
	return cell{"down", bad}
}

func sortedKeys[K ~string, V any](m map[K]V) []K {
	return slices.Sorted(maps.Keys(m))
}
