package polyplane_test

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

var (
	picture     = regexp.MustCompile("(?ms)^```text\n(.*?)^```$")
	pictureName = regexp.MustCompile(`\b([a-z]+(?:/[a-z]+)*)\.([A-Z]\w*(?:\.[A-Z]\w*)?)`)
	pictureWord = regexp.MustCompile(`\b(map|program) ([a-z_]+)`)
	packageWord = regexp.MustCompile(`\bpackage ([a-z/]+)`)
)

// TestPicturesNameWhatExists: each package, type, function and method in the pictures of docs/architecture.md is
// declared, and each map and program is in the fabric's eBPF objects.
func TestPicturesNameWhatExists(t *testing.T) {
	loader := read(t, "node/fabric/pipeline/tc_bpfel.go")
	declared := map[string]map[string]bool{}
	pictures := picture.FindAllStringSubmatch(read(t, "docs/architecture.md"), -1)
	if len(pictures) != 3 {
		t.Fatalf("%d pictures, not 3: the test looks at the wrong thing", len(pictures))
	}
	for i, p := range pictures {
		names := pictureName.FindAllStringSubmatch(p[1], -1)
		if len(names) < 6 {
			t.Errorf("picture %d: only %d names are understood", i+1, len(names))
		}
		for _, n := range names {
			if declared[n[1]] == nil {
				declared[n[1]] = declarations(t, n[1])
			}
			if !declared[n[1]][n[2]] {
				t.Errorf("picture %d names %s.%s: %s declares no %s", i+1, n[1], n[2], n[1], n[2])
			}
		}
		for _, w := range pictureWord.FindAllStringSubmatch(p[1], -1) {
			kind := map[string]string{"map": "*ebpf.MapSpec", "program": "*ebpf.ProgramSpec"}[w[1]]
			if !regexp.MustCompile(regexp.QuoteMeta(kind) + " +`ebpf:\"" + w[2] + "\"`").MatchString(loader) {
				t.Errorf("picture %d names the %s %s, which the fabric does not load", i+1, w[1], w[2])
			}
		}
		for _, n := range packageWord.FindAllStringSubmatch(p[1], -1) {
			declarations(t, n[1])
		}
	}
}

// declarations are what a package declares: Name, and Type.Name for methods and fields, also of interfaces. Who
// embeds a type has none of that type's.
func declarations(t *testing.T, dir string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Errorf("there is no package %s", dir)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, source, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if of := receiver(d); of != "" {
					names[of+"."+d.Name.Name] = true
				} else {
					names[d.Name.Name] = true
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if s, ok := s.(*ast.TypeSpec); ok {
						names[s.Name.Name] = true
						members(names, s)
					}
				}
			}
		}
	}
	return names
}

// receiver is the type that a method is of.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	of := f.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	if index, ok := of.(*ast.IndexExpr); ok {
		of = index.X
	}
	name, _ := of.(*ast.Ident)
	if name == nil {
		return ""
	}
	return name.Name
}

func members(names map[string]bool, s *ast.TypeSpec) {
	var fields *ast.FieldList
	switch of := s.Type.(type) {
	case *ast.InterfaceType:
		fields = of.Methods
	case *ast.StructType:
		fields = of.Fields
	default:
		return
	}
	for _, f := range fields.List {
		for _, n := range f.Names {
			names[s.Name.Name+"."+n.Name] = true
		}
	}
}
