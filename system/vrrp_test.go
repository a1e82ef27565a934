package system

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// office's way back leads through r2: core does not hear that a link behind r1 is silent, and of two ways that cost the
// same it might take r1's.
const office = `network: lab
ospf: {}
routers: {r1: {node: n1}, r2: {node: n2}, core: {interfaces: {r1: {ospf: {cost: 100}}}}}
hosts: {h1: {node: n2}, h2: }
switches:
  s1:
    node: n1
    prefixes: 10.1.0.0/24
    vrrp: {address: 10.1.0.254, priority: {r1: 200, r2: 100}}
links: [h1 -- s1, r1 -- s1, r2 -- s1, r1 -- core, r2 -- core, core -- h2]
expect: [h1 reaches h2, h2 reaches h1, r1 vrrp master, r2 vrrp backup of 10.1.0.254]
`

// TestVirtualRouters: a host's gateway is an address that two routers share. When the master, its link or what passes
// its link goes, the other one takes its place, and gives it back; whoever forwards. The host has the virtual router's
// MAC address all the time.
func TestVirtualRouters(t *testing.T) {
	p := newPlatform(t)
	p.run("up", "--nodes", "2", "-d")
	p.run("apply", "-f", file(t, office))
	check := func() { t.Helper(); p.run("check", "lab", "--wait", "3m") }
	check()
	if out := p.run("describe", "lab/s1"); !strings.Contains(out, "10.1.0.254") {
		t.Errorf("describe of the switch says\n%s", out)
	}
	if out := p.run("describe", "lab/r2"); !strings.Contains(out, "10.1.0.254 at s1, priority 100") {
		t.Errorf("describe of a router says\n%s", out)
	}
	if out := p.run("save", "lab"); !strings.Contains(out, "vrrp: {address: 10.1.0.254, priority: {r1: 200, r2: 100}}") {
		t.Errorf("save writes\n%s", out)
	}
	h1, h2 := p.namespace("lab", "h1"), addressOf(p, "lab", "h2", false)
	virtual := func(when string) {
		t.Helper()
		in(t, h1, "ping", "-c1", "-W5", "10.1.0.254")
		var known []struct{ Lladdr string }
		decode(t, in(t, h1, "ip", "-j", "neigh", "show", "10.1.0.254"), &known)
		if len(known) != 1 || known[0].Lladdr != "00:00:5e:00:01:01" {
			t.Errorf("%s the gateway is %+v to h1", when, known)
		}
	}
	virtual("at first")
	in(t, h1, "ip", "neigh", "flush", "all")
	virtual("once ARP was asked")

	// over waits until nobody answers, and tells how long that lasts.
	over := func(what string, do func()) {
		t.Helper()
		answers := func() bool {
			for _, to := range []string{"10.1.0.254", h2} {
				if exec.Command("nsenter", "--net="+h1, "ping", "-c1", "-W1", to).Run() != nil {
					return false
				}
			}
			return true
		}
		do()
		began := time.Now()
		p.await("the other router after "+what, answers, func() string { return p.run("check", "lab") })
		t.Logf("%s: answered after %s", what, time.Since(began).Round(100*time.Millisecond))
	}
	expect := func(r1, r2 string) {
		t.Helper()
		state := func(r string) string {
			var all []struct{ V4 struct{ Status string } }
			out, _, err := p.try("exec", "lab/"+r, "--", "vtysh", "-c", "show vrrp json")
			if err != nil || json.Unmarshal([]byte(out), &all) != nil || len(all) != 1 {
				return out
			}
			return all[0].V4.Status
		}
		p.await(fmt.Sprintf("r1 %s, r2 %s", r1, r2), func() bool {
			return (r1 == "" || state("r1") == r1) && state("r2") == r2
		}, func() string { return state("r1") + state("r2") })
	}
	for _, forwarding := range []string{"guest", "router", "bridge", "xdp"} {
		for _, r := range []string{"r1", "r2"} {
			p.run("set", "lab/"+r, "forwarding="+forwarding)
		}
		check()
		over(forwarding+": a link without carrier", func() { p.run("stop", "lab/r1--s1") })
		expect("", "Master")
		virtual(forwarding + ", without the link,")
		p.run("start", "lab/r1--s1")
		expect("Master", "Backup")
		check()
	}
	over("a silent link", func() { p.run("set", "lab/r1--s1", "loss=100%") })
	expect("Master", "Master") // neither hears the other
	p.run("set", "lab/r1--s1", "loss=0")
	expect("Master", "Backup")
	over("a router that is stopped", func() { p.run("stop", "lab/r1") })
	expect("", "Master")
	p.run("start", "lab/r1")
	check()
	over("a router that is restarted", func() { p.run("restart", "lab/r1") })
	check()

	// An apply changes who is the master, and takes VRRP away.
	p.run("apply", "-f", file(t, strings.NewReplacer("r1: 200, r2: 100", "r1: 50, r2: 100", "expect:", "#").Replace(office)))
	expect("Backup", "Master")
	p.run("apply", "-f", file(t, strings.NewReplacer("    vrrp:", "    #", "expect:", "#").Replace(office)))
	p.await("the end of it", func() bool {
		return !strings.Contains(in(t, p.namespace("lab", "r1"), "ip", "link"), "vrrp") &&
			!strings.Contains(in(t, h1, "ip", "route"), "10.1.0.254")
	}, func() string { return in(t, p.namespace("lab", "r1"), "ip", "link") + in(t, h1, "ip", "route") })
	p.run("check", "lab", "--mesh", "--wait", "3m")
	if out := p.run("get", "events"); strings.Contains(out, "Attack") {
		t.Errorf("somebody is suspected:\n%s", out)
	}
}
