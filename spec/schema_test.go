package spec

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"testing"

	"github.com/goccy/go-yaml/ast"

	"github.com/polyplane/polyplane/spec/internal/form"
)

// schemaNode is as much of JSON Schema as the generated one uses; a member that is not here fails the test.
type schemaNode struct {
	never             bool
	Schema            string                 `json:"$schema"`
	Ref               string                 `json:"$ref"`
	Defs              map[string]*schemaNode `json:"$defs"`
	Title             string                 `json:"title"`
	Description       string                 `json:"description"`
	Examples          []any                  `json:"examples"`
	Type              string                 `json:"type"`
	Enum              []string               `json:"enum"`
	Pattern           string                 `json:"pattern"`
	Minimum           *float64               `json:"minimum"`
	Maximum           *float64               `json:"maximum"`
	AnyOf             []*schemaNode          `json:"anyOf"`
	Items             *schemaNode            `json:"items"`
	Properties        map[string]*schemaNode `json:"properties"`
	PatternProperties map[string]*schemaNode `json:"patternProperties"`
	Additional        *schemaNode            `json:"additionalProperties"`
	Required          []string               `json:"required"`
	MinProperties     *int                   `json:"minProperties"`
	MaxProperties     *int                   `json:"maxProperties"`
}

func (s *schemaNode) UnmarshalJSON(data []byte) error {
	if string(data) == "false" {
		s.never = true
		return nil
	}
	type plain schemaNode
	return json.Unmarshal(data, (*plain)(s))
}

// check returns where the value does not fit, or nothing.
func (s *schemaNode) check(root *schemaNode, v any, at string) string {
	switch {
	case s.never:
		return at + " is not allowed"
	case s.Ref != "":
		return root.Defs[filepath.Base(s.Ref)].check(root, v, at)
	case len(s.AnyOf) > 0:
		var first string
		for _, o := range s.AnyOf {
			wrong := o.check(root, v, at)
			if wrong == "" {
				return ""
			}
			if len(wrong) > len(first) {
				first = wrong
			}
		}
		return first
	}
	switch v := v.(type) {
	case nil:
		if s.Type != "null" {
			return at + " is nothing"
		}
	case bool:
		if s.Type != "boolean" {
			return at + " is a boolean"
		}
	case float64:
		if s.Type != "number" && (s.Type != "integer" || v != float64(int64(v))) ||
			s.Minimum != nil && v < *s.Minimum || s.Maximum != nil && v > *s.Maximum {
			return fmt.Sprintf("%s is the number %g", at, v)
		}
	case string:
		known := len(s.Enum) == 0
		for _, e := range s.Enum {
			known = known || e == v
		}
		if s.Type != "string" || !known || !regexp.MustCompile(s.Pattern).MatchString(v) {
			return fmt.Sprintf("%s is %q", at, v)
		}
	case []any:
		if s.Type != "array" {
			return at + " is a list"
		}
		for i, e := range v {
			if wrong := s.Items.check(root, e, at+"/"+strconv.Itoa(i)); wrong != "" {
				return wrong
			}
		}
	case map[string]any:
		return s.checkObject(root, v, at)
	}
	return ""
}

func (s *schemaNode) checkObject(root *schemaNode, v map[string]any, at string) string {
	if s.Type != "object" || s.MinProperties != nil && len(v) < *s.MinProperties || s.MaxProperties != nil &&
		len(v) > *s.MaxProperties {
		return at + " is a mapping"
	}
	for _, r := range s.Required {
		if _, ok := v[r]; !ok {
			return at + " lacks " + r
		}
	}
	for k, e := range v {
		value := s.Properties[k]
		for pattern, p := range s.PatternProperties {
			if value == nil && regexp.MustCompile(pattern).MatchString(k) {
				value = p
			}
		}
		if value == nil {
			value = s.Additional
		}
		if wrong := value.check(root, e, at+"/"+k); wrong != "" {
			return wrong
		}
	}
	return ""
}

// plain is what a generic YAML reader would make of a node.
func plainValue(n ast.Node) any {
	switch n := n.(type) {
	case *ast.MappingNode:
		m := map[string]any{}
		for _, v := range n.Values {
			m[v.Key.GetToken().Value] = plainValue(v.Value)
		}
		return m
	case *ast.MappingValueNode:
		return map[string]any{n.Key.GetToken().Value: plainValue(n.Value)}
	case *ast.SequenceNode:
		all := []any{}
		for _, v := range n.Values {
			all = append(all, plainValue(v))
		}
		return all
	case *ast.IntegerNode, *ast.FloatNode:
		f, _ := strconv.ParseFloat(n.GetToken().Value, 64)
		return f
	case *ast.BoolNode:
		return n.Value
	case *ast.NullNode:
		return nil
	case *ast.LiteralNode:
		return n.Value.Value
	default:
		return n.GetToken().Value
	}
}

func readSchema(t *testing.T) *schemaNode {
	t.Helper()
	data, err := os.ReadFile("../schema/polyplane.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	s := &schemaNode{}
	if err := json.Unmarshal(data, s); err != nil {
		t.Fatal(err)
	}
	return s
}

// What the parser accepts the schema must accept; so must it refuse unknown keys.
func TestSchema(t *testing.T) {
	s := readSchema(t)
	accept := func(name string, data []byte) {
		docs, err := source{name: name, data: data}.documents()
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range docs {
			if wrong := s.check(s, plainValue(d), ""); wrong != "" {
				t.Errorf("%s: the schema refuses what the parser accepts: %s", name, wrong)
			}
		}
	}
	for path, data := range examples(t) {
		accept(path, data)
		nets, err := Parse(path, data, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range nets {
			text, err := Format(n)
			if err != nil {
				t.Fatal(err)
			}
			accept("formatted "+path, text)
		}
	}
	accept("line", Line(10))
	for _, name := range []string{"unknown-key", "unknown-top-key", "no-name", "bandwidth-bytes", "bandwidth-no-unit",
		"memory-unit", "cpu-millis",
		"loss-too-much", "no-link", "software-unknown", "host-with-ospf", "expect-nonsense", "expect-family",
		"wrong-type-list", "wrong-type-scalar",
		"wrong-type-number", "name-characters", "list-with-mapping"} {
		data, err := os.ReadFile("testdata/bad/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		docs, bad := source{name: name, data: data}.documents()
		if bad != nil {
			t.Fatal(bad)
		}
		if s.check(s, plainValue(docs[0]), "") == "" {
			t.Errorf("%s: the schema accepts it", name)
		}
	}
}

// Every key that the decoder knows is in the schema, and no other.
func TestSchemaHasEveryKey(t *testing.T) {
	s := readSchema(t)
	for name, typ := range map[string]reflect.Type{"": reflect.TypeFor[form.Network](),
		"Router": reflect.TypeFor[form.Router](),
		"Host":   reflect.TypeFor[form.Host](), "Switch": reflect.TypeFor[form.Switch](),
		"LinkValue": reflect.TypeFor[form.LinkValue](),
		"Interface": reflect.TypeFor[form.Interface](), "BGP": reflect.TypeFor[form.BGP](),
		"Edge": reflect.TypeFor[form.Edge]()} {
		have := s
		if name != "" {
			have = s.Defs[name]
		}
		if have == nil {
			t.Errorf("the schema has no %s", name)
			continue
		}
		known := fields(typ)
		for k := range known {
			if have.Properties[k] == nil {
				t.Errorf("%s: the schema lacks %s", name, k)
			}
		}
		if len(known) != len(have.Properties) {
			t.Errorf("%s: the schema has %d keys, the decoder %d", name, len(have.Properties), len(known))
		}
	}
}
