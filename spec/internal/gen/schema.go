package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	"github.com/invopop/jsonschema"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/spec/internal/form"
)

// required are the keys that must be there, by type.
var required = map[string][]string{"Network": {"network"}, "Edge": {"end"},
	"Fault":    {"at"},
	"Neighbor": {"as"}, "Route": {"to"}}

func (c comments) schema() ([]byte, error) {
	b := schemaBuilder{c, jsonschema.Definitions{}}
	root := b.object(reflect.TypeFor[form.Network]())
	root.Version = jsonschema.Version
	root.Title = "polyplane: a virtual network"
	root.Description = "One document of a polyplane file; a file may have several."
	root.Definitions = b.definitions
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(root); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

type schemaBuilder struct {
	comments
	definitions jsonschema.Definitions
}

type schema = jsonschema.Schema

func text(pattern string) *schema { return &schema{Type: "string", Pattern: pattern} }

func anyOf(s ...*schema) *schema { return &schema{AnyOf: s} }

func several(s *schema) *schema { return anyOf(s, &schema{Type: "array", Items: s}) }

func null() *schema { return &schema{Type: "null"} }

func mapping(values *schema) *schema { return &schema{Type: "object", AdditionalProperties: values} }

func enum[T any](values []T) *schema {
	s := &schema{Type: "string"}
	for _, v := range values {
		s.Enum = append(s.Enum, v)
	}
	return s
}

// object describes a struct in place.
func (b schemaBuilder) object(t reflect.Type) *schema {
	s := &schema{Type: "object", Properties: jsonschema.NewProperties(), AdditionalProperties: jsonschema.FalseSchema,
		Required: slices.Clone(required[t.Name()])}
	for _, k := range b.keys(t) {
		p := *b.value(k.typ)
		p.Description = k.comment
		s.Properties.Set(k.name, &p)
	}
	return s
}

// ref describes a struct once, under $defs.
func (b schemaBuilder) ref(t reflect.Type) *schema {
	if _, there := b.definitions[t.Name()]; !there {
		b.definitions[t.Name()] = &schema{} // ends a recursion
		s := b.object(t)
		s.Description = b.comments[t.Name()]
		b.definitions[t.Name()] = s
	}
	return &schema{Ref: "#/$defs/" + t.Name()}
}

const (
	name    = `[A-Za-z0-9][A-Za-z0-9_.-]*`
	ranges  = `\[[0-9]+-[0-9]+\]`
	many    = `[A-Za-z0-9]([A-Za-z0-9_.-]|` + ranges + `)*` // names, by ranges
	end     = many + `(:[A-Za-z0-9]([A-Za-z0-9_.:/-]|` + ranges + `)*)?`
	shape   = `((line|ring|mesh)( +[0-9]+)?|grid +[0-9]+x[0-9]+|clos( +(spines|leaves|hosts) +[0-9]+)+)`
	decimal = `[0-9]+(\.[0-9]+)?`
)

// value describes what a key takes; the cases are those of the decoder.
func (b schemaBuilder) value(t reflect.Type) *schema {
	names := func() *schema {
		return anyOf(&schema{Type: "array", Items: anyOf(text("^"+many+"$"), &schema{Type: "number"})},
			text("^"+many+"( *, *"+many+")*$"))
	}
	named := func(item reflect.Type) *schema { return anyOf(names(), mapping(anyOf(b.ref(item), null())), null()) }
	if word, ok := reflect.Zero(t).Interface().(model.Word); ok && t.Kind() == reflect.String {
		return enum(word.Words())
	}
	switch t {
	case reflect.TypeFor[model.CPU]():
		return &schema{Type: "number", Minimum: "0", Examples: []any{0.5, 2}}
	case reflect.TypeFor[model.Bytes]():
		s := text(`^` + decimal + ` ?(B|KiB|MiB|GiB|TiB)$`)
		s.Examples = []any{"256MiB", "2GiB"}
		return s
	case reflect.TypeFor[model.Bandwidth]():
		s := text(`^` + decimal + ` ?(bit|kbit|Mbit|Gbit|Tbit)$`)
		s.Examples = []any{"10Mbit", "1.5Gbit"}
		return s
	case reflect.TypeFor[model.Duration]():
		s := text(`^([0-9.]+ ?(ns|us|µs|ms|s|m|h) ?)+$`)
		s.Examples = []any{"10ms", "1.5s"}
		return s
	case reflect.TypeFor[model.BFD]():
		return anyOf(&schema{Type: "boolean"}, text(`^[0-9.]+ ?(ms|s|m)( *x *[0-9]+)?$`))
	case reflect.TypeFor[model.STP]():
		return anyOf(&schema{Type: "boolean"}, &schema{Type: "integer", Minimum: "0", Maximum: "61440"})
	case reflect.TypeFor[float64]():
		return anyOf(&schema{Type: "number", Minimum: "0", Maximum: "1"}, text(`^`+decimal+` ?%$`))
	case reflect.TypeFor[netip.Addr](), reflect.TypeFor[form.RouteTo]():
		return &schema{Type: "string"}
	case reflect.TypeFor[form.Area]():
		return anyOf(&schema{Type: "integer", Minimum: "0"}, text(`^[0-9]+(\.[0-9]+){3}$`))
	case reflect.TypeFor[form.Prefixes](), reflect.TypeFor[form.Loopbacks](), reflect.TypeFor[form.Addrs](),
		reflect.TypeFor[form.Words]():
		return several(&schema{Type: "string"})
	case reflect.TypeFor[*form.OSPF](), reflect.TypeFor[*form.OSPFPort](), reflect.TypeFor[*form.ISIS](),
		reflect.TypeFor[*form.BGP](), reflect.TypeFor[*form.RIP]():
		return anyOf(b.ref(t.Elem()), &schema{Type: "boolean"}, null())
	case reflect.TypeFor[form.Routers]():
		return named(reflect.TypeFor[form.Router]())
	case reflect.TypeFor[form.Hosts]():
		return named(reflect.TypeFor[form.Host]())
	case reflect.TypeFor[form.Switches]():
		return named(reflect.TypeFor[form.Switch]())
	case reflect.TypeFor[form.Edges]():
		return mapping(anyOf(b.ref(reflect.TypeFor[form.Edge]()), text(`^`+end+` +-- +[^ /:]+$`)))
	case reflect.TypeFor[*form.Internet]():
		return anyOf(b.ref(t.Elem()), &schema{Type: "boolean"}, null())
	case reflect.TypeFor[form.Forwards]():
		return several(text(`^((\[[0-9a-fA-F:.]+\]|[0-9.]+):)?[0-9]+:` + name + `:[0-9]+(/(tcp|udp))?( *, *.*)?$`))
	case reflect.TypeFor[form.Interfaces]():
		return mapping(anyOf(several(&schema{Type: "string"}), b.ref(reflect.TypeFor[form.Interface]()), null()))
	case reflect.TypeFor[form.Links]():
		return anyOf(&schema{Type: "array", Items: b.value(reflect.TypeFor[form.Link]())}, text(`^`+shape+`$`))
	case reflect.TypeFor[form.Link]():
		one := uint64(1)
		ends := `^` + end + ` +-- +` + end + `$`
		m := mapping(jsonschema.FalseSchema)
		m.PatternProperties = map[string]*schema{ends: anyOf(several(&schema{Type: "string"}),
			b.ref(reflect.TypeFor[form.LinkValue]()), null()),
			`^` + shape + `$`: anyOf(b.ref(reflect.TypeFor[form.LinkValue]()), null())}
		m.MinProperties, m.MaxProperties = &one, &one
		return anyOf(text(`^`+end+` +-- +`+end+`(: .*)?$`), text(`^`+shape+`$`), m)
	case reflect.TypeFor[form.Expect]():
		over := `( +over +(ipv4|ipv6))?`
		return anyOf(text(`^`+name+` +(reaches|does +not +reach) +`+name+over+`$`),
			text(`^`+name+` +(no +)?(ospf|ospf6|isis|bgp) +neighbou?r +`+name+`( +[a-z0-9-]+)?`+over+`$`),
			text(`^`+name+` +(no +)?vrrp +(master|backup)( +of +[0-9.]+)?$`),
			text(`^`+name+` +(no +)?((ospf|ospf6|isis|bgp|rip) +)?route +[0-9a-fA-F:.]+/[0-9]+( +via +[0-9A-Za-z_.:-]+)?$`),
			text(`^`+name+` +(no +)?stp +(root( +`+name+`)?|port +[^ ]+ +[a-zA-Z]+)$`))
	case reflect.TypeFor[form.Route]():
		return anyOf(&schema{Type: "string"}, b.ref(t))
	case reflect.TypeFor[form.Neighbors]():
		return anyOf(&schema{Type: "array", Items: b.ref(reflect.TypeFor[form.Neighbor]())},
			mapping(b.ref(reflect.TypeFor[form.Toward]())))
	case reflect.TypeFor[form.VRRPs]():
		one := b.ref(reflect.TypeFor[form.VRRP]())
		return anyOf(one, &schema{Type: "array", Items: one}, &schema{Type: "boolean"}, null())
	case reflect.TypeFor[form.Priorities]():
		return mapping(&schema{Type: "integer", Minimum: "1", Maximum: "254"})
	case reflect.TypeFor[form.PrefixLists]():
		return mapping(several(text(`^[0-9a-fA-F:.]+/[0-9]+( +(le|ge) +[0-9]+){0,2}( *, *.*)?$`)))
	case reflect.TypeFor[form.VLANs]():
		return mapping(b.value(reflect.TypeFor[form.Prefixes]()))
	case reflect.TypeFor[model.VLANs]():
		const vlans = `[0-9]+( *- *[0-9]+)?`
		one := anyOf(&schema{Type: "integer", Minimum: "1", Maximum: "4094"},
			text(`^(all|none|`+vlans+`( *, *`+vlans+`)*)$`))
		return anyOf(&schema{Type: "array", Items: one}, one)
	case reflect.TypeFor[form.Policies]():
		return mapping(&schema{Type: "array", Items: b.ref(reflect.TypeFor[form.PolicyRule]())})
	case reflect.TypeFor[form.Communities]():
		return several(text(`^([0-9]+:[0-9]+|no-export|no-advertise|none)( *, *.*)?$`))
	case reflect.TypeFor[form.Commands]():
		return several(anyOf(&schema{Type: "string"}, &schema{Type: "number"}))
	case reflect.TypeFor[form.Variables]():
		s := mapping(anyOf(&schema{Type: "string"}, &schema{Type: "number"}, &schema{Type: "boolean"}))
		return s
	case reflect.TypeFor[form.Files]():
		return mapping(anyOf(&schema{Type: "string"}, b.ref(reflect.TypeFor[form.File]())))
	case reflect.TypeFor[form.Sizes]():
		return mapping(b.value(reflect.TypeFor[model.Bytes]()))
	case reflect.TypeFor[form.Config]():
		file := &schema{Type: "object", Properties: jsonschema.NewProperties(),
			AdditionalProperties: jsonschema.FalseSchema, Required: []string{"file"}}
		file.Properties.Set("file", &schema{Type: "string", Description: "Where the text is, relative to this file."})
		one := anyOf(&schema{Type: "string"}, file)
		return anyOf(&schema{Type: "string"}, file, mapping(one))
	}
	switch t.Kind() {
	case reflect.Pointer:
		return b.value(t.Elem())
	case reflect.Slice:
		return &schema{Type: "array", Items: b.value(t.Elem())}
	case reflect.Struct:
		return b.ref(t)
	case reflect.String:
		return anyOf(&schema{Type: "string"}, &schema{Type: "number"})
	case reflect.Bool:
		return &schema{Type: "boolean"}
	case reflect.Int, reflect.Uint32:
		return &schema{Type: "integer", Minimum: "0"}
	}
	panic(fmt.Sprintf("gen: no schema for %s", t))
}
