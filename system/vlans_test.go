package system

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/linux"
)

// lacksVLANs says why this kernel cannot make what files with VLANs ask for; nil if it can.
func lacksVLANs() error {
	if err := linux.ProbeBridgeVLANs(); err != nil {
		return err
	}
	return linux.ProbeVLANs()
}

// twoVLANs are two switches on two nodes with two VLANs, a router in both of them, a host that has a trunk, and one that is
// in the VLAN of what says nothing.
const twoVLANs = `network: office
switches:
  s1: {node: n1, vlans: {10: [10.0.10.0/24, "2001:db8:10::/64"], 20: 10.0.20.0/24}}
  s2: {node: n2}
routers: {gw: {node: n1}}
hosts: {h1: {node: n1}, h2: {node: n2}, h3: {node: n2}, h4: {node: n1}, srv: {node: n2}, guest: {node: n1}}
links:
  - h1 -- s1: {vlan: 10}
  - h2 -- s2: {vlan: 10}
  - h3 -- s2: {vlan: 20}
  - h4 -- s1: {vlan: 20}
  - s1 -- s2: {vlans: all}
  - gw -- s1: {vlans: [10, 20]}
  - srv -- s2: {vlan: 20, vlans: 10}
  - guest -- s1
expect:
  - h1 reaches h2
  - h1 reaches h3
  - h1 reaches srv
  - h1 does not reach guest
`

// TestVLANs: where a node's kernel lacks what VLANs need, plan says so and nothing is made. Where it has it, frames stay
// in their VLANs on one node and across nodes, a router leads from one to the other, access ports take no tags, and a
// host that moves to another VLAN costs nobody else a packet.
func TestVLANs(t *testing.T) {
	p := up(t, 2)
	name := file(t, twoVLANs)
	out, stderr, err := p.try("plan", "-f", name)
	if why := lacksVLANs(); why != nil {
		for _, words := range []string{"switch s1 wants vlans; s1 is pinned to n1; n1 lacks it: ",
			"router gw wants vlans; gw is pinned to n1; n1 lacks it: ", why.Error()} {
			if err == nil || !strings.Contains(stderr, words) {
				t.Errorf("plan does not say %q: %v\n%s%s", words, err, out, stderr)
			}
		}
		free := file(t, strings.NewReplacer("node: n1, ", "", "node: n1", "", "node: n2", "").Replace(twoVLANs))
		if _, stderr, err := p.try("apply", "-f", free); err == nil ||
			!strings.Contains(stderr, "switch s1 wants vlans; n1, n2 lack it: ") {
			t.Errorf("apply: %v\n%s", err, stderr)
		}
		if out := p.run("get", "networks"); strings.Contains(out, "office") {
			t.Errorf("a network that no node can make is there:\n%s", out)
		}
		return
	}
	if err != nil {
		t.Fatalf("plan: %v\n%s%s", err, out, stderr)
	}
	p.run("apply", "-f", name)
	p.run("check", "office", "--mesh", "--wait", "2m")
	for element, words := range map[string][]string{
		"gw": {"s1.10 up 10.0.10.", "s1.20 up 10.0.20.", "VLANs", "s1 - 10, 20"},
		"s1": {"VLANs", "gw - 10, 20", "h4 20 -"},
	} {
		for _, w := range words {
			if out := p.run("describe", "office/"+element); !strings.Contains(strings.Join(strings.Fields(out), " "), w) {
				t.Errorf("describe of %s does not say %q:\n%s", element, w, out)
			}
		}
	}

	// The largest packets pass, with their tags, between nodes too.
	at := func(element, device string) string {
		var all []struct {
			Info []struct {
				Family, Local string
			} `json:"addr_info"`
		}
		decode(t, in(t, p.namespace("office", element), "ip", "-j", "address", "show", "dev", device), &all)
		for _, a := range all[0].Info {
			if a.Family == "inet" {
				return a.Local
			}
		}
		t.Fatalf("%s has no IPv4 address on %s", element, device)
		return ""
	}
	in(t, p.namespace("office", "h1"), "ping", "-c3", "-W10", "-M", "do", "-s", "1472", at("h2", "s2"))
	in(t, p.namespace("office", "h1"), "ping", "-c3", "-W10", "-M", "do", "-s", "1472", at("srv", "s2.10"))

	// What is sent to everybody reaches those of the same VLAN, and nobody else. Frames with tags get through no access
	// port, neither one's own VLAN nor another's, nor two tags.
	heard := func(element, device string, send func()) int {
		before := countReceived(t, p.namespace("office", element), device)
		send()
		return countReceived(t, p.namespace("office", element), device) - before
	}
	everybody := func() {
		in(t, p.namespace("office", "h1"), "sh", "-c", "ping -b -c30 -i0.02 -W1 255.255.255.255 -I s1; true")
	}
	if n := heard("h2", "s2", everybody); n < 30 {
		t.Errorf("h2, which is in the VLAN of h1, heard %d frames of 30", n)
	}
	for _, other := range [][2]string{{"h3", "s2"}, {"h4", "s1"}, {"guest", "s1"}} {
		if n := heard(other[0], other[1], everybody); n > 15 {
			t.Errorf("%s, which is in another VLAN than h1, heard %d frames", other[0], n)
		}
	}
	for _, tags := range []string{"type vlan id 10", "type vlan id 20", "type vlan proto 802.1ad id 20"} {
		tagged := func() {
			in(t, p.namespace("office", "h1"), "sh", "-c", "ip link add link s1 name out "+tags+" && ip link set out up && "+
				"ip address add 192.0.2.1/24 dev out && ping -b -c30 -i0.02 -W1 192.0.2.255 -I out; ip link del out")
		}
		for _, other := range [][2]string{{"h2", "s2"}, {"h3", "s2"}, {"h4", "s1"}} {
			if n := heard(other[0], other[1], tagged); n > 15 {
				t.Errorf("%s heard %d frames that h1 sent with a tag (%s)", other[0], n, tags)
			}
		}
	}
	if out := p.run("describe", "office/h1:s1"); !strings.Contains(out, "of these: VLAN tag") {
		t.Errorf("describe does not tell of the frames that were dropped:\n%s", out)
	}

	// h4 moves to the VLAN 10 while others send; it is given an address there.
	f := p.flow("office", "h1", "h2", at("h2", "s2"), 0)
	across := p.flow("office", "h3", "srv", at("srv", "s2"), 0)
	p.run("set", "office/h4--s1", "vlan=10")
	p.run("check", "office", "--mesh", "--wait", "2m")
	if a := at("h4", "s1"); !strings.HasPrefix(a, "10.0.10.") {
		t.Errorf("in the VLAN 10 h4 has the address %s", a)
	}
	p.run("set", "office/h4--s1", "vlan=20")
	p.run("check", "office", "--mesh", "--wait", "2m")
	for _, x := range []*flow{f, across} {
		if sent, lost, twice := x.stop(); lost != 0 || twice != 0 {
			t.Errorf("while another host moved, of %d packets %d were lost and %d came twice", sent, lost, twice)
		}
	}

	// VLANs come and go at a trunk; the interfaces with them. What somebody broke is put right.
	p.run("set", "office/gw--s1", "vlans=10")
	p.await("s1.20 to go", func() bool {
		return !strings.Contains(in(t, p.namespace("office", "gw"), "ip", "-br", "link"), "s1.20")
	}, func() string { return in(t, p.namespace("office", "gw"), "ip", "-br", "link") })
	p.run("set", "office/gw--s1", "vlans=10,20")
	p.run("check", "office", "--mesh", "--wait", "2m")
	in(t, p.namespace("office", "gw"), "ip", "link", "del", "s1.20")
	in(t, p.namespace("office", "s2"), "bridge", "vlan", "del", "dev", "s1", "vid", "20")
	in(t, p.namespace("office", "s2"), "bridge", "vlan", "add", "dev", "h3", "vid", "10", "pvid", "untagged")
	p.run("check", "office", "--mesh", "--wait", "5m")

	// A file that is saved makes the same network; without VLANs the switches join all.
	saved := p.run("save", "office")
	if out := p.run("plan", "-f", file(t, saved)); !strings.Contains(out, "no changes") {
		t.Errorf("the saved file changes something:\n%s\n%s", saved, out)
	}
	p.run("restart", "office/gw")
	p.run("check", "office", "--mesh", "--wait", "2m")
	p.run("stop", "office/gw")
	p.run("start", "office/gw")
	p.run("check", "office", "--mesh", "--wait", "2m")
	if out := p.run("get", "events"); strings.Contains(out, "Attack") {
		t.Logf("somebody is suspected:\n%s", out)
	}
}

func countReceived(t *testing.T, namespace, device string) int {
	t.Helper()
	var links []struct {
		Stats struct{ Rx struct{ Packets int } } `json:"stats64"`
	}
	if err := json.Unmarshal([]byte(in(t, namespace, "ip", "-s", "-j", "link", "show", "dev", device)), &links); err != nil {
		t.Fatal(err)
	}
	return links[0].Stats.Rx.Packets
}

// TestVLANsOfRouters: a link between two routers carries VLANs, with a subnet and OSPF for each; by whichever way the
// routers' packets are forwarded.
func TestVLANsOfRouters(t *testing.T) {
	p := up(t, 2)
	const text = `network: wan
ospf: {}
routers: [r1, r2]
hosts: [h1, h2]
links:
  - r1 -- r2: {vlans: [100, 200]}
  - h1 -- r1
  - h2 -- r2
expect:
  - h1 reaches h2
  - r1 ospf neighbor r2
`
	if why := lacksVLANs(); why != nil {
		if out, stderr, err := p.try("plan", "-f", file(t, text)); err == nil ||
			!strings.Contains(stderr, "router r1 wants vlans; n1, n2 lack it: ") {
			t.Errorf("plan: %v\n%s%s", err, out, stderr)
		}
		return
	}
	for _, forwarding := range []string{"guest", "xdp", "router"} {
		p.run("apply", "-f", file(t, strings.Replace(text, "[r1, r2]", "{r1: {forwarding: "+forwarding+"}, r2: {forwarding: "+
			forwarding+"}}", 1)))
		p.run("check", "wan", "--mesh", "--wait", "3m")
	}
	example, err := os.ReadFile("../examples/vlans.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p.run("apply", "-f", file(t, string(example)))
	p.run("check", "vlans", "--mesh", "--wait", "3m")
}
