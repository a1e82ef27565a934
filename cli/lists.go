package cli

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
)

func networkListing() listing[model.NetworkStatus] {
	return listing[model.NetworkStatus]{
		name: "networks", aliases: []string{"network", "nets", "net"}, short: "List the virtual networks",
		example: "  polyplane get networks\n  polyplane get networks -w",
		fetch: func(ctx context.Context, cl Client, _ string) ([]model.NetworkStatus, error) {
			return cl.Networks(ctx)
		},
		pick:  func(d model.Dump) []model.NetworkStatus { return d.Networks },
		key:   func(n model.NetworkStatus) string { return n.Name },
		noise: []string{"AGE", "MODIFIED"},
		head: func(wide bool) []string {
			head := []string{"NETWORK", "PHASE", ">RUNNING", ">LINKS", "NODES", ">AGE"}
			if wide {
				head = append(head, "OWNER", ">STOPPED", ">FAILED", ">REVISION", ">MODIFIED", "MESSAGE")
			}
			return head
		},
		row: func(c *CLI, n model.NetworkStatus, wide bool) []cell {
			row := []cell{text(n.Name), networkPhase(n),
				text(usedOf(strconv.Itoa(n.Running), strconv.Itoa(n.Elements))),
				text(strconv.Itoa(n.Links)), text(nameList(n.Nodes, 4)), text(c.since(n.Created))}
			if wide {
				row = append(row, texts(n.Owner, strconv.Itoa(n.Stopped), strconv.Itoa(n.Failed),
					strconv.FormatInt(n.Revision, 10), c.since(n.Modified), c.told(n.Message))...)
			}
			return row
		},
	}
}

func nodeListing() listing[model.NodeStatus] {
	return listing[model.NodeStatus]{
		name: "nodes", aliases: []string{"node"}, short: "List the substrate's nodes with what is reserved and used",
		example: "  polyplane get nodes -o wide",
		fetch:   func(ctx context.Context, cl Client, _ string) ([]model.NodeStatus, error) { return cl.Nodes(ctx) },
		pick:    func(d model.Dump) []model.NodeStatus { return d.Nodes },
		key:     func(n model.NodeStatus) string { return "node/" + n.Name },
		noise:   []string{"CPU USED", "MEM USED", "DISK FREE", "SEEN"},
		head: func(wide bool) []string {
			head := []string{"NODE", "STATE", ">ELEMENTS", ">PORTS", ">CPU", ">MEMORY", ">CPU USED",
				">MEM USED", "LOCATION"}
			if wide {
				head = append(head, "ADDRESS", ">MTU", "HOOK", "KIND", ">DISK FREE", ">SEEN", "PROCESSOR",
					">IFACES", ">BRIDGES", "PHASES", "OFFERS", "LACKS", "PROBLEM")
			}
			return head
		},
		row: func(c *CLI, n model.NodeStatus, wide bool) []cell {
			row := []cell{text(n.Name), nodeState(n), text(strconv.Itoa(n.Elements)), text(strconv.Itoa(n.Ports)),
				text(usedOf(cores(n.CPUReserved), cores(n.CPU))), text(reservedMemory(n)),
				text(strconv.FormatFloat(n.CPUUsed, 'f', 2, 64)),
				text(byteCount(uint64(n.MemoryUsed))), text(n.Location)}
			if wide {
				up, bridges := interfacesUp(n)
				row = append(row, texts(addressText(n), mtuText(n.MTU), underlayHook(n), nodeKind(n),
					freeDisk(n), c.since(n.LastSeen), processor(n), up, bridges, phases(n), offered(n.Offers),
					lacking(n.Offers), oneLine(n.Problem))...)
			}
			return row
		},
	}
}

// offered lists the values of what a node makes, in the order of its drivers.
func offered(all model.Offers) string {
	var values []string
	for _, o := range all {
		if o.Lacks[o.Driver] != "" {
			continue
		}
		for _, f := range append([]model.Feature{o.Driver}, o.Makes...) {
			if v := f.Value(); f.Field() != model.HookTC.Feature().Field() && !slices.Contains(values, v) {
				values = append(values, v)
			}
		}
	}
	return oneLine(strings.Join(values, ","))
}

// lacking lists what a node lacks. describe tells the reasons.
func lacking(all model.Offers) string { return words(sortedKeys(all.Lacks())) }

func words[T ~string](values []T) string {
	return strings.Join(each.Of(values, func(v T) string { return oneLine(string(v)) }), ", ")
}

// offersTable tells what each driver of a node makes, for which elements, and what it lacks and why.
func offersTable(all model.Offers) table {
	t := table{head: []string{"OFFER", "FOR", "WITH", "LACKS"}}
	for _, o := range all {
		var lacks []string
		for _, f := range sortedKeys(o.Lacks) {
			why := o.Lacks[f]
			if f != o.Driver {
				why = string(f) + ": " + why
			}
			lacks = append(lacks, oneLine(why))
		}
		t.add(texts(oneLine(string(o.Driver)), words(o.Kinds), words(o.Makes), strings.Join(lacks, "; "))...)
	}
	return t
}

// underlayHook is the hook of the node's underlay; empty while no router with forwarding: xdp has tunnels there.
func underlayHook(n model.NodeStatus) string {
	hooks := map[string]bool{}
	for _, use := range n.Underlay {
		hooks[string(use.Hook)] = true
	}
	return strings.Join(sortedKeys(hooks), ", ")
}

func elementListing() listing[model.ElementView] {
	return listing[model.ElementView]{
		name: "elements", aliases: []string{"element", "el"}, short: "List routers, hosts and switches",
		example: "  polyplane get elements lab\n  polyplane get elements -o wide",
		fetch: func(ctx context.Context, cl Client, network string) ([]model.ElementView, error) {
			return cl.Elements(ctx, network)
		},
		pick: func(d model.Dump) []model.ElementView { return d.Elements },
		key:  func(e model.ElementView) string { return e.ID.String() },
		match: func(e model.ElementView, r ref) bool {
			return e.ID.Network == r.network && (r.element == "" || e.ID.Element == r.element)
		},
		head: func(wide bool) []string {
			head := []string{"ELEMENT", "KIND", "PHASE", "NODE", "SOFTWARE", "ADDRESSES"}
			if wide {
				head = append(head, "CONTROL", "FORWARDING", ">CPU", ">MEMORY", ">RESTARTS", "MESSAGE")
			}
			return head
		},
		row: func(c *CLI, e model.ElementView, wide bool) []cell {
			row := []cell{text(e.ID.String()), text(string(e.Element.Kind)),
				elementPhase(&e.ElementStatus), text(e.Node),
				text(string(e.Element.Software)), text(addresses(&e.Element, wide))}
			if wide {
				row = append(row, texts(string(e.Element.Control), string(e.Element.Forwarding), cores(e.Element.CPU),
					memory(e.Element.Memory), strconv.Itoa(e.Restarts), c.told(e.Message))...)
			}
			return row
		},
	}
}

func linkListing() listing[model.LinkStatus] {
	return listing[model.LinkStatus]{
		name: "links", aliases: []string{"link"}, short: "List virtual links, and the substrate paths they take",
		example: "  polyplane get links lab\n  polyplane get links lab/r1 -o wide",
		fetch: func(ctx context.Context, cl Client, network string) ([]model.LinkStatus, error) {
			return cl.Links(ctx, network)
		},
		pick: func(d model.Dump) []model.LinkStatus { return d.Links },
		key:  func(l model.LinkStatus) string { return l.Network + "/" + l.Link.Name },
		match: func(l model.LinkStatus, r ref) bool {
			return l.Network == r.network && (r.element == "" || l.Link.Name == r.element ||
				l.Link.Ends[0].Element == r.element || l.Link.Ends[1].Element == r.element)
		},
		noise: []string{"A→B", "B→A", "DROPPED"},
		head: func(wide bool) []string {
			head := []string{"LINK", "STATE", "A", "B", "PATH", ">BANDWIDTH", "SUBNETS"}
			if wide {
				head = append(head, ">MTU", ">DELAY", ">JITTER", ">LOSS", ">VNI", ">A→B", ">B→A", ">DROPPED")
			}
			return head
		},
		row: func(c *CLI, l model.LinkStatus, wide bool) []cell {
			row := []cell{text(l.Network + "/" + l.Link.Name), linkState(l), text(end(l.Link.Ends[0])),
				text(end(l.Link.Ends[1])),
				text(paths(l.Paths)), text(bandwidth(l.Link.Bandwidth)), text(join(l.Link.Prefixes))}
			if wide {
				ab, ba, dropped := linkTraffic(l)
				row = append(row, texts(mtuText(linkMTU(l.Link)), shortDuration(l.Link.Delay),
					shortDuration(l.Link.Jitter),
					percent(l.Link.Loss), strconv.FormatUint(uint64(l.VNI), 10), byteCount(ab),
					byteCount(ba), count(dropped))...)
			}
			return row
		},
	}
}

func phase(p model.Phase) cell {
	c := cell{text: string(p)}
	switch p {
	case model.PhaseRunning:
		c.style = good
	case model.PhasePending, model.PhaseStarting, model.PhaseHeld, model.PhaseUnknown:
		c.style = warn
	case model.PhaseFailed:
		c.style = bad
	case model.PhaseStopped, model.PhaseSuspended:
		c.style = faint
	}
	return c
}

func networkPhase(n model.NetworkStatus) cell {
	if n.Deleting {
		return cell{"deleting", warn}
	}
	if n.Damaged {
		return cell{"damaged", bad}
	}
	if !n.Provisional.IsZero() {
		return cell{"importing", warn}
	}
	return phase(n.Phase)
}

func nodeState(n model.NodeStatus) cell {
	switch {
	case len(n.Held) > 0:
		return cell{"held", warn}
	case n.Ready && n.Problem == "":
		return cell{"ready", good}
	case n.Ready:
		return cell{"impaired", warn}
	case n.LastSeen.IsZero():
		return cell{"starting", warn}
	case n.Condition == model.Unknown:
		return cell{"unknown", bad}
	}
	return cell{"not ready", bad}
}

func nodeKind(n model.NodeStatus) string {
	if n.Simulated {
		return "simulated"
	}
	return "host"
}

func linkState(l model.LinkStatus) cell {
	if l.LastTold != 0 {
		state := "down"
		switch {
		case l.Up:
			state = "up"
		case l.Link.State == model.LinkDown:
			state = "stopped"
		}
		return cell{state + ", told " + age(time.Duration(l.LastTold)) + " ago", warn}
	}
	switch {
	case l.Up:
		return cell{"up", good}
	case l.Link.State == model.LinkDown:
		return cell{"stopped", faint}
	}
	return cell{"down", bad}
}

func addressText(n model.NodeStatus) string {
	if !n.Address.IsValid() {
		return ""
	}
	return n.Address.String()
}

func mtuText(mtu int) string {
	if mtu == 0 {
		return ""
	}
	return strconv.Itoa(mtu)
}

func memory(v model.Bytes) string {
	if v == 0 {
		return ""
	}
	return byteCount(uint64(v))
}

func reservedMemory(n model.NodeStatus) string {
	return usedOf(byteCount(uint64(n.MemoryReserved)), memory(n.Memory))
}

// freeDisk is how much of the disk with the node's data is free; empty as long as the node has not told.
func freeDisk(n model.NodeStatus) string {
	if n.Disk == 0 {
		return ""
	}
	return usedOf(byteCount(uint64(n.DiskFree)), byteCount(uint64(n.Disk)))
}

func linkMTU(l model.Link) int {
	return cmp.Or(l.MTU, model.DefaultMTU)
}

func end(e model.End) string { return e.Element + ":" + e.Interface }

// addresses are an element's own, the loopback's first; a table for people shows the first few.
func addresses(e *model.ResolvedElement, all bool) string {
	list := each.Of(e.Loopback, func(p netip.Prefix) string { return p.Addr().String() })
	list = append(list, each.Of(interfaceAddresses(e), netip.Prefix.String)...)
	if all {
		return strings.Join(list, ",")
	}
	return nameList(list, 2)
}

// interfaceAddresses are the addresses of an element's interfaces, each with its subnet.
func interfaceAddresses(e *model.ResolvedElement) []netip.Prefix {
	of := func(i model.ResolvedInterface) []netip.Prefix { return i.Addresses }
	return slices.Concat(each.Of(e.Interfaces, of)...)
}

// paths writes "n1 → n2 → n3", and "local" for a link within one node.
func paths(list []model.LinkPath) string {
	if len(list) == 0 {
		return "local"
	}
	return strings.Join(each.Of(list, func(p model.LinkPath) string { return strings.Join(p.Nodes, "→") }), ", ")
}

// linkTraffic returns the bytes that the link's first end sent, that its second end sent, and the packets dropped.
func linkTraffic(l model.LinkStatus) (ab, ba, dropped uint64) {
	for _, p := range l.Ports {
		switch {
		case isEnd(p.ID, l.Link.Ends[0]):
			ab = p.RxBytes
		case isEnd(p.ID, l.Link.Ends[1]):
			ba = p.RxBytes
		}
		dropped += p.Dropped
	}
	return ab, ba, dropped
}

func isEnd(p model.PortID, e model.End) bool {
	return p.Element == e.Element && p.Interface == e.Interface
}

func nameList(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ",")
	}
	return strings.Join(names[:most], ",") + ",+" + strconv.Itoa(len(names)-most)
}

func oneLine(s string) string { return printable(strings.Join(strings.Fields(s), " ")) }

// missingKeys returns, in order, the keys of shown that are not alive any more.
func missingKeys(shown map[string]string, alive map[string]bool) []string {
	return each.That(sortedKeys(shown), func(key string) bool { return !alive[key] })
}

// clock writes a time of the user's day; with the date when that is another day.
func (c *CLI) clock(t time.Time) string {
	now := c.Now()
	t = t.In(now.Location())
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format("15:04:05.000")
	}
	return t.Format("2006-01-02 15:04:05")
}
