package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
)

// node is the one node of a benchmark's instance.
const node = "n1"

// running is an instance of polyplane under measurement, driven as a user drives it: by the binary.
type running struct {
	binary string
	dirs   instance.Dirs
}

// start brings up an instance of its own name, which stop removes.
func start(ctx context.Context, o options, nodes int) (*running, error) {
	binary, err := filepath.Abs(o.polyplane)
	if err != nil {
		return nil, err
	}
	in := &running{binary: binary, dirs: instance.NewDirs(fmt.Sprintf("bench-%d", os.Getpid()))}
	if _, err := in.run(ctx, "up", "--nodes", strconv.Itoa(nodes), "-d"); err != nil {
		in.stop()
		return nil, err
	}
	return in, nil
}

// stop removes the instance, whatever happened to it.
func (in *running) stop() {
	if _, err := in.run(context.Background(), "down", "--purge"); err != nil {
		fmt.Fprintln(os.Stderr, "bench: removing the instance:", err)
	}
}

// run runs one command and returns what it printed.
func (in *running) run(ctx context.Context, args ...string) (string, error) {
	c := exec.CommandContext(ctx, in.binary, args...)
	c.Env = append(os.Environ(), "POLYPLANE_INSTANCE="+in.dirs.Name)
	var stderr strings.Builder
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		return string(out), fmt.Errorf("polyplane %s: %w: %s", strings.Join(args, " "), err, lastLine(stderr.String()))
	}
	return string(out), nil
}

// neighbours probes n pairs of neighbours, chosen by the seed, once each, and counts the pairs that answered.
func (in *running) neighbours(ctx context.Context, network string, pairs int, seed int64) (asked,
	replied int, err error) {
	out, err := in.run(ctx, "check", network, "--neighbours", strconv.Itoa(pairs), "--seed",
		strconv.FormatInt(seed, 10), "-o", "json")
	var result model.CheckResult
	if jsonErr := json.Unmarshal([]byte(out), &result); jsonErr != nil {
		return 0, 0, errors.Join(err, jsonErr)
	}
	for _, p := range result.Probes {
		asked++
		if p.OK {
			replied++
		}
	}
	return asked, replied, nil
}

// inNode runs a command in the node's network namespace.
func (in *running) inNode(ctx context.Context, args ...string) (string, error) {
	return inNamespace(ctx, in.dirs.Node(node).NodeNamespace(), args...)
}

func inNamespace(ctx context.Context, path string, args ...string) (string, error) {
	var stderr strings.Builder
	c := exec.CommandContext(ctx, "nsenter", append([]string{"--net=" + path}, args...)...)
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		return string(out), fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, lastLine(stderr.String()))
	}
	return string(out), nil
}

// ports counts the ports' devices on the node.
func (in *running) ports() (int, error) {
	out, err := in.inNode(context.Background(), "ip", "-o", "link")
	return strings.Count(out, ": "+instance.PortDevicePrefix), err
}

// processes returns the instance's own processes: the supervisor, the manager, the agents.
func (in *running) processes() ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		exe, err := os.Readlink("/proc/" + e.Name() + "/exe")
		if err != nil || exe != in.binary {
			continue
		}
		cmdline, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		environ, _ := os.ReadFile("/proc/" + e.Name() + "/environ")
		if strings.Contains(string(cmdline), in.dirs.Name) ||
			strings.Contains(string(environ), "POLYPLANE_INSTANCE="+in.dirs.Name) {
			pids = append(pids, pid)
		}
	}
	if len(pids) == 0 {
		return nil, errors.New("no process of the instance found")
	}
	return pids, nil
}

// cpuSeconds is the processor time that processes have taken so far, in user and system mode.
func cpuSeconds(pids []int) (float64, error) {
	var ticks float64
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, err
		}
		// The name in parentheses may contain anything; utime and stime are the 12th and 13th field after it (proc(5)).
		_, rest, _ := strings.Cut(string(stat), ") ")
		f := strings.Fields(rest)
		for _, field := range f[11:13] {
			v, err := strconv.ParseFloat(field, 64)
			if err != nil {
				return 0, err
			}
			ticks += v
		}
	}
	return ticks / 100, nil // USER_HZ is 100 on every architecture that we build for
}

// proportionalMemory is the processes' memory in MB, shared pages divided among those who share them (PSS).
func proportionalMemory(pids []int) (float64, error) {
	var kib float64
	for _, pid := range pids {
		rollup, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			return 0, err
		}
		for line := range strings.Lines(string(rollup)) {
			if value, ok := strings.CutPrefix(line, "Pss:"); ok {
				var v float64
				if _, err := fmt.Sscan(value, &v); err != nil {
					return 0, err
				}
				kib += v
			}
		}
	}
	return kib * 1024 / 1e6, nil
}
