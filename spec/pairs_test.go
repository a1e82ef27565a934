package spec

import (
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// right is a document in which each mistake below is one small edit.
const right = `network: lab
owner: ann
pools: [10.0.0.0/8, fd00:10::/48]
slice: {mode: strict, bandwidth: 1Gbit, packets: 100000, cpu: 8, memory: 8GiB, tables: 8MiB, nexthops: 1024}
policy: {attack: tell}
defaults:
  routers: {cpu: 0.1, memory: 128MiB, forwarding: guest}
  hosts: {cpu: 0.1, memory: 64MiB}
  switches: {cpu: 0.1, memory: 64MiB}
  links: {delay: 1ms, mtu: 1500}
routers:
  r1: {ospf: {area: 0, cost: 10, hello: 5s, dead: 20s}, loopback: 10.255.0.1, router-id: 10.255.0.1}
  r2: {bgp: {as: 65001, networks: [10.9.0.0/16], neighbors: [{address: 10.1.0.2, as: 65002}, {address: 10.1.0.6, as: 65003, in: p}],
    prefix-lists: {ours: 10.9.0.0/16 le 24}, policies: {p: [{match: {prefixes: ours}, set: {med: 1}}, {set: {prepend: 1}}]}}, forwarding: xdp}
  r3: {software: bird, config: {bird.conf: "router id 1.2.3.4;"}, memory: 32MiB, node: n1}
  r4: {software: static, interfaces: {up: 10.4.0.2/24}, gateway: 10.4.0.1, routes: [10.7.0.0/16 via 10.4.0.9]}
  r5: {memory: 64MiB, isis: {level: 2}, rip: {update: 10s, timeout: 30s}, hook: tc}
  r6:
    control: netns
    memory: 40MiB
    ospf: {}
  r11: {ospf: {}, interfaces: {r1: {ospf: {area: 7, cost: 5, dead: 30s, passive: false, network: broadcast}}}}
  r12: {mpls: [{in: 100, via: s3h}, {to: 10.5.0.0/16, push: 300, via: 10.3.0.9}, {in: 101, out: 200, via: 10.3.0.9}, {in: 102}]}
  r13: {software: frr, vrfs: {red: {interfaces: h6, routes: [10.99.0.0/16 via 10.97.0.9], ospf: {area: 3}}, blue: [h7]}}
  r7: {interfaces: {a: 10.8.0.1/30}, routes: [10.6.0.0/16 dev a, 10.5.0.0/16 dev a]}
hosts:
  h1: {addresses: 10.4.0.20/24, gateway: 10.4.0.2}
  h2: {cpu: 0.2, forwarding: guest}
  h3:
  h4:
  s3h: {cpu: 0.05}
  h6: {cpu: 0.02}
  h7: {cpu: 0.02}
  h5: {interfaces: {r2: {mac: "02:00:00:00:00:05"}, tap: {}}}
switches:
  s1: {prefixes: 10.4.0.0/24}
  s2:
  s3: {prefixes: 10.3.0.0/24, vrrp: {address: 10.3.0.254, interval: 2s, priority: {r12: 200}}}
links:
  - r4:up -- s1
  - h1 -- s1
  - r1 -- r2: {bandwidth: 10Mbit, loss: 1%}
  - r2 -- r3: {prefixes: 10.1.0.0/30}
  - r3 -- r5: {jitter: 1ms}
  - r5 -- r6: {mtu: 1400, name: thick}
  - r6 -- r7: {addressing: auto, bfd: 100ms}
  - h2 -- r6
  - h3 -- s2
  - h4 -- s2: {mtu: 1500}
  - s2 -- r1
  - h5 -- r2
  - r7:a -- r1
  - r11 -- r1
  - r12 -- s3
  - s3h -- s3
  - h6 -- r13: 10.97.0.0/24
  - h7 -- r13: 10.97.0.0/24
edges:
  dev: {end: r1, device: eth1, vlan: 7, node: n1}
  tagged: {end: r2, device: eth1, vlan: 8, node: n1}
  net: {end: r3, internet: {forwards: [2222:h3:22, 8080:h4:80]}}
mirrors:
  - {link: thick, to: h5:tap, bandwidth: 1Mbit}
expect:
  - h1 reaches r4
  - h3 reaches h4 over ipv4
faults:
  - {at: 10s, stop: r1--r2}
  - {at: 20s, restart: r2}
`

// mistake is one edit of it, and a part of the one thing that is told of it.
type mistake struct{ old, new, tells string }

// Of form, and of meaning.
var mistakes = map[string]mistake{
	// What cannot be read.
	"no name":             {"network: lab\n", "", "the network has no name"},
	"name misspelt":       {"network: lab\n", "netwrok: lab\n", `no key "netwrok"`},
	"owner a list":        {"owner: ann", "owner: [ann]", "owner takes a single value"},
	"pool":                {"fd00:10::/48]", "fd00:10::]", "has no prefix length"},
	"top key":             {"policy: {attack: tell}", "colour: red", `no key "colour"`},
	"top key near":        {"defaults:", "default:", `no key "default"`},
	"slice bandwidth":     {"bandwidth: 1Gbit", "bandwidth: 1Gbyte", "bandwidth of slice"},
	"slice packets":       {"packets: 100000", "packets: many", "packets of slice"},
	"slice key":           {"tables: 8MiB", "table: 8MiB", `no key "table"`},
	"default cpu":         {"{cpu: 0.1, memory: 128MiB", "{cpu: 1m, memory: 128MiB", "cpu of routers of defaults"},
	"default memory":      {"hosts: {cpu: 0.1, memory: 64MiB}", "hosts: {cpu: 0.1, memory: 64}", "memory of hosts"},
	"default delay":       {"delay: 1ms", "delay: 1", "delay of links of defaults"},
	"area":                {"area: 0", "area: x", "is no area"},
	"hello":               {"hello: 5s", "hello: 5", "hello of ospf"},
	"hello twice":         {"hello: 5s", "hello: 5s, hello: 6s", "twice"},
	"loopback":            {"loopback: 10.255.0.1", "loopback: 10.255.0", "loopback of router r1"},
	"as":                  {"as: 65001", "as: x65001", "as of bgp of router r2"},
	"as misspelt":         {"as: 65001", "sa: 65001", `no key "sa"`},
	"networks":            {"[10.9.0.0/16]", "[10.9.0.0]", "networks of bgp"},
	"neighbor":            {"{address: 10.1.0.2", "{address: 10.1.0", "is no address"},
	"prefix list":         {"le 24", "le 240", "le is followed by a length"},
	"vrrp address":        {"10.3.0.254", "10.3.0", "address of vrrp of switch s3"},
	"vrrp interval":       {"interval: 2s", "interval: 2", "interval of vrrp of switch s3"},
	"vrrp priority":       {"priority: {r12: 200}", "priority: {r12: 255}", "r12 of priority of vrrp of switch s3"},
	"label":               {"out: 200", "out: 2000000", "the label 2000000 is not between 16 and 65535"},
	"label twice":         {"{to: 10.5.0.0/16, push: 300,", "{in: 102,", "it has the label 102 twice"},
	"label to nobody":     {"via: s3h", "via: r2", "r2 is no neighbour of it"},
	"label without to":    {"to: 10.5.0.0/16, push", "push", "needs to:, the prefix"},
	"vrrp nobody":         {"{r12: 200}", "{r2: 200}", "router r2 is not on the segment"},
	"bfd":                 {"bfd: 100ms", "bfd: 1ms", "bfd of link"},
	"link vlan":           {"h4 -- s2: {mtu: 1500}", "h4 -- s2: {vlan: x}", "vlan of link"},
	"link vlans":          {"  - h3 -- s2\n", "  - h3 -- s2: {vlans: 30-20}\n", "vlans of link"},
	"vlan of no switch":   {"  - h2 -- r6\n", "  - h2 -- r6: {vlan: 7}\n", "neither of its ends is a switch"},
	"switch vlan":         {"s1: {prefixes: 10.4.0.0/24}", "s1: {prefixes: 10.4.0.0/24, vlans: {x: 10.3.0.0/24}}", "between 1 and 4094"},
	"med":                 {"med: 1", "med: x", "med of set of policy p"},
	"software":            {"software: bird", "software: brid", "software of router r3"},
	"software misspelt":   {"software: static", "sofware: static", `no key "sofware"`},
	"config gone":         {`bird.conf: "router id 1.2.3.4;"`, "bird.conf: {file: no.conf}", "config of router r3"},
	"config key":          {`bird.conf: "router id 1.2.3.4;"`, "bird.conf: {fil: x}", `no key "fil"`},
	"interface address":   {"up: 10.4.0.2/24", "up: 10.4.0.2", "addresses of up of interfaces of router r4"},
	"gateway":             {"gateway: 10.4.0.1", "gateway: 10.4.0.1/24", "gateway of router r4"},
	"route":               {"10.7.0.0/16 via 10.4.0.9", "10.7.0.0/16 vai 10.4.0.9", "is no route"},
	"memory":              {"r5: {memory: 64MiB", "r5: {memory: 64MB", "memory of router r5"},
	"isis a number":       {"isis: {level: 2}", "isis: 2", "isis of router r5 takes a mapping"},
	"isis level":          {"isis: {level: 2}", "isis: {level: two}", "level of isis"},
	"update":              {"update: 10s", "update: often", "update of rip"},
	"control":             {"control: netns", "control: nets", "control of router r6"},
	"element key":         {"control: netns", "colour: red", `router r6 has no key "colour"`},
	"router a number":     {"  r5: {memory: 64MiB, isis: {level: 2}, rip: {update: 10s, timeout: 30s}, hook: tc}", "  r5: 5", "router r5 takes a mapping"},
	"router range":        {"  r7:", "  r[7-]: {}\n  r7:", "is no range"},
	"host address":        {"addresses: 10.4.0.20/24", "addresses: 10.4.0.20", "addresses of host h1"},
	"host cpu":            {"cpu: 0.2", "cpu: 200m", "cpu of host h2"},
	"host twice":          {"  h3:\n", "  h3:\n  h3: {}\n", `"h3" twice`},
	"host key":            {"  h4:\n", "  h4: {software: frr}\n", `host h4 has no key "software"`},
	"switch prefixes":     {"prefixes: 10.4.0.0/24", "prefixes: 10.4.0.0-24", "prefixes of switch s1"},
	"no link":             {"h2 -- r6", "h2 - r6", "is no link"},
	"link as a mapping":   {"r3 -- r5: {jitter: 1ms}", "{r3: r5}", "is no link"},
	"link two entries":    {"h5 -- r2", "{h5 -- r2: {}, h4 -- r2: {}}", "one entry of links is one link"},
	"link bandwidth":      {"bandwidth: 10Mbit", "bandwidth: 10MB/s", "bandwidth of link r1 -- r2"},
	"link prefixes":       {"prefixes: 10.1.0.0/30", "prefixes: 10.1.0.0", "prefixes of link r2 -- r3"},
	"link jitter":         {"jitter: 1ms", "jitter: x", "jitter of link r3 -- r5"},
	"link mtu":            {"{mtu: 1500}", "{mtu: big}", "mtu of link h4 -- s2"},
	"link key":            {"{addressing: auto,", "{addresing: auto,", `no key "addresing"`},
	"link range":          {"s2 -- r1", "s[2-1] -- r1", "runs backwards"},
	"edge vlan":           {"vlan: 7", "vlan: seven", "vlan of edge dev"},
	"edge key":            {"node: n1}\n  tagged", "nodes: n1}\n  tagged", `edge dev has no key "nodes"`},
	"edge end a list":     {"end: r2, device", "end: [r2], device", "end of edge tagged takes a single value"},
	"edge sentence":       {"{end: r3, internet: {forwards: [2222:h3:22, 8080:h4:80]}}", "r3 internet", "is no edge"},
	"forward":             {"2222:h3:22", "h3:22", "is no forwarded port"},
	"mirror bandwidth":    {"bandwidth: 1Mbit}", "bandwidth: 1M}", "bandwidth of mirrors"},
	"mirror link a list":  {"link: thick", "link: [thick]", "link of mirrors takes a single value"},
	"mirror to a list":    {"to: h5:tap", "to: [h5:tap]", "to of mirrors takes a single value"},
	"expect":              {"h1 reaches r4", "h1 sees r4", "is no expectation"},
	"expect family":       {"over ipv4", "over ipx", "over is followed by"},
	"ospf port area":      {"area: 7, cost: 5", "area: 7.7, cost: 5", "area of ospf of r1 of"},
	"ospf port cost":      {"cost: 5, dead", "cost: 0, dead", "the cost 0 is not between"},
	"ospf port passive":   {"passive: false", "passive: maybe", "passive of ospf"},
	"ospf port network":   {"network: broadcast", "network: nbma", "network of ospf"},
	"expect state":        {"h1 reaches r4", "r1 ospf neighbor r2 ready", "has no state ready"},
	"fault time":          {"at: 10s", "at: 10", "at of faults"},
	"fault twice":         {"{at: 20s, restart: r2}", "{at: 20s, restart: r2, stop: r3}", "it says two of these"},
	"vrf interface":       {"blue: [h7]", "blue: [h8]", "h8 is none of the router's interfaces"},
	"vrf interface twice": {"blue: [h7]", "blue: [h6, h7]", "h6 is in the VRF blue already"},
	"vrf next hop":        {"10.99.0.0/16 via 10.97.0.9", "10.99.0.0/16 via 10.96.0.9", "the next hop 10.96.0.9 is on none of its subnets"},
	"vrf route":           {"10.99.0.0/16 via 10.97.0.9", "10.99.0.0/16 vai 10.97.0.9", "is no route"},
	"vrf key":             {"ospf: {area: 3}", "rip: {}", `has no key "rip"`},
	"vrf area":            {"ospf: {area: 3}", "ospf: {area: x}", "is no area"},
	"vrf name":            {"blue: [h7]", "default: [h7]", "is Linux's own; choose another"},
	"vrf of bird":         {"{software: frr, vrfs", "{software: bird, vrfs", "BIRD's tables have numbers"},

	// What makes no sense.
	"network name":         {"network: lab\n", "network: l/a/b\n", "no owner"},
	"owner name":           {"owner: ann", "owner: a/nn", "owner"},
	"pool small":           {"[10.0.0.0/8", "[192.0.2.0/31, 10.0.0.0/8", "is smaller than"},
	"slice mode":           {"mode: strict", "mode: loose", `"loose" is unknown`},
	"slice small":          {"cpu: 8", "cpu: 1", "more than the slice's 1"},
	"no tables":            {"tables: 8MiB, ", "", "it says no tables"},
	"no cpu":               {"  switches: {cpu: 0.1, memory: 64MiB}", "  switches: {memory: 64MiB}", "without cpu: s1, s2"},
	"ospf port dead":       {"dead: 30s, passive", "dead: 1s, passive", "less than the 2s"},
	"ospf port alone":      {"r11: {ospf: {}, interfaces", "r11: {software: frr, interfaces", "which the router does not speak"},
	"dead":                 {"dead: 20s", "dead: 4s", "not longer than hello"},
	"cost":                 {"cost: 10", "cost: 70000", "the cost 70000"},
	"router id":            {"router-id: 10.255.0.1", "router-id: 0.0.0.0", "the router ID 0.0.0.0"},
	"no as":                {"as: 65001, ", "", "needs an autonomous system"},
	"policy":               {"in: p}", "in: q}", "there is no policy q"},
	"list":                 {"{prefixes: ours}", "{prefixes: hours}", "there is no prefix list hours"},
	"rules' order":         {"match: {prefixes: ours}, ", "", "no route comes to it"},
	"prepend":              {"{prepend: 1}", "{prepend: 20}", "prepend 20 is not between"},
	"networks bits":        {"[10.9.0.0/16]", "[10.9.0.1/16]", "cannot announce"},
	"bird isis":            {"node: n1}\n  r4", "node: n1, isis: {}}\n  r4", "BIRD speaks no IS-IS"},
	"node and location":    {"node: n1}\n  r4", "node: n1, location: x}\n  r4", "both a node and a location"},
	"config other":         {"{bird.conf: ", "{frr.conf: ", "reads no file frr.conf"},
	"static speaks":        {"gateway: 10.4.0.1", "gateway: 10.4.0.1, ospf6: {}", "speaks no routing protocol"},
	"gateway off":          {"gateway: 10.4.0.1", "gateway: 10.40.0.1", "the gateway 10.40.0.1 is on none"},
	"next hop off":         {"via 10.4.0.9", "via 10.40.0.9", "the next hop 10.40.0.9 is on none"},
	"route twice":          {"10.5.0.0/16 dev a", "10.6.0.0/16 dev a", "two routes"},
	"route interface":      {"10.5.0.0/16 dev a", "10.5.0.0/16 dev eth9", "leaves by eth9"},
	"memory small":         {"r5: {memory: 64MiB", "r5: {memory: 30MiB", "that FRR needs"},
	"timeout":              {"timeout: 30s", "timeout: 9s", "not longer than update"},
	"isis area":            {"isis: {level: 2}", "isis: {level: 2, area: zz}", "is no IS-IS area"},
	"address off":          {"addresses: 10.4.0.20/24", "addresses: 10.44.0.20/24", "outside 10.4.0.0/24"},
	"address twice":        {"addresses: 10.4.0.20/24", "addresses: 10.4.0.2/24", "is also the address"},
	"address of a network": {"a: 10.8.0.1/30", "a: 10.8.0.0/30", "is the network or broadcast address"},
	"host forwards":        {"cpu: 0.2, forwarding: guest", "cpu: 0.2, forwarding: bridge", "a host forwards nothing"},
	"mac":                  {`mac: "02:00:00:00:00:05"`, `mac: "03:00:00:00:00:05"`, "no interface's MAC address"},
	"interface off":        {"  h4:\n", "  h4: {interfaces: {lone: {}}}\n", "the interface lone is on no link"},
	"reserved":             {"  s2:\n", "  s2:\n  -b: {cpu: 0.1, memory: 64MiB}\n", "name"},
	"dangling":             {"h2 -- r6", "h2 -- r66", "no router, host or switch r66"},
	"itself":               {"h3 -- s2", "h3 -- s2\n  - h3 -- h3", "joins h3 to itself"},
	"loss":                 {"loss: 1%", "loss: 200%", "loss"},
	"prefix bits":          {"{mtu: 1400,", "{mtu: 1400, prefixes: 10.2.0.1/30,", "is an address; its prefix"},
	"jitter":               {"jitter: 1ms", "jitter: 9ms", "more than the delay"},
	"mtu differs":          {"{mtu: 1500}", "{mtu: 1400}", "on the same segment"},
	"link twice":           {"s2 -- r1", "s2 -- r1: {name: thick}", "another link has this name"},
	"overlap":              {"h5 -- r2", "h5 -- r2: {prefixes: 10.1.0.0/29}", "overlaps"},
	"edge nowhere":         {"end: r1, device", "end: r99, device", "no router, host or switch r99"},
	"edge nothing":         {"{end: r3, internet: {forwards: [2222:h3:22, 8080:h4:80]}}", "{end: r3}", "it needs device:"},
	"vlan":                 {"vlan: 8", "vlan: 5000", "the VLAN 5000"},
	"forward nowhere":      {"8080:h4:80", "8080:h99:80", "no router or host h99"},
	"forward high":         {"2222:h3:22", "62222:h3:22", "kept for connections from inside"},
	"mirror of nothing":    {"link: thick", "link: thin", "there is no link thin"},
	"mirror to a router":   {"to: h5:tap, bandwidth: 1Mbit}", "to: h5:tap}\n  - {link: r6--r7, to: r5}", "copies go to a host"},
	"expect nowhere":       {"h1 reaches r4", "h1 reaches r44", "no router or host r44"},
	"expect of a host":     {"expect:\n", "expect:\n  - h5 bgp neighbor r2\n", "h5 is a host, which speaks no BGP"},
	"expect itself":        {"expect:\n", "expect:\n  - h5 reaches h5\n", "always reaches itself"},
	"fault of nothing":     {"stop: r1--r2", "stop: r1--r8", "no element or link r1--r8"},
	"fault of no link":     {"stop: r1--r2", "stop: r1 -- r8", "there is no link r1 -- r8"},
	"fault of a link":      {"restart: r2", "restart: r1--r2", "only elements are restarted"},
}

// hidden are the pairs of which one mistake may be the other's cause: nobody knows what was meant. The second is told
// once the first is put right.
var hidden = map[string][]string{
	"switch prefixes":   {"address off", "gateway off", "next hop off"}, // it may be any subnet
	"interface address": {"address twice", "gateway off", "next hop off"},
	"link prefixes":     {"overlap"},
	"software":          {"bird isis", "config other"},                                      // it may be any software
	"router range":      {"dangling", "edge nowhere", "expect nowhere", "fault of nothing"}, // it may be that router
	"hello":             {"dead"},
	"hello twice":       {"dead"},
	"update":            {"timeout"},
	"default cpu":       {"slice small"},
	"default delay":     {"jitter"},
	"slice mode":        {"no cpu", "no tables"}, // nothing is asked of a slice that is not strict
}

// varies are the parts of messages in which a document with one mistake differs from one with two.
var varies = []struct {
	pattern *regexp.Regexp
	becomes string
}{
	{regexp.MustCompile("^(network [a-z/]*|the network): "), ""},
	{regexp.MustCompile("first in line [0-9]+"), "first in line N"},
	{regexp.MustCompile("ask for [0-9.]+ cores"), "ask for N cores"}, // without what is not known
	{regexp.MustCompile(`none of its subnets \(.*\)`), "none of its subnets"},
	{regexp.MustCompile("^edge mirror0: "), "edge tap: "}, // its name is not known
	{regexp.MustCompile("^faults: at [0-9]+s "), "faults: "},
}

// told are the messages of a file, sorted.
func told(t *testing.T, text string) []string {
	t.Helper()
	nets, err := Parse("lab.yaml", []byte(text),
		Options{ReadFile: func(string) ([]byte, error) { return nil, os.ErrNotExist }})
	if err == nil {
		return nil
	}
	var list Errors
	if !errors.As(err, &list) || nets != nil {
		t.Fatalf("%d networks and %v", len(nets), err)
	}
	var all []string
	for i, e := range list {
		text := e.Message
		for _, a := range varies {
			text = a.pattern.ReplaceAllString(text, a.becomes)
		}
		all = append(all, text)
		if i > 0 && list[i-1].Line > e.Line {
			t.Errorf("%q is told after %q, which is further down", e.Message, list[i-1].Message)
		}
	}
	slices.Sort(all)
	return all
}

// TestEveryPairOfMistakesIsTold makes every mistake by itself, and then every two together: what is told of both is what
// is told of each, and nothing else.
func TestEveryPairOfMistakesIsTold(t *testing.T) {
	t.Parallel()
	if all := told(t, right); all != nil {
		t.Fatalf("the document without a mistake: %q", all)
	}
	alone := map[string][]string{}
	var names []string
	for name, m := range mistakes {
		if strings.Count(right, m.old) != 1 {
			t.Fatalf("%s: %q is not once in the document", name, m.old)
		}
		names = append(names, name)
		alone[name] = told(t, strings.Replace(right, m.old, m.new, 1))
		if len(alone[name]) != 1 || !strings.Contains(alone[name][0], m.tells) {
			t.Errorf("%s: want %q, and nothing else, in %q", name, m.tells, alone[name])
		}
	}
	slices.Sort(names)
	pairs := 0
	for i, a := range names {
		for _, b := range names[i+1:] {
			both := edit(mistakes[a], mistakes[b])
			if both == "" {
				continue // they are at the same place
			}
			pairs++
			got, want := told(t, both), append(slices.Clone(alone[a]), alone[b]...)
			slices.Sort(want)
			switch hides := slices.Contains(hidden[a], b) || slices.Contains(hidden[b], a); {
			case hides && !slices.Equal(got, alone[a]) && !slices.Equal(got, alone[b]):
				t.Errorf("%s, and %s: %q, where one is to hide the other", a, b, got)
			case !hides && !slices.Equal(got, want):
				t.Errorf("%s, and %s:\n got  %q\n want %q", a, b, got, want)
			}
		}
	}
	t.Logf("%d mistakes, %d pairs", len(names), pairs)
	if pairs < 5000 {
		t.Errorf("only %d pairs", pairs)
	}
}

// edit makes both mistakes, if they are at different places.
func edit(a, b mistake) string {
	at, bt := strings.Index(right, a.old), strings.Index(right, b.old)
	if at > bt {
		a, b, at, bt = b, a, bt, at
	}
	if at+len(a.old) > bt {
		return ""
	}
	return right[:at] + a.new + right[at+len(a.old):bt] + b.new + right[bt+len(b.old):]
}
