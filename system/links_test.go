package system

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// A link that is stopped has carrier at neither end, and nothing passes, whoever forwards: also where static routes
// still lead there. What passes other links of the same elements loses no packet. The link stays stopped when its nodes'
// agents and the manager die, and when its file is applied again.
func TestStoppedLinks(t *testing.T) {
	p := up(t, 2)
	lab := file(t, `network: lab
routers:
  r1: {software: static, node: n1, routes: [10.0.2.0/24 via 10.0.12.2, 10.0.3.0/24 via 10.0.13.2]}
  r2: {software: static, node: n2, routes: [default via 10.0.12.1]}
  r3: {software: static, node: n1, routes: [default via 10.0.13.1]}
hosts: {h1: {node: n1}, h2: {node: n2}, h3: {node: n1}, h4: {node: n2}}
switches: {s: {node: n1, prefixes: 10.0.1.0/24}}
links:
  - s -- h1
  - s -- h4
  - s -- r1
  - r1 -- r2: 10.0.12.0/24
  - r1 -- r3: 10.0.13.0/24
  - r2 -- h2: 10.0.2.0/24
  - r3 -- h3: {prefixes: 10.0.3.0/24, state: down}
  - r3 -- h2: {addressing: none}
`)
	p.run("apply", "-f", lab)
	state := func(name string) string {
		t.Helper()
		var links []model.LinkStatus
		if err := json.Unmarshal([]byte(p.run("get", "links", "lab", "-o", "json")), &links); err != nil {
			t.Fatal(err)
		}
		for _, l := range links {
			if l.Link.Name == name {
				return map[bool]string{true: "up ", false: "down "}[l.Up] + string(l.Link.State)
			}
		}
		return "none"
	}
	carrier := func(element, device string) string {
		t.Helper()
		out := in(t, p.namespace("lab", element), "ip", "-br", "link", "show", device)
		return map[bool]string{true: "without", false: "with"}[strings.Contains(out, "NO-CARRIER")]
	}
	ends := func(want string, ends ...string) {
		t.Helper()
		for i := 0; i < len(ends); i += 2 {
			p.await("carrier", func() bool { return carrier(ends[i], ends[i+1]) == want },
				func() string { return ends[i] + ":" + ends[i+1] + " is not " + want + " carrier" })
		}
	}
	silent := func(from, to string) {
		t.Helper()
		if out, err := exec.Command("nsenter", "--net="+p.namespace("lab", from), "ping", "-c3", "-i0.02", "-W0.2",
			to).CombinedOutput(); err == nil {
			t.Errorf("%s reaches %s by a link that is stopped:\n%s", from, to, out)
		}
	}
	if s := state("r3--h3"); s != "down down" {
		t.Errorf("the file says that r3--h3 is down, and it is %s", s)
	}
	ends("without", "r3", "h3", "h3", "r3")
	p.run("start", "lab/r3--h3")
	ends("with", "r3", "h3", "h3", "r3")
	h2, h3 := addressOf(p, "lab", "h2", false), addressOf(p, "lab", "h3", false)
	p.run("check", "lab", "--mesh", "--wait", "20s")
	f := p.flow("lab", "h1", "h3", h3, 0) // by s, r1 and r3, beside all that is stopped
	for i, ways := range [][]string{{"guest", "xdp"}, {"router", "bridge"}, {"xdp hook=xdp", "xdp hook=xdp"}} {
		for k, way := range ways {
			p.run(append([]string{"set", "lab/" + []string{"r1", "r2"}[k]}, strings.Fields("forwarding="+way)...)...)
		}
		p.run("ping", "lab/h1", h2, "-c", "3", "-i", "0.02")
		if i%2 == 0 {
			p.run("stop", "lab/r1--r2")
		} else {
			p.run("stop", "lab/r2", "--", "r1")
		}
		if s := state("r1--r2"); s != "down down" {
			t.Errorf("%s: a stopped link is %s", ways, s)
		}
		ends("without", "r1", "r2", "r2", "r1")
		silent("h1", h2)
		f.reached(f.sent.Load() + 100)
		p.run("start", "lab/r1--r2")
		p.run("ping", "lab/h1", h2, "-c", "3", "-i", "0.02")
		f.reached(f.sent.Load() + 100)
	}
	if sent, lost, duplicated := f.stop(); lost+duplicated != 0 {
		t.Errorf("of %d packets by other links %d were lost, and %d came twice", sent, lost, duplicated)
	}
	if out := p.run("describe", "lab/r1--r2"); !strings.Contains(out, "LinkStopped") ||
		!strings.Contains(out, "LinkStarted") {
		t.Errorf("describe tells of no events:\n%s", out)
	}
	// A switch's port, and its far end on another node.
	p.run("ping", "lab/h1", addressOf(p, "lab", "h4", false), "-c", "2", "-i", "0.02")
	p.run("stop", "lab/s--h4", "lab/r1--r2")
	ends("without", "h4", "s", "s", "h4")
	silent("h1", addressOf(p, "lab", "h4", false))
	// Nobody has given an address to the ends of a link with addressing: none, and what is added there stays.
	if out := in(t, p.namespace("lab", "h2"), "ip", "-br", "-4", "address", "show", "r3"); out != "" {
		t.Errorf("h2's end of the link without addressing has %s", out)
	}
	p.run("exec", "lab/h2", "--", "ip", "address", "add", "192.0.2.2/24", "dev", "r3")
	p.run("exec", "lab/r3", "--", "ip", "address", "add", "192.0.2.3/24", "dev", "h2")
	p.run("ping", "lab/h2", "192.0.2.3", "-c", "2", "-i", "0.02")
	p.run("apply", "-f", lab)
	p.kill("agent n1")
	p.kill("agent n2")
	p.kill("manager")
	p.ready()
	for _, link := range []string{"s--h4", "r1--r2"} {
		p.await("the links' state to be told again", func() bool { return state(link) == "down down" },
			func() string { return link + " is " + state(link) })
	}
	ends("without", "r1", "r2", "r2", "r1", "h4", "s", "s", "h4")
	silent("h1", h2)
	p.run("ping", "lab/h2", "192.0.2.3", "-c", "2", "-i", "0.02")
	if s := state("r3--h3"); s != "down down" { // the file's word, which the apply made so again
		t.Errorf("r3--h3 is %s", s)
	}
	if out := p.run("save", "lab"); !strings.Contains(out, "state: down") {
		t.Errorf("save says\n%s", out)
	}
}
