package system

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// twoWays is a substrate in which two nodes are joined directly and over a third, and two links between them that fit
// only one on each way.
const (
	twoWays = `nodes: {n1: , n2: , n3: }
links:
  - n1 -- n2: {bandwidth: 100Mbit}
  - n1 -- n3: {bandwidth: 100Mbit}
  - n3 -- n2: {bandwidth: 100Mbit}
`
	twoLinks = `network: lab
hosts:
  a: {node: n1}
  b: {node: n2}
  c: {node: n1}
  d: {node: n2}
links:
  - a -- b: {bandwidth: 80Mbit, prefixes: [10.0.1.0/24]}
  - c -- d: {bandwidth: 80Mbit, prefixes: [10.0.2.0/24]}
expect:
  - a reaches b
  - c reaches d
`
)

// newTwoWays starts that, and tells the ends of the link that is direct and of the one that is relayed.
func newTwoWays(t *testing.T) (p *platform, direct, relayed [2]string) {
	t.Helper()
	p = newPlatform(t)
	substrate := filepath.Join(t.TempDir(), "substrate.yaml")
	if err := os.WriteFile(substrate, []byte(twoWays), 0o600); err != nil {
		t.Fatal(err)
	}
	p.run("up", "--substrate", substrate, "-d")
	p.run("apply", "-f", file(t, twoLinks))
	p.run("check", "lab", "--wait", "3m")
	var links []model.LinkStatus
	if err := json.Unmarshal([]byte(p.run("get", "links", "lab", "-o", "json")), &links); err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		ends := [2]string{l.Link.Ends[0].Element, l.Link.Ends[1].Element}
		switch path := strings.Join(l.Paths[0].Nodes, " "); path {
		case "n1 n2":
			direct = ends
		case "n1 n3 n2":
			relayed = ends
		default:
			t.Errorf("link %s is on the path %s", l.Link.Name, path)
		}
	}
	if direct[0] == "" || relayed[0] == "" {
		t.Fatalf("the links are not on both ways: %+v", links)
	}
	return p, direct, relayed
}

// sentBy is how many packets a device of a node has sent.
func (p *platform) sentBy(node, device string) uint64 {
	p.t.Helper()
	text := in(p.t, p.dirs.Node(node).NodeNamespace(), "cat", "/proc/net/dev")
	_, after, ok := strings.Cut(text, device+":")
	fields := strings.Fields(after)
	if !ok || len(fields) < 10 {
		p.t.Fatalf("%s has no device %s:\n%s", node, device, text)
	}
	n, err := strconv.ParseUint(fields[9], 10, 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

// TestLinksTakeTheirPaths: of two links that only fit one on each of two ways, each takes its own. Agents that die under
// traffic lose no packet.
func TestLinksTakeTheirPaths(t *testing.T) {
	p, direct, relayed := newTwoWays(t)
	devices := func() (to2, to3, on uint64) {
		return p.sentBy("n1", "to-n2"), p.sentBy("n1", "to-n3"), p.sentBy("n3", "to-n2")
	}
	flow := func(ends [2]string, during func()) uint64 {
		t.Helper()
		f := p.flowBetween(p.namespace("lab", ends[0]), p.namespace("lab", ends[1]), addressOf(p, "lab", ends[1], false),
			0, 1)
		f.reached(1000)
		during()
		sent, lost, duplicated := f.stop()
		if lost+duplicated != 0 {
			t.Errorf("%v: of %d packets %d were lost and %d came twice", ends, sent, lost, duplicated)
		}
		return sent
	}
	const others = 300 // probes, ARP
	to2, to3, on := devices()
	sent := flow(direct, func() {})
	now2, now3, nowOn := devices()
	if now2-to2 < sent || now3-to3 > others || nowOn-on > others {
		t.Errorf("of %d packets of the direct link n1 sent %d to n2 and %d to n3", sent, now2-to2, now3-to3)
	}
	to2, to3, on = devices()
	sent = flow(relayed, func() {
		for _, agent := range []string{"agent n3", "agent n1", "agent n2"} {
			p.kill(agent)
			p.run("check", "lab", "--wait", "3m")
		}
	})
	now2, now3, nowOn = devices()
	if now3-to3 < sent || nowOn-on < sent || now2-to2 > others+sent/4 {
		t.Errorf("of %d packets of the relayed link n1 sent %d to n2 and %d to n3, and n3 sent %d on", sent, now2-to2,
			now3-to3, nowOn-on)
	}
	// It is told which path they take, and what the node in between did.
	name := relayed[0] + "--" + relayed[1]
	if out := p.run("describe", "lab/"+name); !strings.Contains(out, "n1→n3→n2") || !strings.Contains(out, "Relays") {
		t.Errorf("described as\n%s", out)
	}
	if out := p.run("get", "links", "lab", "-o", "wide"); !strings.Contains(out, "n1→n3→n2") {
		t.Errorf("listed as\n%s", out)
	}
	relays := func() []model.RelayStatus {
		var links []model.LinkStatus
		if err := json.Unmarshal([]byte(p.run("get", "links", "lab", "-o", "json")), &links); err != nil {
			t.Fatal(err)
		}
		return links[slices.IndexFunc(links, func(l model.LinkStatus) bool { return l.Link.Name == name })].Relays
	}
	p.await("the packets to be told", func() bool {
		r := relays()
		return len(r) == 1 && r[0].Node == "n3" && r[0].Packets[0] >= sent && r[0].Foreign+r[0].Lost+r[0].Over[0] == 0
	}, func() string { return fmt.Sprint(relays()) })
	// Its packets are taken at their full length, and another node's agent puts right what was altered.
	in(t, p.namespace("lab", relayed[0]), "ping", "-c", "3", "-i", "0.1", "-M", "do", "-s", "1472", "-W", "5",
		addressOf(p, "lab", relayed[1], false))
	n3 := p.dirs.Node("n3").NodeNamespace()
	filters := func() string { return in(t, n3, "tc", "filter", "show", "dev", "to-n1", "ingress") }
	if !strings.Contains(filters(), "polyplane underlay") {
		t.Errorf("n3 relays by no filter:\n%s", filters())
	}
	in(t, n3, "tc", "filter", "del", "dev", "to-n1", "ingress")
	p.await("the filter to come back", func() bool { return strings.Contains(filters(), "polyplane underlay") }, filters)
	p.run("delete", "lab", "--now")
	p.await("nothing to be relayed", func() bool { return !strings.Contains(filters(), "polyplane") }, filters)
}

// TestPathChangesLoseNothing gives a link more bandwidth than its path has, twice, so that it takes other paths, of
// which the last leads over a node of the one before to another neighbour. Meanwhile a flow runs in each direction, and the
// second time the manager and the agents of relays die: nothing is lost, and nothing comes twice.
func TestPathChangesLoseNothing(t *testing.T) {
	p := newPlatform(t)
	substrate := filepath.Join(t.TempDir(), "substrate.yaml")
	if err := os.WriteFile(substrate, []byte(`nodes: {n1: , n2: , n3: , n4: }
links:
  - n1 -- n2: {bandwidth: 100Mbit}
  - n1 -- n3: {bandwidth: 200Mbit}
  - n3 -- n2: {bandwidth: 300Mbit}
  - n1 -- n4: {bandwidth: 300Mbit}
  - n4 -- n3: {bandwidth: 300Mbit}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	p.run("up", "--substrate", substrate, "-d")
	p.run("apply", "-f", file(t, `network: lab
hosts:
  a: {node: n1}
  b: {node: n2}
links:
  - a -- b: {bandwidth: 80Mbit, prefixes: [10.0.1.0/24]}
expect:
  - a reaches b
`))
	p.run("check", "lab", "--wait", "3m")
	link := func() (l model.LinkStatus) {
		var links []model.LinkStatus
		if err := json.Unmarshal([]byte(p.run("get", "links", "lab", "-o", "json")), &links); err != nil {
			t.Fatal(err)
		}
		return links[0]
	}
	first := link()
	if path := strings.Join(first.Paths[0].Nodes, "→"); path != "n1→n2" {
		t.Fatalf("it begins on %s", path)
	}
	there := p.flowBetween(p.namespace("lab", "a"), p.namespace("lab", "b"), addressOf(p, "lab", "b", false), 0, 1)
	back := p.flowBetween(p.namespace("lab", "b"), p.namespace("lab", "a"), addressOf(p, "lab", "a", false), 0, 1)
	for _, change := range []struct {
		rate, path, device string
		kills              []string
	}{
		{"150Mbit", "n1→n3→n2", "to-n3", nil},
		{"250Mbit", "n1→n4→n3→n2", "to-n4", []string{"manager", "agent n3", "agent n4"}},
	} {
		p.run("set", "lab/a--b", "bandwidth="+change.rate)
		for _, process := range change.kills {
			p.kill(process)
		}
		p.await("the path "+change.path, func() bool {
			l := link()
			return l.Turn == nil && strings.Join(l.Paths[0].Nodes, "→") == change.path
		}, func() string { return p.run("describe", "lab/a--b") })
		before, arrived := p.sentBy("n1", change.device), there.latest.Load()
		there.reached(arrived + 500)
		if on := p.sentBy("n1", change.device) - before; on < 500 {
			t.Errorf("%s: of 500 packets %d left by %s", change.path, on, change.device)
		}
		if out := p.run("get", "events", "lab"); change.kills == nil && // a manager's events go with it
			(!strings.Contains(out, "PathChanging") || !strings.Contains(out, "PathChanged")) {
			t.Errorf("%s: told:\n%s", change.path, out)
		}
	}
	for name, f := range map[string]*flow{"there": there, "back": back} {
		if sent, lost, twice := f.stop(); lost+twice != 0 {
			t.Errorf("%s: of %d packets %d were lost and %d came twice", name, sent, lost, twice)
		} else {
			t.Logf("%s: %d packets, none lost", name, sent)
		}
	}
	last := link()
	if last.VNI == first.VNI || len(last.Relays) != 2 {
		t.Errorf("at the end: %+v, at first: %+v", last, first)
	}
}

// TestCutLinksAreLeft has a link of the substrate drop everything while its devices stay up: the link of a network that
// is on it takes another path, and carries packets again.
func TestCutLinksAreLeft(t *testing.T) {
	p := newPlatform(t)
	substrate := filepath.Join(t.TempDir(), "substrate.yaml")
	if err := os.WriteFile(substrate, []byte(twoWays), 0o600); err != nil {
		t.Fatal(err)
	}
	p.run("up", "--substrate", substrate, "-d")
	p.run("apply", "-f", file(t, `network: lab
hosts:
  a: {node: n1}
  b: {node: n2}
links:
  - a -- b: {bandwidth: 80Mbit, prefixes: [10.0.1.0/24]}
expect:
  - a reaches b
`))
	p.run("check", "lab", "--wait", "3m")
	path := func() string {
		var links []model.LinkStatus
		if err := json.Unmarshal([]byte(p.run("get", "links", "lab", "-o", "json")), &links); err != nil {
			t.Fatal(err)
		}
		if links[0].Turn != nil {
			return "on its way"
		}
		return strings.Join(links[0].Paths[0].Nodes, "→")
	}
	if is := path(); is != "n1→n2" {
		t.Fatalf("it begins on %s", is)
	}
	p.await("the links of the substrate to be measured", func() bool {
		var links []model.SubstrateLinkStatus
		if err := json.Unmarshal([]byte(p.run("get", "substrate", "-o", "json")), &links); err != nil {
			t.Fatal(err)
		}
		return !slices.ContainsFunc(links, func(l model.SubstrateLinkStatus) bool {
			return l.Forth == nil || l.Back == nil || !l.Forth.Up || !l.Back.Up
		})
	}, func() string { return p.run("get", "substrate") })
	f := p.flowBetween(p.namespace("lab", "a"), p.namespace("lab", "b"), addressOf(p, "lab", "b", false), 0, 1)
	f.reached(500)
	for node, device := range map[string]string{"n1": "to-n2", "n2": "to-n1"} {
		in(t, p.dirs.Node(node).NodeNamespace(), "nft", "add table inet cut; add chain inet cut in "+
			"{ type filter hook input priority 0; policy accept; }; add rule inet cut in iifname "+device+" drop")
	}
	cut := f.latest.Load()
	p.await("another path", func() bool { return path() == "n1→n3→n2" },
		func() string { return p.run("describe", "lab/a--b") })
	f.reached(cut + 5000)
	sent, lost, twice := f.stop()
	t.Logf("of %d packets, one a millisecond, %d were lost in the cut", sent, lost)
	if twice > 0 {
		t.Errorf("%d came twice", twice)
	}
	p.run("check", "lab", "--wait", "3m")
	if out := p.run("get", "events"); !strings.Contains(out, "SubstrateLinkDown") ||
		!strings.Contains(out, "PathChanged") {
		t.Errorf("told:\n%s", out)
	}
}
