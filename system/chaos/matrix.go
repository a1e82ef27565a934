package chaos

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// cell counts the operations of a kind during a fault.
type cell struct{ tried, succeeded int }

// Matrix counts operations by kind and fault.
type Matrix map[string]map[string]*cell // by kind, then fault

func (m Matrix) note(kind, fault string, succeeded bool) {
	if m[kind] == nil {
		m[kind] = map[string]*cell{}
	}
	c := m[kind][fault]
	if c == nil {
		c = &cell{}
		m[kind][fault] = c
	}
	if c.tried++; succeeded {
		c.succeeded++
	}
}

// Total is how many operations were tried, and succeeded.
func (m Matrix) Total() (tried, succeeded int) {
	for _, row := range m {
		for _, c := range row {
			tried += c.tried
			succeeded += c.succeeded
		}
	}
	return tried, succeeded
}

// Write writes the matrix as a table: in each cell how many of how many operations succeeded.
func (m Matrix) Write(w io.Writer, faults []string) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer t.Flush()
	faults = slices.DeleteFunc(slices.Clone(faults), func(f string) bool {
		for _, row := range m {
			if row[f] != nil {
				return false
			}
		}
		return true
	})
	fmt.Fprint(t, "OPERATION")
	for _, f := range faults {
		fmt.Fprintf(t, "\t%s", f)
	}
	fmt.Fprintln(t, "\tall")
	sums := map[string]*cell{}
	line := func(name string, row map[string]*cell) {
		fmt.Fprint(t, name)
		var all cell
		for _, f := range faults {
			c := row[f]
			if c == nil {
				fmt.Fprint(t, "\t·")
				continue
			}
			fmt.Fprintf(t, "\t%d/%d", c.succeeded, c.tried)
			all.tried, all.succeeded = all.tried+c.tried, all.succeeded+c.succeeded
			if sums[f] == nil {
				sums[f] = &cell{}
			}
			sums[f].tried, sums[f].succeeded = sums[f].tried+c.tried, sums[f].succeeded+c.succeeded
		}
		fmt.Fprintf(t, "\t%d/%d\n", all.succeeded, all.tried)
	}
	for _, k := range kinds {
		if m[k.name] != nil {
			line(k.name, m[k.name])
		}
	}
	all := sums
	sums = map[string]*cell{}
	line("all", all)
}

// Times are how long something took, each time.
type Times map[string][]time.Duration

func (t Times) note(what string, d time.Duration) { t[what] = append(t[what], d) }

// Write writes how often, the median and the longest.
func (t Times) Write(w io.Writer) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer table.Flush()
	fmt.Fprintln(table, "BACK AFTER\ttimes\tmedian\tlongest")
	var names []string
	for name := range t {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		all := slices.Sorted(slices.Values(t[name]))
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\n", name, len(all), all[len(all)/2].Round(time.Millisecond),
			all[len(all)-1].Round(time.Millisecond))
	}
}
