package image_test

import (
	"testing"

	"golang.org/x/sys/unix"
)

// attributesOf are the names of a file's extended attributes.
func attributesOf(t *testing.T, path string) string {
	t.Helper()
	b := make([]byte, 4096)
	n, err := unix.Llistxattr(path, b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}
