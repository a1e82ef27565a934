package cli

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/measure/machine"
	results "github.com/polyplane/polyplane/measure/result"
	"github.com/polyplane/polyplane/measure/trial"
)

// printTraffic prints a report as asked, and writes it to a file besides.
func (c *CLI) printTraffic(p *trafficPlan, r *trafficReport) error {
	if p.out != "" {
		format := strings.TrimPrefix(filepath.Ext(p.out), ".")
		var b bytes.Buffer
		if err := encodeTraffic(&b, r, format); err != nil {
			return err
		}
		if err := writeWhole(p.out, b.Bytes(), 0o644); err != nil {
			return fmt.Errorf("write the result: %w", err)
		}
	}
	if p.output.format != formatTable {
		return encodeTraffic(c.Out, r, p.output.format)
	}
	return tableTraffic(c.Out, r, c.colour(), c.columns())
}

func encodeTraffic(w io.Writer, r *trafficReport, format string) error {
	if format == formatCSV {
		if len(r.Trials) > 0 {
			return results.CSV(w, r.Trials)
		}
		return figuresCSV(w, r)
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the result: %w", err)
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// figuresCSV writes single measurements, one a line, where there are no trials of our own frames.
func figuresCSV(w io.Writer, r *trafficReport) error {
	label := ""
	if len(r.Paths) > 0 {
		label = r.Paths[0].label()
	}
	rows := [][]string{{"label", "quantity", "unit", "value"}}
	add := func(quantity, unit string, v float64) {
		rows = append(rows, []string{label, quantity, unit, strconv.FormatFloat(v, 'g', 10, 64)})
	}
	for _, t := range r.TCP {
		add("tcp", "bit/s", t.BitRate)
	}
	for _, p := range r.Ping {
		for _, d := range p.Series {
			add("round trip", "ns", float64(d))
		}
	}
	for _, n := range r.Connections {
		add("new connections", "connections/s", n.Rate)
	}
	if r.Burst != nil {
		for _, n := range r.Burst.Lengths {
			add("longest burst without loss", "frames", float64(n))
		}
	}
	for _, m := range r.Throughput {
		for _, g := range m.Goals {
			add("throughput "+g.Goal.Name, "frames/s", g.Throughput)
		}
	}
	for _, m := range r.RFC2544 {
		add("throughput RFC 2544", "frames/s", m.Throughput)
	}
	c := csv.NewWriter(w)
	return c.WriteAll(rows)
}

// tableTraffic is a report for people; its warnings are folded to so many columns, or not at 0.
func tableTraffic(w io.Writer, r *trafficReport, colour bool, columns int) error {
	var b bytes.Buffer
	heading(&b, r)
	switch {
	case r.Mode == modeCompare:
		comparisonTable(&b, r, colour)
	case len(r.Trials) > 0 && r.Mode == modeTrial && r.Traffic.Repeat == 1:
		countTable(&b, r, colour)
		delayTable(&b, r, colour)
	case len(r.Trials) > 0 && r.Mode == modeTrial:
		trialTable(&b, r, colour)
	}
	throughputTable(&b, r, colour)
	if r.Mode == modeSearch && len(r.Trials) > 0 {
		fmt.Fprintf(&b, "\nat %s:\n", packetRate(r.Trials[0].Rate))
		delayTable(&b, r, colour)
	}
	toolTables(&b, r, colour)
	figureTable(&b, r, colour)
	cpuLines(&b, r)
	if err := warnings(&b, r.allWarnings(), colour, columns); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}

func heading(b *bytes.Buffer, r *trafficReport) {
	for _, p := range r.Paths {
		fmt.Fprintf(b, "%s → %s: %s → %s", p.From, p.To, p.Source, p.Destination)
		if p.NextHop != p.Destination {
			fmt.Fprintf(b, " by %s", p.NextHop)
		}
		b.WriteByte('\n')
	}
	s := r.Traffic
	if r.Mode == modeTCP || r.Mode == modePing || r.Mode == modeConnections {
		b.WriteByte('\n')
		return
	}
	kind := map[string]string{"ipv4": "UDP/IPv4", "ipv6": "UDP/IPv6"}[s.Kind]
	size := s.Sizes + " bytes"
	if s.Sizes == "imix" || strings.HasPrefix(s.Sizes, "[") {
		size = "IMIX"
	}
	fmt.Fprintf(b, "%s, frames of %s, %s, ", kind, size, plural(s.Flows*s.Streams, "flow"))
	switch {
	case r.Mode == modeSearch || r.Mode == modeBurst:
		fmt.Fprintf(b, "trials of %s\n", seconds(s.Duration))
	case s.Rate == 0:
		fmt.Fprintf(b, "as fast as possible for %s\n", seconds(s.Duration))
	default:
		gaps := "constant"
		if s.Poisson {
			gaps = "Poisson"
		}
		fmt.Fprintf(b, "%s, %s gaps, for %s\n", packetRate(s.Rate), gaps, seconds(s.Duration))
	}
	placements(b, r)
	if s.CheckEvery > 1 {
		timed := "every frame"
		if s.TimeEvery > 1 {
			timed = fmt.Sprintf("one frame in %d", s.TimeEvery)
		}
		fmt.Fprintf(b, "timed: %s; whole payload checked: of one frame in %d\n", timed, s.CheckEvery)
	}
	b.WriteByte('\n')
}

// placements says which core sends and which one receives, for each pair that sends at the same time.
func placements(b *bytes.Buffer, r *trafficReport) {
	all := []trial.Placement{r.Traffic.Placement}
	if r.Mode == modeTrial && len(r.Trials) >= len(r.Paths) {
		all = nil
		for i := range r.Paths {
			all = append(all, r.Trials[i].Placement)
		}
	}
	for i, p := range all {
		if len(all) > 1 {
			fmt.Fprintf(b, "%s: ", r.Paths[i].label())
		}
		fmt.Fprintf(b, "source on CPU %d", p.Source)
		for _, q := range p.Polled {
			fmt.Fprintf(b, ", reception of %s by a thread on CPU %d", q.Device.Name, q.CPU)
		}
		loop := "closed loop: what is measured runs on the source's core, which waits for it"
		if p.Open() {
			loop = "open loop"
		}
		fmt.Fprintf(b, " (%s)\n", loop)
	}
}

// cpuLines says where CPU time went. Forwarding runs in softirq context, which is charged to no element.
func cpuLines(b *bytes.Buffer, r *trafficReport) {
	if len(r.Usage.Cores) == 0 {
		return
	}
	b.WriteByte('\n')
	for _, c := range r.Usage.Cores {
		all := c.Busy() + c.Idle + c.Steal
		if all <= 0 {
			continue
		}
		share := func(d time.Duration) float64 { return 100 * float64(d) / float64(all) }
		fmt.Fprintf(b, "CPU %d: %.0f %% busy (user %.0f %%, system %.0f %%, softirq %.0f %%), stolen %.1f %%\n", c.CPU,
			share(c.Busy()), share(c.User), share(c.System), share(c.SoftIRQ), share(c.Steal))
	}
	wall := r.Usage.Wall.Seconds()
	for _, t := range r.Usage.Threads {
		if t.Time > 0 && wall > 0 {
			fmt.Fprintf(b, "%s: %.1f %% of a core\n", t.Name, 100*t.Time.Seconds()/wall)
		}
	}
	groupLines(b, r.Usage)
	for _, p := range programTimes(r.Usage) {
		fmt.Fprintf(b, "program %s: %d runs, %s each\n", p.Name, p.Runs, nanoseconds(uint64(p.Time)/p.Runs))
	}
}

// programTimes lists the programs that had a part in it. Those of other networks also ran, but only a few times.
func programTimes(u machine.Usage) []machine.Program {
	most := uint64(1)
	for _, p := range u.Programs {
		most = max(most, p.Runs)
	}
	out := each.That(u.Programs, func(p machine.Program) bool { return p.Runs > 0 && p.Runs >= most/100 })
	slices.SortFunc(out, func(a, b machine.Program) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// maxLate is the share of frames that may leave late before a trial's delays are doubted.
const maxLate = 0.01

// allWarnings is everything that speaks against trusting a report. A warning that differs between trials only in its
// figures is told once.
func (r *trafficReport) allWarnings() []string {
	out := slices.Clone(r.Warnings)
	first := map[string]int{} // the warning without its figures → where it stands
	times := map[int]int{}
	add := func(format string, a ...any) {
		s := fmt.Sprintf(format, a...)
		form := strings.Map(func(c rune) rune {
			if strings.ContainsRune("0123456789.", c) {
				return -1
			}
			return c
		}, s)
		if _, known := first[form]; !known {
			first[form] = len(out)
			out = append(out, s)
		}
		times[first[form]]++
	}
	for _, t := range r.Trials {
		for _, m := range t.Marks {
			add("%s", m)
		}
		if late := lateShare(t); late > maxLate {
			add("%.1f %% of the frames left more than 100 µs late: the source's core had other work, or the rate is "+
				"too high", 100*late)
		}
		if t.Sent > 0 && t.Received+t.Corrupted == 0 {
			add("nothing arrived: does the way lead to that interface, and is what was sent to routed there?")
		}
		if t.Refused > 0 {
			add("%d of the lost frames found the first receive ring full: what is measured was too slow for the "+
				"source, or its core had other work", t.Refused)
		}
	}
	for at, n := range times {
		if n > 1 {
			out[at] += fmt.Sprintf(" (the first of %d such trials)", n)
		}
	}
	if r.Verdict != nil && !r.Verdict.Stable {
		out = append(out, "the machine was not steady: "+strings.Join(r.Verdict.Reasons, "; "))
	}
	return out
}

func lateShare(t trial.Result) float64 {
	late := uint64(0)
	for _, s := range t.Streams {
		late += s.Late
	}
	if t.Sent == 0 {
		return 0
	}
	return float64(late) / float64(t.Sent)
}

func warnings(w io.Writer, all []string, colour bool, columns int) error {
	for i, s := range all {
		if i == 0 {
			fmt.Fprintln(w)
		}
		mark := "warning:"
		if colour {
			mark = string(warn) + mark + resetStyle
		}
		const indent = len("warning: ")
		text := strings.Join(foldWords(s, columns-indent), "\n"+strings.Repeat(" ", indent))
		if _, err := fmt.Fprintf(w, "%s %s\n", mark, text); err != nil {
			return err
		}
	}
	return nil
}

// foldWords breaks a text between its words into lines of so many columns, or leaves it as it is where there is no
// width.
func foldWords(s string, columns int) []string {
	if columns <= 0 {
		return []string{s}
	}
	var lines []string
	for _, word := range strings.Fields(s) {
		last := len(lines) - 1
		if last >= 0 && utf8.RuneCountInString(lines[last])+1+utf8.RuneCountInString(word) <= columns {
			lines[last] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	return lines
}

func kernelRelease(e machine.Environment) string {
	release, _, _ := strings.Cut(e.Kernel, " ")
	return release
}
