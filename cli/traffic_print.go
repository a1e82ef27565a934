package cli

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/polyplane/polyplane/measure/hist"
	"github.com/polyplane/polyplane/measure/machine"
	results "github.com/polyplane/polyplane/measure/result"
	"github.com/polyplane/polyplane/measure/search"
	"github.com/polyplane/polyplane/measure/trial"
)

// printTraffic prints a report as asked, and writes it to a file besides.
func (c *CLI) printTraffic(p *trafficPlan, r *trafficReport) error {
	if _, ok := terminalFD(c.Err); ok {
		fmt.Fprint(c.Err, "\r\x1b[K")
	}
	if p.out != "" {
		format := strings.TrimPrefix(filepath.Ext(p.out), ".")
		var b bytes.Buffer
		if err := encodeTraffic(&b, r, format); err != nil {
			return err
		}
		if err := writeWhole(p.out, b.Bytes()); err != nil {
			return fmt.Errorf("write the result: %w", err)
		}
	}
	if p.output.format != formatTable {
		return encodeTraffic(c.Out, r, p.output.format)
	}
	return tableTraffic(c.Out, r, c.colour())
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

// tableTraffic is a report for people.
func tableTraffic(w io.Writer, r *trafficReport, colour bool) error {
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
	if err := warnings(&b, r.allWarnings(), colour); err != nil {
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
	loop := "closed loop: what is measured runs on the source's core, which waits for it"
	if s.Open {
		loop = "open loop"
	}
	fmt.Fprintf(b, "source on CPU %d", s.Placement.Source)
	for _, q := range s.Placement.Polled {
		fmt.Fprintf(b, ", reception of %s by a thread on CPU %d", q.Device.Name, q.CPU)
	}
	fmt.Fprintf(b, " (%s)\n\n", loop)
}

// trafficRow is one line of the tables: a stream, or all of a trial.
type trafficRow struct {
	name              string
	sent, received    uint64
	lost, reordered   uint64
	duplicated, wrong uint64
	offered, arrived  float64
	delay             hist.Digest
	variation         *hist.VariationDigest
}

// rows are the streams of each trial, and a total where there are several.
func rows(r *trafficReport) []trafficRow {
	var out []trafficRow
	var total trafficRow
	all := new(hist.Histogram)
	for _, t := range r.Trials {
		for i, s := range t.Streams {
			row := trafficRow{name: strconv.Itoa(len(out) + 1), sent: s.Sent, received: s.Got.Unique, lost: s.Lost, reordered: s.Got.Reordered,
				duplicated: s.Got.Duplicated, wrong: s.Got.Corrupted, delay: s.Delay, variation: &t.Streams[i].Got.Variation}
			if t.Elapsed > 0 {
				row.offered, row.arrived = float64(s.Sent)/t.Elapsed.Seconds(), float64(s.Got.Unique)/t.Elapsed.Seconds()
			}
			out = append(out, row)
		}
		total.sent += t.Sent
		total.received += t.Received
		total.lost += t.Lost
		total.reordered += t.Reordered
		total.duplicated += t.Duplicated
		total.wrong += t.Corrupted
		total.offered += t.Offered
		total.arrived += t.Forwarded
		all.Merge(t.Histogram)
		total.delay = t.Delay
	}
	if len(r.Trials) > 1 {
		total.delay = all.Digest()
	}
	total.name = "total"
	if len(out) == 1 { // what is lost to nobody's stream stands in the total only
		total.name, total.variation = "all", out[0].variation
		return []trafficRow{total}
	}
	return append(out, total)
}

func countTable(b *bytes.Buffer, r *trafficReport, colour bool) {
	t := table{head: []string{"STREAM", ">SENT", ">RECEIVED", ">LOST", ">REORDERED", ">DUPLICATED", ">CORRUPTED", ">OFFERED", ">ARRIVED"}}
	for _, s := range rows(r) {
		bad1 := func(n uint64) cell {
			if n == 0 {
				return text("0")
			}
			return cell{strconv.FormatUint(n, 10), bad}
		}
		t.add(text(s.name), text(strconv.FormatUint(s.sent, 10)), text(strconv.FormatUint(s.received, 10)), bad1(s.lost), bad1(s.reordered),
			bad1(s.duplicated), bad1(s.wrong), text(packetRate(s.offered)), text(packetRate(s.arrived)))
	}
	_ = t.write(b, colour, true, "") // a buffer takes everything
	bits := 0.0
	for _, x := range r.Trials {
		bits += x.BitRate
	}
	fmt.Fprintf(b, "\n%s of frames arrived\n\n", bitRate(bits))
}

func delayTable(b *bytes.Buffer, r *trafficReport, colour bool) {
	t := table{head: []string{"DELAY", ">MIN", ">MEDIAN", ">99 %", ">99.99 %", ">MAX", ">MEAN", ">VARIATION 99 %", ">JITTER"}}
	for _, s := range rows(r) {
		d := s.delay
		if d.Count == 0 {
			t.add(texts(s.name, "", "", "", "", "", "", "", "")...)
			continue
		}
		variation, jitter := "", ""
		if s.variation != nil && s.variation.Abs.Count > 0 {
			variation, jitter = nanoseconds(s.variation.Abs.P99), nanoseconds(uint64(math.Round(s.variation.Jitter)))
		}
		t.add(texts(s.name, nanoseconds(d.Min), nanoseconds(d.P50), nanoseconds(d.P99), nanoseconds(d.P9999), nanoseconds(d.Max),
			nanoseconds(uint64(math.Round(d.Mean))), variation, jitter)...)
	}
	_ = t.write(b, colour, true, "")
	if r.Floor > 0 {
		fmt.Fprintf(b, "\nof this, the instrument itself: %s (the self-test's median)\n", nanoseconds(uint64(r.Floor)))
	}
}

func trialTable(b *bytes.Buffer, r *trafficReport, colour bool) {
	t := table{head: []string{"TRIAL", ">SENT", ">RECEIVED", ">LOST", ">OFFERED", ">ARRIVED", ">MEDIAN", ">99 %", ">MAX", "MARKS"}}
	for i, x := range r.Trials {
		marks := ""
		if len(x.Marks) > 0 {
			marks = plural(len(x.Marks), "mark")
		}
		t.add(texts(strconv.Itoa(i/len(r.Paths)+1), strconv.FormatUint(x.Sent, 10), strconv.FormatUint(x.Received, 10), strconv.FormatUint(x.Lost, 10),
			packetRate(x.Offered), packetRate(x.Forwarded), nanoseconds(x.Delay.P50), nanoseconds(x.Delay.P99), nanoseconds(x.Delay.Max), marks)...)
	}
	_ = t.write(b, colour, true, "")
}

func throughputTable(b *bytes.Buffer, r *trafficReport, colour bool) {
	t := table{head: []string{"GOAL", ">THROUGHPUT", ">HOLDS AT", ">NOT AT", "CONFIRMED"}}
	rate := func(v float64) string {
		if v == 0 {
			return ""
		}
		return packetRate(v)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Throughput)) {
		for _, g := range r.Throughput[name].Goals {
			t.add(texts(fmt.Sprintf("%s (loss ≤ %g %%)", g.Goal.Name, 100*g.Goal.LossRatio), rate(g.Throughput), rate(g.Bounds.Lower), rate(g.Bounds.Upper), confirmed(g))...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.RFC2544)) {
		x := r.RFC2544[name]
		note := ""
		if x.Short {
			note = "trials shorter than the RFC's 60 s"
		}
		t.add(texts("RFC 2544 (no loss)", rate(x.Throughput), rate(x.Bounds.Lower), rate(x.Bounds.Upper), note)...)
	}
	if len(t.rows) > 0 {
		_ = t.write(b, colour, true, "")
	}
}

func confirmed(g search.GoalResult) string {
	switch {
	case g.Confirm == nil:
		return ""
	case g.Confirmed:
		return "by " + seconds(g.Confirm.Duration)
	}
	return fmt.Sprintf("no: %s lost %.2g %%", seconds(g.Confirm.Duration), 100*g.Confirm.LossRatio())
}

func comparisonTable(b *bytes.Buffer, r *trafficReport, colour bool) {
	c := r.Comparison
	t := table{head: []string{"PAIR", ">MEDIAN", ">RATIO", "INTERVAL", "DIFFERS"}}
	for i, f := range r.Figures {
		median := unitValue(f.Summary.Median, f.Unit)
		if i == 0 {
			t.add(texts(f.System, median, "1", fmt.Sprintf("noise floor ± %.2f %%", 100*c.Noise.Floor), "")...)
			continue
		}
		x := c.Ratios[f.System]
		t.add(texts(f.System, median, fmt.Sprintf("%.3f", x.Median), fmt.Sprintf("%.3f … %.3f", x.Interval.Low, x.Interval.High),
			map[bool]string{true: "yes", false: "no"}[c.Differs[f.System]])...)
	}
	fmt.Fprintf(b, "%s, %d blocks in random order; 95 %% bootstrap intervals of the median ratio to the first\n\n", comparedName(r), len(c.Order))
	_ = t.write(b, colour, true, "")
}

func comparedName(r *trafficReport) string {
	return map[string]string{figureReceived: "frames received a second", figureDelay: "median delay", figureP99: "99 % delay"}[r.Figures[0].Quantity]
}

func toolTables(b *bytes.Buffer, r *trafficReport, colour bool) {
	var t table
	switch {
	case len(r.TCP) > 0:
		t.head = []string{"TRIAL", ">TCP", ">STREAMS", ">RETRANSMITS", ">RTT", "CONGESTION"}
		for i, x := range r.TCP {
			t.add(texts(strconv.Itoa(i+1), bitRate(x.BitRate), strconv.Itoa(len(x.PerStream)), strconv.Itoa(x.Retransmits), nanoseconds(uint64(x.MeanRTT)), x.Congestion)...)
		}
	case len(r.Ping) > 0:
		t.head = []string{"TRIAL", ">SENT", ">ANSWERED", ">MIN", ">MEDIAN", ">99 %", ">MAX", ">JITTER"}
		for i, x := range r.Ping {
			t.add(texts(strconv.Itoa(i+1), strconv.Itoa(x.Sent), strconv.Itoa(x.Received), nanoseconds(x.RTT.Min), nanoseconds(x.RTT.P50),
				nanoseconds(x.RTT.P99), nanoseconds(x.RTT.Max), nanoseconds(uint64(x.Jitter.Jitter)))...)
		}
	case len(r.Connections) > 0:
		t.head = []string{"TRIAL", ">REQUESTED", ">ESTABLISHED", ">REFUSED", ">TIMED OUT", ">UNSENT", ">A SECOND", ">MEDIAN", ">99 %"}
		for i, x := range r.Connections {
			t.add(texts(strconv.Itoa(i+1), strconv.Itoa(x.Requested), strconv.Itoa(x.Established), strconv.Itoa(x.Refused), strconv.Itoa(x.TimedOut),
				strconv.Itoa(x.Unsent), scaled(x.Rate, "", " k"), nanoseconds(x.Time.P50), nanoseconds(x.Time.P99))...)
		}
	case r.Burst != nil:
		fmt.Fprintf(b, "longest burst without loss: %s (median of %d: %s)\n", plural(int(r.Burst.Longest), "frame"), len(r.Burst.Lengths),
			strings.Trim(fmt.Sprint(r.Burst.Lengths), "[]"))
		return
	default:
		return
	}
	_ = t.write(b, colour, true, "")
}

func figureTable(b *bytes.Buffer, r *trafficReport, colour bool) {
	if len(r.Figures) == 0 || r.Mode == modeCompare {
		return
	}
	head := []string{"FIGURE", ">MEAN", fmt.Sprintf("%.0f %% INTERVAL", 100*r.Traffic.Confidence), ">MEDIAN", ">MIN", ">MAX", ">N"}
	several := len(r.Paths) > 1
	if several {
		head = append([]string{"PAIR"}, head...)
	}
	t := table{head: head}
	for _, f := range r.Figures {
		interval := ""
		for _, iv := range f.Intervals {
			if math.Abs(iv.Level-r.Traffic.Confidence) < 1e-9 {
				low := iv.Low
				if f.Summary.Min >= 0 { // Student's interval does not know that nothing here is below 0
					low = max(low, 0)
				}
				interval = unitValue(low, f.Unit) + " … " + unitValue(iv.High, f.Unit)
			}
		}
		row := texts(f.Quantity, unitValue(f.Summary.Mean, f.Unit), interval, unitValue(f.Summary.Median, f.Unit), unitValue(f.Summary.Min, f.Unit),
			unitValue(f.Summary.Max, f.Unit), strconv.Itoa(f.Summary.N))
		if several {
			row = append([]cell{text(f.System)}, row...)
		}
		t.add(row...)
	}
	b.WriteByte('\n')
	_ = t.write(b, colour, true, "")
}

func unitValue(v float64, unit string) string {
	switch unit {
	case "ns":
		if v < 0 {
			return "-" + nanoseconds(uint64(math.Round(-v)))
		}
		return nanoseconds(uint64(math.Round(v)))
	case "frames/s":
		return packetRate(v)
	case "bit/s":
		return bitRate(v)
	case "":
		return fmt.Sprintf("%.4g %%", 100*v)
	}
	return fmt.Sprintf("%.4g", v)
}

// nanoseconds is a delay with three digits.
func nanoseconds(v uint64) string { return scaled(float64(v), " ns", " µs", " ms", " s") }

// cpuLines say where CPU time went: forwarding runs in softirq context, which is charged to no element.
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
		fmt.Fprintf(b, "CPU %d: %.0f %% busy (user %.0f %%, system %.0f %%, softirq %.0f %%), stolen %.1f %%\n", c.CPU, share(c.Busy()), share(c.User),
			share(c.System), share(c.SoftIRQ), share(c.Steal))
	}
	wall := r.Usage.Wall.Seconds()
	for _, t := range r.Usage.Threads {
		if t.Time > 0 && wall > 0 {
			fmt.Fprintf(b, "%s: %.1f %% of a core\n", t.Name, 100*t.Time.Seconds()/wall)
		}
	}
	for _, p := range programTimes(r.Usage) {
		fmt.Fprintf(b, "program %s: %d runs, %s each\n", p.Name, p.Runs, nanoseconds(uint64(p.Time)/p.Runs))
	}
}

// programTimes are the programs that had a part in it; those of other networks ran a few times meanwhile as well.
func programTimes(u machine.Usage) []machine.Program {
	most := uint64(1)
	for _, p := range u.Programs {
		most = max(most, p.Runs)
	}
	var out []machine.Program
	for _, p := range u.Programs {
		if p.Runs > 0 && p.Runs >= most/100 {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b machine.Program) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// maxLate is the share of frames that may leave late before a trial's delays are doubted.
const maxLate = 0.01

// allWarnings is everything that speaks against trusting a report. What differs between trials in its figures only is said once.
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
			add("%.1f %% of the frames left more than 100 µs late: the source's core had other work, or the rate is too high", 100*late)
		}
		if t.Sent > 0 && t.Received+t.Corrupted == 0 {
			add("nothing arrived: does the way lead to that interface, and is what was sent to routed there?")
		}
		if t.Refused > 0 {
			add("%d of the lost frames found the first receive ring full: what is measured was too slow for the source", t.Refused)
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

func warnings(w io.Writer, all []string, colour bool) error {
	for i, s := range all {
		if i == 0 {
			fmt.Fprintln(w)
		}
		mark := "warning:"
		if colour {
			mark = string(warn) + mark + resetStyle
		}
		if _, err := fmt.Fprintf(w, "%s %s\n", mark, s); err != nil {
			return err
		}
	}
	return nil
}

func kernelRelease(e machine.Environment) string {
	release, _, _ := strings.Cut(e.Kernel, " ")
	return release
}
