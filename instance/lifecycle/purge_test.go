package lifecycle

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
)

// TestPurgeEmptiesADisk: where the data directory is a disk of its own, what is on it goes, and it stays mounted.
func TestPurgeEmptiesADisk(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	fill := func() {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(data, "nodes", "n1"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(data, "nodes", "n1", "f"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fill()
	if mounted, err := removeData(data); err != nil || mounted {
		t.Errorf("a directory: %t %v", mounted, err)
	}
	if err := os.Mkdir(data, 0o755); err != nil {
		t.Errorf("it is not gone: %v", err)
	}
	if err := unix.Mount("tmpfs", data, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(data, 0); err != nil {
			t.Error(err)
		}
	})
	fill()
	mounted, err := removeData(data)
	left, _ := os.ReadDir(data)
	if err != nil || !mounted || len(left) > 0 || !linux.IsMount(data) {
		t.Errorf("a disk: %t %v, left are %v", mounted, err, left)
	}
}
