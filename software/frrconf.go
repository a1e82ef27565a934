package software

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/model"
)

// isisTag names the IS-IS instance inside FRR.
const isisTag = "polyplane"

// spfThrottle says when OSPF computes its paths anew, in milliseconds: 10 after a first change, then not within 200 of
// the last computation. While changes go on, each further wait is 200 longer, up to 10,000. So a wait is at most about
// the square root of 400 times as long as changes have gone on: 1.5 s after 6 s, 4 s after 45 s. Without this all
// routers of a large network that starts would compute most of the time, and write each result to the kernel; on a busy
// machine they would no longer have the time to say hello.
const spfThrottle = "10 200 10000"

// frrConfig generates frr.conf, for FRR 8.4 to 10.
func frrConfig(el model.ResolvedElement) (string, error) {
	// The router as it is in none of its VRFs, and in each of them.
	views, names := []model.ResolvedElement{model.InVRF(el, "")}, append([]string{""}, el.VRFNames()...)
	for _, name := range names[1:] {
		views = append(views, model.InVRF(el, name))
	}
	for k := range views {
		if err := checkIntents(views[k]); err != nil {
			return "", inVRF(names[k], err)
		}
	}
	el = views[0]
	var w writer
	w.line("frr defaults traditional")
	w.line("hostname %s", el.Name)
	// Changes of adjacencies and sessions, warnings, errors: a file that stays small.
	w.line("log file %s notifications", frrLog)
	w.line("service integrated-vtysh-config")
	// While more routes than this wait for the kernel, zebra asks a thousand times a second whether they still wait.
	// With zebra's own limit of 200, the zebras of a large network keep each other from the kernel's lock that they all
	// wait for.
	w.line("zebra dplane limit 10000")
	w.line("!")
	if err := frrStatic(&w, el); err != nil {
		return "", err
	}
	for k, name := range names[1:] {
		if err := frrVRF(&w, views[1+k], name); err != nil {
			return "", inVRF(name, err)
		}
	}
	frrBFD(&w, el)
	for k := range views {
		for _, p := range ports(views[k]) {
			frrInterface(&w, views[k], p)
		}
	}
	for k, name := range names {
		vrf := ""
		if name != "" {
			vrf = " vrf " + name
		}
		if err := frrOSPF(&w, views[k], vrf); err != nil {
			return "", inVRF(name, err)
		}
		if err := frrOSPF6(&w, views[k], vrf); err != nil {
			return "", inVRF(name, err)
		}
	}
	for _, write := range []func(*writer, model.ResolvedElement) error{frrISIS, frrBGP, frrRIP} {
		if err := write(&w, el); err != nil {
			return "", err
		}
	}
	w.line("end")
	return w.String(), nil
}

func inVRF(name string, err error) error {
	if name == "" {
		return err
	}
	return fmt.Errorf("VRF %s: %w", name, err)
}

// frrVRF writes the static routes of a VRF. FRR says each VRF that it finds in its own configuration, so the generated
// one has all of them, whether there are routes or not.
func frrVRF(w *writer, el model.ResolvedElement, name string) error {
	var b writer
	if err := frrStatic(&b, el); err != nil {
		return err
	}
	w.line("vrf %s", name)
	for line := range strings.Lines(b.String()) {
		if line != "!\n" {
			w.WriteString(" " + line)
		}
	}
	w.line("exit-vrf")
	w.line("!")
	return nil
}

// frrStatic writes the static routes, those of gateways among them.
func frrStatic(w *writer, el model.ResolvedElement) error {
	rs := routes(el)
	for _, r := range rs {
		family := "ipv6"
		if r.To.Addr().Is4() {
			family = "ip"
		}
		distance := ""
		if r.Metric != 0 {
			if r.Metric < 1 || r.Metric > 255 {
				return fmt.Errorf("route %s: with frr a metric is an administrative distance, 1…255, not %d", r.To,
					r.Metric)
			}
			distance = fmt.Sprintf(" %d", r.Metric)
		}
		device, err := routeDevice(el, r.Interface)
		if err != nil {
			return fmt.Errorf("route %s: %w", r.To, err)
		}
		var hops []string
		switch r.Type {
		case model.RouteBlackhole:
			hops = []string{"blackhole"}
		case model.RouteUnreachable, model.RouteProhibit:
			hops = []string{"reject"}
		case model.RouteUnicast, "":
			for _, via := range r.Via {
				hop := via.WithZone("").String()
				if device != "" {
					hop += " " + device
				}
				hops = append(hops, hop)
			}
			if len(hops) == 0 && device != "" {
				hops = []string{device}
			}
		}
		if len(hops) == 0 {
			return fmt.Errorf("route %s: it needs a next hop (via), an interface, or a type of blackhole, "+
				"unreachable or "+
				"prohibit", r.To)
		}
		for _, hop := range hops {
			w.line("%s route %s %s%s", family, r.To.Masked(), hop, distance)
		}
	}
	if len(rs) > 0 {
		w.line("!")
	}
	return nil
}

// frrInterface says what the protocols do on one interface.
func frrInterface(w *writer, el model.ResolvedElement, p port) {
	var b writer
	r := el.Routing
	if r.OSPF != nil && p.v4 && p.ospf.Runs() {
		frrOSPFInterface(&b, "ip ospf", r.OSPF, p, p.ospf)
	}
	if r.OSPF6 != nil && (p.v6 || p.pointToPoint) && p.ospf6.Runs() {
		frrOSPFInterface(&b, "ipv6 ospf6", r.OSPF6, p, p.ospf6)
	}
	if r.ISIS != nil && (p.v4 || p.v6) {
		if p.v4 {
			b.line(" ip router isis %s", isisTag)
		}
		if p.v6 {
			b.line(" ipv6 router isis %s", isisTag)
		}
		if p.passive {
			b.line(" isis passive")
		} else {
			hello, multiplier := r.ISIS.Intervals(p.pointToPoint)
			b.line(" isis hello-interval %d", hello)
			b.line(" isis hello-multiplier %d", multiplier)
			b.line(" no isis hello padding")
			frrWatches(&b, "isis", p.bfd)
		}
		if p.pointToPoint {
			b.line(" isis network point-to-point")
		}
		if !p.loopback {
			b.line(" isis metric %d", defaultCost)
		}
	}
	frrVRRP(&b, p)
	if b.Len() > 0 {
		w.line("interface %s", p.device)
		w.WriteString(b.String())
		w.line("exit")
		w.line("!")
	}
}

// frrOSPFInterface says what a version of OSPF does on one interface.
func frrOSPFInterface(b *writer, words string, o *model.OSPF, p port, at *model.OSPFPort) {
	t := o.There(at, p.pointToPoint, p.passive)
	b.line(" %s area %s", words, t.Area)
	if t.Passive {
		b.line(" %s passive", words)
	} else {
		b.line(" %s hello-interval %d", words, t.Hello)
		b.line(" %s dead-interval %d", words, t.Dead)
		b.line(" %s retransmit-interval %d", words, retransmitSeconds)
		frrWatches(b, words, p.bfd)
	}
	if t.PointToPoint { // broadcast is what Ethernet is without a word
		b.line(" %s network point-to-point", words)
	}
	if !p.loopback {
		b.line(" %s cost %d", words, t.Cost)
	}
}

// frrOSPF configures OSPFv2 (RFC 2328); what it does on each interface is frrInterface's.
func frrOSPF(w *writer, el model.ResolvedElement, vrf string) error {
	o := el.Routing.OSPF
	if o == nil {
		return nil
	}
	w.line("router ospf%s", vrf)
	w.line(" ospf router-id %s", el.RouterID)
	// FRR waits 5 s before it tells a change a second time, and peers ignore what comes within 1 s.
	w.line(" timers throttle lsa all 100")
	w.line(" timers lsa min-arrival 50")
	w.line(" timers throttle spf %s", spfThrottle)
	// The fabric enters the addresses of known neighbours by itself. If zebra asks for them, the kernel takes away the
	// mark by which these entries do not count in the neighbour table of the whole machine (NTF_USE in
	// net/core/neighbour.c).
	w.line(" no proactive-arp")
	w.line(" maximum-paths %d", maxPaths)
	if err := frrRedistributes(w, " ", el, o.Redistribute, "ospf", true); err != nil {
		return fmt.Errorf("ospf: %w", err)
	}
	w.line("exit")
	w.line("!")
	return nil
}

// frrOSPF6 configures OSPFv3 (RFC 5340), which carries IPv6 only.
func frrOSPF6(w *writer, el model.ResolvedElement, vrf string) error {
	o := el.Routing.OSPF6
	if o == nil {
		return nil
	}
	w.line("router ospf6%s", vrf)
	w.line(" ospf6 router-id %s", el.RouterID)
	w.line(" timers lsa min-arrival 50")
	w.line(" timers throttle spf %s", spfThrottle)
	w.line(" maximum-paths %d", maxPaths)
	if err := frrRedistributes(w, " ", el, o.Redistribute, "ospf6", false); err != nil {
		return fmt.Errorf("ospf6: %w", err)
	}
	w.line("exit")
	w.line("!")
	return nil
}

// frrRedistributes writes the redistribute lines. If a default route is among static routes, it announces that as well:
// FRR's link-state protocols do so only when told to.
func frrRedistributes(w *writer, indent string, el model.ResolvedElement, words []string, self string, v4 bool) error {
	sources, err := frrRedistribute(words, self, v4)
	if err != nil {
		return err
	}
	for _, s := range sources {
		w.line("%sredistribute %s", indent, s)
	}
	if slices.Contains(sources, "static") && hasDefaultRoute(el, v4) || tellsDefault(el, v4) {
		w.line("%sdefault-information originate", indent)
	}
	return nil
}

// frrISIS configures IS-IS, which carries both families in one instance (RFC 1195, RFC 5308).
func frrISIS(w *writer, el model.ResolvedElement) error {
	i := el.Routing.ISIS
	if i == nil {
		return nil
	}
	w.line("router isis %s", isisTag)
	w.line(" net %s", isisNET(i, el.RouterID))
	w.line(" is-type %s", [3]string{"level-1-2", "level-1", "level-2-only"}[i.Level])
	w.line(" metric-style wide")
	for _, f := range families {
		for level := 1; level <= 2; level++ {
			if tellsDefault(el, f.v4) && (i.Level == 0 || i.Level == level) {
				w.line(" default-information originate %s level-%d", f.channel, level)
			}
		}
	}
	w.line(" lsp-gen-interval 1")
	w.line(" spf-interval 1")
	w.line(" spf-delay-ietf init-delay 10 short-delay 50 long-delay 1000 holddown 2000 time-to-learn 200")
	w.line("exit")
	w.line("!")
	return nil
}

// isisNET is the network entity title: the area, the router ID's twelve decimal digits as system ID, selector 00.
func isisNET(i *model.ISIS, id netip.Addr) string {
	a := cmp.Or(i.Area, "49.0001")
	return a + "." + isisSystem(id) + ".00"
}

// isisSystem is the system ID that goes with a router ID.
func isisSystem(id netip.Addr) string {
	b := id.As4()
	d := fmt.Sprintf("%03d%03d%03d%03d", b[0], b[1], b[2], b[3])
	return d[:4] + "." + d[4:8] + "." + d[8:]
}

// frrBGP configures BGP. Sessions over one link use the addresses on it; others go from loopback to loopback, so that
// they outlive a link.
func frrBGP(w *writer, el model.ResolvedElement) error {
	bgp := el.Routing.BGP
	if bgp == nil {
		return nil
	}
	frrPolicies(w, bgp)
	w.line("router bgp %d", bgp.AS)
	w.line(" bgp router-id %s", el.RouterID)
	w.line(" bgp log-neighbor-changes")
	// A lab's routers speak to each other without policies; FRR would otherwise pass no routes to another AS (RFC
	// 8212).
	w.line(" no bgp ebgp-requires-policy")
	// Each address family says itself which neighbours it is for.
	w.line(" no bgp default ipv4-unicast")
	// What the file wants announced need not be in the routing table.
	w.line(" no bgp network import-check")
	// Paths of equal length through different ASes are used together.
	w.line(" bgp bestpath as-path multipath-relax")
	keepalive, hold := bgp.Intervals()
	w.line(" timers bgp %d %d", keepalive, hold)
	for _, n := range bgp.Neighbors {
		a, err := frrPeer(el, n)
		if err != nil {
			return fmt.Errorf("bgp: %w", err)
		}
		if n.Interface != "" {
			// Without v6only an address of IPv4 on the link would count.
			w.line(" neighbor %s interface v6only remote-as %d", a, n.AS)
		} else {
			w.line(" neighbor %s remote-as %d", a, n.AS)
		}
		if n.Name != "" {
			w.line(" neighbor %s description %s", a, n.Name)
		}
		w.line(" neighbor %s timers connect 1", a)
		w.line(" neighbor %s advertisement-interval 0", a)
		if p, is := watches(el, n); is {
			frrWatches(w, "neighbor "+a, p.bfd)
		}
		if far := n.Address; n.Interface == "" && !onLink(el, far) && !far.IsLinkLocalUnicast() {
			if src := loopbackAddr(el, far.Is4()); src.IsValid() {
				w.line(" neighbor %s update-source %s", a, src)
			}
			if n.AS != bgp.AS {
				w.line(" neighbor %s ebgp-multihop", a)
			}
		}
		if ipv4Too(el, n) {
			w.line(" neighbor %s capability extended-nexthop", a)
		}
	}
	for _, v4 := range []bool{true, false} {
		name := "ipv6"
		if v4 {
			name = "ipv4"
		}
		w.line(" !")
		w.line(" address-family %s unicast", name)
		for _, n := range ofFamily(announced(el), v4) {
			w.line("  network %s", n.Masked())
		}
		for _, n := range bgp.Neighbors {
			if !carries(el, n, v4) {
				continue
			}
			a, _ := frrPeer(el, n)
			w.line("  neighbor %s activate", a)
			if n.AS == bgp.AS {
				w.line("  neighbor %s next-hop-self", a) // not of what is reflected
			}
			if n.Client {
				w.line("  neighbor %s route-reflector-client", a)
			}
			if n.In != "" {
				w.line("  neighbor %s route-map %s in", a, n.In)
			}
			if n.Out != "" {
				w.line("  neighbor %s route-map %s out", a, n.Out)
			}
			if tellsDefault(el, v4) { // whatever the policy says
				w.line("  neighbor %s default-originate", a)
			}
		}
		w.line("  maximum-paths %d", maxPaths)
		w.line("  maximum-paths ibgp %d", maxPaths)
		w.line(" exit-address-family")
	}
	w.line("exit")
	w.line("!")
	frrSource(w, el, true, "ip")
	frrSource(w, el, false, "ipv6")
	return nil
}

// frrPeer is what FRR calls a neighbour: its address, or the device that it is at.
func frrPeer(el model.ResolvedElement, n model.BGPNeighbor) (string, error) {
	if n.Interface != "" {
		return routeDevice(el, n.Interface)
	}
	return n.Address.String(), nil
}

// frrSource makes zebra write the routes of BGP to the kernel with bgpSource.
func frrSource(w *writer, el model.ResolvedElement, v4 bool, family string) {
	src := bgpSource(el, v4)
	if !src.IsValid() {
		return
	}
	w.line("route-map polyplane-%s permit 10", family)
	w.line(" set src %s", src)
	w.line("exit")
	w.line("!")
	w.line("%s protocol bgp route-map polyplane-%s", family, family)
	w.line("!")
}

// frrRIP configures RIP and RIPng, which are one intent but two daemons.
func frrRIP(w *writer, el model.ResolvedElement) error {
	rip := el.Routing.RIP
	if rip == nil {
		return nil
	}
	for _, f := range []struct {
		name string
		v4   bool
	}{{"rip", true}, {"ripng", false}} {
		has := func(p port) bool { return f.v4 && p.v4 || !f.v4 && p.v6 }
		ps := ports(el)
		if !slices.ContainsFunc(ps, has) {
			continue
		}
		w.line("router %s", f.name)
		update, timeout, garbage := rip.Intervals()
		w.line(" timers basic %d %d %d", update, timeout, garbage)
		w.line(" allow-ecmp")
		for _, p := range ps {
			if !has(p) {
				continue
			}
			w.line(" network %s", p.device)
			if p.passive {
				w.line(" passive-interface %s", p.device)
			}
		}
		words := rip.Redistribute
		if !f.v4 && len(el.Loopback) > 0 && !slices.Contains(words, "connected") {
			words = append(slices.Clone(words), "connected") // ripngd leaves lo out, whatever network says
		}
		if err := frrRedistributes(w, " ", el, words, f.name, f.v4); err != nil {
			return fmt.Errorf("rip: %w", err)
		}
		w.line("exit")
		w.line("!")
	}
	return nil
}
