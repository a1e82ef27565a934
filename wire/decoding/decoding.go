// Package decoding tells what decoding a message of JSON would take, before it is decoded: what comes from outside may
// be short, and become long.
package decoding

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"unicode"
)

// Decoding is what a short message can make long: `{"elements":[{},{},…` takes hundreds of times its length once it is
// decoded. So it is measured first, with the type that it is going to be: without allocating anything, it is found
// out what decoding would.

const (
	// maxDepth is how deep a message may nest.
	maxDepth = 64
	// baseDecoded and timesDecoded bound what decoding a body may take, in bytes: so much, and so many times its
	// length. An element with two interfaces and their link takes ten times its length.
	baseDecoded  = 64 << 20
	timesDecoded = 8
	// entryCost is what a map takes for an entry beside its key and value.
	entryCost = 64
)

// Check tells why a message is not decoded into a type: it would take too much, or nests too deep. What is no JSON is
// let through: the decoder says what is wrong with it.
func Check(data []byte, into reflect.Type) error {
	m := measurer{data: data, left: baseDecoded + timesDecoded*len(data)}
	most := m.left
	err := m.value(into, 0)
	switch {
	case errors.Is(err, errTooMuch):
		return fmt.Errorf("it would take more than %d MiB once it is decoded, which nothing does that means what it "+
			"says", most>>20)
	case errors.Is(err, errTooDeep):
		return fmt.Errorf("it nests more than %d deep; nothing that is asked or answered does", maxDepth)
	}
	return nil
}

var (
	errTooMuch = errors.New("too much")
	errTooDeep = errors.New("too deep")
	errNoJSON  = errors.New("no JSON")
)

type measurer struct {
	data []byte
	at   int
	left int
}

func (m *measurer) take(n int) error {
	if m.left -= n; m.left < 0 {
		return errTooMuch
	}
	return nil
}

func (m *measurer) space() {
	for m.at < len(m.data) {
		switch m.data[m.at] {
		case ' ', '\t', '\r', '\n':
			m.at++
		default:
			return
		}
	}
}

// next is the next character that is no space, zero at the end.
func (m *measurer) next() byte {
	m.space()
	if m.at >= len(m.data) {
		return 0
	}
	return m.data[m.at]
}

// value measures one value that is decoded into t; t is nil where it is skipped.
func (m *measurer) value(t reflect.Type, depth int) error {
	if depth > maxDepth {
		return errTooDeep
	}
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
		if err := m.take(int(t.Size())); err != nil {
			return err
		}
	}
	shape := shapeOf(t)
	switch m.next() {
	case 0:
		return errNoJSON
	case '{':
		return m.object(shape, depth)
	case '[':
		return m.array(shape, depth)
	case '"':
		text, err := m.text()
		if err != nil {
			return err
		}
		if shape.free {
			return m.take(len(text) + 2*entryCost)
		}
		return m.take(len(text))
	}
	begin := m.at
	for m.at < len(m.data) && !strings.ContainsRune(" \t\r\n,]}:[{\"", rune(m.data[m.at])) {
		m.at++
	}
	if m.at == begin {
		return errNoJSON
	}
	if shape.free {
		return m.take(entryCost)
	}
	return nil
}

func (m *measurer) array(of *shape, depth int) error {
	m.at++
	if m.next() == ']' {
		m.at++
		return nil
	}
	for {
		if err := m.take(of.item); err != nil {
			return err
		}
		if err := m.value(of.elem, depth+1); err != nil {
			return err
		}
		switch m.next() {
		case ',':
			m.at++
		case ']':
			m.at++
			return nil
		default:
			return errNoJSON
		}
	}
}

func (m *measurer) object(of *shape, depth int) error {
	m.at++
	if m.next() == '}' {
		m.at++
		return nil
	}
	for {
		if m.next() != '"' {
			return errNoJSON
		}
		key, err := m.text()
		if err != nil {
			return err
		}
		cost, into := 0, of.elem
		if of.entry > 0 {
			cost = of.entry + len(key)
		} else if of.fields != nil {
			into = of.field(key)
		}
		if err := m.take(cost); err != nil {
			return err
		}
		if m.next() != ':' {
			return errNoJSON
		}
		m.at++
		if err := m.value(into, depth+1); err != nil {
			return err
		}
		switch m.next() {
		case ',':
			m.at++
		case '}':
			m.at++
			return nil
		default:
			return errNoJSON
		}
	}
}

// text passes a string, and returns it as it is written.
func (m *measurer) text() ([]byte, error) {
	m.at++
	begin := m.at
	for m.at < len(m.data) {
		switch m.data[m.at] {
		case '\\':
			m.at += 2
		case '"':
			m.at++
			return m.data[begin : m.at-1], nil
		default:
			m.at++
		}
	}
	return nil, errNoJSON
}

// shape is what decoding into a type takes.
type shape struct {
	item   int                     // of a list: bytes for each item
	entry  int                     // of a map: bytes for each entry
	elem   reflect.Type            // of a list or map
	fields map[string]reflect.Type // of a struct, by their names in JSON
	folded map[string]reflect.Type // likewise, whatever the letters' case
	free   bool                    // anything: it is kept as it comes
}

var (
	noShape = &shape{}
	shapes  sync.Map // by reflect.Type

	textType = reflect.TypeFor[encoding.TextUnmarshaler]()
	jsonType = reflect.TypeFor[json.Unmarshaler]()
	freeType = reflect.TypeFor[any]()
)

func shapeOf(t reflect.Type) *shape {
	if t == nil {
		return noShape
	}
	if s, ok := shapes.Load(t); ok {
		return s.(*shape)
	}
	s := makeShape(t)
	shapes.Store(t, s)
	return s
}

func makeShape(t reflect.Type) *shape {
	if p := reflect.PointerTo(t); p.Implements(textType) || p.Implements(jsonType) {
		return noShape
	}
	switch t.Kind() {
	case reflect.Interface:
		return &shape{item: 2 * entryCost, entry: 2 * entryCost, elem: freeType, free: true}
	case reflect.Slice, reflect.Array:
		// A list that grows is copied: what it was is garbage until it is collected.
		return &shape{item: 2 * int(t.Elem().Size()), elem: t.Elem()}
	case reflect.Map:
		return &shape{entry: 2*int(t.Key().Size()+t.Elem().Size()) + entryCost, elem: t.Elem()}
	case reflect.Struct:
		s := &shape{fields: map[string]reflect.Type{}, folded: map[string]reflect.Type{}}
		s.add(t)
		return s
	}
	return noShape
}

// add adds the fields of a struct, those of embedded ones too.
func (s *shape) add(t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct:
			s.add(f.Type)
		case name == "-" || !f.IsExported():
		default:
			name = cmp.Or(name, f.Name)
			s.fields[name], s.folded[fold(name)] = f.Type, f.Type
		}
	}
}

// field is the type of a field, as the decoder finds it: whatever its letters' case is.
func (s *shape) field(key []byte) reflect.Type {
	if t, ok := s.fields[string(key)]; ok {
		return t
	}
	name := string(key)
	if bytes.IndexByte(key, '\\') >= 0 {
		var plain string
		if json.Unmarshal([]byte(`"`+name+`"`), &plain) == nil {
			name = plain
		}
	}
	return s.folded[fold(name)]
}

// fold gives all names that encoding/json takes for the same one the same form: by Unicode's simple folding, in which K
// is also the sign of the kelvin.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		for {
			next := unicode.SimpleFold(r)
			if next <= r {
				return next
			}
			r = next
		}
	}, name)
}
