package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"github.com/polyplane/polyplane/spec"
	"github.com/polyplane/polyplane/spec/internal/form"
)

// required are the keys that must be there, by type.
var required = map[string][]string{"Network": {"network"}, "Edge": {"end"}, "Fault": {"at"}, "Neighbor": {"as"},
	"Route": {"to"}}

func (c comments) schema() ([]byte, error) {
	b := schemaBuilder{c, map[string]*form.Schema{}}
	root := b.object(reflect.TypeFor[form.Network]())
	root.Version = "https://json-schema.org/draft/2020-12/schema"
	root.Title = "polyplane: a virtual network"
	root.Description = "One document of a polyplane file; a file may have several."
	root.Definitions = b.definitions
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(root)
	return out.Bytes(), err
}

type schemaBuilder struct {
	comments
	definitions map[string]*form.Schema
}

// object describes a struct in place.
func (b schemaBuilder) object(t reflect.Type) *form.Schema {
	s := &form.Schema{Type: "object", AdditionalProperties: false, Required: slices.Clone(required[t.Name()])}
	for _, k := range b.keys(t) {
		p := *b.value(k.typ)
		p.Description = k.comment
		s.Properties = append(s.Properties, form.Property{Name: k.name, Schema: &p})
	}
	return s
}

// define describes, once and under $defs, the structs that a schema refers to.
func (b schemaBuilder) define(s *form.Schema) {
	if s == nil {
		return
	}
	if s.Of != nil && b.definitions[s.Of.Name()] == nil {
		b.definitions[s.Of.Name()] = &form.Schema{} // ends a recursion
		o := b.object(s.Of)
		o.Description = b.comments[s.Of.Name()]
		b.definitions[s.Of.Name()] = o
	}
	values, _ := s.AdditionalProperties.(*form.Schema)
	for _, part := range append(slices.Clip(s.AnyOf), s.Items, values) {
		b.define(part)
	}
	for _, part := range s.PatternProperties {
		b.define(part)
	}
}

// value describes what a key takes.
func (b schemaBuilder) value(t reflect.Type) *form.Schema {
	_, s := spec.Form(t)
	if s == nil {
		s = b.plain(t)
	}
	b.define(s)
	return s
}

// plain describes what is written as it is in Go.
func (b schemaBuilder) plain(t reflect.Type) *form.Schema {
	switch t.Kind() {
	case reflect.Pointer:
		return b.value(t.Elem())
	case reflect.Slice:
		return &form.Schema{Type: "array", Items: b.value(t.Elem())}
	case reflect.Struct:
		return &form.Schema{Ref: "#/$defs/" + t.Name(), Of: t}
	case reflect.String:
		return &form.Schema{AnyOf: []*form.Schema{{Type: "string"}, {Type: "number"}}}
	case reflect.Bool:
		return &form.Schema{Type: "boolean"}
	case reflect.Int, reflect.Uint32:
		return &form.Schema{Type: "integer", Minimum: "0"}
	}
	panic(fmt.Sprintf("gen: no schema for %s", t))
}
