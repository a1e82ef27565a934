package system

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/linux"
)

// lspLab is a network whose middle knows no way to the hosts: only labels lead there. r3 runs FRR, the others nothing.
const lspLab = `network: lab
routers:
  r1: {mpls: [{to: 10.9.2.0/24, push: 100, via: r2}, {to: 2001:db8:2::/64, push: 100, via: r2}]}
  r2: {mpls: [{in: 100, out: 200, via: r3}, {in: 300, via: 10.9.12.1}]}
  r3: {software: frr, mpls: [{in: 200}, {to: 10.9.1.0/24, push: 300, via: r2}, {to: 2001:db8:1::/64, push: 300, via: r2}]}
hosts: [h1, h2]
links:
  - h1 -- r1: 10.9.1.0/24, 2001:db8:1::/64
  - r1 -- r2: 10.9.12.0/30, 2001:db8:12::/64
  - r2 -- r3: 10.9.23.0/30, 2001:db8:23::/64
  - r3 -- h2: 10.9.2.0/24, 2001:db8:2::/64
expect: [h1 reaches h2 over ipv4, h2 reaches h1 over ipv4, h1 reaches h2 over ipv6, h2 reaches h1 over ipv6,
  "r2 no route 10.9.2.0/24", r1 route 10.9.2.0/24 via r2]
`

// TestLabels: label-switched paths are refused by name where a node's kernel has none, and else carry packets over a
// router that has no routes for them, also after somebody has taken them away, and after they were changed.
func TestLabels(t *testing.T) {
	p := up(t, 1)
	lab := file(t, lspLab)
	for _, forwarding := range []string{"xdp", "router", "bridge", "openflow"} {
		text := strings.Replace(lspLab, "r2: {", "r2: {forwarding: "+forwarding+", ", 1)
		words := "mpls takes forwarding: guest, and not " + forwarding
		if out, stderr, err := p.try("plan", "-f", file(t, text)); err == nil || !strings.Contains(stderr, words) {
			t.Errorf("plan does not say %q: %v\n%s%s", words, err, out, stderr)
		}
	}
	example, err := os.ReadFile("../examples/mpls.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if why := linux.ProbeMPLS(); why != nil {
		for _, command := range []string{"plan", "apply"} {
			for text, words := range map[string]string{
				lspLab:          "router r1 wants mpls; ",
				string(example): "router a wants mpls; ",
			} {
				out, stderr, err := p.try(command, "-f", file(t, text))
				if err == nil || !strings.Contains(stderr, words) || !strings.Contains(stderr, why.Error()) {
					t.Errorf("%s does not say %q: %v\n%s%s", command, words, err, out, stderr)
				}
			}
		}
		if out := p.run("get", "networks"); strings.Contains(out, "lab") || strings.Contains(out, "mpls") {
			t.Errorf("networks that no node can make are there:\n%s", out)
		}
		if out := p.run("get", "nodes", "-o", "wide"); !strings.Contains(out, "mpls") {
			t.Errorf("nodes do not tell that they lack it:\n%s", out)
		}
		return
	}
	p.run("apply", "-f", lab)
	check := func() { t.Helper(); p.run("check", "lab", "--wait", "3m") }
	check()
	if out := p.run("describe", "lab/r2"); !strings.Contains(out, "100 swap 200 via r3 at 10.9.23.2") {
		t.Errorf("describe says\n%s", out)
	}
	r2 := p.namespace("lab", "r2")
	labels := func() string { return in(t, r2, "ip", "-f", "mpls", "route") }
	if is := labels(); strings.Count(is, "\n") != 2 {
		t.Errorf("r2's labels are\n%s", is)
	}
	// What passes r2 has a label.
	watch := exec.Command("nsenter", "--net="+r2, "timeout", "60", "tcpdump", "-Z", "root", "-c1", "-nei", "r3", "mpls")
	var seen strings.Builder
	watch.Stdout = &seen
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- watch.Wait() }()
	h1, h2 := p.namespace("lab", "h1"), addressOf(p, "lab", "h2", false)
	for done := false; !done; {
		select {
		case err := <-ended:
			if done = true; err != nil || !strings.Contains(seen.String(), "MPLS (label") {
				t.Errorf("no label is seen at r2: %v, %s", err, seen.String())
			}
		default:
			in(t, h1, "ping", "-c1", "-W5", h2)
		}
	}

	// Where the first label is given, senders are told of the room that is left, and TCP gets through.
	long := func(bytes string) string {
		out, _ := exec.Command("nsenter", "--net="+h1, "ping", "-c1", "-W5", "-M", "do", "-s", bytes, h2).CombinedOutput()
		return string(out)
	}
	if out := long("1472"); !strings.Contains(out, "mtu = 1496") {
		t.Errorf("a packet of 1,500 bytes, where a label leaves room for 1,496: %s", out)
	}
	server := start(t, p.namespace("lab", "h2"), "iperf3", "-s", "-1")
	p.await("iperf3's server", func() bool { return holds(p.namespace("lab", "h2"), "ss -lnt | grep -q :5201") },
		func() string { return server.said.String() })
	in(t, h1, "timeout", "300", "iperf3", "-c", h2, "-n", "5M")

	// Labels of one's own stay, and the table stays as long as they need it; what was taken away comes back.
	in(t, r2, "sysctl", "-qw", "net.mpls.platform_labels=5000")
	in(t, r2, "ip", "-f", "mpls", "route", "add", "4000", "via", "inet", "10.9.12.1", "dev", "r1")
	in(t, r2, "ip", "-f", "mpls", "route", "del", "100")
	in(t, r2, "sysctl", "-qw", "net.mpls.conf.r1.input=0")
	in(t, p.namespace("lab", "r1"), "ip", "route", "del", "10.9.2.0/24")
	p.await("what was taken away", func() bool { return strings.Contains(labels(), "100 as to 200") }, labels)
	check()
	if !strings.Contains(labels(), "4000 via") {
		t.Errorf("a label of one's own is gone:\n%s", labels())
	}
	in(t, r2, "ip", "-f", "mpls", "route", "del", "4000")
	p.run("restart", "lab/r2")
	check()

	// Two labels, both of which r3 takes off, need more room on their link.
	p.run("apply", "-f", file(t, strings.NewReplacer("out: 200", "out: [201, 16]", "in: 200", "in: 201}, {in: 16").Replace(lspLab)))
	check()
	if out := long("1468"); !strings.Contains(out, " 0 received") {
		t.Errorf("a packet of 1,496 bytes with two labels on a link with room for 1,500: %s", out)
	}
	p.run("set", "lab/r2--r3", "mtu=1504")
	check()
	if out := long("1468"); !strings.Contains(out, " 1 received") {
		t.Errorf("a packet of 1,496 bytes with two labels on a link with room for 1,504: %s", out)
	}
	if is := labels(); !strings.Contains(is, "201/16") {
		t.Errorf("after an apply r2's labels are\n%s", is)
	}
	if saved := p.run("save", "lab"); !strings.Contains(p.run("plan", "-f", file(t, saved)), "no changes") {
		t.Errorf("the saved file changes something:\n%s", saved)
	}
	none := lspLab[:strings.Index(lspLab, "expect")]
	var without []string
	for line := range strings.Lines(none) {
		if before, _, has := strings.Cut(line, "mpls: ["); has {
			line = strings.TrimRight(before, " ,") + "}\n" // of r1 and r2 a mapping that says nothing
		}
		without = append(without, line)
	}
	p.run("apply", "-f", file(t, strings.Join(without, "")))
	p.await("the end of it", func() bool { return labels() == "" }, labels)
	if tryPing := exec.Command("nsenter", "--net="+h1, "ping", "-c1", "-W1", h2).Run(); tryPing == nil {
		t.Error("h1 reaches h2 without labels")
	}
	var routes []json.RawMessage
	decode(t, in(t, p.namespace("lab", "r3"), "ip", "-j", "route", "show", "10.9.1.0/24"), &routes)
	if len(routes) != 0 {
		t.Errorf("r3 still has %s", routes)
	}
	p.run("apply", "-f", file(t, string(example)))
	p.run("check", "mpls", "--wait", "3m")
	for _, router := range []string{"pe1", "a", "b", "pe2"} {
		compareRoutes(t, p, "mpls", router)
	}
}
