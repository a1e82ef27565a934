package polyplane_test

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// mostColumns is how wide a line of Go or C is at most, with tabs of four.
const mostColumns = 120

// TestLinesAreNarrow: two files side by side fit a screen. What cannot be broken is left out: texts over several lines,
// commands for tools, which stay on their line, tables in the documents of packages, and struct tags. Tests may have a
// few wider ones.
func TestLinesAreNarrow(t *testing.T) {
	var files []string
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "build"):
			return fs.SkipDir
		case strings.HasSuffix(file, ".go"), strings.HasSuffix(file, ".c"), strings.HasSuffix(file, ".h"):
			files = append(files, file)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 100 {
		t.Fatalf("only %d files: the test looks at the wrong folder", len(files))
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || strings.HasSuffix(file, "_test.go") ||
			strings.Contains(string(text[:min(len(text), 300)]), "Code generated") {
			continue
		}
		var verbatim map[int]bool
		if strings.HasSuffix(file, ".go") {
			verbatim = verbatimLines(text)
		}
		for i, line := range strings.Split(string(text), "\n") {
			wide := len([]rune(strings.ReplaceAll(line, "\t", "    "))) > mostColumns
			if wide && !verbatim[i+1] && !strings.Contains(line, "nolint") && !strings.HasPrefix(line, "//go:") &&
				!strings.HasPrefix(line, "//\t") && !strings.Contains(line, "`json:") {
				t.Errorf("%s:%d has more than %d columns", file, i+1, mostColumns)
			}
		}
	}
}

// verbatimLines are those that a raw string has a part of.
func verbatimLines(text []byte) map[int]bool {
	lines := map[int]bool{}
	set := token.NewFileSet()
	var s scanner.Scanner
	s.Init(set.AddFile("", -1, len(text)), text, nil, 0)
	for {
		at, kind, literal := s.Scan()
		if kind == token.EOF {
			return lines
		}
		if kind == token.STRING && literal[0] == '`' {
			for i := range strings.Count(literal, "\n") + 1 {
				lines[set.Position(at).Line+i] = true
			}
		}
	}
}
