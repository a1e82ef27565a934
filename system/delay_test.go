package system

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
)

// roundTrips are those of a hundred pings, the shortest first.
func (p *platform) roundTrips(network, from, address string) []time.Duration {
	p.t.Helper()
	var all []time.Duration
	for line := range strings.Lines(in(p.t, p.namespace(network, from), "ping", "-c", "100", "-i", "0.01",
		"-W", "10", address)) {
		if _, text, ok := strings.Cut(line, " time="); ok {
			d, err := time.ParseDuration(strings.ReplaceAll(strings.TrimSpace(text), " ", ""))
			if err != nil {
				p.t.Fatalf("ping said %q", line)
			}
			all = append(all, d)
		}
	}
	if len(all) < 90 { // a link may have a loss
		p.t.Fatalf("of 100 pings %d were answered", len(all))
	}
	slices.Sort(all)
	return all
}

// Where a node's kernel has no netem, plan says so. Where it has one, a link's delay and jitter are what they are said
// to be and change while packets flow. What is asked of round trips holds on a machine of any slowness: none is
// shorter, not all are much longer.
func TestDelay(t *testing.T) {
	p := up(t, 2)
	file := filepath.Join(t.TempDir(), "far.yaml")
	text := "network: far\npools: [10.0.0.0/16]\nhosts: {h1: {node: n1}, h2: {node: n2}}\nlinks:\n" +
		"  - h1 -- h2: {bandwidth: 10Mbit, delay: 20ms, jitter: 5ms}\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	// The long example says in a comment what a link may have besides; here it has it.
	example, err := os.ReadFile("../examples/long-form.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const backbone = "{name: backbone, bandwidth: 100Mbit,"
	long := filepath.Join(t.TempDir(), "long.yaml")
	if err := os.WriteFile(long,
		[]byte(strings.Replace(string(example), backbone, backbone+" delay: 2ms, jitter: 500us,", 1)),
		0o644); err != nil {
		t.Fatal(err)
	}
	out, stderr, err := p.try("plan", "-f", file)
	if why := linux.ProbeDelay(); why != nil {
		if err == nil || !strings.Contains(stderr,
			"link h1--h2 wants delay; h1 is pinned to n1; n1 lacks it: "+why.Error()) {
			t.Errorf("plan: %v\n%s%s", err, out, stderr)
		}
		if _, stderr, err := p.try("apply", "-f", file); err == nil || !strings.Contains(stderr, why.Error()) {
			t.Errorf("apply: %v\n%s", err, stderr)
		}
		if _, stderr, err := p.try("plan", "-f", long); err == nil ||
			!strings.Contains(stderr, "link backbone wants delay; ") {
			t.Errorf("plan of the long example: %v\n%s", err, stderr)
		}
		return
	}
	if err != nil || !strings.Contains(out, "20ms") {
		t.Fatalf("plan: %v\n%s%s", err, out, stderr)
	}
	p.run("apply", "-f", file)
	p.run("check", "far", "--mesh", "--wait", "2m")
	at := hostAddress(p, "far", "h2")
	delayed := p.roundTrips("far", "h1", at)
	f := p.flow("far", "h1", "h2", at, 0)
	step := func(args ...string) {
		t.Helper()
		p.run(append([]string{"set", "far/h1--h2"}, args...)...)
		f.reached(f.sent.Load() + 500) // in which the longest delay is over
	}
	describe := func(want ...string) {
		t.Helper()
		out := p.run("describe", "far/h1--h2")
		for _, w := range want {
			if !strings.Contains(strings.Join(strings.Fields(out), " "), w) {
				t.Errorf("describe does not say %q:\n%s", w, out)
			}
		}
	}
	describe("Bandwidth: 10Mbit", "Delay: 20ms", "Jitter: 5ms")
	step("delay=50ms")
	describe("Delay: 50ms", "Jitter: 5ms")
	longer := p.roundTrips("far", "h1", at)
	step("delay=10ms", "jitter=0")
	step("delay=0")
	if out := p.run("describe", "far/h1--h2"); strings.Contains(out, "Delay") || strings.Contains(out, "Jitter") {
		t.Errorf("describe tells of a delay that is gone:\n%s", out)
	}
	straight := p.roundTrips("far", "h1", at)
	step("delay=5ms")
	step("bandwidth=") // neither a rate: no queue from here on
	step("delay=0")
	sent, lost, duplicated := f.stop()
	if lost+duplicated != 0 {
		t.Errorf("%d of %d packets were lost, %d came twice", lost, sent, duplicated)
	}
	const ms = time.Millisecond
	slow := straight[len(straight)-1]
	for _, c := range []struct {
		what       string
		trips      []time.Duration
		from, to   time.Duration // of the shortest; ping's clock tells microseconds
		mean, wide time.Duration
	}{
		{"with 20 ms ± 5 ms each way", delayed, 30*ms - time.Microsecond, 50*ms + slow, 38 * ms, 5 * ms},
		{"with 50 ms ± 5 ms each way", longer, 90*ms - time.Microsecond, 110*ms + slow, 98 * ms, 5 * ms},
	} {
		first, last, sum := c.trips[0], c.trips[len(c.trips)-1], time.Duration(0)
		for _, d := range c.trips {
			sum += d
		}
		mean := sum / time.Duration(len(c.trips))
		t.Logf("%s: %s to %s, mean %s", c.what, first, last, mean)
		if first < c.from || first > c.to || mean < c.mean || last-first < c.wide {
			t.Errorf("%s round trips take %s to %s, %s in the mean", c.what, first, last, mean)
		}
	}
	t.Logf("without: %s to %s, median %s; %d packets, none lost", straight[0], slow, straight[50], sent)
	// What the rate drops is counted at the link.
	p.run("set", "far/h1--h2", "bandwidth=1Mbit", "delay=5ms")
	p.await("drops of what is more than the rate", func() bool {
		// 200 at once
		in(t, p.namespace("far", "h1"), "ping", "-q", "-l", "200", "-c", "200", "-s", "1400", "-W", "2", at)
		var l model.LinkStatus
		if err := json.Unmarshal([]byte(p.run("get", "links", "far", "-o", "json")),
			&[]*model.LinkStatus{&l}); err != nil {
			t.Fatal(err)
		}
		return l.Ports[0].Dropped+l.Ports[1].Dropped > 0
	}, func() string { return p.run("describe", "far/h1--h2") })
	p.run("delete", "far")
	p.run("apply", "-f", long)
	var edge string
	for _, i := range p.elements("long-form")["edge"].Element.Interfaces {
		if i.Name == "ge-0/0/0" {
			edge = i.Addresses[0].Addr().String()
		}
	}
	trips := p.roundTrips("long-form", "core", edge)
	t.Logf("the long example's backbone: %s to %s", trips[0], trips[len(trips)-1])
	if trips[0] < 3*ms-time.Microsecond || trips[0] > 5*ms+slow {
		t.Errorf("over the long example's backbone, of 2 ms ± 500 µs, the shortest round trip takes %s", trips[0])
	}
}
