package polyplane_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/polyplane/polyplane/"

// mayImport says, for a package or a tree of packages ("tree/…"), which of the project's own packages it may import:
// the arrows of docs/architecture.md. The longest matching name counts. Tests are free.
var mayImport = map[string][]string{
	"model":                {},
	"archive":              {"model"},
	"image":                {"model"},
	"image/registry":       {"image"},
	"image/imagetest":      {"image", "model"},
	"durable":              {},
	"each":                 {},
	"node/images":          {"durable", "image", "linux", "model"},
	"server/images":        {"durable", "image", "linux", "model"},
	"resolve":              {"model"},
	"wire":                 {"node/control"},
	"wire/tunnel":          {},
	"wire/socket":          {},
	"wire/sparse":          {},
	"wire/decoding":        {},
	"trust":                {"durable"},
	"linux":                {},
	"spec":                 {"model", "resolve", "spec/internal/form"},
	"spec/internal/form":   {"model"},
	"spec/internal/gen":    {"spec", "spec/internal/form"},
	"plan":                 {"model"},
	"embedding":            {"model", "embedding/search"},
	"embedding/search":     {},
	"embedding/virne":      {"model", "embedding"},
	"software":             {"model"},
	"convert":              {"convert/clab", "convert/netlab", "convert/internal/lab", "model", "resolve"},
	"convert/internal/lab": {},
	"convert/clab":         {"convert/internal/lab", "model", "software"},
	"convert/netlab":       {"convert/internal/lab"},
	"cli": {"archive", "convert", "embedding/virne", "image", "image/registry", "model", "plan", "spec", "server/api/client", "node/control", "instance",
		"linux", "trust", "measure/…"},
	"examples": {},

	"software/inside/supervise": {},

	"schema":    {},
	"measure/…": {"linux", "measure/…"},
	"bench": {"model", "spec", "instance", "linux", "measure/…", "node/agent", "node/control", "node/forward",
		"node/fabric", "node/fib",
		"node/fib/internet", "node/mirror", "node/mirror/feed"},
	"system":            {},
	"system/attack":     {},
	"system/sandbox":    {},
	"system/powercut":   {"linux"},
	"system/chaos":      {"model", "instance", "linux", "server/api/client", "node/fabric/pipeline", "system/sandbox"},
	"system/chaos/soak": {"system/chaos", "system/sandbox"},
	"server/store":      {"durable", "model"},
	// Admission is pure: nothing of the server, no store, no I/O.
	"server/admission": {"model", "resolve", "embedding", "software"},
	"server/manager": {"model", "resolve", "embedding", "instance", "linux", "server/admission",
		"server/images", "server/store", "server/api",
		"server/api/client", "server/metrics", "trust", "wire/tunnel"},
	"server/api":        {"model", "trust", "wire/decoding", "wire/tunnel", "wire/socket"},
	"server/metrics":    {"model"},
	"server/api/client": {"model", "instance", "trust", "wire", "wire/decoding", "wire/tunnel", "node/control"},
	"instance":          {"durable", "model"},
	"node/change":       {},
	"node/control":      {"model", "node/change", "node/port"},
	"node/forward":      {"model", "node/control", "node/mirror"},
	"node/edge":         {"model", "instance", "linux", "node/change"},
	"node/fabric": {"model", "instance", "linux", "node/change", "node/forward", "node/port",
		"node/fabric/pipeline"},
	"node/substrate": {"model", "embedding", "instance", "linux"},
	"node/port":      {"linux"},
	"node/control/…": {"archive", "durable", "model", "instance", "linux", "software", "node/images", "node/mirror", "node/change",
		"node/control", "node/control/…", "node/port", "wire/sparse"},
	"node/forward/…": {"model", "instance", "linux", "node/control", "node/forward", "node/forward/…"},
	"node/forward/fast": {"model", "linux", "node/control", "node/forward", "node/forward/companion",
		"node/fabric/pipeline", "node/fib", "node/mirror", "node/mirror/feed"},
	"node/forward/kernel":    {"model", "instance", "node/forward", "node/forward/companion", "node/forward/fast"},
	"node/forward/companion": {"model", "instance", "linux", "node/mirror"},
	"node/fabric/…":          {"linux"},
	"node/fib":               {},
	"node/fib/internet":      {},
	"node/mirror":            {"linux"},
	"node/mirror/feed":       {"node/fib", "node/mirror"},
	"instance/lifecycle":     {"durable", "model", "instance", "linux", "server/store", "trust", "node/substrate"},
	"node/agent": {"durable", "model", "instance", "linux", "trust", "wire", "wire/tunnel", "wire/socket",
		"node/change", "node/control", "node/forward", "node/fabric", "node/edge", "node/kerneltime", "node/kernelmemory",
		"node/discover", "node/images", "node/substrate", "node/watch"},
	"node/watch":        {"model"},
	"node/discover":     {"model"},
	"node/kerneltime":   {"linux"},
	"node/kernelmemory": {"linux"},
	"cmd/…":             {"…"},
	"scripts/…":         {},
	"scripts/openapi":   {"server/api"},
}

// everybody may import this; only model does not.
const everybody = "each"

// concrete are the drivers, which only the composition root and the one registration file name.
var concrete = []string{"node/control/", "node/forward/"}

func TestImportsFollowTheArchitecture(t *testing.T) {
	seen := 0
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && file != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "build" ||
			d.Name() == "testdata") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") || path.Dir(file) == "." {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		from := path.Dir(filepath.ToSlash(file))
		allowed, known := allowedFor(from)
		if !known {
			t.Errorf("package %s is in nobody's plan: add it to mayImport and to docs/architecture.md", from)
			return nil
		}
		for _, spec := range parsed.Imports {
			name, _ := strconv.Unquote(spec.Path.Value)
			to, ours := strings.CutPrefix(name, module)
			if !ours {
				// What decides is pure: it has neither locks nor a network, and looks at no file.
				if pure := []string{"model", "resolve", "plan", "server/admission"}; slices.Contains(pure, from) &&
					(slices.Contains([]string{"os", "sync", "context"}, name) || strings.HasPrefix(name, "net/http")) {
					t.Errorf("%s imports %s: package %s is pure", file, name, from)
				}
				if from == "server/manager" && strings.HasPrefix(name, "net/http") {
					t.Errorf("%s imports %s: HTTP and its statuses are the API's", file, name)
				}
				if from == "model" && strings.Contains(strings.SplitN(name, "/", 2)[0], ".") {
					t.Errorf("%s imports %s: model knows the standard library only", file, name)
				}
				continue
			}
			seen++
			if namesDriver(to) && !namesDriver(from) && !strings.HasPrefix(from, "cmd/") &&
				path.Base(file) != "drivers.go" {
				t.Errorf("%s names the driver %s: only cmd and drivers.go do", file, to)
			} else if !namesDriver(to) && !matches(allowed, to) && (to != everybody || from == "model") {
				t.Errorf("%s imports %s: %s may import %v only", file, to, from, allowed)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 10 {
		t.Fatalf("only %d imports between the project's packages seen: the test looks at the wrong folder", seen)
	}
}

// TestNothingAsksTheKernelAtStart: etcd's package for servers with listeners asks the kernel for all routes and
// addresses when a program that has it begins, whatever the program does then: with a full table that takes a second,
// and while the kernel's lock for network configuration is held no command would even begin.
func TestNothingAsksTheKernelAtStart(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "./cmd/polyplane").Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := strings.Fields(string(out))
	if !slices.Contains(packages, "go.etcd.io/etcd/server/v3/etcdserver") {
		t.Fatal("the program has no etcd: the test looks at the wrong one")
	}
	if slices.Contains(packages, "go.etcd.io/etcd/server/v3/embed") {
		t.Error("the program has go.etcd.io/etcd/server/v3/embed, which asks the kernel for all routes at each start")
	}
}

func allowedFor(pkg string) ([]string, bool) {
	if a, ok := mayImport[pkg]; ok {
		return a, true
	}
	for tree := pkg; tree != "."; tree = path.Dir(tree) {
		if a, ok := mayImport[tree+"/…"]; ok {
			return a, true
		}
	}
	return nil, false
}

func matches(allowed []string, pkg string) bool {
	for _, a := range allowed {
		tree, isTree := strings.CutSuffix(a, "…")
		if pkg == a || isTree && strings.HasPrefix(pkg+"/", tree) {
			return true
		}
	}
	return false
}

func namesDriver(pkg string) bool {
	for _, c := range concrete {
		if strings.HasPrefix(pkg, c) {
			return true
		}
	}
	return false
}
