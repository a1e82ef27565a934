package cli

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/polyplane/polyplane/each"
	frames "github.com/polyplane/polyplane/measure/frame"
	"github.com/polyplane/polyplane/measure/selftest"
	generator "github.com/polyplane/polyplane/measure/source"
)

// trafficFlags are the flags of `traffic` as typed.
type trafficFlags struct {
	rate, size, search, latencyAt, within, destinations, out, figure string
	duration, warmup                                                 time.Duration
	flows, streams, repeat, confidence, burst, check                 int
	connections                                                      float64
	poisson, ipv6, tcp, ping, compare, selfTest                      bool
	closed, beyond, programs, inside                                 bool
	seed                                                             uint64
	output                                                           output

	given []string // the flags that were

	rateSet, sizeSet, durationSet, repeatSet, burstSet, connectionsSet, checkSet bool
}

func (f *trafficFlags) add(cmd *cobra.Command) {
	s := cmd.Flags()
	s.StringVarP(&f.rate, "rate", "r", "10kpps",
		"what to offer in all: frames a second (10kpps), bits a second of frames (100Mbit), or max")
	s.StringVarP(&f.size, "size", "s", "64",
		"`bytes` of a frame with its check sequence: 64 to 1518, a range (79-1518), imix, or random (79-1518)")
	s.DurationVarP(&f.duration, "duration", "d", 2*time.Second, "duration of each trial")
	s.DurationVar(&f.warmup, "warmup", 100*time.Millisecond, "traffic before each trial that is not counted")
	s.IntVar(&f.flows, "flows", 4096, "flows of each stream: destinations times UDP source ports, in random order")
	s.IntVar(&f.streams, "streams", 1,
		"streams (with --tcp: connections) of each pair; they share the rate, and each is counted by itself")
	s.StringVar(&f.destinations, "destinations", "",
		"send to the addresses of this `PREFIX`, up to 4096 of them, instead of to B's own; it must be routed to B")
	s.IntVar(&f.check, "check", 0,
		"sum up the whole payload of every Nth frame, a power of two (default 1; 256 with --rate max, --search and "+
			"--burst)")
	s.BoolVar(&f.poisson, "poisson", false, "exponential gaps between frames instead of constant ones")
	s.BoolVarP(&f.ipv6, "ipv6", "6", false, "IPv6 instead of IPv4")
	s.IntVarP(&f.repeat, "repeat", "n", 1,
		"this many trials, with a confidence interval for each figure; with --compare blocks (10), with --burst "+
			"repetitions (5)")
	s.IntVar(&f.confidence, "confidence", 95, "`percent` of the intervals: 90, 95 or 99")
	s.StringVar(&f.search, "search", "",
		"search the throughput by the `method` mlr (no loss, and 0.5 %, half the trials may exceed) or rfc2544 (no "+
			"loss at all)")
	s.StringVar(&f.within, "width", "1%", "`share` of the rate that a search's bounds may be apart when it ends")
	s.StringVar(&f.latencyAt, "latency-at", "", "after a search, delay at this `share` of the throughput, such as 50%")
	s.IntVar(&f.burst, "burst", 100_000,
		"find the longest back-to-back burst without loss, of this many `frames` at most")
	s.Lookup("burst").NoOptDefVal = "100000"
	s.Lookup("burst").DefValue = ""
	s.BoolVar(&f.tcp, "tcp", false, "TCP's bit rate, by iperf3")
	s.BoolVar(&f.ping, "ping", false, "round-trip times, 100 ICMP echoes a second")
	s.Float64Var(&f.connections, "connections", 1000, "new TCP connections, requested at this `rate` a second")
	s.Lookup("connections").NoOptDefVal = "1000"
	s.Lookup("connections").DefValue = ""
	s.BoolVar(&f.compare, "compare", false,
		"measure the pairs in turn, in random blocks, and compare each with the first")
	s.StringVar(&f.figure, "figure", "",
		"what --compare compares: `received` frames a second, delay (median), or p99 of the delay")
	s.BoolVar(&f.selfTest, "self-test", false, "find out what source and sink can do on this machine, and keep it")
	s.BoolVar(&f.closed, "closed", false,
		"send and forward on one core: nothing is lost at its ring, but the source waits for what is measured")
	s.BoolVar(&f.beyond, "beyond", false, "mark trials beyond what the self-test reached instead of refusing them")
	s.BoolVar(&f.programs, "programs", false,
		"account for the run time of the node's eBPF programs; it costs each run two clock readings")
	s.BoolVar(&f.inside, "inside", false, "measure from inside the elements, by processes of theirs: what owners "+
		"get, who have no root on the machine; loss, order and jitter, or TCP's bit rate with --tcp")
	s.Uint64Var(&f.seed, "seed", 1, "seed of flows, sizes, gaps and the order of a comparison")
	s.StringVar(&f.out, "out", "", "also write everything to this `file`, as JSON (.json) or CSV (.csv)")
	f.output.addFlag(cmd, formatJSON, formatCSV, formatTableWord)
	mustComplete(cmd.RegisterFlagCompletionFunc("search", cobra.FixedCompletions([]string{"mlr", "rfc2544"},
		cobra.ShellCompDirectiveNoFileComp)))
}

// seen notes which flags were given: some defaults depend on the mode.
func (f *trafficFlags) seen(cmd *cobra.Command) {
	for name, set := range map[string]*bool{"rate": &f.rateSet, "size": &f.sizeSet, "duration": &f.durationSet,
		"repeat": &f.repeatSet, "burst": &f.burstSet, "connections": &f.connectionsSet, "check": &f.checkSet} {
		*set = cmd.Flags().Changed(name)
	}
	cmd.Flags().Visit(func(flag *pflag.Flag) { f.given = append(f.given, flag.Name) })
}

// Formats of `traffic` beside those of all commands.
const (
	formatCSV       = "csv"
	formatTableWord = "table"
)

// trafficMode is what a command line asks for.
type trafficMode string

const (
	modeTrial       trafficMode = "trial"
	modeSearch      trafficMode = "search"
	modeBurst       trafficMode = "burst"
	modeTCP         trafficMode = "tcp"
	modePing        trafficMode = "ping"
	modeConnections trafficMode = "connections"
	modeCompare     trafficMode = "compare"
	modeSelfTest    trafficMode = "self-test"
)

// trafficPair is from where to where.
type trafficPair struct{ from, to ref }

// trafficPlan is a command line, understood and checked.
type trafficPlan struct {
	named *refs
	*trafficFlags
	mode      trafficMode
	pairs     []trafficPair
	sizes     frames.Sizes
	kind      frames.Kind
	fps       float64 // frames/s of all streams of all pairs; 0: as fast as possible
	level     float64
	timeEvery int     // of frames that leave as fast as possible, not each is timed
	width     float64 // relative, of a search's bounds
	fraction  float64 // of the throughput, for --latency-at; 0: none
	prefix    netip.Prefix
}

// plan checks everything that can be checked before anything is touched.
func (f *trafficFlags) plan(given []string) (*trafficPlan, error) {
	p := &trafficPlan{trafficFlags: f}
	var err error
	if p.mode, err = f.modeOf(); err != nil {
		return nil, err
	}
	if f.output.format == formatTableWord {
		f.output.format = formatTable
	}
	if p.pairs, err = parsePairs(given, p.mode); err != nil {
		return nil, err
	}
	for _, check := range []func() error{p.checkNumbers, p.checkSizes, p.checkRate, p.checkDestinations, p.checkSearch,
		p.checkCompare, p.checkOut} {
		if err := check(); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (f *trafficFlags) modeOf() (trafficMode, error) {
	mode, flag := modeTrial, ""
	for _, m := range []struct {
		on   bool
		flag string
		mode trafficMode
	}{
		{f.search != "" || f.latencyAt != "", "--search", modeSearch},
		{f.burstSet, "--burst", modeBurst},
		{f.tcp, "--tcp", modeTCP},
		{f.ping, "--ping", modePing},
		{f.connectionsSet, "--connections", modeConnections},
		{f.compare, "--compare", modeCompare},
		{f.selfTest, "--self-test", modeSelfTest},
	} {
		if !m.on {
			continue
		}
		if flag != "" {
			return "", fmt.Errorf("%s and %s exclude each other", flag, m.flag)
		}
		mode, flag = m.mode, m.flag
	}
	return mode, nil
}

// parsePairs reads where from and where to, two words for each pair.
func parsePairs(given []string, mode trafficMode) ([]trafficPair, error) {
	if mode == modeSelfTest {
		if len(given) > 0 {
			return nil, fmt.Errorf("--self-test takes no elements: it measures source and sink alone")
		}
		return nil, nil
	}
	var refs []ref
	typed := asTyped()
	for _, s := range given {
		r, err := typed.elementOrPort(s)
		if err != nil || r.element == "" {
			return nil, fmt.Errorf("%q is no element: NET/ELEMENT or NET/ELEMENT:IF is expected, such as lab/h1 or "+
				"lab/r1:eth0", s)
		}
		refs = append(refs, r)
	}
	if len(refs) == 0 || len(refs)%2 == 1 {
		return nil, fmt.Errorf("%d elements: pairs are expected, from where and to where each, such as lab/h1 lab/h2",
			len(refs))
	}
	var pairs []trafficPair
	for ; len(refs) > 0; refs = refs[2:] {
		pair := trafficPair{refs[0], refs[1]}
		if pair.from.id() == pair.to.id() {
			return nil, fmt.Errorf("%s sends to itself: that passes no link", pair.from.id())
		}
		if a, b := pair.from.network, pair.to.network; a != b && !strings.Contains(a+b, "/") {
			return nil, separate(pair)
		}
		pairs = append(pairs, pair)
	}
	if len(pairs) > 1 && !slices.Contains([]trafficMode{modeTrial, modeCompare}, mode) {
		return nil, fmt.Errorf("%d pairs with --%s: one pair at a time is measured so", len(pairs), mode)
	}
	// Every pair that sends at the same time spins on a core of its own.
	if mode == modeTrial && len(pairs) > runtime.NumCPU() {
		return nil, fmt.Errorf("%d pairs at once: each sends from a core of its own, and this machine has %d",
			len(pairs), runtime.NumCPU())
	}
	return pairs, nil
}

// checkNumbers refuses numbers that make no sense, before anything is opened.
func (p *trafficPlan) checkNumbers() error {
	switch {
	case p.duration < 10*time.Millisecond || p.duration > 24*time.Hour:
		return fmt.Errorf("--duration %v: from 10ms to 24h is possible", p.duration)
	case p.mode == modeTCP && p.duration < time.Second:
		return fmt.Errorf("--duration %v: iperf3 counts whole seconds, from 1s", p.duration)
	case p.warmup < 0 || p.warmup > time.Hour:
		return fmt.Errorf("--warmup %v: from 0s to 1h is possible", p.warmup)
	case p.streams < 1 || p.streams > generator.MaxStreams:
		return fmt.Errorf("--streams %d: from 1 to %d are possible", p.streams, generator.MaxStreams)
	case p.flows < 1 || p.flows*p.streams > maxFlows:
		return fmt.Errorf("--flows %d: from 1 to %d for all streams together are possible", p.flows, maxFlows)
	case p.repeat < 1 || p.repeat > 10_000:
		return fmt.Errorf("--repeat %d: from 1 to 10000 are possible", p.repeat)
	case p.confidence != 90 && p.confidence != 95 && p.confidence != 99:
		return fmt.Errorf("--confidence %d: one of 90, 95, 99 is expected", p.confidence)
	case p.burstSet && (p.burst < 1 || p.burst > 10_000_000):
		return fmt.Errorf("--burst %d: from 1 to 10000000 frames are possible", p.burst)
	case p.connectionsSet && !(p.connections > 0 && p.connections <= 1e6):
		return fmt.Errorf("--connections %g: above 0 and up to 1000000 a second are possible", p.connections)
	}
	p.level = float64(p.confidence) / 100
	if p.mode == modeBurst && !p.repeatSet {
		p.repeat = 5
	}
	if p.mode == modeSearch && !p.durationSet {
		p.duration = time.Second // of each trial of many
	}
	return nil
}

// maxFlows is what the UDP source ports from 1024 on allow.
const maxFlows = 64512

func (p *trafficPlan) checkSizes() error {
	if p.ipv6 {
		p.kind = frames.IPv6
	}
	least := p.kind.MinSize()
	switch strings.ToLower(p.size) {
	case "imix":
		p.sizes = frames.IMIX()
		for i, s := range p.sizes.Of {
			p.sizes.Of[i] = max(s, least)
		}
	case "random":
		p.sizes = frames.Uniform(max(79, least), frames.MaxSize)
	default:
		var err error
		if !p.sizeSet && p.ipv6 {
			p.sizes = frames.Fixed(least)
		} else if p.sizes, err = frames.ParseSizes(p.size); err != nil {
			return fmt.Errorf("--size %q: bytes (64), a range (79-1518), imix or random is expected", p.size)
		}
	}
	if err := p.sizes.Validate(p.kind); err != nil {
		return fmt.Errorf("--size %s: %w", p.size, err)
	}
	return nil
}

func (p *trafficPlan) checkRate() error {
	fps, err := parseRate(p.rate, p.sizes.Mean())
	if err != nil {
		return err
	}
	p.fps = fps
	if p.rateSet && !slices.Contains([]trafficMode{modeTrial, modeCompare}, p.mode) {
		return fmt.Errorf("--rate with --%s: its rate is not yours to choose", p.mode)
	}
	if p.mode == modeCompare && !p.rateSet {
		p.fps = 0
	}
	if p.fps*p.duration.Seconds() > generator.MaxFrames {
		return fmt.Errorf("--rate %s for %v: at most %d frames can be told apart; make it shorter", p.rate, p.duration,
			uint64(generator.MaxFrames))
	}
	if p.poisson && p.fps == 0 {
		return errors.New("--poisson with --rate max: gaps can only be spread where there are any")
	}
	p.timeEvery = 1
	if p.fps == 0 && slices.Contains([]trafficMode{modeTrial, modeCompare}, p.mode) {
		p.timeEvery = selftest.TimeEvery
	}
	return p.checkEvery()
}

// checkEvery decides whose payload is checked.
func (p *trafficPlan) checkEvery() error {
	switch {
	case !p.checkSet && (p.timeEvery > 1 || p.mode == modeSearch || p.mode == modeBurst):
		p.check = selftest.CheckEvery
	case !p.checkSet:
		p.check = 1
	case p.check < 1 || p.check > 1<<20 || bits.OnesCount(uint(p.check)) != 1:
		return fmt.Errorf("--check %d: a power of two from 1 to 1048576 is expected", p.check)
	case !slices.Contains([]trafficMode{modeTrial, modeCompare, modeSearch, modeBurst}, p.mode):
		return fmt.Errorf("--check with --%s: it sends no frames whose payload could be checked", p.mode)
	}
	return nil
}

var ratePattern = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?) ?([kKMG]?)(|pps|p/s|fps|bit|bps|bit/s)$`)

// parseRate reads 10kpps, 100Mbit or max, and returns frames a second: 0 means as fast as possible. Bits are those of
// frames, check sequences included, preambles and gaps not.
func parseRate(s string, meanSize float64) (float64, error) {
	if s == "max" {
		return 0, nil
	}
	m := ratePattern.FindStringSubmatch(s)
	if m == nil {
		return 0, fmt.Errorf("--rate %q: frames a second such as 10kpps or 2.5Mpps, bits a second such as 100Mbit, "+
			"or max is expected", s)
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return 0, fmt.Errorf("--rate %q: %w", s, err)
	}
	v *= map[string]float64{"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}[m[2]]
	if strings.HasPrefix(m[3], "b") {
		v /= 8 * meanSize
	}
	if v < 0.1 || v > 1e9 {
		return 0, fmt.Errorf("--rate %s: that is %.3g frames a second; 0.1 to 1e9 are possible", s, v)
	}
	return v, nil
}

func (p *trafficPlan) checkDestinations() error {
	if p.destinations == "" {
		return nil
	}
	var err error
	if p.prefix, err = netip.ParsePrefix(p.destinations); err != nil {
		return fmt.Errorf("--destinations %q: a prefix such as 198.51.100.0/24 is expected", p.destinations)
	}
	p.prefix = p.prefix.Masked()
	if p.prefix.Addr().Is6() != p.ipv6 {
		return fmt.Errorf("--destinations %s: its family is not that of the frames; --ipv6 chooses IPv6", p.prefix)
	}
	if p.mode == modeTCP || p.mode == modePing || p.mode == modeConnections {
		return fmt.Errorf("--destinations with --%s: that goes to B's own address", p.mode)
	}
	return nil
}

// maxDestinations is how many addresses of a prefix are used.
const maxDestinations = 4096

// spread gives each stream its destinations and the number of source ports that make its flows.
func (p *trafficPlan) spread(own netip.Addr) (to []netip.Addr, ports int) {
	to = []netip.Addr{own}
	if p.prefix.IsValid() {
		n := min(maxDestinations, p.flows)
		if free := p.prefix.Addr().BitLen() - p.prefix.Bits(); free < 12 {
			n = min(n, 1<<free)
		}
		to = generator.Destinations(p.prefix.Addr(), n)
	}
	return to, int(math.Ceil(float64(p.flows) / float64(len(to))))
}

func (p *trafficPlan) checkSearch() error {
	if p.mode != modeSearch {
		return nil
	}
	p.search = cmp.Or(p.search, "mlr")
	if p.search != "mlr" && p.search != "rfc2544" {
		return fmt.Errorf("--search %q: mlr or rfc2544 is expected", p.search)
	}
	var ok bool
	if p.width, ok = share(p.within); !ok || p.width < 0.0001 || p.width > 0.5 {
		return fmt.Errorf("--width %s: a share from 0.01%% to 50%%, such as 1%% or 0.01, is expected", p.within)
	}
	if p.closed {
		return errors.New("--search with --closed: where source and receiver share a core, the source waits and " +
			"nothing is ever lost")
	}
	if p.latencyAt == "" {
		return nil
	}
	if p.fraction, ok = share(p.latencyAt); !ok {
		return fmt.Errorf("--latency-at %q: a share of the throughput such as 50%% or 0.5 is expected", p.latencyAt)
	}
	return nil
}

// share reads a share such as 50% or 0.5, above 0 and at most 1.
func share(s string) (float64, bool) {
	v, percent := strings.CutSuffix(s, "%")
	f, err := strconv.ParseFloat(v, 64)
	if percent {
		f /= 100
	}
	return f, err == nil && f > 0 && f <= 1
}

// compareBlocks is how many blocks a comparison has when nobody says.
const compareBlocks = 10

func (p *trafficPlan) checkCompare() error {
	if p.mode == modeBurst && p.closed {
		return errors.New("--burst with --closed: where source and receiver share a core, the source waits and " +
			"nothing is ever lost")
	}
	if p.mode != modeCompare {
		if p.figure != "" {
			return errors.New("--figure says what --compare compares; it means nothing without that")
		}
		return nil
	}
	if !p.repeatSet {
		p.repeat = compareBlocks
	}
	switch {
	case p.repeat < 3:
		return fmt.Errorf("--repeat %d with --compare: at least 3 blocks are needed", p.repeat)
	case p.confidence != 95:
		return fmt.Errorf("--confidence %d with --compare: its intervals are 95 %%", p.confidence)
	}
	switch p.figure {
	case "":
		p.figure = figureDelay
		if p.fps == 0 {
			p.figure = figureReceived
		}
	case figureReceived, figureDelay, figureP99:
	default:
		return fmt.Errorf("--figure %q: received, delay or p99 is expected", p.figure)
	}
	return nil
}

// What a comparison compares.
const (
	figureReceived = "received"
	figureDelay    = "delay"
	figureP99      = "p99"
)

func (p *trafficPlan) checkOut() error {
	if p.out == "" {
		return nil
	}
	if ext := filepath.Ext(p.out); ext != ".json" && ext != ".csv" {
		return fmt.Errorf("--out %s: a name that ends with .json or .csv is expected", p.out)
	}
	if p.mode == modeSelfTest && filepath.Ext(p.out) != ".json" {
		return fmt.Errorf("--out %s with --self-test: it is written as JSON (.json)", p.out)
	}
	if info, err := os.Stat(filepath.Dir(p.out)); err != nil || !info.IsDir() {
		return fmt.Errorf("--out %s: there is no directory %s", p.out, filepath.Dir(p.out))
	}
	return nil
}

// title is the plan in one line.
func (p *trafficPlan) title() string {
	s := each.Of(p.pairs, func(pair trafficPair) string {
		return pair.from.id().String() + " → " + pair.to.id().String()
	})
	return string(p.mode) + ": " + strings.Join(s, ", ")
}
