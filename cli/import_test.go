package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/spec"
)

// runImport runs a command line without an instance.
func runImport(t *testing.T, args ...string) (out, stderr string, code int) {
	t.Helper()
	r := run(t, &fake{}, args...)
	return r.out, r.err, r.code
}

func TestImport(t *testing.T) {
	lab, err := filepath.Abs("../convert/testdata/lab.clab.yml")
	if err != nil {
		t.Fatal(err)
	}
	out, stderr, code := runImport(t, "import", lab)
	if code != ExitOK {
		t.Fatalf("%d: %s", code, stderr)
	}
	if !strings.Contains(out, "  - pc1:eth1 -- router1:eth3\n") || !strings.Contains(stderr, lab+":47: node pc2: cmd is "+
		"not carried over\n") || strings.Contains(stderr, "apply would refuse") {
		t.Errorf("it printed\n%s\nand told\n%s", out, stderr)
	}
	if nets, err := spec.Parse(lab, []byte(out), spec.Options{}); err != nil || len(nets[0].Links) != 5 {
		t.Errorf("what it printed is refused: %v, %+v", err, nets)
	}
	// What files of this version have words for comes over by itself.
	for _, want := range []string{"env: {SITE: left}", "\n    start: [\"sysctl -w net.ipv4.tcp_ecn=1\"]",
		"files: {\"/srv/index.html\": ./pc2/index.html}"} {
		if !strings.Contains(out, want) {
			t.Errorf("there is no %q in\n%s", want, out)
		}
	}
	if !strings.Contains(stderr, "the file /lib/modules is not put at /lib/modules: elements see the machine's own there") {
		t.Errorf("told is\n%s", stderr)
	}
	file := filepath.Join(t.TempDir(), "lab.yaml")
	if _, stderr, code := runImport(t, "import", lab, "--strict", "-o", file); code != ExitFailed {
		t.Errorf("--strict with something not carried over: %d: %s", code, stderr)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("--strict has written: %v", err)
	}
	if _, stderr, code := runImport(t, "import", lab, "-o", file); code != ExitOK {
		t.Errorf("-o: %d: %s", code, stderr)
	}
	if written, err := os.ReadFile(file); err != nil || string(written) != out {
		t.Errorf("written: %v\n%s", err, written)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"import", lab, "-o", file}, "is there already"},
		{[]string{"import", file}, "is a file of polyplane's already"},
		{[]string{"import", filepath.Dir(lab)}, "is no regular file"},
		{[]string{"import", "/nonexistent"}, "no such file"},
		{[]string{"import"}, "FILE"},
	} {
		if _, stderr, code := runImport(t, c.args...); code != ExitUsage || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: %d, %q; wanted %q", c.args, code, stderr, c.want)
		}
	}
}

var inlineCommand = regexp.MustCompile("(?m)`polyplane ([^`]+)`|^polyplane (.+)$")

// TestComingFrom: each command of docs/coming-from.md exists, with the flags that it has there.
// A lab may be somebody else's: what it names outside of its directory is not looked into.
func TestImportLooksBesideTheLabOnly(t *testing.T) {
	outer := t.TempDir()
	dir := filepath.Join(outer, "lab")
	secret := filepath.Join(outer, "secret")
	conf := "interface eth1\n ip address 10.77.0.1/24\n"
	for _, err := range []error{os.Mkdir(dir, 0o700), os.WriteFile(secret, []byte(conf), 0o600),
		os.WriteFile(filepath.Join(dir, "own"), []byte(conf), 0o600), os.Symlink(secret, filepath.Join(dir, "link"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for named, read := range map[string]bool{"own": true, filepath.Join(dir, "own"): true, "../secret": false,
		secret: false, "link": false, "../lab/own": false, "/proc/self/environ": false} {
		file := filepath.Join(dir, "lab.clab.yml")
		text := "name: x\ntopology:\n  nodes:\n    r1: {kind: linux, image: frr, binds: [\"" + named + ":/etc/frr/frr.conf\"]}\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, told, code := runImport(t, "import", file)
		if code != ExitOK || strings.Contains(out, "10.77.0.1") != read ||
			strings.Contains(told, "node r1: its configuration cannot be read: ") == read {
			t.Errorf("%s: %d\n%s\n%s", named, code, out, told)
		}
	}
}

func TestComingFrom(t *testing.T) {
	page, err := os.ReadFile("../docs/coming-from.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := inlineCommand.FindAllStringSubmatch(string(page), -1)
	if len(commands) < 20 {
		t.Fatalf("only %d commands found: the test does not understand the page", len(commands))
	}
	for _, m := range commands {
		words := strings.Fields(m[1] + m[2])
		if words[0] == "down" { // the platform's own, which is not this package's
			continue
		}
		root := New(nil).Root()
		cmd, rest, err := root.Find(words)
		if err != nil || cmd == root {
			t.Errorf("polyplane %s: there is no such command: %v", strings.Join(words, " "), err)
			continue
		}
		if err := cmd.ParseFlags(rest); err != nil {
			t.Errorf("polyplane %s: %v", strings.Join(words, " "), err)
		} else if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
			t.Errorf("polyplane %s: %v", strings.Join(words, " "), err)
		}
	}
}
