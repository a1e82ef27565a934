package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/measure/stats"
	"github.com/polyplane/polyplane/spec"
)

const idleSeconds = 60

// idle measures what the line costs while nothing happens, how soon a deleted port is back, and small applies.
func idle(ctx context.Context, o options) ([]table, error) {
	dir, err := os.MkdirTemp("", "ppbench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file, changed := filepath.Join(dir, "line.yaml"), filepath.Join(dir, "changed.yaml")
	line := spec.Line(o.routers)
	if err := os.WriteFile(file, line, 0o644); err != nil {
		return nil, err
	}
	if err := os.WriteFile(changed, oneLinkChanged(line), 0o644); err != nil {
		return nil, err
	}
	in, err := start(ctx, o, 1)
	if err != nil {
		return nil, err
	}
	defer in.stop()
	if _, err := in.run(ctx, "apply", "-f", file); err != nil {
		return nil, err
	}

	pids, err := in.processes()
	if err != nil {
		return nil, err
	}
	time.Sleep(10 * time.Second) // what an apply leaves behind (garbage, compaction) is not idling
	before, err := cpuSeconds(pids)
	if err != nil {
		return nil, err
	}
	time.Sleep(idleSeconds * time.Second)
	after, err := cpuSeconds(pids)
	if err != nil {
		return nil, err
	}
	memory, err := proportionalMemory(pids)
	if err != nil {
		return nil, err
	}

	var back, same, one []float64
	for range o.rounds {
		s, err := in.portBack(ctx)
		if err != nil {
			return nil, err
		}
		back = append(back, s)
	}
	for range o.rounds {
		began := time.Now()
		if _, err := in.run(ctx, "apply", "-f", file); err != nil {
			return nil, err
		}
		same = append(same, time.Since(began).Seconds())
	}
	untouched := 0
	for i := range o.rounds {
		f := changed
		if i%2 == 1 {
			f = file
		}
		old, err := in.devices(ctx)
		if err != nil {
			return nil, err
		}
		began := time.Now()
		if _, err := in.run(ctx, "apply", "-f", f); err != nil {
			return nil, err
		}
		one = append(one, time.Since(began).Seconds())
		now, err := in.devices(ctx)
		if err != nil {
			return nil, err
		}
		untouched = 0
		for name, index := range old {
			if now[name] == index {
				untouched++
			}
		}
		if touched := len(old) - untouched; touched > 2 {
			return nil, fmt.Errorf("changing one link made %d ports anew", touched)
		}
	}

	return []table{{
		Name:    "idle",
		Title:   fmt.Sprintf("With the line of %d routers up", o.routers),
		Columns: []string{"what", "measured", "asked for"},
		Rows: [][]string{
			{fmt.Sprintf("CPU of all processes over %d s, share of one core", idleSeconds),
				fmt.Sprintf("%.2f %%", 100*(after-before)/idleSeconds), "< 2 %"},
			{"memory of all processes (PSS)", fmt.Sprintf("%.0f MB", memory), "< 150 MB"},
			{"a deleted port is back after (worst)", fmt.Sprintf("%.2f s", stats.Quantile(back, 1)), "< 5 s"},
			{"an apply that changes nothing (median)", fmt.Sprintf("%.2f s", stats.Median(same)), "< 1 s"},
			{"an apply that changes one link's MTU (median)", fmt.Sprintf("%.2f s", stats.Median(one)), ""},
			{"ports with the same interface index after it", fmt.Sprint(untouched),
				fmt.Sprint(2*(o.routers-1), " (none made anew)")},
		},
		Raw: map[string][]float64{"back": back, "same": same, "one": one},
	}}, nil
}

// oneLinkChanged gives the line's middle link another MTU.
func oneLinkChanged(line []byte) []byte {
	lines := bytes.Split(line, []byte("\n"))
	var links []int
	for i, l := range lines {
		if bytes.Contains(l, []byte(" -- ")) {
			links = append(links, i)
		}
	}
	i := links[len(links)/2]
	head, prefix, _ := strings.Cut(string(lines[i]), ": ")
	lines[i] = []byte(fmt.Sprintf("%s: {prefixes: %s, mtu: 1400}", head, prefix))
	return bytes.Join(lines, []byte("\n"))
}

// portBack deletes a port, and returns how many seconds pass until it is there and up again.
func (in *running) portBack(ctx context.Context) (float64, error) {
	old, err := in.devices(ctx)
	if err != nil {
		return 0, err
	}
	var victim string
	for name := range old {
		victim = name
		break
	}
	if _, err := in.inNode(ctx, "ip", "link", "del", victim); err != nil {
		return 0, err
	}
	began := time.Now()
	for time.Since(began) < time.Minute {
		if out, err := in.inNode(ctx, "ip", "-o", "link", "show", "dev", victim, "up"); err == nil &&
			strings.Contains(out, "LOWER_UP") {
			return time.Since(began).Seconds(), nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return 0, fmt.Errorf("the deleted port %s did not come back within a minute", victim)
}

// devices returns the ports' devices with their interface indices. If an index has changed, the device was made anew.
func (in *running) devices(ctx context.Context) (map[string]int, error) {
	out, err := in.inNode(ctx, "ip", "-j", "link")
	if err != nil {
		return nil, err
	}
	var links []struct {
		Name  string `json:"ifname"`
		Index int    `json:"ifindex"`
	}
	if err := json.Unmarshal([]byte(out), &links); err != nil {
		return nil, err
	}
	ports := map[string]int{}
	for _, l := range links {
		if strings.HasPrefix(l.Name, instance.PortDevicePrefix) {
			ports[l.Name] = l.Index
		}
	}
	return ports, nil
}
