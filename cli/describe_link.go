package cli

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
)

func (c *CLI) describeInterface(o output, e *model.ElementView, i *model.ResolvedInterface,
	links []model.LinkStatus) error {
	id := model.PortID{ID: e.ID, Interface: i.Name}
	port, known := portsByID(links)[id]
	if o.format != formatTable {
		view := struct {
			ID        model.PortID             `json:"id"`
			Node      string                   `json:"node"`
			Interface *model.ResolvedInterface `json:"interface"`
			Port      model.PortStatus         `json:"port"`
		}{id, e.Node, i, port}
		return writeValue(c.Out, o.format, view)
	}
	s := &sheet{c: c, w: c.Out}
	state := cell{"unknown", warn}
	if known {
		state = upDown(port.Up)
	}
	s.title("interface "+id.String(), state)
	s.line("Inside", i.Device)
	s.line("MAC", i.MAC)
	s.line("Addresses", join(i.Addresses))
	s.line("MTU", mtuText(i.MTU))
	s.line("Link", i.Link)
	s.line("Edge", i.Edge)
	s.line("VLANs", vlansText(i))
	s.line("VRF", i.VRF)
	s.line("To", farEnd(i))
	for _, l := range links {
		if l.Link.Name == i.Link && l.Network == e.ID.Network {
			s.line("Tunnel", tunnelText(l, e.Node))
		}
	}
	if known {
		s.line("Port", fmt.Sprintf("%s (index %d) on node %s", port.Device, port.Index, e.Node))
		s.line("Sent", fmt.Sprintf("%d packets, %s", port.RxPackets, byteCount(port.RxBytes)))
		s.line("Received", fmt.Sprintf("%d packets, %s", port.TxPackets, byteCount(port.TxBytes)))
		s.line("Dropped", fmt.Sprintf("%d packets", port.Dropped))
		for _, reason := range sortedKeys(port.Drops) {
			s.line("Dropped", fmt.Sprintf("%d of these: %s", port.Drops[reason], reason))
		}
		if port.Copied+port.Uncopied > 0 {
			s.line("Mirror", fmt.Sprintf("%d packets of the link copied, %d beyond the mirror's bandwidth",
				port.Copied, port.Uncopied))
		}
	}
	return s.err
}

// tunnelText tells of a link's tunnel as one node sees it. There is none if both ends are on one node.
func tunnelText(l model.LinkStatus, from string) string {
	for _, p := range l.Paths {
		if a, b := p.Nodes[0], p.Nodes[len(p.Nodes)-1]; a != b {
			if a == from {
				a = b
			}
			return fmt.Sprintf("VNI %d to node %s", l.VNI, a)
		}
	}
	return ""
}

// turnText tells of a link that changes its path what it leaves.
func turnText(t *model.Turn) string {
	switch {
	case t == nil:
		return ""
	case t.Turned:
		return ", in place of " + paths([]model.LinkPath{t.Before[0].LinkPath})
	}
	return ", once its nodes are ready; still on " + paths([]model.LinkPath{t.Before[0].LinkPath})
}

func (c *CLI) describeLink(cmd *cobra.Command, cl Client, o output, l model.LinkStatus) error {
	if o.format != formatTable {
		return writeValue(c.Out, o.format, l)
	}
	s := &sheet{c: c, w: c.Out}
	s.title("link "+l.Network+"/"+l.Link.Name, linkState(l))
	s.line("Ends", end(l.Link.Ends[0])+" -- "+end(l.Link.Ends[1]))
	s.line("Subnets", join(l.Link.Prefixes))
	s.line("Path", paths(l.Paths)+turnText(l.Turn))
	s.line("VNI", strconv.FormatUint(uint64(l.VNI), 10))
	said := l.Link
	said.MTU, said.State = linkMTU(said), "" // the title has the state
	words := map[string]string{"loss": percent(said.Loss)}
	if every, missed, on := said.BFD.Times(); on {
		words["bfd"] = fmt.Sprintf("every %s, %d may be missed", every, missed)
	}
	for _, k := range said.Keys() {
		if !k.Zero(&said) {
			s.line(titled(k.Name), cmp.Or(words[k.Name], k.Text(&said)))
		}
	}
	t := table{head: []string{"END", "STATE", "DEVICE", ">SENT", ">RECEIVED", ">DROPPED"}}
	for _, p := range l.Ports {
		t.add(text(p.ID.Element+":"+p.ID.Interface), upDown(p.Up), text(p.Device),
			text(byteCount(p.RxBytes)), text(byteCount(p.TxBytes)), text(count(p.Dropped)))
	}
	s.table("Ports", t)
	if len(l.Relays) > 0 {
		ends := [2]string{l.Link.Ends[0].Element, l.Link.Ends[1].Element}
		t := table{head: []string{"NODE", ">FROM " + strings.ToUpper(ends[0]), ">FROM " + strings.ToUpper(ends[1]),
			">OVER BANDWIDTH", ">REFUSED", ">LOST"}}
		for _, r := range l.Relays {
			t.add(text(r.Node), text(byteCount(r.Bytes[0])), text(byteCount(r.Bytes[1])),
				text(count(r.Over[0]+r.Over[1])), text(count(r.Foreign)), text(count(r.Lost)))
		}
		s.table("Relays", t)
	}
	s.events(cmd, cl, ref{network: l.Network, element: l.Link.Name})
	return s.err
}

func farEnd(i *model.ResolvedInterface) string {
	if i.Far == nil {
		return ""
	}
	return i.Far.Element + ":" + i.Far.Interface
}

// virtualRouters are those of a switch's segment, or those in which a router takes part.
func virtualRouters(e *model.ResolvedElement) string {
	all := each.Of(e.VRRP, func(v model.VRRP) string { return v.String() })
	for _, f := range e.Interfaces {
		for _, v := range f.VRRP {
			all = append(all, fmt.Sprintf("%s at %s, priority %d", v.Address, f.Name, v.Priority))
		}
	}
	return strings.Join(all, "; ")
}
