package system

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
		began := time.Now()
		p.run("apply", "-f", file, "--timeout", "30m")
		applied := time.Since(began)
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
