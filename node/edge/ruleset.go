package edge

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/model"
)

// MaxConnections is how many connections from inside may be under way through one edge, and how many into forwarded
// ports. It bounds what a network takes of the kernel's memory for connections (about 300 bytes each, in two
// namespaces). The kernel's own limit cannot be set for one namespace.
const MaxConnections = 8192

// The kernel walks through all connections that a rule counts whenever one begins: with 8,192 in one list each new one
// takes 2 to 4 ms. So they are counted in 64 lists, by bits of the source port, and each list has a bound of its own.
// The lowest bit is left out: Linux prefers even source ports for what connects.
const (
	countedPortBits = 0x7e
	countedLists    = 64
	countedEach     = MaxConnections / countedLists
)

// countedSet declares the lists of a set with that name.
func countedSet(name string) string {
	return fmt.Sprintf("set %s { type inet_service; size %d; flags dynamic; }", name, countedLists)
}

// tooMany returns the expression that is true for packets of a connection, of TCP or UDP, beyond the bound.
func tooMany(set string) string {
	return fmt.Sprintf("add @%s { th sport & %d ct count over %d }", set, countedPortBits, countedEach)
}

// The addresses between gateways and the outlet. No destination in the world has them: they are link-local (RFC 3927),
// and a prefix of our own (RFC 4193).
var (
	transit4 = netip.MustParsePrefix("169.254.0.0/16")
	transit6 = netip.MustParsePrefix("fd70:6f6c:7970:6c61::/64")
	outlet4  = netip.MustParseAddr("169.254.0.1")
	outlet6  = netip.MustParseAddr("fe80::1")
)

// transitAddresses returns the addresses of the gateway with that number.
func transitAddresses(number int) (v4, v6 netip.Addr) {
	a, b := transit4.Addr().As4(), transit6.Addr().As16()
	a[2], a[3] = byte(number>>8), byte(number)
	b[14], b[15] = byte(number>>8), byte(number)
	return netip.AddrFrom4(a), netip.AddrFrom16(b)
}

// never4 and never6 are destinations to which an internet edge sends nothing: this host, link-local addresses (the
// metadata services of most clouds are among them), multicast, reserved addresses, and the metadata services that have
// other addresses.
var never4, never6 = []string{"0.0.0.0/8", "127.0.0.0/8", transit4.String(), "224.0.0.0/3",
	"100.100.100.200", // Alibaba Cloud, ECS instance metadata
	"192.0.0.192",     // Oracle Cloud Infrastructure Classic, instance metadata
	"168.63.129.16",   // Azure, WireServer and DNS ("What is IP address 168.63.129.16?")
}, []string{"::/96", "fe80::/10", "ff00::/8", transit6.String(),
	"fd00:ec2::254", // Amazon EC2, "Access instance metadata"
	"fd20:ce::254",  // Google Compute Engine, "Query VM metadata"
}

// gatewayRules returns the rules of a gateway. Its device "in" leads to the network, its device "out" to the outlet.
func gatewayRules(in *model.ResolvedInternet, s *sight) string {
	var b strings.Builder
	line := func(format string, a ...any) { fmt.Fprintf(&b, format+"\n", a...) }
	hosts4, hosts6 := never4, never6
	for _, a := range slices.Concat(s.addresses, s.nodes) {
		if a.Is4() {
			hosts4 = append(hosts4[:len(hosts4):len(hosts4)], a.String())
		} else {
			hosts6 = append(hosts6[:len(hosts6):len(hosts6)], a.String())
		}
	}
	line("set never4 { type ipv4_addr; flags interval; auto-merge; elements = { %s } }", strings.Join(hosts4, ", "))
	line("set never6 { type ipv6_addr; flags interval; auto-merge; elements = { %s } }", strings.Join(hosts6, ", "))
	line(countedSet("inward"))
	line(countedSet("outward"))
	// Drop what comes from an address that the network does not have.
	line("chain spoofed { type filter hook prerouting priority raw;")
	line(`iifname "in" ip6 saddr :: accept`)
	line(`iifname "in" fib saddr . iif oif missing counter drop; }`)
	line("chain input { type filter hook input priority filter; policy drop;")
	line(`iifname "lo" accept`)
	line("ct state established,related accept")
	if known := known(in, true); len(known) > 0 {
		line(`iifname "in" icmpv6 type nd-neighbor-solicit ip6 saddr { %s } accept`, strings.Join(known, ", "))
	}
	line(`iifname "in" icmpv6 type nd-neighbor-solicit limit rate over %s drop`, solicitations)
	line("icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept")
	line(`iifname "in" icmp type echo-request limit rate 1000/second accept`)
	line(`iifname "in" icmpv6 type echo-request limit rate 1000/second accept`)
	line(`iifname "in" limit rate 100/second reject; }`)
	line("chain forward { type filter hook forward priority filter; policy drop;")
	line(`iifname "in" oifname "out" jump leave`)
	line(`iifname "out" oifname "in" ct state established,related accept`)
	line(`iifname "out" oifname "in" ct status dnat %s counter drop`, tooMany("inward"))
	line(`iifname "out" oifname "in" ct status dnat accept; }`)
	line("chain leave {")
	// Other nodes believe what comes from the machine's address to these ports, replies as much as requests.
	line("udp dport { %d, %d } counter drop", model.TunnelPort, model.LinkProbePort)
	line("ct state established,related accept")
	line("ip daddr @never4 limit rate 100/second reject with icmp type admin-prohibited")
	line("ip daddr @never4 drop")
	line("ip6 daddr @never6 limit rate 100/second reject with icmpv6 type admin-prohibited")
	line("ip6 daddr @never6 drop")
	// ICMPv6 is written by its number: nft looks its name up in /etc/protocols, which a minimal Debian lacks.
	line("meta l4proto != { tcp, udp, icmp, 58 } limit rate 100/second reject")
	line("meta l4proto != { tcp, udp, icmp, 58 } drop")
	line("ct state new meta l4proto { tcp, udp } %s counter drop", tooMany("outward"))
	line("ct state new meta l4proto { icmp, 58 } ct count over %d counter drop", countedEach)
	line("ct state new accept; }")
	line(`chain after { type nat hook postrouting priority srcnat; oifname "out" masquerade; }`)
	line("chain before { type nat hook prerouting priority dstnat;")
	for _, f := range in.Forwards {
		for _, a := range in.Targets[f.Element] {
			line(`iifname "out" meta nfproto %s %s dport %d dnat %s to %s`, family(a), f.Network(), f.Port, ip(a),
				netip.AddrPortFrom(a, f.To))
		}
	}
	line("}")
	return b.String()
}

// solicitations bounds how often neighbours that the file does not make known may ask a gateway for its MAC address:
// each that asks is entered into the gateway's table of neighbours.
const solicitations = "200/second burst 500 packets"

// known are the addresses of a gateway's neighbours that the file tells of.
func known(in *model.ResolvedInternet, v6 bool) (all []string) {
	for _, a := range slices.Concat(append([][]netip.Addr{in.Via}, slices.Collect(maps.Values(in.Targets))...)...) {
		if a.Is6() == v6 && slices.ContainsFunc(in.Gateway, func(p netip.Prefix) bool { return p.Contains(a) }) {
			all = append(all, a.String())
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// gatewayARP returns the rules for the ARP that a gateway receives. Only requests enter their senders as neighbours;
// requests of 0.0.0.0 (RFC 5227) are answered without that. Made-up senders in the edge's own subnet are left to the
// rate, and to trim.
func gatewayARP(in *model.ResolvedInternet) string {
	at := slices.IndexFunc(in.Gateway, func(p netip.Prefix) bool { return p.Addr().Is4() })
	if at < 0 {
		return ""
	}
	return fmt.Sprintf(`chain input { type filter hook input priority filter; policy accept;
iifname != "in" accept
arp operation != request accept
arp saddr ip { %s } accept
arp saddr ip != %s drop
limit rate over %s drop; }
`, strings.Join(append(known(in, false), netip.IPv4Unspecified().String()), ", "), in.Gateway[at].Masked(), solicitations)
}

func family(a netip.Addr) string {
	if a.Is4() {
		return "ipv4"
	}
	return "ipv6"
}

func ip(a netip.Addr) string {
	if a.Is4() {
		return "ip"
	}
	return "ip6"
}

// outletRules returns the outlet's own rules. Its device "up" leads to the uplink, all others lead to gateways. No
// gateway reaches another.
func outletRules(s *sight) string {
	var b strings.Builder
	line := func(format string, a ...any) { fmt.Fprintf(&b, format+"\n", a...) }
	line("chain input { type filter hook input priority filter; policy drop;")
	line(`iifname "lo" accept`)
	line("ct state established,related accept")
	line(`iifname != "up" icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept; }`)
	line("chain forward { type filter hook forward priority filter; policy drop;")
	line(`iifname != "up" oifname "up" accept`)
	line(`iifname "up" oifname != "up" ct state established,related accept`)
	line(`iifname "up" oifname != "up" ct status dnat accept; }`)
	line("chain after { type nat hook postrouting priority srcnat;")
	for _, u := range s.uplinks {
		if !u.address.IsValid() {
			continue
		}
		to := u.address.String()
		icmp := "icmp"
		if u.address.Is6() {
			to, icmp = "["+to+"]", "58"
		}
		for _, protocol := range []string{"tcp", "udp", icmp} {
			line(`oifname "up" meta nfproto %s meta l4proto %s snat %s to %s:%d-%d`, family(u.address), protocol,
				ip(u.address), to, s.low, s.high)
		}
	}
	line("}")
	return b.String()
}

// forwardRules returns an edge's own rules in the outlet, where device leads to its gateway. What is too much is
// dropped before it is entered into the outlet's table of connections, since all edges share that table.
func forwardRules(in *model.ResolvedInternet, device string, number int, s *sight) string {
	if len(in.Forwards) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, `%s
chain forward { type filter hook forward priority filter - 1; policy accept;
iifname "up" oifname "%s" ct state new %s counter drop; }
`, countedSet("inward"), device, tooMany("inward"))
	fmt.Fprintln(&b, "chain before { type nat hook prerouting priority dstnat;")
	v4, v6 := transitAddresses(number)
	for _, u := range s.uplinks {
		if !u.address.IsValid() {
			continue
		}
		to := v4
		if u.address.Is6() {
			to = v6
		}
		for _, f := range in.Forwards {
			if f.Address.IsValid() && f.Address != u.address {
				continue
			}
			fmt.Fprintf(&b, "iifname \"up\" %s daddr %s %s dport %d dnat %s to %s\n", ip(u.address), u.address,
				f.Network(), f.Port, ip(u.address), netip.AddrPortFrom(to, f.Port))
		}
	}
	fmt.Fprintln(&b, "}")
	return b.String()
}

// probed and probedUplinks describe an edge that has everything, to try its rules.
func probed() (*model.ResolvedInternet, *sight) {
	return &model.ResolvedInternet{Gateway: []netip.Prefix{netip.MustParsePrefix("192.0.2.2/24"),
		netip.MustParsePrefix("2001:db8::2/64")},
		Internet: model.Internet{Forwards: []model.Forward{{Port: 1, Element: "h", To: 1},
			{Protocol: model.UDP, Port: 1, Element: "h", To: 1}}},
		Targets: map[string][]netip.Addr{"h": {netip.MustParseAddr("192.0.2.1"),
			netip.MustParseAddr("2001:db8::1")}}}, &sight{}
}

func probedUplinks() [2]uplink {
	return [2]uplink{{address: netip.MustParseAddr("192.0.2.1")}, {address: netip.MustParseAddr("2001:db8::1")}}
}
