package spec

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/spec/internal/form"
)

// decoder turns nodes into the form's values. It goes on after an error, so that one run finds all of them.
type decoder struct {
	source
	errs Errors

	path   []string // the place in the document that is being decoded
	blanks blanks   // of this document

	manyNames, manyLinks int // that ranges and shapes of the file stand for
}

func (d *decoder) fail(n ast.Node, format string, args ...any) {
	d.blank()
	d.failAt(tokenOf(n), format, args...)
}

// failAt is fail where nothing has been left out for it.
func (d *decoder) failAt(t *token.Token, format string, args ...any) {
	if len(d.errs) < maxErrors {
		d.errs = append(d.errs, d.at(t, format, args...))
	}
}

// tokenOf is where a node begins, for people: a mapping's is its first key.
func tokenOf(n ast.Node) *token.Token {
	switch n := n.(type) {
	case nil:
		return nil
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return tokenOf(n.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return tokenOf(n.Key)
	case *ast.SequenceNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return tokenOf(n.Values[0])
		}
	}
	return n.GetToken()
}

// entries are a mapping's. Where there is nothing, the mapping counts as empty.
func (d *decoder) entries(n ast.Node, what string) []*ast.MappingValueNode {
	var values []*ast.MappingValueNode
	switch n := n.(type) {
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	case *ast.NullNode, nil:
		return nil
	default:
		d.fail(n, "%s takes a mapping (key: value), not %s", what, kindOf(n))
		if len(d.path) < 2 {
			d.lost(n)
		}
		return nil
	}
	seen := make(map[string]int, len(values))
	kept := values[:0:0]
	for _, v := range values {
		d.enter("?")
		key, ok := d.scalar(v.Key, "a key")
		d.leave()
		if !ok {
			d.lostKey(v)
			continue
		}
		line := tokenOf(v.Key).Position.Line
		if first, twice := seen[key]; twice {
			d.enter(key)
			d.fail(v.Key, "%s has %q twice, first in line %d; keep one of them", what, key, first)
			d.leave()
			d.lostKey(v)
			continue
		}
		seen[key] = line
		kept = append(kept, v)
	}
	return kept
}

// items are a list's entries.
func (d *decoder) items(n ast.Node, what string) []ast.Node {
	switch n := n.(type) {
	case *ast.SequenceNode:
		return n.Values
	case *ast.NullNode, nil:
		return nil
	default:
		d.fail(n, "%s takes a list, not %s; write one a line, each behind a dash", what, kindOf(n))
		if len(d.path) < 2 {
			d.lost(n)
		}
		return nil
	}
}

// kindOf says in errors what stands in the file.
func kindOf(n ast.Node) string {
	switch n := n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.NullNode, nil:
		return "nothing"
	default:
		text := n.GetToken().Value
		if len(text) > 40 {
			text = text[:40] + "…"
		}
		return strconv.Quote(text)
	}
}

// scalar is the text of a single value as it was written.
func (d *decoder) scalar(n ast.Node, what string) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	default:
		d.fail(n, "%s takes a single value, not %s", what, kindOf(n))
		return "", false
	}
}

// fields are a struct's keys, those of inlined structs included.
func fields(t reflect.Type) map[string][]int {
	if f, ok := fieldCache.Load(t); ok {
		return f.(map[string][]int)
	}
	all := map[string][]int{}
	for i := range t.NumField() {
		f := t.Field(i)
		switch tag := f.Tag.Get("yaml"); tag {
		case "-", "":
		case ",inline":
			if list, ok := reflect.New(f.Type).Interface().(form.Keys); ok {
				for _, k := range list.Known() {
					all[k.Name] = []int{i}
				}
				continue
			}
			for name, index := range fields(f.Type) {
				all[name] = append([]int{i}, index...)
			}
		default:
			all[tag] = []int{i}
		}
	}
	fieldCache.Store(t, all)
	return all
}

// fieldCache holds what fields has worked out.
var fieldCache sync.Map

// structure fills a struct from a mapping.
func (d *decoder) structure(n ast.Node, into reflect.Value, what string) {
	known := fields(into.Type())
	for _, v := range d.entries(n, what) {
		key, _ := d.scalar(v.Key, "a key")
		index, ok := known[key]
		if !ok {
			d.failAt(tokenOf(v.Key), "%s has no key %q; %s", what, key, suggest(key, known))
			near := nearest(key, known)
			if index, ok = known[near]; !ok || child(n, near) != nil ||
				!d.guess(v, near, into.FieldByIndex(index), what, into) {
				d.lostKey(v)
			}
			continue
		}
		d.enter(key)
		d.field(v, key, into.FieldByIndex(index), what, into)
		d.leave()
	}
}

// guess reads what stands behind a key that was probably misspelt, so that what else is wrong there is told, and
// nothing for want of it. If a single value makes no sense there either, the guess was wrong.
func (d *decoder) guess(v *ast.MappingValueNode, key string, field reflect.Value, what string,
	into reflect.Value) bool {
	d.enter(key)
	defer d.leave()
	before := len(d.errs)
	d.field(v, key, field, what, into)
	if len(d.errs) == before || kindOf(v.Value) == "a mapping" || kindOf(v.Value) == "a list" {
		return true
	}
	d.errs = d.errs[:before]
	return false
}

// lostKey is lost for a key of the document or of one of its parts, with what stands behind it. Deeper in the document
// keys are no names of anything.
func (d *decoder) lostKey(v *ast.MappingValueNode) {
	if len(d.path) < 2 {
		d.lost(v)
	}
}

// field fills a struct's field.
func (d *decoder) field(v *ast.MappingValueNode, key string, field reflect.Value, what string, into reflect.Value) {
	of := key + " of " + what
	if _, top := into.Addr().Interface().(*form.Network); top {
		of = key
	}
	list, ok := field.Addr().Interface().(form.Keys)
	if !ok {
		d.value(v.Value, field, of)
		return
	}
	if text, ok := d.scalars(v.Value, of, list, key); ok {
		if err := list.Say(key, text); err != nil {
			d.fail(v.Value, "%s: %v", of, err)
		}
	}
}

// value fills any of the form's types.
func (d *decoder) value(n ast.Node, v reflect.Value, what string) {
	if word, ok := v.Addr().Interface().(model.Word); ok {
		oneOf(d, n, word, what)
		return
	}
	if f := forms[v.Type()]; f.read != nil {
		f.read(d, n, v.Addr().Interface(), what)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(n, v.Elem(), what)
	case reflect.Struct:
		d.structure(n, v, what)
	case reflect.String:
		if s, ok := d.scalar(n, what); ok {
			v.SetString(s)
		}
	case reflect.Bool:
		b, ok := n.(*ast.BoolNode)
		if !ok {
			d.fail(n, "%s takes true or false, not %s", what, n)
			return
		}
		v.SetBool(b.Value)
	case reflect.Int, reflect.Uint32:
		s, ok := d.scalar(n, what)
		if !ok {
			return
		}
		i, err := strconv.ParseUint(s, 10, 32)
		if err != nil || v.Kind() == reflect.Int && i > 1<<31-1 {
			if errors.Is(err, strconv.ErrRange) || err == nil {
				d.fail(n, "%s takes a whole number, and %s is too large for one", what, s)
				return
			}
			d.fail(n, "%s takes a whole number, not %q", what, s)
			return
		}
		if v.Kind() == reflect.Int {
			v.SetInt(int64(i))
		} else {
			v.SetUint(i)
		}
	case reflect.Slice: // of structs
		for i, item := range d.items(n, what) {
			e, before := reflect.New(v.Type().Elem()), len(d.errs)
			d.enter(strconv.Itoa(i))
			d.value(item, e.Elem(), what)
			d.leave()
			switch e.Interface().(type) {
			case *form.Mirror:
				if d.blanks.has("mirrors", strconv.Itoa(i), "to") {
					d.lost(item)
				}
			case *form.Fault: // the builder knows what can be told of it
			case *form.PolicyRule: // the others keep their numbers
				d.kept(e.Interface().(*form.PolicyRule), i)
			default:
				if len(d.errs) > before {
					continue // what is left of it would say something else
				}
			}
			v.Set(reflect.Append(v, e.Elem()))
		}
	default:
		panic(fmt.Sprintf("spec: no decoder for %s", v.Type()))
	}
}

func parse[T any](d *decoder, n ast.Node, into *T, what string, f func(string) (T, error)) {
	s, ok := d.scalar(n, what)
	if !ok {
		return
	}
	v, err := f(s)
	if err != nil {
		d.fail(n, "%s: %v", what, err)
		return
	}
	*into = v
}

func oneOf(d *decoder, n ast.Node, into model.Word, what string) {
	var word string
	parse(d, n, &word, what, func(s string) (string, error) {
		names := map[string][]int{}
		for _, k := range into.Words() {
			if s == k {
				return k, nil
			}
			names[k] = nil
		}
		return "", fmt.Errorf("%q is unknown; %s", s, suggest(s, names))
	})
	reflect.ValueOf(into).Elem().SetString(word)
}

// several reads a value, values with commas between, or a list.
func several[T any](d *decoder, n ast.Node, what string, f func(string) (T, error)) []T {
	nodes := []ast.Node{n}
	if s, ok := n.(*ast.SequenceNode); ok {
		nodes = s.Values
	}
	var all []T
	for _, n := range nodes {
		text, ok := d.scalar(n, what)
		if !ok {
			continue
		}
		for s := range strings.SplitSeq(text, ",") {
			v, err := f(strings.TrimSpace(s))
			if err != nil {
				d.fail(n, "%s: %v", what, err)
				break
			}
			all = append(all, v)
		}
	}
	return all
}

// intent reads a protocol: a mapping, nothing (an empty mapping) or false.
func intent[T any](d *decoder, n ast.Node, into **T, what string, off func(*T)) {
	*into = new(T)
	if b, ok := n.(*ast.BoolNode); ok {
		if !b.Value {
			off(*into)
		}
		return
	}
	d.structure(n, reflect.ValueOf(*into).Elem(), what)
}

// named reads a mapping of named things, or a list of names where that is allowed.
func named[T any](d *decoder, n ast.Node, what, kind string, list bool) []form.Item[T] {
	var all []form.Item[T]
	if names, ok := d.listed(n, what); ok && list {
		for _, name := range names {
			all = append(all, form.Item[T]{Name: name, Said: name, Key: n})
		}
		return all
	}
	if s, ok := n.(*ast.SequenceNode); ok && list {
		seen := make(map[string]int, len(s.Values))
		all = make([]form.Item[T], 0, len(s.Values))
		for _, item := range s.Values {
			if m, ok := item.(*ast.MappingNode); ok && len(m.Values) > 0 {
				d.enter("?")
				d.fail(item, "%s is a list here, which takes names only; write a mapping without the dash:\n  %s:\n  "+
					"  KEY: VALUE",
					what, m.Values[0].Key)
				d.leave()
				d.lost(item)
				continue
			}
			d.enter("?")
			name, ok := d.scalar(item, what)
			d.leave()
			if !ok {
				d.lost(item)
				continue
			}
			for _, name := range d.many(item, name, what) {
				if first, twice := seen[name]; twice {
					d.failAt(tokenOf(item), "%s has %s twice, first in line %d; keep one of them", what, name, first)
					break
				}
				seen[name] = item.GetToken().Position.Line
				all = append(all, form.Item[T]{Name: name, Said: name, Key: item})
			}
		}
		return all
	}
	for _, v := range d.entries(n, what) {
		item := form.Item[T]{Key: v.Key, Node: v.Value}
		item.Name, _ = d.scalar(v.Key, what)
		item.Said = item.Name
		d.enter(item.Name)
		if list && isMany(item.Name) {
			all = append(all, manyOf(d, item, what, kind)...)
		} else {
			d.value(v.Value, reflect.ValueOf(&item.Value).Elem(), kind+" "+item.Name)
			if all = append(all, item); !list && d.blanks.has("edges", item.Name, "end") {
				d.lost(v)
			}
		}
		d.leave()
	}
	return all
}
