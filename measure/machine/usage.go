// Package machine is what a result needs to say about the computer it was measured on: its environment, and where CPU
// time went during a trial.
//
// Forwarding runs in softirq context, which the kernel charges to whatever task it interrupts, and to no element's
// cgroup. So time is accounted three ways, and none is left out: by core (user, system, softirq, stolen), by kernel
// thread (napi/…, ksoftirqd/…, where NAPI is threaded), and by eBPF program (the kernel's run-time statistics, when
// switched on).
package machine

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/polyplane/polyplane/measure/netdev"
)

// ticks a second in /proc (USER_HZ, 100 on every architecture Go runs on).
const tick = time.Second / 100

// Core is time of one core.
type Core struct {
	CPU     int           `json:"cpu"`
	User    time.Duration `json:"user"` // nice included
	System  time.Duration `json:"system"`
	IRQ     time.Duration `json:"irq"`
	SoftIRQ time.Duration `json:"softirq"`
	Steal   time.Duration `json:"steal"` // the hypervisor ran something else
	Idle    time.Duration `json:"idle"`  // waiting for I/O included
}

// Busy is everything but idle and stolen time.
func (c Core) Busy() time.Duration { return c.User + c.System + c.IRQ + c.SoftIRQ }

// Thread is time of one kernel thread or process.
type Thread struct {
	PID  int           `json:"pid"`
	Name string        `json:"name"`
	Time time.Duration `json:"time"`
	Wait time.Duration `json:"wait"` // it could have run, and others had its core
}

// Program is time of one eBPF program.
type Program struct {
	Name string        `json:"name"`
	Runs uint64        `json:"runs"`
	Time time.Duration `json:"time"`
}

// Usage is CPU time, either since boot or between two readings.
type Usage struct {
	Wall    time.Duration `json:"wall"`
	Cores   []Core        `json:"cores"`
	Threads []Thread      `json:"threads,omitempty"`
	// cgroup directory → time of its processes, forwarding not included
	Groups   map[string]time.Duration `json:"groups,omitempty"`
	Programs []Program                `json:"programs,omitempty"`
}

// Watch says what to account for besides the cores.
type Watch struct {
	Threads  []int                    // process ids, e.g. of NAPI threads; ksoftirqd is always watched
	Groups   []string                 // cgroup directories, v1 (cpuacct) or v2
	Programs map[string]*ebpf.Program // needs ebpf.EnableStats; that costs every run two clock readings
}

// Read takes a reading. Threads and cgroups that are gone are left out.
func (w Watch) Read() (Usage, error) {
	u := Usage{Wall: time.Duration(time.Since(epoch)), Groups: map[string]time.Duration{}}
	var err error
	if u.Cores, err = cores(); err != nil {
		return u, err
	}
	for _, pid := range slices.Concat(softirqThreads(), w.Threads) {
		if t, err := thread(pid); err == nil {
			u.Threads = append(u.Threads, t)
		}
	}
	for _, g := range w.Groups {
		if d, err := group(g); err == nil {
			u.Groups[g] = d
		}
	}
	for name, p := range w.Programs {
		s, err := p.Stats()
		if err != nil {
			return u, fmt.Errorf("read the run-time statistics of %s: %w", name, err)
		}
		u.Programs = append(u.Programs, Program{name, s.RunCount, s.Runtime})
	}
	return u, nil
}

var epoch = time.Now()

// Sub is what was used between an earlier reading and this one.
func (u Usage) Sub(before Usage) Usage {
	d := Usage{Wall: u.Wall - before.Wall, Groups: map[string]time.Duration{}}
	for i, c := range u.Cores {
		if i < len(before.Cores) {
			b := before.Cores[i]
			d.Cores = append(d.Cores, Core{c.CPU, c.User - b.User, c.System - b.System, c.IRQ - b.IRQ,
				c.SoftIRQ - b.SoftIRQ, c.Steal - b.Steal, c.Idle - b.Idle})
		}
	}
	for _, t := range u.Threads {
		for _, b := range before.Threads {
			if t.PID == b.PID && t.Time > b.Time {
				d.Threads = append(d.Threads, Thread{t.PID, t.Name, t.Time - b.Time, t.Wait - b.Wait})
			}
		}
	}
	for g, t := range u.Groups {
		d.Groups[g] = t - before.Groups[g]
	}
	for _, p := range u.Programs {
		for _, b := range before.Programs {
			if p.Name == b.Name {
				d.Programs = append(d.Programs, Program{p.Name, p.Runs - b.Runs, p.Time - b.Time})
			}
		}
	}
	return d
}

// Steal is the largest share of its time that any core was robbed of.
func (u Usage) Steal() float64 {
	worst := 0.0
	for _, c := range u.Cores {
		if total := c.Busy() + c.Idle + c.Steal; total > 0 {
			worst = max(worst, float64(c.Steal)/float64(total))
		}
	}
	return worst
}

func cores() ([]Core, error) {
	f, err := os.Open("/proc/stat")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []Core
	s := bufio.NewScanner(f)
	for s.Scan() {
		fields := strings.Fields(s.Text())
		if len(fields) < 9 || !strings.HasPrefix(fields[0], "cpu") || fields[0] == "cpu" {
			continue
		}
		var v [8]time.Duration
		for i := range v {
			n, err := strconv.ParseInt(fields[i+1], 10, 64)
			if err != nil {
				return nil, fmt.Errorf("read /proc/stat: %w", err)
			}
			v[i] = time.Duration(n) * tick
		}
		cpu, err := strconv.Atoi(fields[0][3:])
		if err != nil {
			return nil, fmt.Errorf("read /proc/stat: %w", err)
		}
		out = append(out, Core{cpu, v[0] + v[1], v[2], v[5], v[6], v[7], v[3] + v[4]})
	}
	if len(out) == 0 {
		return nil, errors.New("read /proc/stat: no core in it")
	}
	return out, s.Err()
}

// softirqThreads finds the ksoftirqd of every core; they live as long as the machine, so they are looked for once.
var softirqThreads = sync.OnceValue(func() (pids []int) {
	comms, _ := filepath.Glob("/proc/[0-9]*/comm") // only a malformed pattern fails
	for _, c := range comms {
		b, err := os.ReadFile(c)
		if err == nil && strings.HasPrefix(string(b), "ksoftirqd/") {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(c))); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
})

// thread reads the time of a process in ns (schedstat), which ticks would round to nothing for short trials.
func thread(pid int) (Thread, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return Thread{}, err
	}
	t := Thread{PID: pid, Name: strings.TrimSpace(string(b))}
	t.Time, t.Wait, err = netdev.Schedule(fmt.Sprintf("/proc/%d/schedstat", pid))
	return t, err
}

func group(dir string) (time.Duration, error) {
	if b, err := os.ReadFile(filepath.Join(dir, "cpuacct.usage")); err == nil {
		ns, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		return time.Duration(ns), err
	}
	b, err := os.ReadFile(filepath.Join(dir, "cpu.stat"))
	if err != nil {
		return 0, err
	}
	for _, line := range strings.Split(string(b), "\n") {
		if v, ok := strings.CutPrefix(line, "usage_usec "); ok {
			us, err := strconv.ParseInt(v, 10, 64)
			return time.Duration(us) * time.Microsecond, err
		}
	}
	return 0, fmt.Errorf("%s/cpu.stat names no usage", dir)
}
