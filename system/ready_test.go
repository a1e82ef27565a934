package system

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
)

// gridFile is a network of routers that run OSPF, so many in a row.
func gridFile(t *testing.T, routers, row int, software model.Software) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "network: grid\nospf: {}\ndefaults: {routers: {software: %s}}\nrouters:\n", software)
	for i := range routers {
		fmt.Fprintf(&b, "  r%d:\n", i)
	}
	b.WriteString("links:\n")
	for i := range routers {
		if (i+1)%row != 0 && i+1 < routers {
			fmt.Fprintf(&b, "  - r%d -- r%d\n", i, i+1)
		}
		if i+row < routers {
			fmt.Fprintf(&b, "  - r%d -- r%d\n", i, i+row)
		}
	}
	path := filepath.Join(t.TempDir(), "grid.yaml")
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// busy starts processes that do nothing but compute, until the test ends.
func busy(t *testing.T, processes int) {
	t.Helper()
	compute(t, processes, nil)
}

// compute is busy with processes of certain attributes.
func compute(t *testing.T, processes int, attributes *syscall.SysProcAttr) {
	t.Helper()
	for range processes {
		c := exec.Command("sh", "-c", "while :; do :; done")
		c.SysProcAttr = attributes
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	}
}

// processorTime is what the platform has used of processors so far: the manager, the agent of n1, what this has started
// and has ended (runc), and the elements.
func (p *platform) processorTime() map[string]time.Duration {
	p.t.Helper()
	const tick = 10 * time.Millisecond // USER_HZ
	all := map[string]time.Duration{}
	for name, pid := range p.processes() {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			p.t.Fatal(err)
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		at := func(i int) time.Duration { n, _ := strconv.Atoi(fields[i-3]); return time.Duration(n) * tick }
		all[name] = at(14) + at(15) // proc_pid_stat(5)
		if name == "agent n1" {
			all["what the agent runs"] = at(16) + at(17)
		}
	}
	group := p.dirs.Node("n1").Cgroup()
	if used, err := os.ReadFile(filepath.Join("/sys/fs/cgroup/cpuacct", group, "cpuacct.usage")); err == nil {
		n, _ := strconv.Atoi(strings.TrimSpace(string(used)))
		all["elements"] = time.Duration(n)
	} else if used, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", group, "cpu.stat")); err == nil {
		var n int
		fmt.Sscanf(string(used), "usage_usec %d", &n) //nolint:errcheck // it is its first line
		all["elements"] = time.Duration(n) * time.Microsecond
	}
	return all
}

// TestRoutersConverge: once `apply` says that a grid of FRR routers is ready, each has its configuration, and OSPF
// finds all ways. READY_ROUTERS, READY_LOAD (processes that compute all the while), READY_RUNS and READY_SOFTWARE (frr,
// bird) make it another: docs/reliability.md.
func TestRoutersConverge(t *testing.T) {
	number := func(name string, otherwise int) int {
		if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
			return n
		}
		return otherwise
	}
	routers, runs := number("READY_ROUTERS", 12), number("READY_RUNS", 1)
	p := up(t, 1)
	software := model.SoftwareFRR
	if s := os.Getenv("READY_SOFTWARE"); s != "" {
		software = model.Software(s)
	}
	file := gridFile(t, routers, max(3, min(20, routers/10)), software)
	busy(t, number("READY_LOAD", 0))
	for run := range runs {
		before, began := p.processorTime(), time.Now()
		p.run("apply", "-f", file, "--timeout", "30m")
		applied := time.Since(began)
		used := p.processorTime()
		for name, e := range p.elements("grid") {
			if e.Phase != model.PhaseRunning {
				t.Errorf("grid is ready, and %s is %s: %s", name, e.Phase, e.Message)
			}
		}
		// Routers that start are nobody's lie: what the node's agent tells of them the manager takes.
		if told := p.run("get", "events"); strings.Contains(told, "ReportRefused") {
			t.Errorf("the manager refuses what its own agent tells: %s", told)
		}
		began = time.Now()
		p.run("check", "grid", "--mesh", "--routers", "--sample", "500", "--seed", "1", "--wait", "30m")
		t.Logf("run %d: %d routers ready after %.1f s, converged %.1f s later", run+1, routers, applied.Seconds(),
			time.Since(began).Seconds())
		for _, what := range slices.Sorted(maps.Keys(used)) {
			t.Logf("  %s: %.1f ms of processor a router until ready", what,
				(used[what]-before[what]).Seconds()*1000/float64(routers))
		}
		p.run("delete", "grid", "--timeout", "30m")
	}
}

// TestClosConverges: a Clos network of nine BGP routers, each an autonomous system of its own, a host at each leaf.
// Once it is ready, everybody reaches everybody: routers too, whose own packets come from addresses that BGP announces.
func TestClosConverges(t *testing.T) {
	const spines, leaves = 3, 6
	p := up(t, 1)
	for _, software := range []model.Software{model.SoftwareFRR, model.SoftwareBIRD} {
		var routers, hosts, links strings.Builder
		for i := range spines {
			fmt.Fprintf(&routers, "  s%d: {bgp: {as: %d}}\n", i, 65000+i)
		}
		for i := range leaves {
			fmt.Fprintf(&routers, "  l%d: {bgp: {as: %d}}\n", i, 65100+i)
			fmt.Fprintf(&hosts, "  h%d:\n", i)
			fmt.Fprintf(&links, "  - l%d -- h%d\n", i, i)
			for j := range spines {
				fmt.Fprintf(&links, "  - s%d -- l%d\n", j, i)
			}
		}
		clos := file(t, fmt.Sprintf("network: %s\nsoftware: %[1]s\nrouters:\n%[2]shosts:\n%[3]slinks:\n%[4]s",
			software, &routers, &hosts, &links))
		p.run("apply", "-f", clos)
		p.run("check", string(software), "--mesh", "--routers", "--wait", "2m")
	}
}
