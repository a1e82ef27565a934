package lab

import (
	"encoding/json"
	"regexp"
	"strings"
)

// Map is a mapping in the making, in the order in which it was said. Values are string, Raw, []any, Lines, *Map or nil.
type Map struct {
	keys   []string
	values []any
	wide   bool // never on one line
}

// Lines is a list that has a line for each of its values.
type Lines []any

// Elements are a document's elements of one kind: names, or a mapping where any has something to say.
func Elements(m *Map) any {
	names := make([]any, len(m.keys))
	for i, key := range m.keys {
		if said, ok := m.values[i].(*Map); ok && said.Len() > 0 {
			m.wide = true
			return m
		}
		names[i] = key
	}
	return names
}

// Raw is a scalar that is written as it is, such as a number.
type Raw string

// Set adds a key, or gives it another value.
func (m *Map) Set(key string, value any) {
	for i, k := range m.keys {
		if k == key {
			m.values[i] = value
			return
		}
	}
	m.keys, m.values = append(m.keys, key), append(m.values, value)
}

// Get is the value of a key, or nil.
func (m *Map) Get(key string) any {
	for i, k := range m.keys {
		if k == key {
			return m.values[i]
		}
	}
	return nil
}

// Child is the mapping below a key, which is made if it is not there.
func (m *Map) Child(key string) *Map {
	if c, ok := m.Get(key).(*Map); ok {
		return c
	}
	c := &Map{}
	m.Set(key, c)
	return c
}

// Append adds to the list below a key.
func (m *Map) Append(key string, values ...any) {
	list, _ := m.Get(key).([]any)
	m.Set(key, append(list, values...))
}

// Len is how many keys it has.
func (m *Map) Len() int { return len(m.keys) }

// Drop takes a key out.
func (m *Map) Drop(key string) {
	for i, k := range m.keys {
		if k == key {
			m.keys, m.values = append(m.keys[:i:i], m.keys[i+1:]...), append(m.values[:i:i], m.values[i+1:]...)
			return
		}
	}
}

const flowWidth = 100

// YAML writes the mapping as a document.
func (m *Map) YAML() []byte {
	var b strings.Builder
	m.block(&b, "")
	return []byte(b.String())
}

func (m *Map) block(b *strings.Builder, indent string) {
	for i, key := range m.keys {
		b.WriteString(indent + quote(key) + ":")
		behind(b, m.values[i], indent)
	}
}

// behind writes a value behind its key or its dash.
func behind(b *strings.Builder, value any, indent string) {
	if m, ok := value.(*Map); ok && m.Len() == 0 {
		value = nil
	}
	if s, ok := flow(value, false); ok && len(indent)+len(s) <= flowWidth {
		b.WriteString(strings.TrimSuffix(" "+s, " ") + "\n")
		return
	}
	switch v := value.(type) {
	case string:
		if !literal(v) {
			b.WriteString(" " + quote(v) + "\n")
			return
		}
		b.WriteString(" |\n")
		for line := range strings.Lines(v) {
			if line != "\n" {
				b.WriteString(indent + "  ")
			}
			b.WriteString(line)
		}
	case Lines:
		list(b, v, indent)
	case []any:
		list(b, v, indent)
	case *Map:
		b.WriteString("\n")
		v.block(b, indent+"  ")
	}
}

func list(b *strings.Builder, all []any, indent string) {
	b.WriteString("\n")
	for _, item := range all {
		b.WriteString(indent + "  -")
		if m, ok := item.(*Map); ok && m.Len() == 1 {
			b.WriteString(" " + quote(m.keys[0]) + ":")
			behind(b, m.values[0], indent+"    ")
			continue
		}
		behind(b, item, indent+"  ")
	}
}

// literal tells whether a text can stand as it is in a literal block: lines of printable characters, the first neither
// empty nor indented, and one newline at the end.
func literal(s string) bool {
	if !strings.HasSuffix(s, "\n") || strings.HasSuffix(s, "\n\n") || strings.ContainsAny(s[:1], " \n\t") {
		return false
	}
	for line := range strings.Lines(s) {
		if strings.TrimSpace(line) == "" && line != "\n" {
			return false
		}
	}
	return strings.IndexFunc(s, func(c rune) bool { return c != '\n' && (c > 0x7e || c < ' ') }) < 0
}

// flow writes a value on one line, where that reads well.
func flow(value any, within bool) (string, bool) {
	switch v := value.(type) {
	case nil:
		return "", true
	case Raw:
		return string(v), true
	case string:
		return quoteWithin(v, within), !literal(v)
	case []any:
		parts := make([]string, len(v))
		for i, item := range v {
			if m, ok := item.(*Map); ok && !within && m.Len() > 0 {
				return "", false
			}
			s, ok := flow(item, true)
			if !ok {
				return "", false
			}
			parts[i] = s
		}
		return "[" + strings.Join(parts, ", ") + "]", true
	case *Map:
		if v.wide {
			return "", false
		}
		parts := make([]string, v.Len())
		for i, item := range v.values {
			s, ok := flow(item, true)
			if !ok {
				return "", false
			}
			parts[i] = strings.TrimSuffix(quoteWithin(v.keys[i], true)+": "+s, " ")
		}
		return "{" + strings.Join(parts, ", ") + "}", true
	}
	return "", false
}

var plain = regexp.MustCompile(`^(\./)?[A-Za-z][A-Za-z0-9_./:-]*( [A-Za-z0-9_./:-]+)*$|` +
	`^[0-9]+(\.[0-9]+){3}(/[0-9]+( [A-Za-z0-9_./:-]+)*)?$|` +
	`^[0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h|bit|kbit|Mbit|Gbit)$`)

func quote(s string) string { return quoteWithin(s, false) }

// quoteWithin writes a scalar so that every parser reads the same text.
func quoteWithin(s string, within bool) string {
	switch strings.ToLower(s) {
	case "null", "true", "false", "yes", "no", "on", "off", "y", "n":
	default:
		if plain.MatchString(s) && !strings.HasSuffix(s, ":") && !strings.Contains(s, ": ") &&
			!(within && strings.Contains(s, ":")) {
			return s
		}
	}
	var b strings.Builder
	e := json.NewEncoder(&b) // JSON's strings are YAML's
	e.SetEscapeHTML(false)
	if e.Encode(s) != nil {
		return `""`
	}
	return strings.TrimSuffix(b.String(), "\n")
}
