package system

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var pythonBlock = regexp.MustCompile("(?ms)^```python\n(.*?)^```$")

// TestPython runs the blocks of docs/python.md and of the package's README as two scripts, as a user would, and then
// what they do not show: a network that apply made is taken over, and both ways of removing leave nothing.
func TestPython(t *testing.T) {
	p := up(t, 2)
	for _, page := range []string{"docs/python.md", "python/README.md"} {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		var script strings.Builder
		for _, block := range pythonBlock.FindAllStringSubmatch(string(text), -1) {
			script.WriteString(block[1] + "\n")
		}
		if script.Len() < 200 {
			t.Fatalf("%s shows no Python: the test does not understand it", page)
		}
		out := p.python(t, script.String())
		if !strings.Contains(out, "1 packets transmitted, 1 received") || !strings.Contains(out, "(2/2 received)") {
			t.Errorf("%s: it printed\n%s", page, out)
		}
		if left := p.run("get", "networks", "-o", "json"); strings.TrimSpace(left) != "[]" {
			t.Fatalf("%s: it left %s", page, left)
		}
	}
	p.run("apply", "-f", "examples/duo.yaml")
	out := p.python(t, `
import polyplane
with polyplane.Network.open("duo") as duo:
    assert duo.waitConnected(60)
    assert duo["h1"].cmd("hostname") == "h1\n"
    kept = duo["r1"].cmd("echo mine > /root/mine; cat /root/mine")
    duo.addLink(duo.addHost("h3"), "r1")
    duo.start()
    assert duo.waitConnected(60)
    assert duo["r1"].cmd("cat /root/mine") == kept == "mine\n"
    try:
        duo.addHost("h4", memory="1MiB")
        duo.start()
    except polyplane.Invalid as err:
        print(err)
try:
    polyplane.Network("duo").start()
except polyplane.Conflict as err:
    print(err)
`)
	for _, want := range []string{"host h4: memory 1MiB is less than the 8MiB that a process needs to start",
		"there is a network duo already"} {
		if !strings.Contains(out, want) {
			t.Errorf("it did not print %q:\n%s", want, out)
		}
	}
	if views := p.elements("duo"); len(views) != 5 || views["h3"].Node == "" {
		t.Errorf("%d elements: %v", len(views), views)
	}
}

// python runs a script with the package, and returns what it printed.
func (p *platform) python(t *testing.T, script string) string {
	t.Helper()
	c := exec.Command("/usr/bin/python3", "-W", "error", "-c", script)
	c.Env = append(os.Environ(), "POLYPLANE_INSTANCE="+p.dirs.Name, "PYTHONPATH="+filepath.Join(root, "python"),
		"PYTHONDONTWRITEBYTECODE=1", "PYTHONUTF8=1")
	var out, complaints strings.Builder
	c.Stdout, c.Stderr = &out, &complaints
	if err := c.Run(); err != nil || complaints.Len() > 0 {
		t.Fatalf("the script failed: %v\n%s%s\nof\n%s", err, out.String(), complaints.String(), script)
	}
	return out.String()
}
