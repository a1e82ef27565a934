package spec

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden messages anew")

// Every bad file has one golden message beside it: what people see.
func TestBadFiles(t *testing.T) {
	paths, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(paths) < 70 {
		t.Fatalf("the bad files are missing: %d, %v", len(paths), err)
	}
	for _, path := range paths {
		name := filepath.Base(path)
		t.Run(strings.TrimSuffix(name, ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			nets, err := Parse(name, data,
				Options{ReadFile: func(string) ([]byte, error) { return nil, os.ErrNotExist }})
			if err == nil {
				t.Fatal("it was accepted")
			}
			if nets != nil {
				t.Error("there is a result beside the error")
			}
			var list Errors
			if !errors.As(err, &list) || len(list) == 0 {
				t.Fatalf("the error is no Errors: %T", err)
			}
			golden := strings.TrimSuffix(path, ".yaml") + ".txt"
			if *update {
				if err := os.WriteFile(golden, []byte(err.Error()+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, readErr := os.ReadFile(golden)
			if readErr != nil {
				t.Fatal(readErr)
			}
			if got := err.Error() + "\n"; got != string(want) {
				t.Errorf("the message is\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// What is large, deep or hopeless is refused with one short message, and before it costs anything.
func TestGarbage(t *testing.T) {
	const head = "network: x\nrouters: [a, b]\nlinks:\n"
	for name, text := range map[string]string{
		"10 MB":           strings.Repeat("network: x\n", 1<<20),
		"10 MB of zeros":  strings.Repeat("\x00", 10<<20),
		"zeros":           strings.Repeat("\x00", 1<<20),
		"brackets":        "network: " + strings.Repeat("[", 200_000),
		"braces":          "network: " + strings.Repeat("{a: ", 50_000),
		"dashes":          "network:\n" + strings.Repeat("- ", 100_000),
		"keys":            strings.Repeat("a:\n", 500_000),
		"nested keys":     "network: " + strings.Repeat("a: ", 50_000),
		"long line":       "network: " + strings.Repeat("x", 1<<20),
		"dangling links":  head + strings.Repeat("- aa -- bb\n", 20_000),
		"link twice":      head + strings.Repeat("- a:x -- b:x\n", 20_000),
		"no links":        head + strings.Repeat("- a\n", 100_000),
		"documents":       strings.Repeat("network: a\n---\n", 20_000),
		"quotes":          "network: \"" + strings.Repeat("x\n ", 50_000),
		"explicit keys":   "network:\n" + strings.Repeat("? ", 50_000),
		"unclosed list":   "network: x\nrouters: [" + strings.Repeat("a,\n", 30_000),
		"directive":       "%YAML 9.9\nnetwork: a\n",
		"comments":        strings.Repeat("#\n", 500_000),
		"nothing":         "",
		"a lot of nested": "network:\n" + strings.Repeat(" ", 2000) + "- x\n",
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			nets, err := Parse("garbage.yaml", []byte(text), Options{})
			if err == nil || nets != nil {
				t.Fatalf("accepted: %d networks, %v", len(nets), err)
			}
			if len(err.Error()) > 8000 {
				t.Errorf("the message has %d bytes", len(err.Error()))
			}
			if !strings.HasPrefix(err.Error(), "garbage.yaml") {
				t.Errorf("the message does not name the file: %.100s", err)
			}
			t.Logf("%v: %.160s", time.Since(start), err)
		})
	}
}
