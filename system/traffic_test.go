package system

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
)

// trafficNetwork is two hosts and a router between them, without any routing software.
const trafficNetwork = `network: duo
routers:
  r1: {software: static}
hosts: [h1, h2]
links:
  - h1 -- r1: [10.0.0.0/30, "fd00:1::/64"]
  - r1 -- h2: [10.0.0.4/30, "fd00:2::/64"]
`

// measured is the part of traffic's JSON that these tests judge.
type measured struct {
	Environment struct{ Kernel string }
	Trials      []struct {
		Intended, Sent, Received, Lost, Reordered, Duplicated, Corrupted uint64
		Delay                                                            struct {
			Count uint64
			Min   uint64 `json:"min_ns"`
			Max   uint64 `json:"max_ns"`
		}
		Streams []struct{ Sent, Lost uint64 }
		Marks   []string
	}
	Figures []struct {
		Intervals []struct{ Low, High, Level float64 }
	}
}

// traffic runs a trial whose loop is closed: a busy machine makes it slower, and loses nothing.
func (p *platform) traffic(args ...string) measured {
	p.t.Helper()
	var m measured
	out := p.run(append([]string{"traffic", "duo/h1", "duo/h2", "--closed", "-o", "json"}, args...)...)
	if err := json.Unmarshal([]byte(out), &m); err != nil {
		p.t.Fatalf("%v in %s", err, out)
	}
	return m
}

func trafficLab(t *testing.T) *platform {
	t.Helper()
	p := up(t, 1)
	file := filepath.Join(t.TempDir(), "duo.yaml")
	if err := os.WriteFile(file, []byte(trafficNetwork), 0o600); err != nil {
		t.Fatal(err)
	}
	p.run("apply", "-f", file)
	return p
}

// TestTrafficCounts sends through a router that loses nothing, and then through one that drops exactly one frame in a
// hundred.
func TestTrafficCounts(t *testing.T) {
	p := trafficLab(t)
	for _, c := range []struct {
		args []string
		fps  uint64
	}{
		{[]string{"--rate", "1000pps"}, 1000},
		{[]string{"--rate", "10kpps", "--streams", "4", "--size", "imix"}, 10_000},
		{[]string{"--rate", "1000pps", "--ipv6", "--size", "random", "--poisson"}, 1000},
	} {
		m := p.traffic(append(c.args, "--duration", "1s")...)
		if len(m.Trials) != 1 || m.Environment.Kernel == "" {
			t.Fatalf("%v: %+v", c.args, m)
		}
		r := m.Trials[0]
		if r.Sent == 0 || r.Received != r.Sent || r.Lost+r.Reordered+r.Duplicated+r.Corrupted != 0 {
			t.Errorf("%v: %+v, nothing should be lost, changed or out of order", c.args, r)
		}
		if r.Delay.Count != r.Received || r.Delay.Min == 0 || r.Delay.Max < r.Delay.Min {
			t.Errorf("%v: delays %+v of %d frames", c.args, r.Delay, r.Received)
		}
		short := slices.ContainsFunc(r.Marks, func(m string) bool { return strings.Contains(m, "fell short") })
		if !slices.Contains(c.args, "--poisson") && (r.Intended != c.fps || r.Sent < r.Intended &&
			r.Sent*100 < r.Intended*99 && !short) {
			t.Errorf("%v: %d frames intended, %d sent, marks %q", c.args, r.Intended, r.Sent, r.Marks)
		}
	}

	router := p.namespace("duo", "r1")
	drop := filepath.Join(t.TempDir(), "drop.nft")
	if err := os.WriteFile(drop, []byte(`table inet loss {
	counter dropped { }
	chain forward {
		type filter hook forward priority 0
		udp dport 9 numgen inc mod 100 == 0 counter name dropped drop
	}
}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	in(t, router, "nft", "-f", drop)
	dropped := func() uint64 {
		fields := strings.Fields(in(t, router, "nft", "list", "counter", "inet", "loss", "dropped"))
		n, err := strconv.ParseUint(fields[slices.Index(fields, "packets")+1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := dropped()
	for _, rate := range []string{"1000pps", "10kpps"} {
		r := p.traffic("--rate", rate, "--duration", "1s", "--warmup", "0s").Trials[0]
		now := dropped()
		if lost := now - before; lost == 0 || r.Lost != lost || r.Received != r.Sent-lost {
			t.Errorf("%s: %d of %d frames lost, %d received; the router dropped %d", rate, r.Lost,
				r.Sent, r.Received, lost)
		}
		before = now
	}
}

// TestTrafficPaths: frames are seen however they reach the sink's interface: past its ring, from a queue, or from
// another node.
func TestTrafficPaths(t *testing.T) {
	p := up(t, 2)
	file := filepath.Join(t.TempDir(), "paths.yaml")
	if err := os.WriteFile(file, []byte(`network: duo
routers:
  r1: {software: static, node: n1}
hosts:
  h1: {node: n1}
  h2: {node: n2}
  slow: {node: n1}
  far: {node: n2}
links:
  - h1 -- r1
  - r1 -- h2
  - r1 -- slow: {bandwidth: 100Mbit}
  - r1 -- far: {bandwidth: 100Mbit}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	p.run("apply", "-f", file)
	for _, pair := range [][2]string{{"h1", "r1"}, {"h1", "h2"}, {"h2", "h1"}, {"h1", "slow"},
		{"slow", "far"}, {"far", "h2"}} {
		var m measured
		out := p.run("traffic", "duo/"+pair[0], "duo/"+pair[1], "--closed", "--rate", "1000pps", "--duration",
			"200ms", "-o", "json")
		if err := json.Unmarshal([]byte(out), &m); err != nil {
			t.Fatal(err)
		}
		if r := m.Trials[0]; r.Sent == 0 || r.Received != r.Sent || r.Reordered+r.Duplicated+r.Corrupted != 0 {
			t.Errorf("from %s to %s: %+v", pair[0], pair[1], r)
		}
	}
}

// TestTrafficLeavesNothing repeats a trial, ends one by ^C and kills one; the devices must be as before, at the latest
// after the next trial.
func TestTrafficLeavesNothing(t *testing.T) {
	p := trafficLab(t)
	sink := p.namespace("duo", "h2")
	node := p.dirs.Node(p.elements("duo")["h1"].Node)
	port := node.PortDevice(model.PortID{ID: model.ID{Network: "duo", Element: "h1"}, Interface: "r1"})
	state := func() string {
		programs := strings.Count(in(t, sink, "ip", "link", "show", "dev", "r1"), "xdp")
		offloads := in(t, node.NodeNamespace(), "ethtool", "-k", port)
		i := strings.Index(offloads, "generic-receive-offload")
		return strconv.Itoa(programs) + " " + strings.SplitN(offloads[i:], "\n", 2)[0]
	}
	before := state()
	m := p.traffic("--rate", "1000pps", "--duration", "100ms", "--repeat", "3", "--confidence", "90")
	if len(m.Trials) != 3 || len(m.Figures) == 0 || len(m.Figures[0].Intervals) != 3 {
		t.Errorf("three trials: %+v", m)
	}
	if now := state(); now != before {
		t.Errorf("after trials: %s, was %s", now, before)
	}
	for _, signal := range []os.Signal{os.Interrupt, os.Kill} {
		c := p.command("traffic", "duo/h1", "duo/h2", "--rate", "1000pps", "--duration", "1h")
		c.Stderr = os.Stderr
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- c.Wait() }()
		p.await("the sink to be there", func() bool {
			select {
			case err := <-ended:
				t.Fatalf("a trial of an hour ended at once: %v", err)
			default:
			}
			return !strings.HasPrefix(state(), "0")
		}, state)
		if _, stderr, err := p.try("traffic", "duo/h2", "duo/h1"); exitStatus(err) != 5 {
			t.Errorf("a second trial at the same time: %v, %s", err, stderr)
		}
		if err := c.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		<-ended // its status is the signal's doing
		if signal == os.Kill {
			p.traffic("--rate", "100pps", "--duration", "100ms")
		}
		if now := state(); now != before {
			t.Errorf("after %v: %s, was %s", signal, now, before)
		}
	}
}

// TestTrafficSelfTest: what it finds is kept, and trials beyond it are refused, or marked.
func TestTrafficSelfTest(t *testing.T) {
	p := trafficLab(t)
	var found struct {
		Speeds []struct{ Size int }
		Limits struct{ Rate float64 }
	}
	out := p.run("traffic", "--self-test", "--duration", "100ms", "--repeat", "1", "-o", "json")
	if err := json.Unmarshal([]byte(out), &found); err != nil || len(found.Speeds) == 0 || found.Limits.Rate <= 0 {
		t.Fatalf("%v in %s", err, out)
	}
	if kept, err := os.ReadFile(filepath.Join(instance.NewDirs(p.dirs.Name).Data, "self-test.json")); err != nil ||
		string(kept) != out {
		t.Errorf("kept: %v", err)
	}
	beyond := strconv.FormatFloat(2*found.Limits.Rate, 'f', 0, 64) + "pps"
	if _, stderr, err := p.try("traffic", "duo/h1", "duo/h2", "--rate", beyond, "--duration",
		"100ms"); exitStatus(err) != 5 || !strings.Contains(stderr, "self-test") {
		t.Errorf("a trial beyond the limits: %v, %s", err, stderr)
	}
	m := p.traffic("--rate", beyond, "--duration", "100ms", "--beyond")
	if len(m.Trials) != 1 || !slices.ContainsFunc(m.Trials[0].Marks,
		func(s string) bool { return strings.Contains(s, "beyond") }) {
		t.Errorf("with --beyond: %+v", m.Trials)
	}
}

// TestTrafficTools: the other instruments work through the same network, and every format can be read.
func TestTrafficTools(t *testing.T) {
	p := trafficLab(t)
	for args, want := range map[string]string{
		"--ping --duration 200ms":                            "ANSWERED",
		"--tcp --duration 1s":                                "RETRANSMITS",
		"--connections=100 --duration 200ms":                 "ESTABLISHED",
		"--rate 1000pps --duration 100ms -o csv":             "loss_ratio",
		"--rate 1000pps --duration 100ms --programs":         "program from_port",
		"--rate max --duration 100ms":                        "whole payload checked: of one frame in 256",
		"--rate max --duration 100ms --check 1 -o csv":       "loss_ratio",
		"--compare duo/h2 duo/h1 -r 1k -d 50ms --repeat 3":   "noise floor",
		"duo/h2 duo/h1 --rate 1000pps --duration 100ms":      "duo/h2:r1 → duo/h1:r1",
		"--ping --duration 100ms --ipv6 --repeat 2 -o table": "FIGURE",
	} {
		if out := p.run(append([]string{"traffic", "duo/h1", "duo/h2", "--closed"},
			strings.Fields(args)...)...); !strings.Contains(out, want) {
			t.Errorf("traffic %s prints no %q:\n%s", args, want, out)
		}
	}
}
