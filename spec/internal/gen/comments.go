package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/polyplane/polyplane/spec/internal/form"
)

// comments are the form's: of types by name, of fields by "Type.Field".
type comments map[string]string

func readComments(dir string) (comments, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("no Go files in %s", dir)
	}
	c := comments{}
	set := token.NewFileSet()
	for _, path := range paths {
		file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		for _, d := range file.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, s := range g.Specs {
				t, ok := s.(*ast.TypeSpec)
				if !ok {
					continue
				}
				c[t.Name.Name] = oneLine(g.Doc)
				if st, ok := t.Type.(*ast.StructType); ok {
					for _, f := range st.Fields.List {
						for _, n := range f.Names {
							c[t.Name.Name+"."+n.Name] = oneLine(f.Doc)
						}
					}
				}
			}
		}
	}
	return c, nil
}

func oneLine(g *ast.CommentGroup) string { return strings.Join(strings.Fields(g.Text()), " ") }

// key is one key of a mapping.
type key struct {
	name, comment string
	typ           reflect.Type
}

// keys are a struct's in their order, those of inlined structs in their place.
func (c comments) keys(t reflect.Type) (all []key) {
	for i := range t.NumField() {
		f := t.Field(i)
		switch tag := f.Tag.Get("yaml"); tag {
		case "-", "":
		case ",inline":
			if list, ok := reflect.New(f.Type).Interface().(form.Keys); ok {
				for _, k := range list.Known() {
					all = append(all, key{k.Name, k.Meaning, k.Type})
				}
				continue
			}
			all = append(all, c.keys(f.Type)...)
		default:
			all = append(all, key{tag, c[t.Name()+"."+f.Name], f.Type})
		}
	}
	return all
}
