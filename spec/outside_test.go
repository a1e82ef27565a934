package spec

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What a network's file takes from elsewhere than its own directory is told, also through links.
func TestFilesFromElsewhereAreTold(t *testing.T) {
	dir, elsewhere := filepath.Join(t.TempDir(), "lab"), t.TempDir()
	secret := filepath.Join(elsewhere, "secret")
	write := func(path string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("text\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(secret)
	write(filepath.Join(dir, "own"))
	write(filepath.Join(dir, "www", "page"))
	write(filepath.Join(filepath.Dir(dir), "key"))
	for link, to := range map[string]string{"inno": secret, "near": "own"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	text := "network: lab\nrouters: {r1: {config: {file: ../key}}}\nhosts:\n  h1:\n    files: {/a: " + secret +
		", /b: ../key, /c: ./inno, /d: own, /e: ./www, /f: near, /g: {text: x}, /h: " + dir + "/own}\n"
	documents, err := Documents(filepath.Join(dir, "lab.yaml"), []byte(text), Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := documents[0].Outside()
	slices.Sort(got)
	var said []string
	for _, s := range got {
		what, from, _ := strings.Cut(s, " is read from ")
		path, _, _ := strings.Cut(from, ", ")
		said = append(said, what[strings.LastIndex(what, " ")+1:]+" "+filepath.Base(path))
	}
	if want := []string{"r1 key", "/a secret", "/b key", "/c secret"}; !slices.Equal(said, want) {
		t.Errorf("told is %q, want %q", got, want)
	}
}
