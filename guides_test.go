package polyplane_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// guides are the pages that tell how to add something, and the example that a page builds. Most of its code must be
// shown.
var guides = map[string]string{
	"docs/adding-a-control-driver.md":   "node/control/example/example.go",
	"docs/adding-a-forwarding-plane.md": "node/forward/example/example.go",
	"docs/adding-a-key.md":              "",
}

var (
	fence    = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")
	link     = regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	testName = regexp.MustCompile("`(Test[A-Z][A-Za-z0-9]*)`")
	codeName = regexp.MustCompile("`([A-Z][A-Za-z]*(?:\\.[A-Z][A-Za-z]*)?)`")
)

// TestGuidesNameEachInterface: the page on a driver, and that on a plane, tell of each interface that one may have.
func TestGuidesNameEachInterface(t *testing.T) {
	declared := regexp.MustCompile(`(?m)^type ([A-Z]\w*) interface`)
	for page, source := range map[string]string{"docs/adding-a-control-driver.md": "node/control/control.go",
		"docs/adding-a-forwarding-plane.md": "node/forward/forward.go"} {
		text, found := read(t, page), declared.FindAllStringSubmatch(read(t, source), -1)
		for _, name := range found {
			if !regexp.MustCompile("`([a-z]+\\.)?"+name[1]+"`|type "+name[1]+" interface").MatchString(text) &&
				name[1] != "Routed" {
				t.Errorf("%s says nothing of %s, which is in %s", page, name[1], source)
			}
		}
		if len(found) < 5 {
			t.Errorf("%s has %d interfaces: the test looks for something else", source, len(found))
		}
	}
}

// TestGuidesShowTheSources: each block of Go on a page stands, as it is, in a file that the page links to before the
// block; what the page links to exists; and so do the tests, types and methods that it names. The files are compiled
// and tested like all others.
func TestGuidesShowTheSources(t *testing.T) {
	tests, known := testsThatExist(t), map[string]bool{}
	for _, dir := range []string{"model", "spec", "spec/internal/form", "plan", "node/control", "node/forward",
		"node/fabric", "node/agent"} {
		for name := range declarations(t, dir) {
			known[name], known[name[strings.Index(name, ".")+1:]] = true, true
		}
	}
	for page, example := range guides {
		text := read(t, page)
		if !strings.Contains(read(t, "CONTRIBUTING.md"), "("+page+")") {
			t.Errorf("CONTRIBUTING.md does not link to %s", page)
		}
		if !strings.Contains(read(t, "docs/architecture.md"), "("+filepath.Base(page)+")") {
			t.Errorf("docs/architecture.md does not link to %s", page)
		}
		for _, l := range link.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), l[1])); err != nil {
				t.Errorf("%s links to %s: %v", page, l[1], err)
			}
		}
		for _, name := range testName.FindAllStringSubmatch(text, -1) {
			if !tests[name[1]] {
				t.Errorf("%s names %s, and there is no such test", page, name[1])
			}
		}
		for _, name := range codeName.FindAllStringSubmatch(text, -1) {
			if !known[name[1]] && !tests[name[1]] {
				t.Errorf("%s names %s, and nothing is called so", page, name[1])
			}
		}
		shown := 0
		for _, at := range fence.FindAllStringSubmatchIndex(text, -1) {
			block, file := text[at[2]:at[3]], ""
			for _, l := range link.FindAllStringSubmatch(text[:at[0]], -1) {
				if strings.HasSuffix(l[1], ".go") {
					file = filepath.Join(filepath.Dir(page), l[1])
				}
			}
			if file == "" {
				t.Errorf("%s does not say from which file this is:\n%s", page, block)
				continue
			}
			if !strings.Contains(read(t, file), block) {
				t.Errorf("%s shows what is not in %s:\n%s", page, file, block)
			}
			if file == example {
				shown += len(block)
			}
		}
		if len(fence.FindAllString(text, -1)) < 3 {
			t.Errorf("%s shows no code: the test does not understand it", page)
		}
		if example == "" {
			continue
		}
		if all := len(read(t, example)); shown < all/2 {
			t.Errorf("%s shows %d of the %d bytes of %s: who follows it would have to guess the rest", page,
				shown, all, example)
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// testsThatExist are the names of all tests.
func testsThatExist(t *testing.T) map[string]bool {
	t.Helper()
	names, function := map[string]bool{}, regexp.MustCompile(`(?m)^func (Test[A-Z][A-Za-z0-9]*)\(`)
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "build" ||
			d.Name() == "testdata"):
			return fs.SkipDir
		case !d.IsDir() && strings.HasSuffix(file, "_test.go"):
			for _, f := range function.FindAllStringSubmatch(read(t, file), -1) {
				names[f[1]] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
