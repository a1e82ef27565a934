package cli

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf/rlimit"

	"github.com/polyplane/polyplane/instance"
	frames "github.com/polyplane/polyplane/measure/frame"
	"github.com/polyplane/polyplane/measure/hist"
	"github.com/polyplane/polyplane/measure/machine"
	"github.com/polyplane/polyplane/measure/netdev"
	results "github.com/polyplane/polyplane/measure/result"
	"github.com/polyplane/polyplane/measure/search"
	"github.com/polyplane/polyplane/measure/selftest"
	"github.com/polyplane/polyplane/measure/sink"
	generator "github.com/polyplane/polyplane/measure/source"
	"github.com/polyplane/polyplane/measure/stats"
	"github.com/polyplane/polyplane/measure/tools"
	"github.com/polyplane/polyplane/measure/trial"
	"github.com/polyplane/polyplane/model"
)

func TestParseRate(t *testing.T) {
	for _, c := range []struct {
		in   string
		size float64
		want float64
	}{
		{"max", 64, 0}, {"10kpps", 64, 10_000}, {"10k", 64, 10_000}, {"1234", 64, 1234}, {"2.5Mpps", 64, 2.5e6},
		{"1 kp/s", 64, 1000},
		{"0.5fps", 64, 0.5}, {"512kbit", 64, 1000}, {"100Mbit", 1250, 10_000}, {"1Gbit/s", 1250, 100_000},
		{"8000bps", 100, 10}, {"1Gpps", 64, 1e9},
	} {
		got, err := parseRate(c.in, c.size)
		if err != nil || got < c.want*(1-1e-9) || got > c.want*(1+1e-9) {
			t.Errorf("%q of %v bytes: %v, %v; want %v", c.in, c.size, got, err, c.want)
		}
	}
	for _, in := range []string{"", "fast", "-1", "10 kilo", "10kpps.", "1e6", "0", "0.01pps",
		"2Gpps", "NaN", "10 MBit"} {
		if got, err := parseRate(in, 64); err == nil {
			t.Errorf("%q was taken for %v frames/s", in, got)
		} else if !strings.HasPrefix(err.Error(), "--rate") {
			t.Errorf("%q: %v does not name the flag", in, err)
		}
	}
}

// planOf is the plan of a command line, parsed as the command does, without doing anything.
func planOf(t *testing.T, args ...string) (*trafficPlan, error) {
	t.Helper()
	c := New(nil)
	cmd := c.trafficCommand()
	var f trafficFlags
	fresh := *cmd
	fresh.ResetFlags()
	f.add(&fresh)
	if err := fresh.ParseFlags(args); err != nil {
		return nil, err
	}
	f.seen(&fresh)
	return f.plan(fresh.Flags().Args())
}

func TestTrafficPlans(t *testing.T) {
	for _, c := range []struct {
		args string
		ok   func(*trafficPlan) bool
	}{
		{"lab/h1 lab/h2", func(p *trafficPlan) bool {
			return p.mode == modeTrial && p.fps == 10_000 && p.repeat == 1 && p.level == 0.95 &&
				p.duration == 2*time.Second && p.sizes.Mean() == 64
		}},
		{"lab/r1:ge-0/0/1 lab/h2 --ipv6", func(p *trafficPlan) bool {
			return p.pairs[0].from == ref{"lab", "r1", "ge-0/0/1"} && p.kind == frames.IPv6 && p.sizes.Mean() == 84
		}},
		{"lab/h1 lab/h2 -6 -s imix", func(p *trafficPlan) bool {
			return slices.Min(p.sizes.Of) == 84 &&
				slices.Max(p.sizes.Of) == 1518
		}},
		{"lab/h1 lab/h2 -s random", func(p *trafficPlan) bool { return p.sizes.Min == 79 && p.sizes.Max == 1518 }},
		{"lab/h1 lab/h2 -r 100Mbit -s 1250", func(p *trafficPlan) bool { return p.fps == 10_000 }},
		{"lab/h1 lab/h2 --latency-at 50%", func(p *trafficPlan) bool {
			return p.mode == modeSearch && p.search == "mlr" && p.fraction == 0.5 &&
				p.duration == time.Second && p.width == 0.01
		}},
		{"lab/h1 lab/h2 --latency-at 0.1 --search rfc2544 -d 60s", func(p *trafficPlan) bool {
			return p.search == "rfc2544" && p.fraction == 0.1 && p.duration == time.Minute
		}},
		{"lab/h1 lab/h2 --search mlr --width 5%", func(p *trafficPlan) bool { return p.width == 0.05 }},
		{"lab/h1 lab/h2 --search mlr --width 0.02", func(p *trafficPlan) bool { return p.width == 0.02 }},
		{"lab/h1 lab/h2 --burst", func(p *trafficPlan) bool {
			return p.mode == modeBurst &&
				p.burst == 100_000 && p.repeat == 5
		}},
		{"lab/h1 lab/h2 --burst=7 -n 2", func(p *trafficPlan) bool { return p.burst == 7 && p.repeat == 2 }},
		{"lab/h1 lab/h2 --connections=50", func(p *trafficPlan) bool {
			return p.mode == modeConnections &&
				p.connections == 50
		}},
		{"lab/h1 lab/h2 --tcp --streams 4", func(p *trafficPlan) bool { return p.mode == modeTCP }},
		{"lab/h1 lab/h2 --ping -o table", func(p *trafficPlan) bool {
			return p.mode == modePing &&
				p.output.format == formatTable
		}},
		{"--compare a/h1 a/h2 b/h1 b/h2", func(p *trafficPlan) bool {
			return p.mode == modeCompare && len(p.pairs) == 2 && p.fps == 0 &&
				p.figure == figureReceived && p.repeat == 10
		}},
		{"--compare a/h1 a/h2 b/h1 b/h2 -r 1k -n 3",
			func(p *trafficPlan) bool { return p.figure == figureDelay && p.repeat == 3 }},
		{"lab/h1 lab/h2 --destinations 198.51.100.7/24",
			func(p *trafficPlan) bool { return p.prefix == netip.MustParsePrefix("198.51.100.0/24") }},
		{"--self-test", func(p *trafficPlan) bool { return p.mode == modeSelfTest }},
	} {
		p, err := planOf(t, strings.Fields(c.args)...)
		if err != nil {
			t.Errorf("%s: %v", c.args, err)
		} else if !c.ok(p) {
			t.Errorf("%s: understood as %+v %+v", c.args, *p, *p.trafficFlags)
		}
	}
}

// Whatever makes no sense is said before anything is touched: the instance is not even asked.
func TestTrafficRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"":                                                   "0 elements: pairs are expected",
		"lab/h1":                                             "1 elements: pairs are expected",
		"lab/h1 lab":                                         `"lab" is no element`,
		"lab/h1 lab/h1":                                      "sends to itself",
		"lab/h1 lub/h1":                                      "separate networks",
		"lab/h1 lab/h2 --rate 10furlongs":                    `--rate "10furlongs"`,
		"lab/h1 lab/h2 --size 63":                            "--size 63",
		"lab/h1 lab/h2 --size 1519":                          "--size 1519",
		"lab/h1 lab/h2 --size 64 -6":                         "at least 84",
		"lab/h1 lab/h2 --size large":                         `--size "large"`,
		"lab/h1 lab/h2 --duration 1ms":                       "--duration 1ms",
		"lab/h1 lab/h2 --tcp -d 100ms":                       "whole seconds",
		"lab/h1 lab/h2 --warmup -1s":                         "--warmup",
		"lab/h1 lab/h2 --flows 0":                            "--flows 0",
		"lab/h1 lab/h2 --flows 4096 --streams 64":            "--flows 4096",
		"lab/h1 lab/h2 --streams 65":                         "--streams 65",
		"lab/h1 lab/h2 --check 3":                            "a power of two",
		"lab/h1 lab/h2 --tcp --check 4":                      "no frames whose payload",
		"lab/h1 lab/h2 --repeat 0":                           "--repeat 0",
		"lab/h1 lab/h2 --confidence 80":                      "one of 90, 95, 99",
		"lab/h1 lab/h2 --search bisect":                      `--search "bisect"`,
		"lab/h1 lab/h2 --search mlr --closed":                "nothing is ever lost",
		"lab/h1 lab/h2 --burst --closed":                     "nothing is ever lost",
		"lab/h1 lab/h2 --search mlr --rate 1k":               "not yours to choose",
		"lab/h1 lab/h2 --search mlr --width 2":               "--width 2",
		"lab/h1 lab/h2 --latency-at 150%":                    "--latency-at",
		"lab/h1 lab/h2 --tcp --ping":                         "exclude each other",
		"lab/h1 lab/h2 --search mlr --compare":               "exclude each other",
		"lab/h1 lab/h2 --burst=0":                            "--burst 0",
		"lab/h1 lab/h2 --connections=-1":                     "--connections -1",
		"lab/h1 lab/h2 --poisson --rate max":                 "gaps can only be spread",
		"lab/h1 lab/h2 --rate 1Mpps -d 2h":                   "make it shorter",
		"lab/h1 lab/h2 --destinations fd00::/64":             "its family",
		"lab/h1 lab/h2 --destinations there":                 "a prefix such as",
		"lab/h1 lab/h2 --tcp --destinations 198.51.100.0/24": "B's own address",
		"lab/h1 lab/h2 --figure delay":                       "without that",
		"lab/h1 lab/h2 --compare --figure speed":             `--figure "speed"`,
		"lab/h1 lab/h2 --compare --repeat 2":                 "at least 3 blocks",
		"lab/h1 lab/h2 --compare --confidence 99":            "are 95 %",
		"lab/h1 lab/h2 --out result.txt":                     ".json or .csv",
		"lab/h1 lab/h2 --out /nonexistent/result.json":       "no directory /nonexistent",
		"lab/h1 lab/h2 -o yaml":                              "one of json, csv, table",
		"lab/h1 lab/h2 --self-test":                          "takes no elements",
		"--self-test --out a.csv":                            ".json",
		"lab/h1 lab/h2 lab/h2 lab/h1 --tcp":                  "one pair at a time",
	} {
		f := lab()
		r := run(t, f, append([]string{"traffic"}, strings.Fields(args)...)...)
		if r.code != ExitUsage || !strings.Contains(r.err, want) || r.out != "" || f.requests > 0 {
			t.Errorf("traffic %s: status %d, %d requests, %q; want %q", args, r.code, f.requests, r.err, want)
		}
	}
}

func TestTrafficEndpoints(t *testing.T) {
	for args, want := range map[string]string{
		"lab/h9 lab/r1":     `no element "h9"`,
		"lab/h1 lab/r1:xyz": `no interface "xyz"`,
		"lob/h1 lob/r1":     `no network "lob"`,
		"lab/s1 lab/h1":     "lab/s1 is stopped",
		"lab/h1 lab/r1":     "its namespace is not on this machine",
	} {
		r := run(t, lab(), append([]string{"traffic"}, strings.Fields(args)...)...)
		if r.code == ExitOK || r.code == ExitUsage || !strings.Contains(r.err, want) {
			t.Errorf("traffic %s: status %d, %q; want %q", args, r.code, r.err, want)
		}
	}
	down := lab()
	down.down = true
	if r := run(t, down, "traffic", "lab/h1", "lab/r1"); r.code != ExitNotRunning {
		t.Errorf("without an instance: status %d, %q", r.code, r.err)
	}
}

// Flows are destinations times ports, and streams' ports do not overlap.
func TestTrafficStreams(t *testing.T) {
	own := netip.MustParseAddr("10.0.0.6")
	p, err := planOf(t, "lab/h1", "lab/h2", "--flows", "1000", "--streams", "3")
	if err != nil {
		t.Fatal(err)
	}
	path := trafficPath{Source: netip.MustParseAddr("10.0.0.1"), Destination: own, SourceMAC: netdev.MAC(1),
		NextHopMAC: netdev.MAC(2)}
	streams := p.streamsOf(path)
	if len(streams) != 3 {
		t.Fatalf("%d streams", len(streams))
	}
	for i, s := range streams {
		if s.SourcePort != uint16(1024+1000*i) || s.SourcePorts != 1000 ||
			!slices.Equal(s.Destinations, []netip.Addr{own}) {
			t.Errorf("stream %d: %+v", i, s)
		}
	}
	if err := (generator.Options{Streams: streams, Duration: time.Second}).Validate(); err != nil {
		t.Error(err)
	}
	for prefix, want := range map[string][2]int{"198.51.100.0/24": {256, 16}, "198.51.100.9/32": {1, 4096},
		"10.0.0.0/8": {4096, 1}} {
		p, err := planOf(t, "lab/h1", "lab/h2", "--destinations", prefix)
		if err != nil {
			t.Fatal(err)
		}
		to, ports := p.spread(own)
		if len(to) != want[0] || ports != want[1] || !p.prefix.Contains(to[0]) || !p.prefix.Contains(to[len(to)-1]) {
			t.Errorf("%s: %d destinations from %s to %s, %d ports; want %v", prefix, len(to), to[0],
				to[len(to)-1], ports, want)
		}
	}
}

// Payloads are all checked where that costs nothing that matters, and whoever asks gets it anywhere.
func TestTrafficChecks(t *testing.T) {
	for args, want := range map[string][2]int{"": {1, 1}, "--rate max": {64, 256}, "--rate max --check 1": {64, 1},
		"--check 8": {1, 8}, "--search mlr": {1, 256},
		"--compare lab/h2 lab/h1": {64, 256}, "--compare lab/h2 lab/h1 --rate 1k": {1, 1}, "--burst": {1, 256}} {
		p, err := planOf(t, append([]string{"lab/h1", "lab/h2"}, strings.Fields(args)...)...)
		if err != nil || p.timeEvery != want[0] || p.check != want[1] {
			t.Errorf("%s: %v; one frame in %d is timed, one in %d checked, want %v", args, err,
				p.timeEvery, p.check, want)
		}
	}
}

// Each element with processes has a cgroup, in the hierarchy of either version.
func TestElementGroups(t *testing.T) {
	dirs := instance.NewDirs("x")
	for _, hierarchy := range []string{"cpuacct", ""} {
		root := t.TempDir()
		for _, g := range []string{"n1/lab+r1", "n2/lab+r2", "n1/lab+r1+shell", "n1/lab2+r1"} {
			if err := os.MkdirAll(filepath.Join(root, hierarchy, "polyplane/x", g), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		got := elementGroups(root, dirs, "lab")
		want := []string{filepath.Join(root, hierarchy, "polyplane/x/n1/lab+r1"),
			filepath.Join(root, hierarchy, "polyplane/x/n2/lab+r2")}
		if !slices.Equal(got, want) || elementGroups(root, dirs, "nowhere") != nil {
			t.Errorf("found %q, want %q", got, want)
		}
	}
}

// sampleTrial is a trial with figures that nobody measured.
func sampleTrial(label string, lost uint64) trial.Result {
	h := new(hist.Histogram)
	for v := uint64(1000); v < 21000; v++ {
		h.Add(v)
	}
	var v hist.Variation
	for _, d := range []int64{1000, 1500, 1200, 4000} {
		v.Add(d)
	}
	return trial.Result{Label: label, Rate: 10000, Duration: 2 * time.Second, Elapsed: 2 * time.Second, Intended: 20000,
		Sent: 20000, Received: 20000 - lost - 5, Lost: lost,
		Duplicated: 3, Reordered: 4, Corrupted: 5, Offered: 10000, Forwarded: 10000 - float64(lost+5)/2,
		BitRate: 5.12e6, Delay: h.Digest(), Histogram: h,
		LossRatio: float64(lost) / 20000,
		Placement: trial.Placement{Source: 1, Polled: []trial.Polled{{Device: netdev.Ref{Name: "ppabc"}, CPU: 0}}},
		Streams: []trial.Stream{{StreamReport: generator.StreamReport{Intended: 20000, Sent: 20000, Late: 400},
			Lost: lost, Delay: h.Digest(),
			Got: sink.Stream{Unique: 20000 - lost - 5, Duplicated: 3, Reordered: 4, Corrupted: 5,
				Variation: v.Digest()}}},
		Marks: []string{"the hypervisor took 3.1 % of a core's time"}}
}

func sampleReport(mode trafficMode) *trafficReport {
	a := trafficPath{From: model.PortID{ID: model.ID{Network: "lab", Element: "h1"}, Interface: "r1"},
		To:     model.PortID{ID: model.ID{Network: "lab", Element: "h2"}, Interface: "r1"},
		Source: netip.MustParseAddr("10.0.0.1"), Destination: netip.MustParseAddr("10.0.0.6"),
		NextHop: netip.MustParseAddr("10.0.0.2")}
	second := func(n int) time.Duration { return time.Duration(n) * 10 * time.Millisecond }
	r := &trafficReport{Mode: mode, Paths: []trafficPath{a}, Floor: 490,
		Traffic: trafficShape{Kind: "ipv4", Sizes: "64", Flows: 4096, Streams: 1, Rate: 10000,
			Duration: 2 * time.Second, Repeat: 1, Confidence: 0.95, Open: true,
			Placement: trial.Placement{Source: 1, Polled: []trial.Polled{{Device: netdev.Ref{Name: "ppabc"}, CPU: 0}}}},
		Usage: machine.Usage{Wall: time.Second,
			Cores: []machine.Core{{CPU: 0, User: second(5), System: second(10), SoftIRQ: second(25), Idle: second(60)},
				{CPU: 1, System: second(97), Steal: second(3)}}, Threads: []machine.Thread{{PID: 7,
				Name: "napi/ppabc-9",
				Time: second(20)}}, Groups: map[string]time.Duration{"/sys/fs/cgroup/cpuacct/polyplane/x/n1/lab+r1": second(2), "/sys/fs/cgroup/cpuacct/polyplane/x/n1/lab+r2": 0},
			Programs: []machine.Program{{Name: "from_port#12", Runs: 1000, Time: 250 * time.Microsecond},
				{Name: "idle#3"}}}}
	r.Name, r.Format = "traffic", results.Format
	return r
}

// reports are one of each kind.
func reports(t *testing.T) map[string]*trafficReport {
	t.Helper()
	figure := func(r *trafficReport, system, quantity, unit string, samples ...float64) {
		f, err := results.NewFigure(system, quantity, unit, samples)
		if err != nil {
			t.Fatal(err)
		}
		r.Figures = append(r.Figures, f)
	}
	label := "lab/h1 → lab/h2"
	one := sampleReport(modeTrial)
	one.Trials = []trial.Result{sampleTrial(label, 10)}

	several := sampleReport(modeTrial)
	several.Traffic.Streams = 2
	x := sampleTrial(label, 0)
	x.Streams = append(x.Streams, trial.Stream{StreamReport: generator.StreamReport{Sent: 7}, Lost: 7})
	x.Marks = nil
	several.Trials = []trial.Result{x}

	repeated := sampleReport(modeTrial)
	repeated.Traffic.Repeat, repeated.Traffic.Confidence = 3, 0.99
	for i := range 3 {
		repeated.Trials = append(repeated.Trials, sampleTrial(label, uint64(i)))
	}
	figure(repeated, label, "received", "frames/s", 9997, 9996.5, 9990)
	figure(repeated, label, "lost or not sent", "", 0, 0.00005, 0.0001)
	figure(repeated, label, "delay, median", "ns", 11000, 11010, 12000)
	repeated.Verdict = &stats.Verdict{Reasons: []string{"the control varies by 7.6 % (limit 5.0 %)"}}

	found := sampleReport(modeSearch)
	found.Throughput = map[string]search.MLRResult{label: {Goals: []search.GoalResult{
		{Goal: search.NDR, Bounds: search.Bounds{Lower: 94400, Upper: 95000}, Throughput: 94400, Confirmed: true,
			Confirm: &search.Trial{Duration: 10 * time.Second}},
		{Goal: search.PDR, Bounds: search.Bounds{Lower: 120000, Upper: 121000}, Throughput: 119800,
			Confirm: &search.Trial{Duration: 10 * time.Second, Intended: 100, Sent: 100, Received: 98}}}}}
	found.Trials = []trial.Result{sampleTrial(label, 0)}

	classic := sampleReport(modeSearch)
	classic.RFC2544 = map[string]search.RFC2544Result{label: {Throughput: 94400,
		Bounds: search.Bounds{Lower: 94400, Upper: 95000}, Short: true}}

	burst := sampleReport(modeBurst)
	burst.Burst = &trial.Burst{Longest: 269, Lengths: []uint64{268, 269, 500}}

	compared := sampleReport(modeCompare)
	compared.Traffic.Rate = 0
	compared.Comparison = &trial.Comparison{Order: make([][]string, 10), Noise: stats.Noise{Floor: 0.021},
		Ratios:  map[string]stats.Ratio{"b": {N: 10, Median: 2.5, Interval: stats.Interval{Low: 2.4, High: 2.6}}},
		Differs: map[string]bool{"b": true}}
	figure(compared, "a", figureReceived, "frames/s", 1e6, 1.1e6, 1.05e6)
	figure(compared, "b", figureReceived, "frames/s", 2.5e6, 2.6e6, 2.6e6)

	tcp := sampleReport(modeTCP)
	tcp.TCP = []tools.TCP{{BitRate: 7.45e9, PerStream: []float64{3e9, 4.45e9}, Retransmits: 664,
		MeanRTT: 243 * time.Microsecond, Congestion: "bbr"}}
	ping := sampleReport(modePing)
	ping.Ping = []tools.Ping{{Sent: 20, Received: 19, RTT: sampleTrial("", 0).Delay,
		Series: []time.Duration{1000, 1100}}}
	connections := sampleReport(modeConnections)
	connections.Connections = []tools.Connect{{Requested: 250, Established: 248, Refused: 1, TimedOut: 1, Rate: 496,
		Time: sampleTrial("", 0).Delay}}
	return map[string]*trafficReport{"one": one, "streams": several, "repeated": repeated, "mlr": found,
		"rfc2544": classic, "burst": burst, "compare": compared,
		"tcp": tcp, "ping": ping, "connections": connections}
}

func TestTrafficTables(t *testing.T) {
	for name, r := range reports(t) {
		var b bytes.Buffer
		if err := tableTraffic(&b, r, false, 0); err != nil {
			t.Fatal(err)
		}
		golden(t, "traffic-"+name+".txt", b.String())
	}
	var b bytes.Buffer
	if err := printSelfTest(&b,
		selftest.Report{Environment: machine.Environment{CPU: "A processor", Cores: 2, Kernel: "6.18.0 #1 SMP"},
			Speeds: []selftest.Speed{{Sizes: "64", Closed: 4.5e6, Full: 4.5e6, Whole: 4.5e6, Open: 4e6,
				Got: 3e6, Bare: 5e6,
				Share: stats.Ratio{N: 3, Median: 0.9, Interval: stats.Interval{Low: 0.88, High: 0.93, Level: 0.95}}},
				{Sizes: "imix", Closed: 1e6, Full: 1e6, Whole: 5e5, Bare: 1e6, Share: stats.Ratio{N: 1, Median: 1}}},
			Paces: []selftest.Pace{{Rate: 1e4, Measured: 10001, Error: 0.0001, Late: 0.002},
				{Rate: 1e4, Measured: 9990, Error: -0.001, Poisson: true}},
			Floor: sampleTrial("", 0).Delay, Limits: trial.Limits{Rate: 4.5e6, Accuracy: 0.0001},
			Failures: []string{"64-byte frames reach 80 % of the bare loop, 90 % are " +
				"promised"}}, false, 0); err != nil {
		t.Fatal(err)
	}
	golden(t, "traffic-self-test.txt", b.String())
}

// Warnings are folded between words, and a word that is too long has a line of its own.
func TestFoldWords(t *testing.T) {
	for _, c := range []struct {
		columns int
		want    []string
	}{{0, []string{"as µs many as fit interminably"}}, {10, []string{"as µs many", "as fit", "interminably"}},
		{100, []string{"as µs many as fit interminably"}}} {
		if got := foldWords("as µs many as fit interminably", c.columns); !slices.Equal(got, c.want) {
			t.Errorf("%d columns: %q, want %q", c.columns, got, c.want)
		}
	}
}

// What machines read is whole.
func TestTrafficEncoded(t *testing.T) {
	for name, r := range reports(t) {
		var b bytes.Buffer
		if err := encodeTraffic(&b, r, formatJSON); err != nil {
			t.Fatal(err)
		}
		var back results.File
		err := json.Unmarshal(b.Bytes(), &back)
		if err != nil || back.Format != results.Format || len(back.Trials) != len(r.Trials) || len(back.Figures) != len(r.Figures) {
			t.Errorf("%s: %v; %d trials, %d figures", name, err, len(back.Trials), len(back.Figures))
		}
		var generic map[string]any
		if err := json.Unmarshal(b.Bytes(), &generic); err != nil || generic["mode"] != string(r.Mode) ||
			generic["environment"] == nil {
			t.Errorf("%s: %v, mode %v", name, err, generic["mode"])
		}
		b.Reset()
		if err := encodeTraffic(&b, r, formatCSV); err != nil {
			t.Fatal(err)
		}
		golden(t, "traffic-"+name+".csv", b.String())
	}
}

// A self-test counts only on the machine and the kernel that it was made on.
func TestKeptLimits(t *testing.T) {
	dirs := instance.Dirs{Data: t.TempDir()}
	here := machine.Environment{Kernel: "6.18", CPU: "A", Cores: 2}
	if l, err := readLimits(dirs, here); l != nil || err != nil {
		t.Errorf("none was kept: %+v, %v", l, err)
	}
	write := func(r selftest.Report) {
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := writeWhole(limitsFile(dirs), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kept := selftest.Report{Environment: here, Limits: trial.Limits{Rate: 5e6, Accuracy: 0.001, Floor: 500}}
	write(kept)
	if l, err := readLimits(dirs, here); err != nil || l == nil || *l != kept.Limits {
		t.Errorf("read %+v, %v", l, err)
	}
	if l, err := readLimits(dirs, machine.Environment{Kernel: "6.19", CPU: "A", Cores: 2}); l != nil || err == nil ||
		!strings.Contains(err.Error(), "another kernel") {
		t.Errorf("on another kernel: %+v, %v", l, err)
	}
	if err := os.WriteFile(limitsFile(dirs), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := readLimits(dirs, here); l != nil || err == nil {
		t.Errorf("of half a file: %+v, %v", l, err)
	}
}

// What a killed trial leaves is put back by the next one, and two at a time are refused.
func TestTrafficLock(t *testing.T) {
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Fatal(err)
	}
	a, err := netdev.NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := netdev.NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	device, other := netdev.Ref{Namespace: a.Path(), Name: "traffic0"},
		netdev.Ref{Namespace: b.Path(), Name: "traffic1"}
	if err := netdev.NewVeth(device, other, 1); err != nil {
		t.Fatal(err)
	}
	if err := setGRO(device, false); err != nil {
		t.Fatal(err)
	}
	dirs := instance.Dirs{Name: "test", Run: t.TempDir()}
	first, err := openTrafficLock(dirs)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.queue(device); err != nil {
		t.Fatal(err)
	}
	if _, err := netdev.SetThreaded(device, true); err != nil {
		t.Fatal(err)
	}
	if on, err := gro(device); err != nil || !on {
		t.Fatalf("GRO %v, %v", on, err)
	}
	if _, err := openTrafficLock(dirs); exitCode(err) != ExitRefused {
		t.Errorf("a second trial at the same time: %v", err)
	}
	if err := first.file.Close(); err != nil { // as the kernel does for a killed process
		t.Fatal(err)
	}
	second, err := openTrafficLock(dirs)
	if err != nil {
		t.Fatal(err)
	}
	if on, err := gro(device); err != nil || on {
		t.Errorf("after a killed trial: GRO %v, %v", on, err)
	}
	if pids, err := netdev.NAPIThreads(device.Name); err != nil || len(pids) > 0 {
		t.Errorf("after a killed trial: receive threads %v, %v", pids, err)
	}
	if info, err := second.file.Stat(); err != nil || info.Size() != 0 {
		t.Errorf("the record is not empty: %v, %v", info, err)
	}
	if err := second.queue(netdev.Ref{Namespace: a.Path(), Name: "nowhere"}); err == nil {
		t.Error("a device that does not exist was set up")
	}
	if err := second.close(); err != nil {
		t.Error(err)
	}
}
