package system

import (
	"cmp"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/linux"
)

// customers are two customers with the same addresses at one router, which has routes for their networks behind r1 and r2.
// mgmt is in no VRF.
const customers = `network: isp
routers:
  pe:
    vrfs:
      red: {interfaces: [a1, r1], routes: [10.9.0.0/24 via 10.0.1.2]}
      blue: {interfaces: [b1, r2], routes: [10.9.0.0/24 via 10.0.1.2], gateway: 10.0.1.2}
  r1: {gateway: 10.0.1.1}
  r2: {gateway: 10.0.1.1}
hosts: [a1, a2, b1, b2, mgmt]
links:
  - a1 -- pe: 10.0.0.0/24
  - b1 -- pe: 10.0.0.0/24
  - pe -- r1: 10.0.1.0/24
  - pe -- r2: 10.0.1.0/24
  - a2 -- r1: 10.9.0.0/24
  - b2 -- r2: 10.9.0.0/24
  - mgmt -- pe: 10.0.5.0/24
expect:
  - a1 reaches a2
  - b2 reaches b1
  - a1 does not reach b2
  - mgmt does not reach a1
  - pe route 10.9.0.0/24 via r1 vrf red
  - pe no route 10.9.0.0/24
`

// lacksVRFs says why this kernel cannot make what the example with VRFs asks for; nil if it can.
func lacksVRFs() error { return cmp.Or(linux.ProbeVRF(), lacksVLANs()) }

// TestVRF: where no node's kernel has VRFs, plan says so and nothing is made. Where one has, customers with the same addresses reach their
// own and nobody else's, by static routes and by OSPF, also after somebody has broken it, and interfaces change their VRF while others send.
func TestVRF(t *testing.T) {
	p := up(t, 1)
	name := file(t, customers)
	out, stderr, err := p.try("plan", "-f", name)
	if why := linux.ProbeVRF(); why != nil {
		if err == nil || !strings.Contains(stderr, "router pe wants vrfs; n1 lacks it: ") || !strings.Contains(stderr, why.Error()) {
			t.Errorf("plan: %v\n%s%s", err, out, stderr)
		}
		if _, stderr, err := p.try("apply", "-f", name); err == nil || !strings.Contains(stderr, "router pe wants vrfs") {
			t.Errorf("apply: %v\n%s", err, stderr)
		}
		if out := p.run("get", "networks"); strings.Contains(out, "isp") {
			t.Errorf("a network that no node can make is there:\n%s", out)
		}
		return
	}
	if err != nil {
		t.Fatalf("plan: %v\n%s%s", err, out, stderr)
	}
	p.run("apply", "-f", name)
	check := func() { t.Helper(); p.run("check", "isp", "--mesh", "--wait", "3m") }
	check()
	if out := strings.Join(strings.Fields(p.run("describe", "isp/pe")), " "); !strings.Contains(out,
		"VRF INTERFACES") || !strings.Contains(out, "red a1, r1") {
		t.Errorf("describe says\n%s", out)
	}
	pe := p.namespace("isp", "pe")
	// Names are those of one's own side.
	for of, words := range map[string][2]string{"a1": {"a2", "b2"}, "b1": {"b2", "a2"}, "mgmt": {"mgmt", "a1"}} {
		hosts := p.run("exec", "isp/"+of, "--", "cat", "/etc/hosts")
		if !strings.Contains(hosts, words[0]) || strings.Contains(hosts, words[1]) {
			t.Errorf("%s knows\n%s", of, hosts)
		}
	}
	p.run("exec", "isp/pe", "--", "ping", "-I", "red", "-c1", "-W5", "10.9.0.1")

	f := p.flow("isp", "a1", "a2", "10.9.0.1", 0)
	in(t, pe, "ip", "link", "del", "blue")
	p.await("what was taken away", func() bool {
		return exec.Command("nsenter", "--net="+pe, "sh", "-c", "ip route show vrf blue | grep 10.9.0.0/24").Run() == nil
	}, func() string { return in(t, pe, "ip", "link") })
	check()
	// mgmt's interface comes to blue, and out of it again.
	p.run("apply", "-f", file(t, strings.NewReplacer("[b1, r2]", "[b1, r2, mgmt]", "mgmt does not reach a1", "mgmt reaches b1").Replace(customers)))
	check()
	p.run("apply", "-f", name)
	check()
	if sent, lost, twice := f.stop(); lost != 0 || twice != 0 {
		t.Errorf("while other VRFs changed, of %d packets %d were lost and %d came twice", sent, lost, twice)
	}
	saved := p.run("save", "isp")
	if out := p.run("plan", "-f", file(t, saved)); !strings.Contains(out, "no changes") {
		t.Errorf("the saved file changes something:\n%s\n%s", saved, out)
	}
	p.run("restart", "isp/pe")
	check()
	p.run("stop", "isp/pe")
	p.run("start", "isp/pe")
	check()
	if _, stderr, err := p.try("set", "isp/pe", "forwarding=xdp"); err == nil || !strings.Contains(stderr, "vrfs takes forwarding: guest") {
		t.Errorf("set: %v\n%s", err, stderr)
	}
	p.run("delete", "isp")
	if linux.ProbeVLANs() != nil {
		return
	}

	// The example: OSPF of FRR in each VRF, over VLANs. Then static routes, while FRR runs.
	example, err := os.ReadFile("../examples/vrf.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p.run("apply", "-f", file(t, string(example)))
	p.run("check", "vrf", "--mesh", "--wait", "3m")
	if out := p.run("exec", "vrf/pe1", "--", "vtysh", "-c", "show ip route vrf red"); !strings.Contains(out, "O>* 10.2.0.0/24") {
		t.Errorf("FRR knows\n%s", out)
	}
	static := strings.NewReplacer("red: {interfaces: [red1, pe2.10], ospf: {}}", "red: {interfaces: [red1, pe2.10], routes: [10.2.0.0/24 via 10.0.0.2]}",
		"red: {interfaces: [red2, pe1.10], ospf: {}}", "red: {interfaces: [red2, pe1.10], routes: [10.1.0.0/24 via 10.0.0.1]}",
		"  - pe1 ospf neighbor pe2 vrf red\n", "  - pe1 route 10.2.0.0/24 via pe2 vrf red\n").Replace(string(example))
	p.run("apply", "-f", file(t, static))
	p.run("check", "vrf", "--mesh", "--wait", "3m")
	// A third VRF comes while FRR runs, and goes.
	third := strings.NewReplacer("      blue: {interfaces: [blue1, pe2.20], ospf: {}}\n",
		"      blue: {interfaces: [blue1, pe2.20], ospf: {}}\n      third: [green]\n", "hosts: [red1,", "hosts: [green, red1,",
		"links:\n", "links:\n  - green -- pe1: 10.1.0.0/24\n").Replace(string(example))
	p.run("apply", "-f", file(t, third))
	p.run("check", "vrf", "--mesh", "--wait", "3m")
	p.run("apply", "-f", file(t, string(example)))
	p.run("check", "vrf", "--mesh", "--wait", "3m")
	if out := in(t, p.namespace("vrf", "pe1"), "ip", "-o", "link"); strings.Contains(out, "third") {
		t.Errorf("the VRF third is still there:\n%s", out)
	}
}
