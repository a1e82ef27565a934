package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/polyplane/polyplane/instance"
	frames "github.com/polyplane/polyplane/measure/frame"
	"github.com/polyplane/polyplane/measure/machine"
	"github.com/polyplane/polyplane/measure/selftest"
	"github.com/polyplane/polyplane/measure/trial"
)

// limitsFile is where an instance keeps its latest self-test.
func limitsFile(dirs instance.Dirs) string { return filepath.Join(dirs.Data, "self-test.json") }

// selfTest finds out what source and sink can do, and keeps it.
func (c *CLI) selfTest(ctx context.Context, p *trafficPlan, dirs instance.Dirs) error {
	o := selftest.Options{}
	if p.durationSet {
		o.Duration = p.duration
	}
	if p.repeatSet {
		o.Repeat = p.repeat
	}
	start := time.Now()
	o.Progress = func(done, all int, what string) {
		c.progressLine("%s, %d of %d: %s …", clockTime(time.Since(start)), done+1, all, what)
	}
	report, err := selftest.Run(ctx, o)
	c.progressLine("")
	if err != nil {
		return err
	}
	b, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dirs.Data, 0o700); err != nil {
		return fmt.Errorf("keep the self-test: %w", err)
	}
	if err := writeWhole(limitsFile(dirs), append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("keep the self-test: %w", err)
	}
	if p.out != "" {
		if err := writeWhole(p.out, append(b, '\n'), 0o644); err != nil {
			return err
		}
	}
	if p.output.format == formatJSON {
		_, err := c.Out.Write(append(b, '\n'))
		return err
	}
	return printSelfTest(c.Out, report, c.colour(), c.columns())
}

// writeWhole replaces a file. A reader sees the old file or the new one, never a mixture, also if two write at once.
func writeWhole(path string, b []byte, mode fs.FileMode) error {
	t, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(t.Name()) // gone already when all went well
	_, err = t.Write(b)
	if err = errors.Join(err, t.Chmod(mode), t.Close()); err != nil {
		return err
	}
	return os.Rename(t.Name(), path)
}

// readLimits returns the limits of the instance's self-test; nil if there was none. A self-test of another machine or
// kernel says nothing about this one.
func readLimits(dirs instance.Dirs, here machine.Environment) (*trial.Limits, error) {
	b, err := os.ReadFile(limitsFile(dirs))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var r selftest.Report
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		return nil, fmt.Errorf("the self-test that was kept cannot be read (%w): `polyplane traffic --self-test` "+
			"writes a new one", err)
	}
	e := r.Environment
	if e.Kernel != here.Kernel || e.CPU != here.CPU || e.Cores != here.Cores {
		return nil, fmt.Errorf("the self-test of %s was made on another kernel or machine: `polyplane traffic "+
			"--self-test` makes a new one", e.When.Format(time.DateOnly))
	}
	return &r.Limits, nil
}

func printSelfTest(w io.Writer, r selftest.Report, colour bool, columns int) error {
	speeds := table{head: []string{"SIZE", ">ONE CORE", ">TWO CORES", ">OF THESE ARRIVE", ">EVERY PAYLOAD",
		">BARE LOOP", ">SHARE", "INTERVAL"}}
	for _, s := range r.Speeds {
		open, got := "", ""
		if s.Open > 0 {
			open, got = packetRate(s.Open), packetRate(s.Got)
		}
		size, interval := s.Sizes+" B", ""
		if s.Sizes == frames.IMIX().String() {
			size = "IMIX"
		}
		if iv := s.Share.Interval; iv.Level > 0 {
			interval = fmt.Sprintf("%.0f … %.0f %%", 100*iv.Low, 100*iv.High)
		}
		speeds.add(texts(size, packetRate(s.Closed), open, got, packetRate(s.Whole), packetRate(s.Bare),
			fmt.Sprintf("%.0f %%", 100*s.Share.Median), interval)...)
	}
	paces := table{head: []string{"RATE", "GAPS", ">MEASURED", ">ERROR", ">LATE"}}
	for _, p := range r.Paces {
		gaps := "constant"
		if p.Poisson {
			gaps = "poisson"
		}
		paces.add(texts(packetRate(p.Rate), gaps, packetRate(p.Measured), fmt.Sprintf("%+.3f %%", 100*p.Error),
			fmt.Sprintf("%.3f %%", 100*p.Late))...)
	}
	fmt.Fprintf(w, "%s, %d cores, Linux %s\n\n", r.Environment.CPU, r.Environment.Cores, kernelRelease(r.Environment))
	if err := speeds.write(w, colour, true, ""); err != nil {
		return err
	}
	fmt.Fprintln(w)
	if err := paces.write(w, colour, true, ""); err != nil {
		return err
	}
	d := r.Floor
	fmt.Fprintf(w, "\nleast delay, nothing in between: min %s, median %s, 99 %% %s, max %s\n", nanoseconds(d.Min),
		nanoseconds(d.P50), nanoseconds(d.P99), nanoseconds(d.Max))
	fmt.Fprintf(w, "later trials: up to %s, exact within %.2f %%\n", packetRate(r.Limits.Rate), 100*r.Limits.Accuracy)
	return warnings(w, r.Failures, colour, columns)
}
