package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// environment is what a figure depends on, recorded with it.
type environment struct {
	Date   string `json:"date"`
	Kernel string `json:"kernel"`
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	// Steal is the share of CPU time that the machine's host took away since its boot.
	Steal float64 `json:"steal"`
}

func currentEnvironment() environment {
	e := environment{Date: time.Now().UTC().Format("2006-01-02"), Cores: runtime.NumCPU()}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		e.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				e.CPU = strings.TrimSpace(value)
				break
			}
		}
	}
	if stat, err := os.ReadFile("/proc/stat"); err == nil {
		var total, steal float64
		for i, f := range strings.Fields(strings.SplitN(string(stat), "\n", 2)[0]) {
			var v float64
			if _, err := fmt.Sscan(f, &v); err == nil && i <= 8 {
				total += v
				if i == 8 {
					steal = v
				}
			}
		}
		if total > 0 {
			e.Steal = steal / total
		}
	}
	return e
}

func markdown(t table) string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\n", t.Title)
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(t.Columns, " | "), strings.Repeat(" --- |", len(t.Columns)))
	for _, r := range t.Rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(r, " | "))
	}
	if t.Note != "" {
		fmt.Fprintf(&b, "\n%s\n", t.Note)
	}
	e := t.Environment
	fmt.Fprintf(&b, "\nMeasured %s: %d cores (%s), Linux %s, %.1f %% of the time stolen since boot.\n\n", e.Date,
		e.Cores, e.CPU, e.Kernel, 100*e.Steal)
	return b.String()
}

// The marks between which the page is written; the rest of it is written by hand.
const (
	begin = "<!-- tables: written by `make bench` from bench/results -->\n"
	end   = "<!-- end of tables -->\n"
)

// writePage puts the kept tables into the page between its two marks.
func writePage(page, results string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	head, rest, ok := strings.Cut(string(text), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no place for the tables: it needs the lines %q and %q", page, begin, end)
	}
	files, err := filepath.Glob(filepath.Join(results, "*.json"))
	if err != nil {
		return err
	}
	var body strings.Builder
	for _, f := range files {
		var t table
		data, err := os.ReadFile(f)
		if err == nil {
			err = json.Unmarshal(data, &t)
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", f, err)
		}
		body.WriteString(markdown(t))
	}
	return os.WriteFile(page, []byte(head+begin+"\n"+body.String()+end+tail), 0o644)
}
