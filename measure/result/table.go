package result

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
)

// Table writes a measurement as a section of docs/performance.md: a heading, where and when, its figures with 95 %
// intervals, its throughputs, its comparison, and whatever speaks against trusting it.
func Table(w io.Writer, f File) error {
	var b strings.Builder
	title := f.Title
	if title == "" {
		title = f.Name
	}
	e := f.Environment
	fmt.Fprintf(&b, "## %s\n\n%s, %d cores, Linux %s, %s; load before: %s.\n\n", title, e.CPU, e.Cores,
		strings.Fields(e.Kernel + " ?")[0],
		e.When.Format("2006-01-02 15:04 MST"), e.Load)
	figures(&b, f)
	throughputs(&b, f)
	comparison(&b, f)
	marks(&b, f)
	_, err := io.WriteString(w, b.String())
	return err
}

func figures(b *strings.Builder, f File) {
	if len(f.Figures) == 0 {
		return
	}
	b.WriteString("| system | quantity | mean | 95 % interval | median | n |\n|---|---|---|---|---|---|\n")
	for _, g := range f.Figures {
		interval := "–"
		for _, iv := range g.Intervals {
			if iv.Level == 0.95 {
				interval = Human(iv.Low) + " … " + Human(iv.High)
			}
		}
		fmt.Fprintf(b, "| %s | %s | %s %s | %s | %s | %d |\n", g.System, g.Quantity, Human(g.Summary.Mean), g.Unit,
			interval, Human(g.Summary.Median), g.Summary.N)
	}
	b.WriteString("\n")
}

func throughputs(b *strings.Builder, f File) {
	if len(f.Throughput)+len(f.RFC2544) == 0 {
		return
	}
	b.WriteString("| system | goal | throughput | bounds | confirmed |\n|---|---|---|---|---|\n")
	for _, name := range sorted(f.Throughput) {
		for _, g := range f.Throughput[name].Goals {
			confirmed := "–"
			if g.Confirm != nil {
				confirmed = map[bool]string{true: "yes",
					false: fmt.Sprintf("no, lost %.2g", g.Confirm.LossRatio())}[g.Confirmed]
			}
			fmt.Fprintf(b, "| %s | %s | %s frames/s | %s … %s | %s |\n", name, g.Goal.Name, Human(g.Throughput),
				Human(g.Bounds.Lower), Human(g.Bounds.Upper), confirmed)
		}
	}
	for _, name := range sorted(f.RFC2544) {
		r := f.RFC2544[name]
		note := "yes"
		if r.Short {
			note = "trials shorter than the RFC's 60 s"
		}
		fmt.Fprintf(b, "| %s | RFC 2544 | %s frames/s | %s … %s | %s |\n", name, Human(r.Throughput),
			Human(r.Bounds.Lower), Human(r.Bounds.Upper), note)
	}
	b.WriteString("\n")
}

func comparison(b *strings.Builder, f File) {
	c := f.Comparison
	if c == nil {
		return
	}
	fmt.Fprintf(b, "Noise floor (the same system twice): ± %.2f %%.\n\n| system | ratio to the first | 95 %% "+
		"interval | differs |\n|---|---|---|---|\n", 100*c.Noise.Floor)
	for _, name := range sorted(c.Ratios) {
		r := c.Ratios[name]
		fmt.Fprintf(b, "| %s | %.3f | %.3f … %.3f | %s |\n", name, r.Median, r.Interval.Low, r.Interval.High,
			map[bool]string{true: "yes", false: "no"}[c.Differs[name]])
	}
	b.WriteString("\n")
	if !c.Verdict.Stable {
		fmt.Fprintf(b, "**The machine was not steady**: %s.\n\n", strings.Join(c.Verdict.Reasons, "; "))
	}
}

func marks(b *strings.Builder, f File) {
	seen := map[string]bool{}
	marked := 0
	for _, t := range f.Trials {
		if len(t.Marks) > 0 {
			marked++
		}
		for _, m := range t.Marks {
			seen[m] = true
		}
	}
	if marked == 0 {
		return
	}
	fmt.Fprintf(b, "%d of %d trials are marked:\n\n", marked, len(f.Trials))
	for _, m := range sorted(seen) {
		fmt.Fprintf(b, "- %s\n", m)
	}
	b.WriteString("\n")
}

// Human writes a number with three significant digits and k, M or G.
func Human(v float64) string {
	for _, u := range []struct {
		at   float64
		name string
	}{{1e9, " G"}, {1e6, " M"}, {1e3, " k"}} {
		if math.Abs(v) >= u.at*0.9995 {
			return digits(v/u.at) + u.name
		}
	}
	return digits(v)
}

func digits(v float64) string {
	switch a := math.Abs(v); {
	case a >= 99.95 || a == math.Trunc(a):
		return fmt.Sprintf("%.0f", v)
	case a >= 9.995:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// sorted lists the keys of a map, so that the same result always gives the same text.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
