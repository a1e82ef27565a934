package polyplane_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what the commands of the README print into it")

// TestReadme runs every command of the README's console blocks, in order, as a user would type them, and compares what
// they print with what is shown. What differs from run to run (times, rates, counters) is compared by its form only.
func TestReadme(t *testing.T) {
	const file = "README.md"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	shell := newShell(t)
	var out strings.Builder
	commands := 0
	for {
		before, rest, found := strings.Cut(page, "```console\n")
		out.WriteString(before)
		if !found {
			break
		}
		block, after, _ := strings.Cut(rest, "```\n")
		out.WriteString("```console\n")
		for _, c := range parseConsole(block) {
			commands++
			got := shell.run(t, c.command)
			if !*update && mask(got) != mask(c.output) {
				t.Errorf("$ %s\nprinted\n%s\nbut %s shows\n%s\n(go test . -run Readme -update writes it again)",
					c.command, got, file, c.output)
			}
			fmt.Fprintf(&out, "$ %s\n%s", c.command, got)
		}
		out.WriteString("```\n")
		page = after
	}
	if commands < 10 {
		t.Errorf("only %d commands found in %s", commands, file)
	}
	if *update && !t.Failed() {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReadmeCommandsAreKnown sees to it that no command stands in the README that no test runs: those outside console
// blocks are the two make commands (this suite is one, TestDemo runs the other) and the clone before them.
func TestReadmeCommandsAreKnown(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	known := regexp.MustCompile(`^(git clone .*|cd polyplane|(sudo )?make (demo|test|bench|install)|#.*|)$`)
	rest := string(text)
	for {
		_, block, found := strings.Cut(rest, "```sh\n")
		if !found {
			return
		}
		block, rest, _ = strings.Cut(block, "```\n")
		for line := range strings.Lines(block) {
			if !known.MatchString(strings.TrimSpace(line)) {
				t.Errorf("README.md tells to type %q in a block that no test runs: make it a console block",
					strings.TrimSpace(line))
			}
		}
	}
}

type shown struct{ command, output string }

// parseConsole splits a block into commands ("$ " first) and what each prints.
func parseConsole(block string) []shown {
	var all []shown
	for line := range strings.Lines(block) {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			all = append(all, shown{command: strings.TrimSuffix(command, "\n")})
		} else if len(all) > 0 {
			all[len(all)-1].output += line
		}
	}
	return all
}

var masks = []struct {
	form *regexp.Regexp
	with string
}{
	// The legend above FRR's routes says what the release knows: 8.4 and 10.3 have different ones.
	{regexp.MustCompile(`(?s)\bCodes: .*?\n\n(IPv[46] unicast VRF default:\n)?`), "LEGEND\n"},
	{regexp.MustCompile(`\b\d+\.\d+(/\d+\.\d+)+ `), "RTTS "},
	{regexp.MustCompile(`\x1b\[[0-9;]*[A-Za-z]`), ""},
	// What takes long on a busy machine is told every few seconds.
	{regexp.MustCompile(`(?m)^(starting|removing): \d+/\d+ elements \(.*\)\n`), ""},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?`), "TIME"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d(\.\d+)?\b`), "TIME"},
	{regexp.MustCompile(`\b\d+(\.\d+)? ?(ns|µs|ms|s|m|h|d)\b`), "SPAN"},
	{regexp.MustCompile(`\b\d+(\.\d+)? ?(bit|kbit|Mbit|Gbit|B|KiB|MiB|GiB|kB)(/s)?\b`), "AMOUNT"},
	{regexp.MustCompile(`(^|[ \t])\d+(\.\d+)?[ \t]+AMOUNT`), " CORES AMOUNT"},
	{regexp.MustCompile(`time=\S+`), "time=SPAN"},
	{regexp.MustCompile(`\b\d+ (packets|frames|bytes)\b`), "COUNT $1"},
	{regexp.MustCompile(`[ \t]+`), " "},
	{regexp.MustCompile(`-{3,}|─{3,}`), "---"},
}

// mask replaces what no two runs have in common.
func mask(s string) string {
	for _, m := range masks {
		s = m.form.ReplaceAllString(s, m.with)
	}
	var lines []string
	for line := range strings.Lines(s) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.TrimSpace(strings.Join(lines, "\n"))
}

func TestMask(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"r1  running 3s", "r1     running  14m", true},
		{"r1 running 3s", "r2 running 3s", false},
		{"rtt 0.034 ms", "rtt 1.2 ms", true},
		{"rtt = 0.180/0.194/0.212/0.013 ms", "rtt = 0.1/12.5/0.2/0.3 ms", true},
		{"10.0.0.1", "10.0.0.2", false},
		{"3 passed", "2 passed", false},
		{"Codes: K - kernel route, C - connected,\n       > - selected route\n\nO 10.0.0.0/30\n",
			"Codes: K - kernel route, L - local,\n       > - selected route\n\nIPv4 unicast VRF default:\nO " +
				"10.0.0.0/30\n", true},
		{"Codes: K - kernel route\n\nO 10.0.0.0/30\n", "Codes: K - kernel route\n\nO 10.0.0.4/30\n", false},
	} {
		if got := mask(c.a) == mask(c.b); got != c.same {
			t.Errorf("mask(%q) == mask(%q) is %v", c.a, c.b, got)
		}
	}
}

// shell runs commands in an instance of its own.
type shell struct {
	dir      string
	env      []string
	instance string
}

func newShell(t *testing.T) *shell {
	t.Helper()
	binary := builtBinary(t)
	name := fmt.Sprintf("readme-%d", os.Getpid())
	s := &shell{dir: ".", instance: name, env: append(os.Environ(), "POLYPLANE_INSTANCE="+name,
		"NO_COLOR=1", "LC_ALL=C.UTF-8",
		"PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"))}
	t.Cleanup(func() {
		c := exec.Command(binary, "down", "--purge")
		c.Env = s.env
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("removing the instance: %v\n%s", err, out)
		}
	})
	return s
}

// run returns what the command prints; a command that fails fails the test.
func (s *shell) run(t *testing.T, command string) string {
	t.Helper()
	c := exec.Command("bash", "-o", "pipefail", "-c", command)
	c.Dir, c.Env = s.dir, s.env
	out, err := c.CombinedOutput()
	if err != nil {
		t.Errorf("$ %s\n%s%v", command, out, err)
	}
	// The page speaks of the default instance, of which no one says the name.
	text := string(out)
	for _, said := range []string{" --instance " + s.instance, " --name " + s.instance} {
		text = strings.ReplaceAll(text, said, "")
	}
	text = strings.ReplaceAll(text, s.instance, "default")
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text
}

// builtBinary is the program under test: POLYPLANE_BINARY, or built now.
func builtBinary(t *testing.T) string {
	t.Helper()
	if b := os.Getenv("POLYPLANE_BINARY"); b != "" {
		return b
	}
	b := filepath.Join(t.TempDir(), "polyplane")
	c := exec.Command("go", "build", "-o", b, "./cmd/polyplane")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("building the binary: %v\n%s", err, out)
	}
	return b
}
