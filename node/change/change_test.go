package change

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// kinds are those of kinds.go, by name, as they are written there: reason and words.
func kinds(t *testing.T) map[string]Kind {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "kinds.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]Kind{}
	ast.Inspect(file, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok {
			said := v.Values[0].(*ast.CompositeLit).Elts
			text := func(i int) string { return strings.Trim(said[i].(*ast.BasicLit).Value, `"`) }
			all[v.Names[0].Name] = Kind{text(0), text(1)}
		}
		return true
	})
	return all
}

// TestEveryKindIsTold: a kind has an event and words which no other kind has, and somebody tells it.
func TestEveryKindIsTold(t *testing.T) {
	said := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, d os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`\bchange\.([A-Z]\w+)`).FindAllStringSubmatch(string(text), -1) {
			said[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	words := map[string]string{}
	all := kinds(t)
	if len(all) < 60 {
		t.Fatalf("%d kinds were found", len(all))
	}
	for name, k := range all {
		if k.reason == "" || k.words == "" {
			t.Errorf("%s has the event %q and the words %q", name, k.reason, k.words)
		}
		if other := words[k.words]; other != "" && k.words != "{object}" {
			t.Errorf("%s and %s have the same words", name, other)
		}
		words[k.words] = name
		if !said[name] {
			t.Errorf("nobody tells of %s", name)
		}
		got := k.Of("an object", "a detail", "more").String()
		if strings.ContainsAny(got, "{}") {
			t.Errorf("%s is told as %q", name, got)
		}
	}
}

// TestChangesAreValues: changes of the same kind to the same thing are equal, and what somebody called a thing is not
// taken for a place to be filled in.
func TestChangesAreValues(t *testing.T) {
	c := PortRestored.Of("{detail}")
	if c != PortRestored.Of("{detail}") || c == PortRestored.Of("h1") || c == PortRemoved.Of("{detail}") {
		t.Error("changes do not compare as values")
	}
	if got := c.String(); got != "port {detail} restored" {
		t.Errorf("a port of that name is told as %q", got)
	}
}
