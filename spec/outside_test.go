package spec

import (
	"fmt"
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
	var got []string
	for _, is := range documents[0].Outside() {
		got = append(got, is.String())
	}
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

// What is read is what was looked at: neither a link that is changed in between nor one of the kernel, whose text is no
// path, leads elsewhere.
func TestPathsThatWereLookedAtAreRead(t *testing.T) {
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(elsewhere, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(elsewhere)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Remove(elsewhere); err != nil { // the text of its link is then no path
		t.Fatal(err)
	}
	link := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	if data, err := os.ReadFile(link); err != nil || string(data) != "secret\n" {
		t.Fatalf("the kernel's link leads to %q, %v", data, err)
	}
	for _, text := range []string{"network: lab\nhosts: {h1: {files: {/a: " + link + "}}}\n",
		"network: lab\nrouters: {r1: {config: {file: " + link + "}}}\n"} {
		if d, err := Documents(filepath.Join(dir, "lab.yaml"), []byte(text), Options{}); err == nil {
			t.Errorf("%s is read through a link of the kernel, and told is %v", text, d[0].Outside())
		}
	}
	swapped := filepath.Join(dir, "swapped")
	if err := os.Symlink("/etc", swapped); err != nil {
		t.Fatal(err)
	}
	for what, read := range map[string]func(string) error{
		"a configuration": func(path string) error { _, err := readConfig(path); return err },
		"a file":          func(path string) error { _, err := readTree(path); return err },
		"a directory":     func(string) error { _, err := readTree(swapped); return err },
	} {
		if err := read(filepath.Join(swapped, "passwd")); err == nil {
			t.Errorf("%s is read through a link that was not there when its path was looked at", what)
		}
	}
}
