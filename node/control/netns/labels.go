package netns

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
)

// Static label-switched paths are routes of the element's kernel: those that give packets their first label are routes
// of IPv4 and IPv6 with an encapsulation, the others are of the family of labels (the kernel's mpls-sysctl.rst has its
// settings). All bear the driver's mark. They are the driver's in routers with routing software as well.

// wantLabel is a route of packets that come in with a label.
type wantLabel struct {
	in     int
	out    []int
	via    netip.Addr // invalid: the label is taken off, and the packet goes as the other tables say
	device string
}

// addLabels notes what an element's label-switched paths are in its kernel.
func (w *want) addLabels(id model.ID, el *model.NodeElement) error {
	if len(el.MPLS) == 0 {
		return nil
	}
	devices := make(map[string]string, len(w.interfaces)+len(w.vlans))
	for i := range w.devices() {
		devices[i.label] = i.Pair.Name
	}
	for _, p := range el.MPLS {
		device := devices[p.Interface]
		if p.Via != "" && (device == "" || !p.NextHop.IsValid()) {
			return fmt.Errorf("element %s: the label-switched path %s leads by nobody that is known", id, p)
		}
		if p.To.IsValid() {
			first := uint32(0) // before those of routing protocols
			if p.To.Addr().Is6() {
				first = 1
			}
			w.routes = append(w.routes, wantRoute{to: p.To.Masked(), kind: unix.RTN_UNICAST, metric: first,
				via: []netip.Addr{p.NextHop}, device: device, labels: p.Out})
			continue
		}
		device = cmp.Or(device, "lo")
		w.labels = append(w.labels, wantLabel{in: p.In, out: p.Out, via: p.NextHop, device: device})
	}
	w.mpls = true
	return nil
}

// platformLabels says how long an element's table of labels is.
const platformLabels = "mpls/platform_labels"

// labelSettings are those of an element that switches labels, which others are without: how many places its table has
// at least, and from which devices it takes labels. A packet whose label is taken off may have another one below. It
// goes to the element itself by lo, which has to take labels as well.
func (w *want) labelSettings() []setting {
	if !w.mpls || !w.up {
		return nil
	}
	most := model.MinLabel
	for _, l := range w.labels {
		most = max(most, l.in+1)
	}
	s := []setting{{platformLabels, strconv.Itoa(most)}, labelInput("lo")}
	for i := range w.devices() {
		s = append(s, labelInput(i.Pair.Name))
	}
	for _, v := range w.virtuals { // whose address may be a neighbour's next hop
		s = append(s, labelInput(v.device))
	}
	return s
}

func labelInput(device string) setting { return setting{"mpls/conf/" + device + "/input", "1"} }

// takeLabels puts those settings right. Devices that are still to be made have none yet.
func (w *work) takeLabels(sysctl *sysctlReader) error {
	differ, err := sysctl.repair(w.want.labelSettings())
	for _, s := range differ {
		if !w.fresh && !slices.ContainsFunc(w.made, func(i int) bool { // that the pair was made says it all
			return s == labelInput(w.want.interfaces[i].Pair.Name)
		}) {
			w.did(change.SysctlSet, dotted(s.name), s.value)
		}
	}
	return err
}

// presentLabel is a route of this driver's that is there.
type presentLabel struct {
	in    int
	out   []int
	via   netip.Addr
	index int
}

func (l *presentLabel) is(w *wantLabel, in *inside) bool {
	d := in.links[w.device]
	return l.in == w.in && slices.Equal(l.out, w.out) && l.via == w.via && d != nil && d.Index == l.index
}

// readLabels reads the routes of labels that bear the driver's mark.
func (in *inside) readLabels(c *linux.Rtnetlink) error {
	err := linux.Undisturbed(func() error {
		in.labels = in.labels[:0]
		var b linux.Batch
		b.Request(unix.RTM_GETROUTE, 0)
		b.Raw(rtMsg(unix.AF_MPLS, 0, ownProtocol, 0, 0))
		return c.Dump(&b, func(kind uint16, p []byte) error {
			if kind == unix.RTM_NEWROUTE && len(p) >= unix.SizeofRtMsg && p[0] == unix.AF_MPLS && p[5] == ownProtocol {
				in.labels = append(in.labels, parseLabel(p))
			}
			return nil
		})
	})
	if err != nil {
		return fmt.Errorf("read the routes of labels: %w", err)
	}
	return nil
}

func parseLabel(p []byte) (l presentLabel) {
	for kind, v := range linux.Attrs(p[unix.SizeofRtMsg:]) {
		switch kind {
		case unix.RTA_DST:
			if labels := linux.LabelsOf(v); len(labels) == 1 {
				l.in = labels[0]
			}
		case unix.RTA_NEWDST:
			l.out = linux.LabelsOf(v)
		case unix.RTA_OIF:
			l.index = int(linux.Uint32Of(v))
		case unix.RTA_VIA:
			if len(v) > 2 {
				l.via, _ = netip.AddrFromSlice(v[2:])
			}
		}
	}
	return l
}

// planLabels makes the routes of labels as wanted. Those that go are removed first, since a label has one route.
func (in *inside) planLabels(r *repair, w *want) {
	there := make([]bool, len(w.labels))
	wanted := make(map[int]int, len(w.labels)) // each label is there once
	for i := range w.labels {
		wanted[w.labels[i].in] = i
	}
	for i := range in.labels {
		have := &in.labels[i]
		if j, is := wanted[have.in]; is && have.is(&w.labels[j], in) {
			there[j] = true
			continue
		}
		r.request(unix.RTM_DELROUTE, 0, step{doing: fmt.Sprintf("remove the route of label %d", have.in),
			done: change.RouteRemoved.Of(fmt.Sprintf("label %d", have.in)), harmless: unix.ESRCH})
		r.Raw(labelMsg())
		r.Attr(unix.RTA_DST, linux.LabelStack([]int{have.in}))
	}
	for i := range w.labels {
		l := &w.labels[i]
		d := in.links[l.device]
		if there[i] || d == nil {
			continue
		}
		r.request(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE,
			step{doing: fmt.Sprintf("add the route of label %d", l.in),
				done: change.RouteAdded.Of(fmt.Sprintf("label %d", l.in))})
		r.Raw(labelMsg())
		r.Attr(unix.RTA_DST, linux.LabelStack([]int{l.in}))
		if len(l.out) > 0 {
			r.Attr(unix.RTA_NEWDST, linux.LabelStack(l.out))
		}
		if l.via.IsValid() {
			family := uint16(unix.AF_INET)
			if l.via.Is6() {
				family = unix.AF_INET6
			}
			r.Attr(unix.RTA_VIA, append(binary.NativeEndian.AppendUint16(nil, family), l.via.AsSlice()...))
		}
		r.Uint32(unix.RTA_OIF, uint32(d.Index))
	}
}

// labelMsg is the struct rtmsg of a label's route. Labels have 20 bits.
func labelMsg() []byte {
	return []byte{unix.AF_MPLS, 20, 0, 0, unix.RT_TABLE_MAIN, ownProtocol, unix.RT_SCOPE_UNIVERSE, unix.RTN_UNICAST,
		0, 0, 0, 0}
}
