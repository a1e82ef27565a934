package durable

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	for _, c := range []struct {
		content string
		mode    fs.FileMode
	}{{"a long first version", 0o644}, {"short", 0o600}} {
		if err := Replace(path, []byte(c.content), c.mode); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		info, _ := os.Stat(path)
		if err != nil || string(got) != c.content || info.Mode() != c.mode {
			t.Errorf("the file is %q, %s (%v), want %q, %s", got, info.Mode(), err, c.content, c.mode)
		}
	}
	if all, _ := os.ReadDir(dir); len(all) != 1 {
		t.Errorf("left are %v", all)
	}
}

// TestAFailureLeavesTheOldFile: what cannot be written replaces nothing.
func TestAFailureLeavesTheOldFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path+".new", 0o700); err != nil {
		t.Fatal(err)
	}
	err := Replace(path, []byte("new"), 0o600)
	if got, _ := os.ReadFile(path); err == nil || string(got) != "old" {
		t.Errorf("the file is %q, and told is %v", got, err)
	}
}
