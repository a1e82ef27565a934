package software

import (
	"fmt"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
)

// Where BIRD's files are, inside the element; and values for its configuration.
const (
	birdConf = "/etc/bird/bird.conf"
	birdLog  = "/var/log/bird/bird.log"
	// birdRetransmit, in seconds, is the least that BIRD takes. A router that begins anew asks its neighbour for what
	// it announced before, if the neighbour still holds that. With BIRD's default of 5 s it asked the second time just
	// when it may announce something new as well, and then left the neighbour out of what it announced: both said Full,
	// and neither had routes of the other.
	birdRetransmit = 2
	// staticPreference is BIRD's own default of static routes; a route's metric lowers it.
	staticPreference = 200
)

// birdCapabilities are the capabilities that BIRD needs, among others to open raw sockets and low ports, to write
// routes, and to become the user bird.
var birdCapabilities = []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_KILL", "CAP_NET_ADMIN",
	"CAP_NET_BIND_SERVICE", "CAP_NET_RAW", "CAP_SETGID", "CAP_SETUID"}

// renderBIRD plans an element with BIRD. A bird.conf of the user's own is taken as it is.
func renderBIRD(el model.ResolvedElement) (Plan, error) {
	if len(el.VRFs) > 0 {
		return Plan{}, fmt.Errorf("with bird there are no VRFs here: set software to %s or %s", model.SoftwareFRR,
			model.SoftwareStatic)
	}
	if err := checkConfigNames(el.Config, model.SoftwareBIRD); err != nil {
		return Plan{}, err
	}
	conf, own := el.Config["bird.conf"]
	if !own {
		var err error
		if conf, err = birdConfig(el); err != nil {
			return Plan{}, err
		}
	}
	var check []string
	if own {
		check = []string{"/usr/sbin/bird", "-p", "-c", birdConf}
	}
	return Plan{
		NeedsProcesses: true,
		Check:          check,
		Dirs: []Dir{
			{Path: "/etc/bird", Mode: 0o755, Owner: "root", Group: "root"},
			{Path: "/var/log/bird", Mode: 0o755, Owner: "root", Group: "root"},
		},
		Files:        []File{{Path: birdConf, Content: conf, Mode: 0o644, Owner: "root", Group: "root"}},
		ConfigFiles:  []string{birdConf},
		Daemons:      []string{"bird"},
		Programs:     []Program{superviseProgram},
		Command:      []string{superviseProgram.Path, "bird", "start"},
		Reload:       []string{superviseProgram.Path, "bird", "reload"},
		Console:      []string{"/usr/sbin/birdc"},
		Capabilities: slices.Clone(birdCapabilities),
		LogFiles:     []string{birdLog},
	}, nil
}

// birdConfig generates bird.conf, for BIRD 2.0.12 and later.
func birdConfig(el model.ResolvedElement) (string, error) {
	if el.Routing.ISIS != nil {
		return "", fmt.Errorf("bird has no IS-IS: set software to frr, or use ospf and ospf6")
	}
	if err := checkIntents(el); err != nil {
		return "", err
	}
	var w writer
	w.line("# %s", el.Name)
	w.line("log %q 1048576 %q { info, warning, error, fatal, bug, auth };", birdLog, birdLog+".1")
	if id := birdRouterID(el); id.IsValid() {
		w.line("router id %s;", id)
	}
	w.line("")
	// The kernel tells of devices and addresses that change. To list all of them, BIRD waits for the kernel's lock of
	// network configuration (rtnl) and sends nothing meanwhile. Neighbours that hear nothing from it for 4 s think that
	// it is dead. So the list is made rarely.
	w.line("protocol device { scan time 60; }")
	w.line("protocol direct { ipv4; ipv6; }")
	for _, f := range families {
		w.line("protocol kernel kernel%d {", f.n)
		// Connected routes are the kernel's already; what only BGP announces never gets there.
		export := fmt.Sprintf("where source != RTS_DEVICE && proto != \"announced%d\"", f.n)
		if src := bgpSource(el, f.n == 4); src.IsValid() {
			export = fmt.Sprintf("filter { if source = RTS_DEVICE || proto = \"announced%d\" then reject; "+
				"if source = RTS_BGP then krt_prefsrc = %s; accept; }", f.n, src)
		}
		w.line("\t%s { export %s; };", f.channel, export)
		w.line("\tmerge paths yes limit %d;", maxPaths)
		w.line("\tscan time 20;")
		w.line("}")
	}
	w.line("")
	for _, write := range []func(*writer, model.ResolvedElement) error{birdStatic, birdBFD, birdOSPF, birdBGP,
		birdRIP} {
		if err := write(&w, el); err != nil {
			return "", err
		}
	}
	return w.String(), nil
}

// birdRouterID is the router ID that BIRD is given, if it needs one. Without it BIRD takes an IPv4 address of one of
// its interfaces, and ends if there is none. Then no protocol has a use for the number; it must only be the same at
// each start.
func birdRouterID(el model.ResolvedElement) netip.Addr {
	if el.RouterID.Is4() {
		return el.RouterID
	}
	addresses := slices.Clone(el.Loopback)
	for _, f := range el.Interfaces {
		addresses = append(addresses, f.Addresses...)
	}
	if slices.ContainsFunc(addresses, func(p netip.Prefix) bool { return p.Addr().Is4() }) {
		return netip.Addr{}
	}
	h := fnv.New32a()
	h.Write([]byte(el.Name))
	id := [4]byte{10}
	copy(id[1:], h.Sum(nil))
	return netip.AddrFrom4(id)
}

type family struct {
	n       int
	v4      bool
	channel string
}

var families = []family{{4, true, "ipv4"}, {6, false, "ipv6"}}

// birdSources are BIRD's route sources for the words of an intent.
var birdSources = map[string][]string{
	"connected": {"RTS_DEVICE"}, "static": {"RTS_STATIC"}, "bgp": {"RTS_BGP"}, "rip": {"RTS_RIP"},
	"ospf":  {"RTS_OSPF", "RTS_OSPF_IA", "RTS_OSPF_EXT1", "RTS_OSPF_EXT2"},
	"ospf6": {"RTS_OSPF", "RTS_OSPF_IA", "RTS_OSPF_EXT1", "RTS_OSPF_EXT2"},
}

// birdExport returns a channel's export filter: it passes the redistributed sources and more.
func birdExport(words []string, self []string, more ...string) (string, error) {
	sources := more
	for _, w := range words {
		s, ok := birdSources[w]
		if !ok {
			return "", fmt.Errorf("bird cannot redistribute %q; it knows %s", w,
				strings.Join(slices.Sorted(maps.Keys(birdSources)), ", "))
		}
		if slices.Contains(self, w) {
			return "", fmt.Errorf("%s cannot redistribute itself", w)
		}
		for _, name := range s {
			if !slices.Contains(sources, name) {
				sources = append(sources, name)
			}
		}
	}
	if len(sources) == 0 {
		return "export none", nil
	}
	return "export where source ~ [" + strings.Join(sources, ", ") + "]", nil
}

// birdDefault returns a channel's export filter that also passes the default route, where it is to be told.
func birdDefault(el model.ResolvedElement, f family, export string) string {
	switch {
	case !tellsDefault(el, f.v4):
		return export
	case export == "export none":
		return "export where net = " + f.everything()
	}
	return export + " || net = " + f.everything()
}

// everything is the destination of the family's default route.
func (f family) everything() string {
	if f.v4 {
		return "0.0.0.0/0"
	}
	return "::/0"
}

// birdStatic writes a static protocol for each family and metric. BIRD chooses by preference, which belongs to a
// protocol, not to a route.
func birdStatic(w *writer, el model.ResolvedElement) error {
	groups := map[[2]int][]string{}
	for _, r := range routes(el) {
		if r.Metric < 0 || r.Metric >= staticPreference {
			return fmt.Errorf("route %s: with bird a metric lowers the preference, 0…%d, not %d",
				r.To, staticPreference-1, r.Metric)
		}
		n := 6
		if r.To.Addr().Is4() {
			n = 4
		}
		target, err := birdTarget(el, r)
		if err != nil {
			return fmt.Errorf("route %s: %w", r.To, err)
		}
		key := [2]int{n, r.Metric}
		groups[key] = append(groups[key], fmt.Sprintf("route %s %s;", r.To.Masked(), target))
	}
	for _, key := range slices.SortedFunc(maps.Keys(groups),
		func(a, b [2]int) int { return slices.Compare(a[:], b[:]) }) {
		w.line("protocol static static%d_%d {", key[0], key[1])
		w.line("\tipv%d { preference %d; };", key[0], staticPreference-key[1])
		for _, line := range groups[key] {
			w.line("\t%s", line)
		}
		w.line("}")
	}
	return nil
}

// birdTarget writes where a static route leads, in BIRD's words.
func birdTarget(el model.ResolvedElement, r model.Route) (string, error) {
	device, err := routeDevice(el, r.Interface)
	if err != nil {
		return "", err
	}
	switch r.Type {
	case model.RouteBlackhole, model.RouteUnreachable, model.RouteProhibit:
		return string(r.Type), nil
	}
	var hops []string
	for _, via := range r.Via {
		hop := "via " + via.WithZone("").String()
		if via.IsLinkLocalUnicast() && device != "" {
			hop += "%'" + device + "'"
		}
		hops = append(hops, hop)
	}
	switch {
	case len(hops) > 0:
		return strings.Join(hops, " "), nil
	case device != "":
		return "via " + strconv.Quote(device), nil
	}
	return "", fmt.Errorf("it needs a next hop (via), an interface, or a type of blackhole, unreachable or prohibit")
}

// birdOSPF configures OSPFv2 and OSPFv3.
func birdOSPF(w *writer, el model.ResolvedElement) error {
	for _, v := range []struct {
		family
		o     *model.OSPF
		proto string
		self  []string
	}{
		{families[0], el.Routing.OSPF, "ospf v2 ospfv2", []string{"ospf"}},
		{families[1], el.Routing.OSPF6, "ospf v3 ospfv3", []string{"ospf", "ospf6"}},
	} {
		if v.o == nil {
			continue
		}
		export, err := birdExport(v.o.Redistribute, v.self)
		if err != nil {
			return fmt.Errorf("%s: %w", v.self[len(v.self)-1], err)
		}
		w.line("protocol %s {", v.proto)
		w.line("\t%s { import all; %s; };", v.channel, birdDefault(el, v.family, export))
		w.line("\tecmp yes limit %d;", maxPaths)
		w.line("\ttick 1;")
		for _, name := range birdAreas(el, v.o, v.v4) {
			w.line("\tarea %s {", name)
			for _, p := range ports(el) {
				birdOSPFInterface(w, v.o, p, v.v4, name)
			}
			w.line("\t};")
		}
		w.line("}")
	}
	return nil
}

// portOf is what a port says of a version of OSPF.
func portOf(p port, v4 bool) *model.OSPFPort {
	if v4 {
		return p.ospf
	}
	return p.ospf6
}

// speaksThere tells whether a version of OSPF runs at a port: that of IPv6 needs no address on links between routers.
func speaksThere(p port, v4 bool) bool {
	return portOf(p, v4).Runs() && (v4 && p.v4 || !v4 && (p.v6 || p.pointToPoint))
}

// birdAreas are the areas that a router is in, its own one first.
func birdAreas(el model.ResolvedElement, o *model.OSPF, v4 bool) []string {
	all := []string{area(o)}
	for _, p := range ports(el) {
		a := o.There(portOf(p, v4), p.pointToPoint, p.passive).Area
		if speaksThere(p, v4) && !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	return all
}

// birdOSPFInterface says what a version of OSPF does on one interface, if that is in the area.
func birdOSPFInterface(w *writer, o *model.OSPF, p port, v4 bool, area string) {
	t := o.There(portOf(p, v4), p.pointToPoint, p.passive)
	if t.Area != area || !speaksThere(p, v4) {
		return
	}
	bfd := ""
	if p.bfd != "" {
		bfd = " bfd yes;"
	}
	switch {
	case p.loopback && v4:
		w.line("\t\tinterface %q { stub; };", p.device)
	case p.loopback: // OSPFv3 wants a link-local address, and lo has none
		for _, a := range ofFamily(p.prefixes, false) {
			w.line("\t\tstubnet %s { cost 0; };", a.Masked())
		}
	case t.Passive:
		w.line("\t\tinterface %q { stub; cost %d; };", p.device, t.Cost)
	case t.PointToPoint:
		w.line("\t\tinterface %q { type ptp; cost %d; hello %d; dead %d; retransmit %d;%s };",
			p.device, t.Cost, t.Hello, t.Dead, birdRetransmit, bfd)
	default:
		w.line("\t\tinterface %q { type broadcast; cost %d; hello %d; dead %d; wait %d; retransmit %d;%s };",
			p.device, t.Cost, t.Hello, t.Dead, t.Dead, birdRetransmit, bfd)
	}
}

// birdBGP configures BGP, as frrBGP does for FRR.
func birdBGP(w *writer, el model.ResolvedElement) error {
	bgp := el.Routing.BGP
	if bgp == nil {
		return nil
	}
	// What the file wants announced need not be reachable. An entry of the least preference stands for it.
	for _, f := range families {
		nets := ofFamily(bgp.Networks, f.v4)
		if len(nets) == 0 {
			continue
		}
		w.line("protocol static announced%d {", f.n)
		w.line("\t%s { preference 1; };", f.channel)
		for _, n := range nets {
			w.line("\troute %s unreachable;", n.Masked())
		}
		w.line("}")
	}
	nets := announced(el)
	reflects := slices.ContainsFunc(bgp.Neighbors, func(n model.BGPNeighbor) bool { return n.Client })
	birdPolicies(w, bgp)
	if err := birdTellsOfItself(w, el); err != nil {
		return fmt.Errorf("bgp: %w", err)
	}
	for i, n := range bgp.Neighbors {
		if !n.Address.IsValid() {
			return fmt.Errorf("bgp: bird must know the address of the neighbour at %s", n.Interface)
		}
		w.line("protocol bgp bgp%d {", i+1)
		if n.Name != "" {
			w.line("\tdescription %q;", n.Name)
		}
		w.line("\tlocal as %d;", bgp.AS)
		w.line("\tneighbor %s as %d;", birdNeighbor(n.Address), n.AS)
		switch {
		case onLink(el, n.Address), n.Address.IsLinkLocalUnicast():
			w.line("\tdirect;")
		default:
			w.line("\tmultihop;")
			if src := loopbackAddr(el, n.Address.Is4()); src.IsValid() {
				w.line("\tsource address %s;", src)
			}
		}
		if n.Client {
			w.line("\trr client;")
		}
		if _, is := watches(el, n); is {
			w.line("\tbfd yes;")
		}
		keepalive, hold := bgp.Intervals()
		w.line("\thold time %d; keepalive time %d;", hold, keepalive)
		w.line("\tconnect delay time 1; connect retry time 1; error wait time 1, 5;")
		for _, f := range families {
			if !carries(el, n, f.v4) {
				continue
			}
			export := "source = RTS_BGP"
			if set := ofFamily(nets, f.v4); len(set) > 0 {
				export += " || net ~ [" + joinPrefixes(set) + "]"
			}
			imports := "all"
			if n.In != "" {
				imports = "where " + birdPolicy(n.In, f) + "()"
			}
			if n.Out != "" {
				export = "(" + export + ") && " + birdPolicy(n.Out, f) + "()"
			}
			if tellsDefault(el, f.v4) { // whatever the policy says
				export += " || net = " + f.everything()
			}
			more := ""
			switch {
			case n.AS != bgp.AS:
			case reflects: // what is reflected keeps its next hop
				more += " next hop self ebgp;"
			default:
				more += " next hop self;"
			}
			// A reflector's next hop is on no link of its client: another protocol leads to it.
			igp := el.Routing.OSPF != nil || el.Routing.OSPF6 != nil || el.Routing.RIP != nil
			if igp && n.AS == bgp.AS && n.Interface == "" {
				more += " gateway recursive;"
			}
			if f.v4 && !n.Address.Is4() {
				more += " extended next hop yes;"
			}
			w.line("\t%s { import %s; export where %s;%s };", f.channel, imports, export, more)
		}
		w.line("}")
	}
	return nil
}

// birdTellsOfItself has BIRD send router advertisements where a neighbour is known by its interface: FRR learns from
// them whom it speaks to there. Nobody takes a default route from them.
func birdTellsOfItself(w *writer, el model.ResolvedElement) error {
	var devices []string
	for _, n := range el.Routing.BGP.Neighbors {
		device, err := routeDevice(el, n.Interface)
		if err != nil {
			return err
		}
		if device != "" && !slices.Contains(devices, device) {
			devices = append(devices, device)
		}
	}
	if len(devices) == 0 {
		return nil
	}
	w.line("protocol radv {")
	for _, device := range devices {
		w.line("\tinterface %q { min ra interval 3; max ra interval 4; default lifetime 0; };", device)
	}
	w.line("}")
	return nil
}

// birdNeighbor names a link-local neighbour with its interface, which it must be on.
func birdNeighbor(a netip.Addr) string {
	if a.Zone() != "" {
		return a.WithZone("").String() + "%'" + a.Zone() + "'"
	}
	return a.String()
}

func joinPrefixes(ps []netip.Prefix) string {
	return strings.Join(each.Of(ps, func(p netip.Prefix) string { return p.Masked().String() }), ", ")
}

// birdRIP configures RIP and RIPng.
func birdRIP(w *writer, el model.ResolvedElement) error {
	rip := el.Routing.RIP
	if rip == nil {
		return nil
	}
	ps := ports(el)
	for _, f := range families {
		has := func(p port) bool { return f.v4 && p.v4 || !f.v4 && p.v6 }
		if !slices.ContainsFunc(ps, has) {
			continue
		}
		proto, version := "rip ripv2", "version 2; "
		if !f.v4 {
			proto, version = "rip ng ripng1", ""
		}
		// FRR's RIP announces its interfaces' subnets by itself; BIRD's takes them from the routing table.
		export, err := birdExport(rip.Redistribute, []string{"rip"}, "RTS_DEVICE", "RTS_RIP")
		if err != nil {
			return fmt.Errorf("rip: %w", err)
		}
		w.line("protocol %s {", proto)
		w.line("\t%s { import all; %s; };", f.channel, birdDefault(el, f, export))
		w.line("\tecmp yes limit %d;", maxPaths)
		for _, p := range ps {
			if has(p) && !p.passive {
				update, timeout, garbage := rip.Intervals()
				w.line("\tinterface %q { %supdate time %d; timeout time %d; garbage time %d; };", p.device, version,
					update, timeout, garbage)
			}
		}
		w.line("}")
	}
	return nil
}
