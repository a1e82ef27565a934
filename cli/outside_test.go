package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What lies outside of the file's directory is refused, in a bounded number of lines, unless the user allows the
// directory where it is. A link does not make it lie inside.
func TestFilesFromElsewhereAreRefused(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	secret := filepath.Join(elsewhere, "secret")
	files := "network: lab\nhosts:\n  h1:\n    image: " + secret + "\n    files:\n      /own: ./lab.yaml\n" +
		"      /linked: ./link\n"
	for i := range mostOutside + 3 {
		files += fmt.Sprintf("      /x%02d: %s\n", i, secret)
	}
	lab := filepath.Join(dir, "lab.yaml")
	for path, text := range map[string]string{secret: "text\n", lab: files} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(secret, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	check := func(elsewhere ...string) (string, error) {
		t.Helper()
		var said bytes.Buffer
		c := &CLI{Err: &said}
		f := &fileFlags{paths: []string{lab}, renames: func() bool { return false }, elsewhere: elsewhere}
		if _, err := c.readNetworks(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		err := c.checkOutside(f)
		return said.String(), err
	}
	for _, allowed := range [][]string{nil, {dir}} {
		said, err := check(allowed...)
		if err == nil {
			t.Fatalf("with %v the files are taken", allowed)
		}
		text := err.Error()
		if strings.Count(text, "\n") != mostOutside+1 || !strings.Contains(text, "/x00 is read from "+secret) ||
			!strings.Contains(text, "/linked is read from "+secret) || !strings.Contains(text, "and 4 more") ||
			strings.Contains(text, "/own") || !strings.Contains(text, "--outside-files") {
			t.Errorf("it is refused by\n%s", text)
		}
		if want := "note: image of h1 is read from " + secret; !strings.HasPrefix(said, want) {
			t.Errorf("it says %q, want %q", said, want)
		}
	}
	for _, allowed := range []string{elsewhere, "/"} {
		if said, err := check(dir, allowed); err != nil || said != "" {
			t.Errorf("with %s it says %q, and is refused by %v", allowed, said, err)
		}
	}
	if _, err := check(filepath.Join(dir, "missing")); err == nil ||
		!strings.Contains(err.Error(), "--outside-files "+filepath.Join(dir, "missing")) {
		t.Errorf("a directory that is not there: %v", err)
	}
}

// Each command that takes a network's files refuses them itself.
func TestCommandsRefuseFilesFromElsewhere(t *testing.T) {
	dir, secret := t.TempDir(), filepath.Join(t.TempDir(), "secret")
	lab, out := filepath.Join(dir, "lab.yaml"), filepath.Join(dir, "out")
	for path, text := range map[string]string{secret: "text\n",
		lab: "network: lab\nhosts: {h1: {files: {/x: " + secret + "}}}\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"plan", "-f", lab}, {"apply", "-f", lab},
		{"convert", "-f", lab, "--to", "clab", "-o", out}} {
		f := &fake{}
		r := run(t, f, args...)
		if r.code != ExitUsage || !strings.Contains(r.err, "is read from "+secret) {
			t.Errorf("%v: status %d, %s", args, r.code, r.err)
		}
	}
}
