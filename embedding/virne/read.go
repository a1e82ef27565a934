package virne

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// mostBytes is how large a file may be.
const mostBytes = 64 << 20

// Read reads a data set from a directory as the simulator saves it: p_net.gml, the files of v_nets in the order of
// their names, and events.yaml. physical is the file of the physical network if that is elsewhere.
func Read(dir, physical string) (*DataSet, error) {
	if physical == "" {
		physical = filepath.Join(dir, "p_net.gml")
	}
	p, err := readGraph(physical, false)
	if err != nil {
		return nil, err
	}
	d := &DataSet{Physical: *p}
	files, err := os.ReadDir(filepath.Join(dir, "v_nets"))
	if err != nil {
		return nil, fmt.Errorf("reading the requests: %w", err)
	}
	for _, f := range files { // in the order of their names
		if filepath.Ext(f.Name()) != ".gml" {
			continue
		}
		g, err := readGraph(filepath.Join(dir, "v_nets", f.Name()), true)
		if err != nil {
			return nil, err
		}
		if len(d.Requests) == mostRequests {
			return nil, fmt.Errorf("v_nets has more than %d requests", mostRequests)
		}
		d.Requests = append(d.Requests, *g)
	}
	path := filepath.Join(dir, "events.yaml")
	data, err := readBounded(path)
	if err != nil {
		return nil, err
	}
	if d.Events, err = parseEvents(data, len(d.Requests)); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return d, nil
}

func readGraph(path string, demands bool) (*Graph, error) {
	data, err := readBounded(path)
	if err != nil {
		return nil, err
	}
	g, err := parseGraph(string(data), demands)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return g, nil
}

func readBounded(path string) ([]byte, error) {
	info, err := os.Stat(path) // opening a pipe would wait for its other end
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	data, err := io.ReadAll(io.LimitReader(f, mostBytes+1))
	if err == nil && len(data) > mostBytes {
		err = fmt.Errorf("%s is larger than %d MiB", path, mostBytes>>20)
	}
	return data, err
}

// parseEvents reads when which of the requests arrive and leave: a list in YAML, a key a line, as the simulator
// writes it. The YAML library that other files are read with does not survive whatever stands in a file.
func parseEvents(data []byte, requests int) ([]Event, error) {
	var events []Event
	said := map[string]string{}
	arrived, left := make([]bool, requests), make([]bool, requests)
	began := 0 // the line of the event that is read
	finish := func() error {
		if began == 0 {
			return nil
		}
		e, err := eventOf(said, requests)
		if err == nil {
			once := left
			if e.Arrives {
				once = arrived
			}
			if once[e.Request] {
				err = fmt.Errorf("request %d does so for the second time", e.Request)
			}
			once[e.Request] = true
		}
		if err != nil {
			return fmt.Errorf("the event of line %d: %w", began, err)
		}
		events = append(events, e)
		clear(said)
		return nil
	}
	line := 0
	for text := range strings.Lines(string(data)) {
		line++
		text = strings.TrimRight(text, " \r\n")
		if trimmed := strings.TrimSpace(text); trimmed == "" || trimmed[0] == '#' || trimmed == "---" {
			continue
		}
		if rest, first := strings.CutPrefix(text, "- "); first {
			if err := finish(); err != nil {
				return nil, err
			}
			began, text = line, rest
		}
		key, value, ok := strings.Cut(strings.TrimSpace(text), ":")
		if _, twice := said[key]; !ok || began == 0 || twice {
			return nil, fmt.Errorf("line %d is no \"KEY: VALUE\" of a list of events with id, time, type and v_net_id",
				line)
		}
		said[key] = strings.TrimSpace(value)
	}
	if err := finish(); err != nil {
		return nil, err
	}
	slices.SortStableFunc(events, byTime)
	clear(arrived)
	for _, e := range events {
		if !e.Arrives && !arrived[e.Request] {
			return nil, fmt.Errorf("request %d leaves at %g, and has not arrived by then", e.Request, e.Time)
		}
		arrived[e.Request] = true
	}
	return events, nil
}

// eventOf reads one event.
func eventOf(said map[string]string, requests int) (e Event, err error) {
	for _, key := range []string{"time", "type", "v_net_id"} {
		if said[key] == "" {
			return e, fmt.Errorf("it has no %s", key)
		}
	}
	if e.Time, err = strconv.ParseFloat(said["time"], 64); err != nil || math.IsNaN(e.Time) || math.IsInf(e.Time, 0) {
		return e, fmt.Errorf("time %.30q is none that can be waited for", said["time"])
	}
	if said["type"] != "0" && said["type"] != "1" {
		return e, fmt.Errorf("type %.30q is neither 1 (arrives) nor 0 (leaves)", said["type"])
	}
	e.Arrives = said["type"] == "1"
	e.Request, err = strconv.Atoi(said["v_net_id"])
	if err != nil || e.Request < 0 || e.Request >= requests {
		return e, fmt.Errorf("v_net_id %.30q is no request; there are %d, from 0 on", said["v_net_id"], requests)
	}
	return e, nil
}
