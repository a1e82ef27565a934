package spec

import (
	"reflect"

	"github.com/goccy/go-yaml/ast"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/spec/internal/form"
)

type schema = form.Schema

// formOf is what is known of a type of the form: what the page says that it takes, its schema, and how it is read.
type formOf struct {
	takes  string
	schema *schema
	read   func(d *decoder, n ast.Node, into any, what string) // nil if only lists of keys have it
}

// forms are the types that are not written as what they are in Go. It is filled when the program starts, since what
// reads a form may read others within it.
var forms = map[reflect.Type]formOf{}

// Form says what a type of the form takes, in words and as a schema. It is for what is generated of the form; where
// there is no schema, the type is written as what it is in Go.
func Form(t reflect.Type) (takes string, s *form.Schema) {
	if word, ok := reflect.Zero(t).Interface().(model.Word); ok && t.Kind() == reflect.String {
		return "word", &schema{Type: "string", Enum: word.Words()}
	}
	f := forms[t]
	return f.takes, f.schema
}

const (
	name    = `[A-Za-z0-9][A-Za-z0-9_.-]*`
	ranges  = `\[[0-9]+-[0-9]+\]`
	many    = `[A-Za-z0-9]([A-Za-z0-9_.-]|` + ranges + `)*` // names, by ranges
	end     = many + `(:[A-Za-z0-9]([A-Za-z0-9_.:/-]|` + ranges + `)*)?`
	shape   = `((line|ring|mesh)( +[0-9]+)?|grid +[0-9]+x[0-9]+|clos( +(spines|leaves|hosts) +[0-9]+)+)`
	decimal = `[0-9]+(\.[0-9]+)?`
	over    = `( +over +(ipv4|ipv6))?`
	vrf     = `( +vrf +` + name + `)?`
	vlans   = `[0-9]+( *- *[0-9]+)?`
)

func text(pattern string, examples ...any) *schema {
	return &schema{Type: "string", Pattern: pattern, Examples: examples}
}

func anyOf(s ...*schema) *schema { return &schema{AnyOf: s} }

func array(items *schema) *schema { return &schema{Type: "array", Items: items} }

func oneOrMore(s *schema) *schema { return anyOf(s, array(s)) }

func mapping(values any) *schema { return &schema{Type: "object", AdditionalProperties: values} }

func ref[T any]() *schema {
	t := reflect.TypeFor[T]()
	return &schema{Ref: "#/$defs/" + t.Name(), Of: t}
}

// listed has a form that only lists of keys have, which also read it.
func listed[T any](takes string, s *schema) {
	forms[reflect.TypeFor[T]()] = formOf{takes: takes, schema: s}
}

// own has a form that a function of its own reads.
func own[T any](takes string, s *schema, read func(d *decoder, n ast.Node, into *T, what string)) {
	forms[reflect.TypeFor[T]()] = formOf{takes, s, func(d *decoder, n ast.Node, into any, what string) {
		read(d, n, into.(*T), what)
	}}
}

// gives is own where the function returns what it has read.
func gives[T any](takes string, s *schema, read func(d *decoder, n ast.Node, what string) T) {
	own(takes, s, func(d *decoder, n ast.Node, into *T, what string) { *into = read(d, n, what) })
}

// single has a form that is one text.
func single[T any](takes string, s *schema, read func(string) (T, error)) {
	own(takes, s, func(d *decoder, n ast.Node, into *T, what string) { parse(d, n, into, what, read) })
}

// listOf has a form that is one text, or several.
func listOf[L ~[]T, T any](takes string, item *schema, read func(string) (T, error)) {
	gives(takes, oneOrMore(item), func(d *decoder, n ast.Node, what string) L { return several(d, n, what, read) })
}

// mapOf has a form that is texts by name.
func mapOf[M ~map[string]T, T any](takes string, value *schema, read func(string) (T, error)) {
	gives(takes, mapping(value), func(d *decoder, n ast.Node, what string) M { return valuesByName(d, n, what, read) })
}

// protocol has a routing protocol, which is a mapping, or false.
func protocol[T any](off func(*T)) {
	own("mapping or `false`", anyOf(ref[T](), &schema{Type: "boolean"}, &schema{Type: "null"}),
		func(d *decoder, n ast.Node, into **T, what string) { intent(d, n, into, what, off) })
}

// things has a mapping of named things, or a list of names.
func things[L ~[]form.Item[T], T any](kind string) {
	null := &schema{Type: "null"}
	names := anyOf(array(anyOf(text("^"+many+"$"), &schema{Type: "number"})), text("^"+many+"( *, *"+many+")*$"))
	gives("list or mapping", anyOf(names, mapping(anyOf(ref[T](), null)), null),
		func(d *decoder, n ast.Node, what string) L { return named[T](d, n, what, kind, true) })
}

func asItIs(s string) (string, error) { return s, nil }

func init() {
	str, number, boolean := &schema{Type: "string"}, &schema{Type: "number"}, &schema{Type: "boolean"}
	null := &schema{Type: "null"}
	size := text(`^`+decimal+` ?(B|KiB|MiB|GiB|TiB)$`, "256MiB", "2GiB")
	vlan := anyOf(&schema{Type: "integer", Minimum: "1", Maximum: "4094"},
		text(`^(all|none|`+vlans+`( *, *`+vlans+`)*)$`))
	listed[model.CPU]("cores", &schema{Type: "number", Minimum: "0", Examples: []any{0.5, 2}})
	listed[model.Bytes]("size", size)
	listed[float64]("share", anyOf(&schema{Type: "number", Minimum: "0", Maximum: "1"}, text(`^`+decimal+` ?%$`)))
	listed[model.BFD]("`true`, `false` or time", anyOf(boolean, text(`^[0-9.]+ ?(ms|s|m)( *x *[0-9]+)?$`)))
	listed[model.VLANs]("number, range or list; `all`", anyOf(array(vlan), vlan))

	single("bandwidth", text(`^`+decimal+` ?(bit|kbit|Mbit|Gbit|Tbit)$`, "10Mbit", "1.5Gbit"), model.ParseBandwidth)
	single("time", text(`^([0-9.]+ ?(ns|us|µs|ms|s|m|h) ?)+$`, "10ms", "1.5s"), model.ParseDuration)
	single("`true`, `false` or number", anyOf(boolean, &schema{Type: "integer", Minimum: "0", Maximum: "61440"}),
		model.ParseSTP)
	single("address", str, parseAddr)
	single("prefix", str, parseRouteTo)
	single("prefix", str, parsePrefix)
	single("number or text", anyOf(&schema{Type: "integer", Minimum: "0"}, text(`^[0-9]+(\.[0-9]+){3}$`)), parseArea)

	listOf[form.Prefixes]("prefix or list", str, parsePrefix)
	listOf[form.Loopbacks]("prefix or list", str, parseLoopback)
	listOf[form.Addrs]("address or list", str, parseAddr)
	listOf[form.Words]("word or list", str, asItIs)
	listOf[form.Communities]("community or list", text(`^([0-9]+:[0-9]+|no-export|no-advertise|none)( *, *.*)?$`),
		model.ParseCommunity)
	listOf[form.Forwards]("list",
		text(`^((\[[0-9a-fA-F:.]+\]|[0-9.]+):)?[0-9]+:`+name+`:[0-9]+(/(tcp|udp))?( *, *.*)?$`), parseForward)

	listOf[form.Labels]("number or list", anyOf(&schema{Type: "integer", Minimum: "16", Maximum: "65535"},
		text(`^[0-9]+( *, *[0-9]+)*$`)), model.ParseLabel)

	mapOf[form.Priorities]("numbers by name", &schema{Type: "integer", Minimum: "1", Maximum: "254"},
		model.ParseVRRPPriority)
	mapOf[form.Variables]("values by name", anyOf(str, number, boolean), asItIs)
	mapOf[form.Sizes]("sizes by path", size, model.ParseBytes)

	protocol(func(o *form.OSPF) { o.Off = true })
	protocol(func(o *form.OSPFPort) { o.Off = true })
	protocol(func(o *form.ISIS) { o.Off = true })
	protocol(func(o *form.BGP) { o.Off = true })
	protocol(func(o *form.RIP) { o.Off = true })
	gives("list or mapping", anyOf(array(ref[form.Neighbor]()), mapping(ref[form.Toward]())), (*decoder).neighbors)
	gives("prefixes by name",
		mapping(oneOrMore(text(`^[0-9a-fA-F:.]+/[0-9]+( +(le|ge) +[0-9]+){0,2}( *, *.*)?$`))), (*decoder).prefixLists)
	gives("rules by name", mapping(array(ref[form.PolicyRule]())), (*decoder).policies)

	things[form.Routers]("router")
	things[form.Hosts]("host")
	things[form.Switches]("switch")
	gives("mapping by name", mapping(anyOf(oneOrMore(str), ref[form.Interface](), null)), (*decoder).interfaces)
	gives("mapping by name", mapping(anyOf(oneOrMore(str), ref[form.VRF](), null)), (*decoder).vrfs)
	gives("prefixes by number", mapping(oneOrMore(str)), (*decoder).vlans)
	gives("mapping or list", anyOf(ref[form.VRRP](), array(ref[form.VRRP]()), boolean, null), (*decoder).vrrp)
	own("mapping", anyOf(str, ref[form.Route]()), (*decoder).route)
	own("mapping", ref[form.LSP](), (*decoder).lsp)

	link := mapping(false)
	link.PatternProperties = map[string]*schema{
		`^` + end + ` +-- +` + end + `$`: anyOf(oneOrMore(str), ref[form.LinkValue](), null),
		`^` + shape + `$`:                anyOf(ref[form.LinkValue](), null)}
	link.MinProperties, link.MaxProperties = 1, 1
	gives("list", anyOf(array(anyOf(text(`^`+end+` +-- +`+end+`(: .*)?$`), text(`^`+shape+`$`), link)),
		text(`^`+shape+`$`)), (*decoder).links)

	gives("mapping by name", mapping(anyOf(ref[form.Edge](), text(`^`+end+` +-- +[^ /:]+$`))),
		func(d *decoder, n ast.Node, what string) form.Edges {
			return named[form.Edge](d, n, what, "edge", false)
		})
	own("mapping", ref[form.Edge](), (*decoder).edge)
	own("mapping, `{}`", anyOf(ref[form.Internet](), boolean, null), (*decoder).internet)
	own("mapping", ref[form.Mirror](), func(d *decoder, n ast.Node, into *form.Mirror, what string) {
		into.Node = n
		d.structure(n, reflect.ValueOf(into).Elem(), what)
	})
	own("mapping", ref[form.Fault](), func(d *decoder, n ast.Node, into *form.Fault, what string) {
		into.Node = n
		d.structure(n, reflect.ValueOf(into).Elem(), what)
	})
	own("mapping", anyOf(text(`^`+name+` +(reaches|does +not +reach) +`+name+over+`$`),
		text(`^`+name+` +(no +)?(ospf|ospf6|isis|bgp) +neighbou?r +`+name+`( +[a-z0-9-]+)?(`+over+`|`+vrf+`)$`),
		text(`^`+name+` +(no +)?vrrp +(master|backup)( +of +[0-9.]+)?$`),
		text(`^`+name+` +(no +)?((ospf|ospf6|isis|bgp|rip) +)?route +[0-9a-fA-F:.]+/[0-9]+( +via +[0-9A-Za-z_.:-]+)?`+
			vrf+`$`),
		text(`^`+name+` +(no +)?stp +(root( +`+name+`)?|port +[^ ]+ +[a-zA-Z]+)$`)), (*decoder).expect)

	gives("command or list", oneOrMore(anyOf(str, number)), (*decoder).commands)
	gives("mapping by path", mapping(anyOf(str, ref[form.File]())), (*decoder).files)
	file := &schema{Type: "object", AdditionalProperties: false, Required: []string{"file"}}
	file.Properties = form.Properties{
		{Name: "file", Schema: &schema{Type: "string", Description: "Where the text is, relative to this file."}}}
	own("text or mapping", anyOf(str, file, mapping(anyOf(str, file))), (*decoder).config)
}
