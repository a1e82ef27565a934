package cli

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/polyplane/polyplane/measure/hist"
	"github.com/polyplane/polyplane/measure/search"
)

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
			row := trafficRow{name: strconv.Itoa(len(out) + 1), sent: s.Sent, received: s.Got.Unique, lost: s.Lost,
				reordered:  s.Got.Reordered,
				duplicated: s.Got.Duplicated, wrong: s.Got.Corrupted, delay: s.Delay,
				variation: &t.Streams[i].Got.Variation}
			if t.Elapsed > 0 {
				row.offered, row.arrived = float64(s.Sent)/t.Elapsed.Seconds(),
					float64(s.Got.Unique)/t.Elapsed.Seconds()
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
	t := table{head: []string{"STREAM", ">SENT", ">RECEIVED", ">LOST", ">REORDERED", ">DUPLICATED", ">CORRUPTED",
		">OFFERED", ">ARRIVED"}}
	for _, s := range rows(r) {
		bad1 := func(n uint64) cell {
			if n == 0 {
				return text("0")
			}
			return cell{strconv.FormatUint(n, 10), bad}
		}
		t.add(text(s.name), text(strconv.FormatUint(s.sent, 10)), text(strconv.FormatUint(s.received, 10)),
			bad1(s.lost), bad1(s.reordered),
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
	t := table{head: []string{"DELAY", ">MIN", ">MEDIAN", ">99 %", ">99.99 %", ">MAX", ">MEAN",
		">VARIATION 99 %", ">JITTER"}}
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
		t.add(texts(s.name, nanoseconds(d.Min), nanoseconds(d.P50), nanoseconds(d.P99),
			nanoseconds(d.P9999), nanoseconds(d.Max), nanoseconds(uint64(math.Round(d.Mean))), variation, jitter)...)
	}
	_ = t.write(b, colour, true, "")
	if r.Floor > 0 {
		fmt.Fprintf(b, "\nof this, the instrument itself: %s (the self-test's median)\n", nanoseconds(uint64(r.Floor)))
	}
}

func trialTable(b *bytes.Buffer, r *trafficReport, colour bool) {
	t := table{head: []string{"TRIAL", ">SENT", ">RECEIVED", ">LOST", ">OFFERED", ">ARRIVED", ">MEDIAN",
		">99 %", ">MAX", "MARKS"}}
	for i, x := range r.Trials {
		marks := ""
		if len(x.Marks) > 0 {
			marks = plural(len(x.Marks), "mark")
		}
		t.add(texts(strconv.Itoa(i/len(r.Paths)+1), strconv.FormatUint(x.Sent, 10), strconv.FormatUint(x.Received, 10),
			strconv.FormatUint(x.Lost, 10),
			packetRate(x.Offered), packetRate(x.Forwarded), nanoseconds(x.Delay.P50), nanoseconds(x.Delay.P99),
			nanoseconds(x.Delay.Max), marks)...)
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
			t.add(texts(fmt.Sprintf("%s (loss ≤ %g %%)", g.Goal.Name, 100*g.Goal.LossRatio), rate(g.Throughput),
				rate(g.Bounds.Lower), rate(g.Bounds.Upper), confirmed(g))...)
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
		t.add(texts(f.System, median, fmt.Sprintf("%.3f", x.Median),
			fmt.Sprintf("%.3f … %.3f", x.Interval.Low, x.Interval.High),
			map[bool]string{true: "yes", false: "no"}[c.Differs[f.System]])...)
	}
	fmt.Fprintf(b, "%s, %d blocks in random order; 95 %% bootstrap intervals of the median ratio to the first\n\n",
		comparedName(r), len(c.Order))
	_ = t.write(b, colour, true, "")
}

func comparedName(r *trafficReport) string {
	return map[string]string{figureReceived: "frames received a second", figureDelay: "median delay",
		figureP99: "99 % delay"}[r.Figures[0].Quantity]
}

func toolTables(b *bytes.Buffer, r *trafficReport, colour bool) {
	var t table
	switch {
	case len(r.TCP) > 0:
		t.head = []string{"TRIAL", ">TCP", ">STREAMS", ">RETRANSMITS", ">RTT", "CONGESTION"}
		for i, x := range r.TCP {
			t.add(texts(strconv.Itoa(i+1), bitRate(x.BitRate), strconv.Itoa(len(x.PerStream)),
				strconv.Itoa(x.Retransmits), nanoseconds(uint64(x.MeanRTT)), x.Congestion)...)
		}
	case len(r.Ping) > 0:
		t.head = []string{"TRIAL", ">SENT", ">ANSWERED", ">MIN", ">MEDIAN", ">99 %", ">MAX", ">JITTER"}
		for i, x := range r.Ping {
			t.add(texts(strconv.Itoa(i+1), strconv.Itoa(x.Sent), strconv.Itoa(x.Received), nanoseconds(x.RTT.Min),
				nanoseconds(x.RTT.P50),
				nanoseconds(x.RTT.P99), nanoseconds(x.RTT.Max), nanoseconds(uint64(x.Jitter.Jitter)))...)
		}
	case len(r.Connections) > 0:
		t.head = []string{"TRIAL", ">REQUESTED", ">ESTABLISHED", ">REFUSED", ">TIMED OUT", ">UNSENT",
			">A SECOND", ">MEDIAN", ">99 %"}
		for i, x := range r.Connections {
			t.add(texts(strconv.Itoa(i+1), strconv.Itoa(x.Requested), strconv.Itoa(x.Established),
				strconv.Itoa(x.Refused), strconv.Itoa(x.TimedOut),
				strconv.Itoa(x.Unsent), scaled(x.Rate, "", " k"), nanoseconds(x.Time.P50), nanoseconds(x.Time.P99))...)
		}
	case r.Burst != nil:
		fmt.Fprintf(b, "longest burst without loss: %s (median of %d: %s)\n", plural(int(r.Burst.Longest), "frame"),
			len(r.Burst.Lengths), strings.Trim(fmt.Sprint(r.Burst.Lengths), "[]"))
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
	head := []string{"FIGURE", ">MEAN", fmt.Sprintf("%.0f %% INTERVAL", 100*r.Traffic.Confidence), ">MEDIAN",
		">MIN", ">MAX", ">N"}
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
		row := texts(f.Quantity, unitValue(f.Summary.Mean, f.Unit), interval, unitValue(f.Summary.Median, f.Unit),
			unitValue(f.Summary.Min, f.Unit), unitValue(f.Summary.Max, f.Unit), strconv.Itoa(f.Summary.N))
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
