package system

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDebianPackage makes the package of the program under test and looks into it.
func TestDebianPackage(t *testing.T) {
	dir := t.TempDir()
	dpkg := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("dpkg-deb", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("dpkg-deb %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	build := func(out string) []byte {
		t.Helper()
		c := exec.Command("scripts/deb")
		c.Dir = root
		c.Env = append(os.Environ(), "OUT="+out, "VERSION=v1.2.3~test", "BINARY="+binary, "COMPRESS=-Zgzip -z1",
			"SOURCE_DATE_EPOCH=1700000000")
		said, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("scripts/deb: %v\n%s", err, said)
		}
		b, err := os.ReadFile(strings.TrimSpace(string(said)))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	if string(build(filepath.Join(dir, "a"))) != string(build(filepath.Join(dir, "b"))) {
		t.Error("built twice, it differs")
	}
	found, err := filepath.Glob(filepath.Join(dir, "a", "polyplane_1.2.3~test_*.deb"))
	if err != nil || len(found) != 1 {
		t.Fatalf("built: %v, %v", found, err)
	}
	deb := found[0]
	for field, want := range map[string]string{"Package": "^polyplane$", "Version": `^1\.2\.3~test$`,
		"Architecture": "^(amd64|arm64)$",
		"Depends":      `\brunc\b`, "Recommends": `\bfrr\b`, "Installed-Size": `^\d+$`, "Maintainer": "@"} {
		if got := strings.TrimSpace(dpkg("-f", deb, field)); !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("%s: %q, want %s", field, got, want)
		}
	}
	for line := range strings.Lines(dpkg("-c", deb)) {
		words := strings.Fields(line)
		if path := words[5]; words[1] != "root/root" || strings.Contains(path, "/lib/systemd") {
			t.Errorf("in the package: %s", line)
		}
		executable := strings.HasPrefix(words[0], "-rwxr-xr-x")
		if strings.HasPrefix(words[0], "-") && executable != (words[5] == "./usr/bin/polyplane") ||
			words[0][5] == 'w' || words[0][8] == 'w' {
			t.Errorf("a wrong mode: %s", line)
		}
	}
	dpkg("-x", deb, filepath.Join(dir, "root"))
	dpkg("-e", deb, filepath.Join(dir, "control"))
	c := exec.Command(filepath.Join(dir, "root/usr/bin/polyplane"), "version")
	c.Env = append(os.Environ(), "POLYPLANE_INSTANCE="+family+"none")
	if out, err := c.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "polyplane ") {
		t.Errorf("its program: %v\n%s", err, out)
	}
	for _, file := range []string{"share/bash-completion/completions/polyplane", "share/doc/polyplane/copyright",
		"share/doc/polyplane/join.md",
		"share/doc/polyplane/changelog.gz", "share/man/man1/polyplane.1.gz", "share/doc/polyplane/examples/duo.yaml"} {
		if info, err := os.Stat(filepath.Join(dir, "root/usr", file)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", file, err)
		}
	}
	for _, script := range []string{"postinst", "prerm", "postrm"} {
		path := filepath.Join(dir, "control", script)
		if out, err := exec.Command("sh", "-n", path).CombinedOutput(); err != nil {
			t.Errorf("%s: %s", script, out)
		}
		// A first installation starts nothing, and upgrades remove nothing.
		for _, args := range [][]string{{"configure"}, {"upgrade", "9"}} {
			if out, err := exec.Command("sh", append([]string{path}, args...)...).CombinedOutput(); err != nil ||
				len(out) > 0 {
				t.Errorf("%s %v: %v %s", script, args, err, out)
			}
		}
	}
}
