package spec

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// What a file names as configuration is read only where reading comes to an end.
func TestConfigFilesAreRegularAndBounded(t *testing.T) {
	dir := t.TempDir()
	fifo, large, good := filepath.Join(dir, "fifo"), filepath.Join(dir, "large"), filepath.Join(dir, "good")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(large)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(1 << 40); err != nil { // sparse
		t.Fatal(err)
	}
	f.Close()
	if err := os.WriteFile(good, bytes.Repeat([]byte("!\n"), MaxConfigSize/2), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/dev/zero": "is a device; a regular file is expected",
		fifo:        "is a pipe; a regular file is expected",
		dir:         "is a directory; a regular file is expected",
		large:       "it is larger than the 1048576 bytes that are allowed",
		good:        "",
	} {
		text := "network: lab\nrouters:\n  r1:\n    software: frr\n    config: {file: " + path + "}\n"
		_, err := Parse(filepath.Join(dir, "lab.yaml"), []byte(text), Options{})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v; expected %q", path, err, want)
		}
	}
}

// A file of very many networks is refused before anything is made of it.
func TestManyDocumentsAreRefused(t *testing.T) {
	text := strings.Repeat("network: x\n---\n", MaxNetworks+1)
	_, err := Parse("lab.yaml", []byte(text), Options{})
	if err == nil || !strings.Contains(err.Error(), "1001 networks") || !strings.Contains(err.Error(), "--name") {
		t.Fatalf("%v", err)
	}
}
