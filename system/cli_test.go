package system

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// exitStatus is a command's.
func exitStatus(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return -1
}

func decode(t *testing.T, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("not JSON: %v\n%s", err, text)
	}
}

// Exit statuses of docs/cli.md.
const (
	failed     = 1
	senseless  = 2
	unknown    = 3
	notRunning = 4
	refused    = 5
)

// mistake is a command line that cannot succeed.
type mistake struct {
	args   string
	status int
	says   []string
}

// make makes the mistake: one clear message on standard error with the words wanted, nothing that only programmers
// read.
func (m mistake) make(t *testing.T, p *platform, args ...string) {
	t.Helper()
	if len(args) == 0 {
		args = strings.Fields(m.args)
	}
	out, stderr, err := p.try(args...)
	what := "polyplane " + strings.Join(args, " ")
	if got := exitStatus(err); got != m.status {
		t.Errorf("%s ends with %d, want %d: %s%s", what, got, m.status, out, stderr)
	}
	for _, s := range m.says {
		if !strings.Contains(stderr, s) {
			t.Errorf("%s does not say %q: %s", what, s, stderr)
		}
	}
	readable(t, what, out+stderr)
	if m.status != failed && out != "" {
		t.Errorf("%s prints its error, or a result, to standard output: %s", what, out)
	}
	if n := strings.Count(stderr, "\n"); n > 25 {
		t.Errorf("%s says too much, %d lines: %s", what, n, stderr)
	}
}

// readable expects nothing of a program's inside in what a user sees.
func readable(t *testing.T, what, text string) {
	t.Helper()
	for _, s := range []string{"panic", "goroutine ", ".go:", "runtime error", "%!", "0xc0", "context deadline",
		"<nil>", "&{", "map["} {
		if strings.Contains(text, s) {
			t.Errorf("%s shows its inside (%q): %s", what, s, text)
		}
	}
}

func TestMistakes(t *testing.T) {
	t.Run("without an instance", func(t *testing.T) {
		p := newPlatform(t)
		for _, m := range []mistake{
			{"get networks", notRunning, []string{"polyplane", "up"}},
			{"apply -f examples/duo.yaml", notRunning, []string{"up"}},
			{"check red", notRunning, []string{"up"}},
			{"exec a/b -- true", notRunning, []string{"up"}},
			{"ping a/b a/c", notRunning, []string{"up"}},
			{"delete lab", notRunning, []string{"up"}},
			{"top", notRunning, []string{"up"}},
			{"frobnicate", senseless, []string{"frobnicate"}},
			{"aply", senseless, []string{"apply"}},
			{"aply -f x", senseless, []string{"apply"}},
			{"get networks --frob", senseless, []string{"--frob"}},
			{"up --nodes none", senseless, []string{"nodes"}},
			{"up --nodes -1 -d", senseless, []string{"nodes"}},
			{"up --nodes 2 --topology star -d", senseless, []string{"star", "ring", "line", "mesh"}},
			{"up --substrate /nowhere/x.yaml -d", senseless, []string{"/nowhere/x.yaml"}},
			{"up --nodes 2 --host -d", senseless, nil},
			{"up --name not/a/name -d", senseless, []string{"not/a/name"}},
			{"example nothing-like-it", unknown, []string{"nothing-like-it", "duo"}},
		} {
			m.make(t, p)
		}
		for range 2 {
			if out := p.run("down"); !strings.Contains(out, "was not running") {
				t.Errorf("down of nothing says %q", out)
			}
		}
		if _, err := os.Stat(p.dirs.Data); !os.IsNotExist(err) {
			t.Errorf("mistakes made %s (%v)", p.dirs.Data, err)
		}
	})

	p := up(t, 2)
	t.Run("commands", func(t *testing.T) {
		p := p.with(t)
		mistake{"", refused, []string{"already running"}}.make(t, p, "up", "-d")
		p.run("apply", "-f", "examples/static.yaml")
		for _, m := range []mistake{
			{"apply", senseless, []string{"-f"}},
			{"apply -f", senseless, nil},
			{"apply -f /nowhere/x.yaml", senseless, []string{"/nowhere/x.yaml"}},
			{"delete nothing", unknown, []string{"nothing"}},
			{"delete", senseless, nil},
			{"describe nothing", unknown, []string{"nothing"}},
			{"describe static/nobody", unknown, []string{"nobody"}},
			{"describe static/r1:nothing", unknown, []string{"nothing"}},
			{"check nothing", unknown, []string{"nothing"}},
			{"check", senseless, nil},
			{"graph nothing", unknown, []string{"nothing"}},
			{"graph static --format png", senseless, []string{"png", "mermaid"}},
			{"save nothing", unknown, []string{"nothing"}},
			{"exec static/nobody -- true", unknown, []string{"nobody"}},
			{"exec static -- true", senseless, []string{"static"}},
			{"exec static/h1", senseless, nil},
			{"console static/r1", senseless, []string{"terminal"}}, // there is none here
			{"logs static/nobody", unknown, []string{"nobody"}},
			{"ping static/h1 static/nobody", unknown, []string{"nobody"}},
			{"ping static/h1", senseless, nil},
			{"capture static/r1:nothing", unknown, []string{"nothing"}},
			{"capture static/r1", senseless, []string{"NET/ELEMENT:IF"}},
			{"stop static/nobody", unknown, []string{"nobody"}},
			{"start nothing/r1", unknown, []string{"nothing"}},
			{"get elements nothing", unknown, []string{"nothing"}},
			{"get networks -o xml", senseless, []string{"xml", "json"}},
			{"get everything", senseless, []string{"everything"}},
		} {
			m.make(t, p)
		}
		if _, _, err := p.try("exec", "static/h1", "--", "sh", "-c", "exit 42"); exitStatus(err) != 42 {
			t.Errorf("exec ends with %v, its command with 42", err)
		}
		if _, _, err := p.try("ping", "static/h1", "203.0.113.1", "-c", "1", "-W", "1"); exitStatus(err) == 0 {
			t.Error("a ping of nobody succeeds")
		}
		mistake{"", 127, []string{"no-such-command"}}.make(t, p, "exec", "static/h1", "--", "no-such-command")
	})

	t.Run("files", func(t *testing.T) { badFiles(t, p.with(t)) })

	t.Run("the same again changes nothing", func(t *testing.T) {
		p := p.with(t)
		before := p.objects()
		out, stderr, err := p.try("apply", "-f", "examples/static.yaml")
		if err != nil || !strings.Contains(strings.ToLower(out+stderr), "no change") {
			t.Errorf("the same file again: %v: %s%s", err, out, stderr)
		}
		if out, stderr, err := p.try("plan", "-f", "examples/static.yaml", "--exit-code"); err != nil {
			t.Errorf("plan of the same: %v: %s%s", err, out, stderr)
		}
		p.untouched(before)
		if _, _, err := p.try("plan", "-f", "examples/duo.yaml", "--exit-code"); exitStatus(err) != 1 {
			t.Errorf("plan --exit-code of a new network ends with %v", err)
		}
		saved := file(t, p.run("save", "static"))
		if out, stderr, err := p.try("plan", "-f", saved, "--exit-code"); err != nil {
			t.Errorf("what was saved differs: %v: %s%s", err, out, stderr)
		}
	})
}

// badFiles applies files with a mistake each: refused with file, line and what would be right, and nothing is changed.
func badFiles(t *testing.T, p *platform) {
	head := "network: bad\n"
	many := "routers: [r1]\nhosts:\n"
	for i := range 8 {
		many += "  h" + string(rune('0'+i)) + ": \n"
	}
	many += "links:\n"
	for i := range 8 {
		many += "  - h" + string(rune('0'+i)) + " -- s\n"
	}
	for _, f := range []struct {
		name, text string
		status     int
		says       []string
	}{
		{"empty", "", senseless, nil},
		{"unknown key", head + "routerz: [r1]\n", senseless, []string{":2", "routerz", "routers"}},
		{"unknown key of a router", head + "routers: {r1: {cpus: 2}}\n", senseless, []string{":2", "cpus", "cpu"}},
		{"wrong unit", head + "routers: [a, b]\nlinks:\n  - a -- b: {bandwidth: 10furlongs}\n", senseless,
			[]string{":4", "10furlongs", "Mbit"}},
		{"wrong memory", head + "routers: {a: {memory: lots}}\n", senseless, []string{":2", "lots", "MiB"}},
		{"tab", head + "routers:\n\t- r1\n", senseless, []string{":3"}},
		{"duplicate name", head + "routers: [r1, r1]\n", senseless, []string{":2", "r1"}},
		{"router and host of a name", head + "routers: [x]\nhosts: [x]\n", senseless, []string{"x"}},
		{"duplicate address", head +
			"routers: [a, b]\nlinks:\n  - a -- b: 10.0.0.0/30\nhosts: {h: {addresses: [10.0.0.1/30]}}\n", senseless,
			nil},
		{"dangling link", head + "routers: [a]\nlinks:\n  - a -- nobody\n", senseless, []string{":4", "nobody"}},
		{"link to itself", head + "routers: [a]\nlinks:\n  - a -- a\n", senseless, []string{":4"}},
		{"half a link", head + "routers: [a]\nlinks:\n  - a --\n", senseless, []string{":4"}},
		{"interface used twice", head + "routers: [a, b, c]\nlinks:\n  - a:e0 -- b\n  - a:e0 -- c\n", senseless,
			[]string{":5", "e0"}},
		{"prefix too small", head + "routers: [a]\nhosts: [h]\nlinks:\n  - a -- h: 10.0.0.0/32\n", senseless,
			[]string{":5", "10.0.0.0/32"}},
		{"segment too small", head + "switches: {s: {prefixes: 10.0.0.0/30}}\n" + many, senseless,
			[]string{"10.0.0.0/30"}},
		{"no prefix", head + "routers: [a, b]\nlinks:\n  - a -- b: 10.0.0.300/30\n", senseless,
			[]string{":4", "10.0.0.300/30"}},
		{"wrong MTU", head + "routers: [a, b]\nlinks:\n  - a -- b: {mtu: 20}\n", senseless, []string{":4", "20"}},
		{"name for the kernel's", head + "routers: [lo]\n", senseless, []string{":2", "lo"}},
		{"bad name", "network: no/slash/here\nrouters: [a]\n", senseless, []string{":1", "no/slash/here"}},
		{"software unknown", head + "routers: {a: {software: quagga}}\n", senseless, []string{":2", "quagga", "frr"}},
		{"expectation of nobody", head + "routers: [a]\nexpect: [a reaches nobody]\n", senseless,
			[]string{":3", "nobody"}},
		{"node unknown", head + "routers: {a: {node: mars}}\n", refused, []string{"mars", "n1"}},
		{"too much memory", head + "routers: {a: {memory: 1000GiB}}\n", refused, []string{"1000GiB", "n1"}},
		{"MTU that the nodes' links do not carry", head +
			"routers: {a: {node: n1}, b: {node: n2}}\nlinks:\n  - a -- b: {mtu: 8990}\n", refused, []string{"8990"}},
		{"MTU that they would not carry if the ends parted", head +
			"routers: [a, b]\nlinks:\n  - a -- b: {mtu: 9000}\n", refused,
			[]string{"9050", "n1 -- n2 carries 9000", "8950"}},
		{"10 MB of garbage", strings.Repeat("\x00\x01\xff{[garbage", 1<<20), senseless, nil},
		{"10 MB of text", strings.Repeat("all work and no play makes jack a dull boy\n", 1<<18), senseless, nil},
		{"YAML bomb", "a: &a [x,x,x,x,x,x,x,x,x]\n" + bomb(), senseless, nil},
	} {
		t.Run(f.name, func(t *testing.T) {
			path := file(t, f.text)
			for _, command := range []string{"plan", "apply"} {
				m := mistake{"", f.status, f.says}
				if f.status == senseless {
					m.says = append([]string{filepath.Base(path)}, f.says...)
				}
				m.make(t, p, command, "-f", path)
			}
		})
	}
	if out := p.run("get", "networks", "-o", "name"); strings.TrimSpace(out) != "static" {
		t.Errorf("bad files made networks: %s", out)
	}
	// A good network beside a bad one in a file is not made either.
	mistake{"", senseless, []string{":3"}}.make(t, p, "apply", "-f", file(t, "network: good\n---\nnetwork: [bad\n"))
	if out := p.run("get", "networks", "-o", "name"); strings.TrimSpace(out) != "static" {
		t.Errorf("half a file was applied: %s", out)
	}
}

// bomb is nine levels of nine references each.
func bomb() string {
	var b strings.Builder
	for level := 'b'; level <= 'i'; level++ {
		b.WriteString(string(level) + ": &" + string(level) + " [" +
			strings.TrimSuffix(strings.Repeat("*"+string(level-1)+",", 9), ",") + "]\n")
	}
	return b.String() + "network: *i\n"
}
