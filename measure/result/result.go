// Package result is what was measured: JSON with everything, the environment included, for later questions, and CSV
// with one line a trial for spreadsheets.
package result

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/polyplane/polyplane/measure/machine"
	"github.com/polyplane/polyplane/measure/search"
	"github.com/polyplane/polyplane/measure/stats"
	"github.com/polyplane/polyplane/measure/trial"
)

// Format is the version of the JSON.
const Format = 1

// File is one measurement, whole.
type File struct {
	Format      int                             `json:"format"`
	Name        string                          `json:"name"`
	Title       string                          `json:"title,omitempty"` // one line for people
	Environment machine.Environment             `json:"environment"`
	Limits      *trial.Limits                   `json:"limits,omitempty"` // of the self-test before
	Trials      []trial.Result                  `json:"trials,omitempty"`
	Throughput  map[string]search.MLRResult     `json:"throughput,omitempty"` // by system
	RFC2544     map[string]search.RFC2544Result `json:"rfc2544,omitempty"`
	Comparison  *trial.Comparison               `json:"comparison,omitempty"`
	Figures     []Figure                        `json:"figures,omitempty"`
}

// Figure is one repeated quantity with its intervals: a row of a table.
type Figure struct {
	System    string           `json:"system"`
	Quantity  string           `json:"quantity"` // "throughput, 64 B"
	Unit      string           `json:"unit"`     // "frames/s"
	Samples   []float64        `json:"samples"`
	Summary   stats.Summary    `json:"summary"`
	Intervals []stats.Interval `json:"intervals"` // of the mean, at stats.Levels
}

// NewFigure summarises samples; there must be at least two.
func NewFigure(system, quantity, unit string, samples []float64) (Figure, error) {
	f := Figure{System: system, Quantity: quantity, Unit: unit, Samples: samples, Summary: stats.Summarise(samples)}
	for _, l := range stats.Levels {
		iv, err := f.Summary.MeanInterval(l)
		if err != nil {
			return f, fmt.Errorf("%s of %s: %w", quantity, system, err)
		}
		f.Intervals = append(f.Intervals, iv)
	}
	return f, nil
}

// columns are the CSV's, with their units.
var columns = []struct {
	name  string
	value func(trial.Result) string
}{
	{"label", func(r trial.Result) string { return r.Label }},
	{"start", func(r trial.Result) string { return r.Start.Format(time.RFC3339Nano) }},
	{"rate_fps", func(r trial.Result) string { return number(r.Rate) }},
	{"duration_s", func(r trial.Result) string { return number(r.Duration.Seconds()) }},
	{"elapsed_s", func(r trial.Result) string { return number(r.Elapsed.Seconds()) }},
	{"intended", func(r trial.Result) string { return count(r.Intended) }},
	{"sent", func(r trial.Result) string { return count(r.Sent) }},
	{"received", func(r trial.Result) string { return count(r.Received) }},
	{"lost", func(r trial.Result) string { return count(r.Lost) }},
	{"duplicated", func(r trial.Result) string { return count(r.Duplicated) }},
	{"reordered", func(r trial.Result) string { return count(r.Reordered) }},
	{"corrupted", func(r trial.Result) string { return count(r.Corrupted) }},
	{"offered_fps", func(r trial.Result) string { return number(r.Offered) }},
	{"forwarded_fps", func(r trial.Result) string { return number(r.Forwarded) }},
	{"loss_ratio", func(r trial.Result) string { return number(r.LossRatio) }},
	{"received_bps", func(r trial.Result) string { return number(r.BitRate) }},
	{"delay_min_ns", func(r trial.Result) string { return count(r.Delay.Min) }},
	{"delay_p50_ns", func(r trial.Result) string { return count(r.Delay.P50) }},
	{"delay_p99_ns", func(r trial.Result) string { return count(r.Delay.P99) }},
	{"delay_p999_ns", func(r trial.Result) string { return count(r.Delay.P999) }},
	{"delay_p9999_ns", func(r trial.Result) string { return count(r.Delay.P9999) }},
	{"delay_max_ns", func(r trial.Result) string { return count(r.Delay.Max) }},
	{"delay_mean_ns", func(r trial.Result) string { return number(r.Delay.Mean) }},
	{"delay_sd_ns", func(r trial.Result) string { return number(r.Delay.SD) }},
	{"steal", func(r trial.Result) string { return number(r.Usage.Steal()) }},
	{"marks", func(r trial.Result) string { return strings.Join(r.Marks, "; ") }},
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', 10, 64) }
func count(v uint64) string   { return strconv.FormatUint(v, 10) }

// CSV writes one line a trial, after a line of names.
func CSV(w io.Writer, trials []trial.Result) error {
	c := csv.NewWriter(w)
	line := make([]string, len(columns))
	for i, col := range columns {
		line[i] = col.name
	}
	if err := c.Write(line); err != nil {
		return err
	}
	for _, t := range trials {
		for i, col := range columns {
			line[i] = col.value(t)
		}
		if err := c.Write(line); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}
