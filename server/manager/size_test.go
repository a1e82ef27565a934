package manager

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// mostMethods is how many methods Manager may have. Whoever needs one more asks first whether it belongs to one of the
// types that the manager is made of (known, gate, schedule, news, agents, restraints): docs/decisions/0041-admission.md.
const mostMethods = 58

// The manager does not grow back into a type that does everything.
func TestManagerIsSmall(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	methods := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			f, is := d.(*ast.FuncDecl)
			if !is || f.Recv == nil {
				continue
			}
			if star, is := f.Recv.List[0].Type.(*ast.StarExpr); is {
				if of, is := star.X.(*ast.Ident); is && of.Name == "Manager" {
					methods++
				}
			}
		}
	}
	if methods > mostMethods {
		t.Errorf("Manager has %d methods, %d at most are allowed: to which of its types does the new one belong?", methods,
			mostMethods)
	}
}
