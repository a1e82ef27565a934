package lifecycle

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/node/substrate"
)

// A disk too full for an instance is told in megabytes, before anything is made on it.
func TestFullDisk(t *testing.T) {
	disk := t.TempDir()
	if err := unix.Mount("polyplane-test", disk, "tmpfs", 0, "size=30m"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(disk, unix.MNT_DETACH) //nolint:errcheck // a temporary directory of this test's
	d := instance.Dirs{Name: "full", Data: filepath.Join(disk, "var", "full")}
	err := checkSpace(d)
	if err == nil || !strings.Contains(err.Error(), d.Data+
		" has 30MiB free, and 70MiB are needed: make room for 40MiB more") {
		t.Errorf("a new instance: %v", err)
	}
	if err := os.MkdirAll(d.Store(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := checkSpace(d); err != nil {
		t.Errorf("an instance that comes back: %v", err)
	}
	if err := os.WriteFile(filepath.Join(disk, "ballast"), make([]byte, 10<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := checkSpace(d); err == nil || !strings.Contains(err.Error(), "make room for 4MiB more") {
		t.Errorf("an instance that comes back to a full disk: %v", err)
	}
	// What the store holds in reserve counts.
	if err := os.Remove(filepath.Join(disk, "ballast")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.Reserve(), make([]byte, 10<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := checkSpace(d); err != nil {
		t.Errorf("an instance that comes back to its reserve: %v", err)
	}
}

// A substrate file's node without a core or memory could never take anything.
func TestNodesOfNothing(t *testing.T) {
	m := substrate.Machine{Name: "host", CPU: 4000, Memory: 8 << 30, MTU: 1500}
	for text, want := range map[string]string{
		"nodes:\n  a: {cpu: 0}\n":       "node a has 0 cores; state at least 0.01",
		"nodes:\n  a: {memory: 1MiB}\n": "node a has 1MiB of memory; state at least 8MiB",
	} {
		file := filepath.Join(t.TempDir(), "s.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := decide(Options{File: file}, settings{}, false, m); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; expected %q", text, err, want)
		}
	}
}

// What a daemon says at each of its ends is shown once.
func TestTailTellsOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "manager.log")
	if err := os.WriteFile(path, []byte("one\n"+strings.Repeat("polyplane manager: full\n", 4)), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := tail(path); got != "  one\n  polyplane manager: full" {
		t.Errorf("%q", got)
	}
	if err := os.WriteFile(path, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := tail(path); got != "  (it is empty)" {
		t.Errorf("of an empty log: %q", got)
	}
}
