// Package result writes what was measured: JSON with everything, the environment included, for later questions; CSV
// with one line a trial for spreadsheets; and the tables of docs/performance.md.
package result

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/polyplane/polyplane/measure/machine"
	"github.com/polyplane/polyplane/measure/search"
	"github.com/polyplane/polyplane/measure/stats"
	"github.com/polyplane/polyplane/measure/trial"
)

// Format is the version of the JSON; a reader refuses what it does not know.
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

// Write stores NAME.json, and NAME.csv when there are trials, in a directory, which it makes. Both appear whole or not
// at all.
func Write(dir string, f File) error {
	f.Format = Format
	if f.Name == "" || strings.ContainsAny(f.Name, "/\x00") {
		return fmt.Errorf("write a result: %q is no name for a file", f.Name)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write result %s: %w", f.Name, err)
	}
	b, err := json.MarshalIndent(f, "", " ")
	if err != nil {
		return fmt.Errorf("write result %s: %w", f.Name, err)
	}
	if err := replace(filepath.Join(dir, f.Name+".json"), append(b, '\n')); err != nil {
		return fmt.Errorf("write result %s: %w", f.Name, err)
	}
	if len(f.Trials) == 0 {
		return nil
	}
	var text strings.Builder
	if err := CSV(&text, f.Trials); err != nil {
		return fmt.Errorf("write result %s: %w", f.Name, err)
	}
	if err := replace(filepath.Join(dir, f.Name+".csv"), []byte(text.String())); err != nil {
		return fmt.Errorf("write result %s: %w", f.Name, err)
	}
	return nil
}

func replace(path string, b []byte) error {
	t, err := os.CreateTemp(filepath.Dir(path), ".result-*")
	if err != nil {
		return err
	}
	defer os.Remove(t.Name()) // gone already when all went well
	_, err = t.Write(b)
	if err = errors.Join(err, t.Chmod(0o644), t.Close()); err != nil {
		return err
	}
	return os.Rename(t.Name(), path)
}

// Read loads a result.
func Read(path string) (File, error) {
	var f File
	b, err := os.ReadFile(path)
	if err != nil {
		return f, fmt.Errorf("read a result: %w", err)
	}
	if err := json.Unmarshal(b, &f); err != nil {
		return f, fmt.Errorf("read result %s: %w", path, err)
	}
	if f.Format != Format {
		return f, fmt.Errorf("read result %s: it has format %d, this version reads %d", path, f.Format, Format)
	}
	return f, nil
}

// ReadAll loads every result of a directory, by name.
func ReadAll(dir fs.FS) ([]File, error) {
	names, err := fs.Glob(dir, "*.json")
	if err != nil {
		return nil, err
	}
	var out []File
	for _, n := range names {
		b, err := fs.ReadFile(dir, n)
		if err != nil {
			return nil, fmt.Errorf("read result %s: %w", n, err)
		}
		var f File
		if err := json.Unmarshal(b, &f); err != nil {
			return nil, fmt.Errorf("read result %s: %w", n, err)
		}
		if f.Format == Format {
			out = append(out, f)
		}
	}
	return out, nil
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
