package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A full disk is no mistake of anybody's program: it is said as what it is.
func TestFullDiskIsSaidSo(t *testing.T) {
	disk := t.TempDir()
	if err := unix.Mount("polyplane-test", disk, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(disk, unix.MNT_DETACH) //nolint:errcheck // a temporary directory of this test's
	s, err := OpenEmbedded(t.Context(), EmbeddedOptions{Dir: disk, Log: filepath.Join(t.TempDir(), "etcd.log")})
	if err == nil {
		s.Close()
		t.Fatal("a store of 1 MiB works")
	}
	if !strings.Contains(err.Error(), "the disk is full: 1MiB are free, and at least 24MiB are needed") {
		t.Error(err)
	}
}

// fill fills the disk of a directory, and returns what makes room again.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "ballast")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for piece := make([]byte, 1<<20); ; {
		switch _, err := f.Write(piece); {
		case err == nil:
		case errors.Is(err, unix.ENOSPC) && len(piece) > 4096:
			piece = piece[:len(piece)/2]
		case errors.Is(err, unix.ENOSPC):
			return func() { os.Remove(path) }
		default:
			t.Fatal(err)
		}
	}
}
