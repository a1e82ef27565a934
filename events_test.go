package polyplane_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestEveryEventIsDocumented: the reasons of events are words for programs, so docs/monitoring.md has each of them and
// no other.
func TestEveryEventIsDocumented(t *testing.T) {
	reason := regexp.MustCompile(`^(CPU|[A-Z][a-z]+)([A-Z][a-z]+)+$`)
	notOne := map[string]bool{"VmallocUsed": true} // a line of /proc/meminfo
	said := map[string]string{}
	for _, dir := range []string{"server/manager", "node/agent", "node/change", "node/control", "node/kernelmemory",
		"node/kerneltime"} {
		err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
					if word, err := strconv.Unquote(l.Value); err == nil && reason.MatchString(word) && !notOne[word] {
						said[word] = path
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile("docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## Events\n")
	if !found || len(said) < 40 {
		t.Fatalf("there are %d reasons; the section on events is there: %v", len(said), found)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	documented := map[string]bool{}
	for line := range strings.Lines(section) {
		if cells := strings.Split(line, "|"); len(cells) > 1 {
			for _, m := range regexp.MustCompile("`([A-Za-z]+)`").FindAllStringSubmatch(cells[1], -1) {
				documented[m[1]] = true
				if said[m[1]] == "" {
					t.Errorf("docs/monitoring.md has the event %s, which nobody tells of", m[1])
				}
			}
		}
	}
	for word, path := range said {
		if !documented[word] {
			t.Errorf("%s tells of the event %s, which the table in docs/monitoring.md (Events) lacks", path, word)
		}
	}
}
