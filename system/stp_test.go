package system

import (
	"strings"
	"testing"
)

// TestSpanningTree has switches in a loop, on two nodes, carry packets without a storm, also after a link of their tree
// is cut and after it is back.
func TestSpanningTree(t *testing.T) {
	p := newPlatform(t)
	p.run("up", "--nodes", "2", "-d")
	const text = `network: lab
switches:
  s1: {stp: 4096, node: n1}
  s2: {stp: true, node: n2}
  s3: {stp: true, node: n1}
hosts: [h1, h2, h3]
links:
  - s1 -- s2
  - s2 -- s3
  - s3 -- s1
  - s1 -- h1
  - s2 -- h2
  - s3 -- h3
`
	p.run("apply", "-f", file(t, text))
	tree := func(element string) string { return in(t, p.namespace("lab", element), "bridge", "-d", "link") }
	state := func() string { return tree("s1") + tree("s2") + tree("s3") }
	// Each of the three links has two ends, and one end of one link is blocked.
	p.await("a tree", func() bool {
		is := state()
		return strings.Count(is, "state forwarding") == 8 && strings.Count(is, "state blocking") == 1
	}, state)
	if is := tree("s1"); strings.Contains(is, "blocking") {
		t.Errorf("s1, which has the lowest priority, is not the root:\n%s", is)
	}
	p.run("check", "lab", "--mesh", "--wait", "3m")
	received := func() int {
		var links []struct {
			Stats struct{ Rx struct{ Packets int } } `json:"stats64"`
		}
		decode(t, in(t, p.namespace("lab", "h3"), "ip", "-s", "-j", "link", "show", "dev", "s3"), &links)
		return links[0].Stats.Rx.Packets
	}
	before := received()
	in(t, p.namespace("lab", "h1"), "sh", "-c", // nobody answers
		"ping -b -c20 -i0.05 -W1 255.255.255.255 -I s1; true")
	if got := received() - before; got < 20 || got > 1000 {
		t.Errorf("20 broadcasts came as %d frames", got)
	}

	// What is expected of the tree is so, and what is not so is told.
	p.run("apply", "-f", file(t, text+"expect: [s1 stp root, s2 stp root s1, s1 stp port s2 designated, s2 no stp root]\n"))
	p.run("check", "lab", "--wait", "1m")
	p.run("apply", "-f", file(t, text+"expect: [s2 stp root, s1 stp port s2 blocking]\n"))
	for _, words := range []string{"s2: the root of its spanning tree is s1", "s1: its port s2 is forwarding (designated)"} {
		if out, stderr, err := p.try("check", "lab"); err == nil || !strings.Contains(out+stderr, words) {
			t.Errorf("check does not say %q: %v\n%s%s", words, err, out, stderr)
		}
	}

	p.run("apply", "-f", file(t, text))
	p.run("stop", "lab/s1--s2")
	p.run("check", "lab", "--mesh", "--wait", "3m")
	p.await("the other way", func() bool { return !strings.Contains(state(), "state blocking") }, state)
	p.run("start", "lab/s1--s2")
	p.await("the tree to be back", func() bool {
		is := state()
		return strings.Count(is, "state forwarding") == 8 && strings.Count(is, "state blocking") == 1
	}, state)
	p.run("check", "lab", "--mesh", "--wait", "3m")
	for name, want := range map[string][]string{
		"s1": {"priority 4096", "STP root: itself", "designated forwarding"},
		"s2": {"STP root: s1 (priority 4096), at cost ", "root forwarding"},
	} {
		for _, words := range want {
			if out := p.run("describe", "lab/"+name); !strings.Contains(strings.Join(strings.Fields(out), " "), words) {
				t.Errorf("describe of %s does not say %q:\n%s", name, words, out)
			}
		}
	}
	if out := p.run("get", "events"); strings.Contains(out, "Attack") {
		t.Errorf("somebody is suspected:\n%s", out)
	}
}
