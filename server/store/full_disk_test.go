package store

import (
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
