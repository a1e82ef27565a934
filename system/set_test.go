package system

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// What is changed while packets flow loses none of them that the rate lets through: bandwidths, cpu, memory, suspending
// what the kernel forwards for. It is in what save prints, and an apply of the file leaves it.
func TestSetWhilePacketsFlow(t *testing.T) {
	p := up(t, 2)
	file := filepath.Join(t.TempDir(), "lab.yaml")
	text := "network: lab\nospf: {}\nrouters: [r1, r2]\nhosts: {h1: {node: n1}, h2: {node: n2}}\nlinks:\n  - h1 -- " +
		"r1\n  - r1 -- r2\n  - r2 -- h2\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	p.run("apply", "-f", file)
	p.run("check", "lab", "--mesh", "--wait", "2m")
	p.run("set", "lab/r1--r2", "bandwidth=100Mbit") // a first rate may cost a broadcast, which ARP is
	p.run("ping", "lab/h1", "h2", "-c", "2")
	at := hostAddress(p, "lab", "h2")
	f := p.flow("lab", "h1", "h2", at, 0)
	step := func(args ...string) {
		t.Helper()
		p.run(args...)
		f.reached(f.sent.Load() + 200)
	}
	step("set", "lab/r1--r2", "bandwidth=50Mbit")
	step("set", "lab/r1--r2", "bandwidth=200Mbit", "mtu=1500")
	step("set", "lab", "bandwidth=1Gbit")
	step("set", "lab", "bandwidth=500Mbit")
	step("set", "lab/r1", "cpu=0.2", "memory=128MiB", "processes=200", "open-files=2000")
	step("set", "lab/r2", "forwarding=guest")
	step("suspend", "lab/r1")
	if phase := p.elements("lab")["r1"].Phase; phase != model.PhaseSuspended {
		t.Errorf("lab/r1 is %s", phase)
	}
	step("resume", "lab/r1")
	step("apply", "-f", file)
	if out := p.run("plan", "-f", file); !strings.Contains(out, "no changes") {
		t.Errorf("the file would take back what was set:\n%s", out)
	}
	sent, lost, duplicated := f.stop()
	t.Logf("%d packets", sent)
	if lost+duplicated != 0 {
		t.Errorf("%d of %d packets were lost, %d came twice", lost, sent, duplicated)
	}
	saved := p.run("save", "lab")
	for _, want := range []string{"cpu: 0.2", "memory: 128MiB", "processes: 200", "open-files: 2000", "bandwidth: 200Mbit",
		"slice: {bandwidth: 500Mbit}"} {
		if !strings.Contains(saved, want) {
			t.Errorf("save does not say %q:\n%s", want, saved)
		}
	}
	// A file that names it takes it over.
	named := strings.Replace(text, "routers: [r1, r2]", "routers: {r1: {cpu: 0.3}, r2: }", 1)
	if err := os.WriteFile(file, []byte(named), 0o644); err != nil {
		t.Fatal(err)
	}
	p.run("apply", "-f", file)
	if e := p.elements("lab")["r1"].Element; e.CPU != 300 || e.Memory != 128<<20 {
		t.Errorf("lab/r1 is %+v", e.Limits())
	}
	p.run("set", "lab/r1", "memory=")
	if e := p.elements("lab")["r1"].Element; e.Memory != 0 || e.Limits().Memory != model.DefaultMemory {
		t.Errorf("lab/r1 is %+v", e.Limits())
	}
}

// hostAddress is an address of a host.
func hostAddress(p *platform, network, element string) string {
	p.t.Helper()
	return p.elements(network)[element].Element.Interfaces[0].Addresses[0].Addr().String()
}

// Suspended processes stay so when the agent dies; a limit that bites is an event; what an element may take is shown
// beside what it takes.
func TestSuspendAndLimitsSurvive(t *testing.T) {
	p := up(t, 1)
	file := filepath.Join(t.TempDir(), "one.yaml")
	if err := os.WriteFile(file,
		[]byte("network: one\nsoftware: bird\nospf: {}\nrouters: {r1: {memory: 32MiB, disk: 16MiB}, r2: }\nlinks: "+
			"[r1 -- r2]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	p.run("apply", "-f", file)
	p.run("suspend", "one/r2")
	p.kill("agent n1")
	p.ready()
	p.run("exec", "one/r1", "--", "true") // the next life of the agent answers
	if _, stderr, err := p.try("exec", "one/r2", "--", "true"); err == nil ||
		!strings.Contains(stderr, "polyplane resume one/r2") {
		t.Errorf("a command in a suspended element: %v, %s", err, stderr)
	}
	p.await("the element's usage", func() bool { return p.elements("one")["r1"].Usage != nil },
		func() string { return p.run("describe", "one/r1") })
	p.try("exec", "one/r1", "--", "sh", "-c",
		"head -c 200M /dev/zero | tail -n 1 > /dev/null; cat /dev/zero > /root/full")
	reasons := func() map[string]bool {
		var events []model.Event
		found := map[string]bool{}
		if err := json.Unmarshal([]byte(p.run("get", "events", "one/r1", "-o", "json")), &events); err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			found[e.Reason] = true
		}
		return found
	}
	p.await("events of limits", func() bool { r := reasons(); return r["MemoryLimit"] && r["DiskFull"] },
		func() string { return p.run("get", "events", "one/r1") })
	if u := p.elements("one")["r1"].Usage; u == nil || u.Limits.Memory != 32<<20 || u.Disk < 8<<20 || u.Processes == 0 {
		t.Errorf("usage is %+v", u)
	}
	if out := p.run("describe", "one/r1"); !strings.Contains(out, "/32MiB") || !strings.Contains(out, "/16MiB") {
		t.Errorf("describe says\n%s", out)
	}
	p.run("resume", "one/r2")
	p.run("exec", "one/r2", "--", "birdc", "show", "status")
	p.run("restart", "one/r1") // also with a full disk
}
