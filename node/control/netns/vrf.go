package netns

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
)

// A VRF is a device with a table of its own; the interfaces that are in it are below it (the kernel's vrf.rst). A rule
// with priority 1000, which the kernel makes with the first VRF, has packets of these interfaces, and of sockets that
// are bound to the device, looked up in the VRF's table. Two things are the driver's to add:
//
//   - The rule for the table of local addresses comes first by default, whatever VRF a packet is in. A packet in a VRF
//     to an address that the router has in no VRF would end at the router. So that rule moves behind that for VRFs.
//   - What the VRF's table does not know would be looked up in the tables after it, and leave the VRF. So each VRF has
//     a last route that leads nowhere.
//
// A VRF's table gets its number when its device is made: the first free one from firstTable on. Nobody else has to know
// it: routing software and `ip` take the name.

const (
	// vrfGroup marks the VRFs that this driver made, as vlanGroup does the devices of VLANs.
	vrfGroup   = 0x706f6c72
	firstTable = 1001
	leastTable = 256 // those below have meanings of their own, or one byte's place

	ruleOfVRFs = 1000  // the kernel's own
	localFirst = 0     // where the kernel has the rule for local addresses
	localLast  = 32765 // before that for the main table
	// lastMetric is the metric of a VRF's last route. FRR takes its first byte for the distance 255, by which it uses
	// any other one.
	lastMetric = 0xff002000
)

// wantVRF is a wanted VRF: what is in it is told by the interfaces.
type wantVRF struct{ name string }

// addVRFs notes an element's VRFs, and what routes they have.
func (w *want) addVRFs(id model.ID, el *model.NodeElement) error {
	for _, name := range el.VRFNames() {
		if w.hasDevice(name) {
			return fmt.Errorf("element %s has two devices that are called %q: give the VRF another name", id, name)
		}
		w.vrfs = append(w.vrfs, wantVRF{name})
		for _, any := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
			w.routes = append(w.routes, wantRoute{to: netip.PrefixFrom(any, 0), kind: unix.RTN_UNREACHABLE,
				metric: lastMetric, vrf: name})
		}
		if !w.ownRoutes {
			continue
		}
		v := el.VRFs[name]
		routes, err := wantRoutes(id, el, v.Gateways, v.Routes)
		if err != nil {
			return err
		}
		for _, r := range routes {
			r.vrf = name
			w.routes = append(w.routes, r)
		}
	}
	return nil
}

// tableOf is the number of a VRF's table, with "" that of the main one; 0 if there is no such VRF.
func (in *inside) tableOf(vrf string) uint32 {
	if vrf == "" {
		return unix.RT_TABLE_MAIN
	}
	if l := in.links[vrf]; l != nil {
		return l.VRF
	}
	return 0
}

// isVRF tells whether a device is a VRF that was made by this driver.
func isVRF(l *link) bool { return l.VRF != 0 && l.Group == vrfGroup }

// readRules reads the rules, if they are this driver's business: those of elements that have or had VRFs.
func (in *inside) readRules(c *linux.Rtnetlink, w *want) error {
	had := false
	for _, l := range in.links {
		had = had || isVRF(l)
	}
	if in.rules = nil; len(w.vrfs) == 0 && !had {
		return nil
	}
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		var rules []linux.Rule
		err := linux.Undisturbed(func() (err error) {
			rules, err = linux.Rules(c, family)
			return err
		})
		if err != nil {
			return fmt.Errorf("read the rules for tables: %w", err)
		}
		in.rules = append(in.rules, rules...)
	}
	return nil
}

// planRules has the rule for local addresses behind that for VRFs, or puts both back where there are no VRFs any more.
func (in *inside) planRules(r *repair, w *want) {
	if len(w.vrfs) == 0 && len(in.rules) == 0 {
		return
	}
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		local := linux.Rule{Family: family, Table: unix.RT_TABLE_LOCAL, Protocol: ownProtocol}
		vrfs := linux.Rule{Family: family, Priority: ruleOfVRFs, VRFs: true, Protocol: ownProtocol}
		has := func(priority uint32, is func(linux.Rule) bool) bool {
			return slices.ContainsFunc(in.rules, func(x linux.Rule) bool {
				return x.Family == family && x.Priority == priority && is(x)
			})
		}
		isLocal := func(x linux.Rule) bool { return !x.VRFs && x.Table == unix.RT_TABLE_LOCAL }
		first, last := has(localFirst, isLocal), has(localLast, isLocal)
		there := has(ruleOfVRFs, func(x linux.Rule) bool { return x.VRFs })
		set := func(add bool, rule linux.Rule, words string) {
			doing, kind, flags, harmless := "add "+words, uint16(unix.RTM_NEWRULE), uint16(unix.NLM_F_CREATE|
				unix.NLM_F_EXCL), unix.EEXIST
			if !add {
				doing, kind, flags, harmless = "remove "+words, unix.RTM_DELRULE, 0, unix.ENOENT
			}
			r.request(kind, flags, step{doing: doing, harmless: harmless})
			if !add {
				rule.Protocol = 0 // whoever made it
			}
			r.Rule(rule)
		}
		on := len(w.vrfs) > 0
		if on && !there {
			set(true, vrfs, "the rule for VRFs")
		}
		for _, x := range in.rules {
			if !on && x.Family == family && x.Priority == ruleOfVRFs && x.VRFs {
				set(false, vrfs, "the rule for VRFs")
			}
		}
		// The new one before the old one goes: without any, no local address would be known.
		for _, add := range []bool{true, false} {
			for _, at := range []struct {
				priority uint32
				is, want bool
			}{{localLast, last, on}, {localFirst, first, !on}} {
				if local.Priority, local.Protocol = at.priority, ownProtocol; at.priority == localFirst {
					local.Protocol = unix.RTPROT_KERNEL // as the kernel made it
				}
				if at.is != at.want && at.want == add {
					set(add, local, "the rule for local addresses")
				}
			}
		}
	}
}

// planVRFs plans what is to be done of the devices of VRFs, and of what is in them.
func (in *inside) planVRFs(r *repair, w *want) {
	if w.kind != model.Router {
		return
	}
	wanted, tables := map[string]bool{}, map[uint32]bool{}
	remove := func(l *link) {
		r.request(unix.RTM_DELLINK, 0, step{doing: "remove the device " + l.Name,
			done: change.DeviceRemoved.Of(l.Name), harmless: unix.ENODEV})
		r.Link(l.Index, 0, 0)
	}
	for _, v := range w.vrfs {
		wanted[v.name] = true
	}
	for name, l := range in.links {
		if isVRF(l) && !wanted[name] {
			remove(l)
		} else if l.VRF != 0 && !wanted[name] {
			tables[l.VRF] = true // somebody's own
		}
	}
	var missing []string
	for _, v := range w.vrfs {
		l := in.links[v.name]
		if l != nil && (l.VRF < leastTable || tables[l.VRF]) {
			remove(l)
			l = nil
		}
		if l == nil {
			missing = append(missing, v.name)
			continue
		}
		tables[l.VRF] = true
		if w.up != l.Up() {
			flags, doing := uint32(unix.IFF_UP), "take the VRF "+v.name+" up"
			if !w.up {
				flags, doing = 0, "take the VRF "+v.name+" down"
			}
			r.request(unix.RTM_SETLINK, 0, step{doing: doing})
			r.Link(l.Index, flags, unix.IFF_UP)
		}
	}
	if len(missing) == 0 { // else the kernel may be about to make a rule of its own
		in.planRules(r, w)
	}
	for _, name := range missing {
		table := uint32(firstTable)
		for tables[table] && table < math.MaxUint32 {
			table++
		}
		tables[table] = true
		r.request(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, step{doing: "make the VRF " + name,
			done: change.VRFMade.Of(name)})
		r.VRF(name, table, vrfGroup)
	}
	for ifc := range w.devices() {
		l := in.links[ifc.Pair.Name]
		if l == nil {
			continue
		}
		master, words := 0, "take "+ifc.Pair.Name+" out of its VRF"
		done := change.VRFLeft.Of(ifc.label)
		switch v := in.links[ifc.vrf]; {
		case ifc.vrf == "":
			if l.Master == 0 {
				continue
			}
			if of := in.byIndex(l.Master); of == nil || !isVRF(of) {
				continue // somebody has put it into a device of his own
			}
		case v == nil || slices.Contains(missing, ifc.vrf):
			continue // it is made first
		default:
			master, words = v.Index, "put "+ifc.Pair.Name+" into the VRF "+ifc.vrf
			done = change.VRFEntered.Of(ifc.label, ifc.vrf)
		}
		if l.Master != master {
			r.request(unix.RTM_SETLINK, 0, step{doing: words, done: done, device: ifc.Pair.Name})
			r.Link(l.Index, 0, 0)
			r.Uint32(unix.IFLA_MASTER, uint32(master))
		}
	}
}

// makeVRFs makes VRFs as they are wanted, and has interfaces in them. It returns whether that has changed anything: the
// kernel forgets routes and neighbours of an interface that enters or leaves one.
func (in *inside) makeVRFs(c *linux.Rtnetlink, w *work) (changed bool, err error) {
	for range 3 { // what is made has to be seen before something is put into it
		if err := in.readRules(c, w.want); err != nil {
			return changed, err
		}
		var r repair
		if in.planVRFs(&r, w.want); r.Len() == 0 {
			return changed, nil
		}
		changed = true
		for _, i := range w.made {
			r.hush(w.want.interfaces[i].Pair.Name)
		}
		done, err := r.do(c)
		if !w.fresh {
			w.result.Changed = append(w.result.Changed, done...)
		}
		if err != nil {
			return changed, err
		}
		links, err := readLinks(c, w.want)
		if err != nil {
			return changed, err
		}
		in.takeOver(links)
	}
	return changed, nil
}

// takeOver takes what may have become of devices. One that is to be renamed has its new name already.
func (in *inside) takeOver(now map[string]*link) {
	byIndex := make(map[int]*link, len(now))
	for _, l := range now {
		byIndex[l.Index] = l
	}
	for name, l := range in.links {
		is := byIndex[l.Index]
		if is == nil {
			delete(in.links, name)
			continue
		}
		l.Master, l.VRF = is.Master, is.VRF
		if !l.raise {
			l.Flags = is.Flags
		}
		delete(byIndex, l.Index)
	}
	for _, l := range byIndex {
		in.links[l.Name] = cmp.Or(in.links[l.Name], l)
	}
}
