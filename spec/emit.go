package spec

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/polyplane/polyplane/each"
)

// yamlNode is what Format writes: a scalar, a list or a mapping.
type yamlNode struct {
	text  string
	list  []yamlNode
	pairs []yamlPair
	kind  yamlKind
	raw   bool // a number: never quoted
	wide  bool // on several lines, however short
	open  bool // a mapping of one pair in a list, without braces

	numbers bool // a mapping whose keys are numbers, which are not quoted
}

// yamlKind is how a node is written.
type yamlKind int

const (
	yamlScalar yamlKind = iota
	yamlList
	yamlMapping
	yamlNothing // a key without a value
)

type yamlPair struct {
	key   string
	value yamlNode
}

// flowWidth is how wide lists and mappings on one line may get.
const flowWidth = 100

func scalar(s string) yamlNode { return yamlNode{text: s} }

func list[T any](values []T, f func(T) string) yamlNode {
	n := yamlNode{kind: yamlList}
	n.list = append(n.list, each.Of(values, func(v T) yamlNode { return scalar(f(v)) })...)
	return n
}

// put adds a pair.
func (n *yamlNode) put(key string, value yamlNode) {
	n.kind = yamlMapping
	n.pairs = append(n.pairs, yamlPair{key, value})
}

// set adds a pair unless the value is empty.
func (n *yamlNode) set(key, value string) {
	if value != "" {
		n.put(key, scalar(value))
	}
}

var (
	plainText = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_./: %-]*$`)
	numeric   = regexp.MustCompile(`^[0-9][0-9_]*(\.[0-9_]*)?([eE][-+]?[0-9]+)?$|^0[xob][0-9a-fA-F_]+$|^[0-9]+(:[0-9]+)+(\.[0-9]*)?$|^[0-9]{4}-[0-9][0-9]?-[0-9][0-9]?$`)
)

// quote writes a scalar so that every YAML parser reads the same text. Numbers that are meant as numbers are not passed
// through it.
func quote(s string) string {
	switch strings.ToLower(s) {
	case "null", "true", "false", "yes", "no", "on", "off", "y", "n":
		return strconv.Quote(s)
	}
	if plainText.MatchString(s) && !numeric.MatchString(s) && !strings.Contains(s, ": ") &&
		!strings.HasSuffix(s, ":") && !strings.HasSuffix(s, " ") {
		return s
	}
	return doubleQuoted(s)
}

// doubleQuoted escapes as YAML (1.2.2, 5.7) does.
func doubleQuoted(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteRune(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\t':
			b.WriteString(`\t`)
		case c == '\r':
			b.WriteString(`\r`)
		case c < ' ' || c == 0x7f:
			b.WriteString(`\x` + string("0123456789abcdef"[c>>4]) + string("0123456789abcdef"[c&15]))
		case !unicode.IsPrint(c) && c <= 0xffff:
			b.WriteString(`\u` + strings.Repeat("0", 4-len(strconv.FormatInt(int64(c), 16))) +
				strconv.FormatInt(int64(c), 16))
		default:
			b.WriteRune(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// flow writes the node on one line; false if it has text of several lines.
func (n yamlNode) flow() (string, bool) {
	switch n.kind {
	case yamlNothing:
		return "", true
	case yamlScalar:
		return n.scalar(), !strings.Contains(n.text, "\n")
	}
	var parts []string
	for _, v := range n.list {
		s, ok := v.flow()
		if !ok {
			return "", false
		}
		parts = append(parts, s)
	}
	for _, p := range n.pairs {
		s, ok := p.value.flow()
		if !ok {
			return "", false
		}
		key := n.key(p.key)
		if strings.Contains(p.key, ":") {
			key = doubleQuoted(p.key) // parsers disagree about colons in keys between braces
		}
		parts = append(parts, strings.TrimSuffix(key+": "+s, " "))
	}
	if n.kind == yamlList {
		return "[" + strings.Join(parts, ", ") + "]", true
	}
	return "{" + strings.Join(parts, ", ") + "}", true
}

func (n yamlNode) key(key string) string {
	if n.numbers {
		return key
	}
	return quote(key)
}

func (n yamlNode) scalar() string {
	if n.raw {
		return n.text
	}
	return quote(n.text)
}

// block writes a mapping's pairs one a line, values on the same line where they fit.
func (n yamlNode) block(b *strings.Builder, indent string) {
	for _, p := range n.pairs {
		b.WriteString(indent + n.key(p.key) + ":")
		p.value.behind(b, indent)
	}
}

// behind writes a value behind its key or its dash.
func (n yamlNode) behind(b *strings.Builder, indent string) {
	if n.open {
		b.WriteString(" " + quote(n.pairs[0].key) + ":")
		n.pairs[0].value.behind(b, indent+"  ")
		return
	}
	if s, ok := n.flow(); !n.wide && ok && len(indent)+len(s) <= flowWidth || n.kind == yamlScalar && !literal(n.text) {
		b.WriteString(strings.TrimSuffix(" "+s, " ") + "\n")
		return
	}
	switch n.kind {
	case yamlScalar:
		b.WriteString(" |\n")
		for line := range strings.Lines(n.text) {
			if line != "\n" {
				b.WriteString(indent + "  ")
			}
			b.WriteString(line)
		}
	case yamlList:
		b.WriteString("\n")
		for _, v := range n.list {
			b.WriteString(indent + "  -")
			v.behind(b, indent+"  ")
		}
	default:
		b.WriteString("\n")
		n.block(b, indent+"  ")
	}
}

// literal tells whether the text can stand as it is in a literal block: lines of printable characters, the first
// neither empty nor indented, and one newline at the end.
func literal(s string) bool {
	if !strings.HasSuffix(s, "\n") || strings.HasSuffix(s, "\n\n") || strings.ContainsAny(s[:1], " \n\t") {
		return false
	}
	for line := range strings.Lines(s) {
		if strings.TrimSpace(line) == "" && line != "\n" {
			return false
		}
	}
	return strings.IndexFunc(s, func(c rune) bool { return c != '\n' && c != '\t' && !unicode.IsPrint(c) }) < 0
}
