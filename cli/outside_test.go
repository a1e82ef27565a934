package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// plan and apply tell what is read from elsewhere than the file's directory, in a bounded number of lines.
func TestWhatIsReadFromElsewhereIsTold(t *testing.T) {
	dir, secret := t.TempDir(), filepath.Join(t.TempDir(), "secret")
	files := "network: lab\nhosts:\n  h1:\n    files:\n      /own: ./lab.yaml\n"
	for i := range mostOutside + 4 {
		files += fmt.Sprintf("      /x%d: %s\n", i, secret)
	}
	lab := filepath.Join(dir, "lab.yaml")
	for path, text := range map[string]string{secret: "text\n", lab: files} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var said bytes.Buffer
	c := &CLI{Err: &said}
	f := &fileFlags{paths: []string{lab}, renames: func() bool { return false }}
	if _, err := c.readNetworks(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	if err := c.tellOutside(f); err != nil {
		t.Fatal(err)
	}
	got := said.String()
	if strings.Count(got, "\n") != mostOutside+1 || !strings.Contains(got, "/x0 is read from "+secret) ||
		!strings.Contains(got, "and 4 more") || strings.Contains(got, "/own") {
		t.Errorf("it says\n%s", got)
	}
}
