package plan

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
)

// own are the fields that fields and set leave out: lists of objects, which are compared by name, and what identifies
// the object.
var own = map[reflect.Type][]string{
	reflect.TypeFor[model.Network]():   {"elements", "links", "edges", "expect", "zeros"},
	reflect.TypeFor[model.Element]():   {"name", "interfaces"},
	reflect.TypeFor[model.Interface](): {"name"},
	reflect.TypeFor[model.Link]():      {"name"},
	reflect.TypeFor[model.Edge]():      {"name"},
}

// fields are the fields in which two values of one type differ. It uses reflection, so a new field of the model is
// included without a change here.
func fields[T any](old, new T) []Detail {
	return walk(nil, "", reflect.ValueOf(old), reflect.ValueOf(new))
}

// set are the fields of a value that are set.
func set[T any](v T) []Detail {
	var zero T
	return fields(zero, v)
}

func walk(out []Detail, name string, old, new reflect.Value) []Detail {
	switch {
	case isLeaf(old.Type()):
		if !old.Equal(new) {
			out = append(out, Detail{name, text(old), text(new)})
		}
	case old.Kind() == reflect.Struct:
		for i := range old.NumField() {
			f := old.Type().Field(i)
			field := jsonName(f)
			if slices.Contains(own[old.Type()], field) {
				continue
			}
			switch {
			case f.Anonymous: // its fields are the struct's, as in JSON
				field = name
			case name != "":
				field = name + "." + field
			}
			out = walk(out, field, old.Field(i), new.Field(i))
		}
	case old.Kind() == reflect.Pointer:
		switch {
		case old.IsNil() && new.IsNil():
		case old.IsNil() || new.IsNil():
			out = append(out, Detail{name, text(old), text(new)})
		default:
			out = walk(out, name, old.Elem(), new.Elem())
		}
	case old.Kind() == reflect.Map:
		out = walkMap(out, name, old, new)
	default:
		out = walkList(out, name, old, new)
	}
	return out
}

// walkMap shows values by their keys. Texts may be whole files, so it says only how many lines of them differ.
func walkMap(out []Detail, name string, old, new reflect.Value) []Detail {
	keys := map[string]bool{}
	for _, m := range []reflect.Value{old, new} {
		for _, k := range m.MapKeys() {
			keys[k.String()] = true
		}
	}
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		a, b := old.MapIndex(reflect.ValueOf(k)), new.MapIndex(reflect.ValueOf(k))
		switch {
		case old.Type() == reflect.TypeFor[map[string]model.File]():
			if d := fileDifference(a, b); d.Old != d.New {
				out = append(out, Detail{name + "." + k, d.Old, d.New})
			}
		case old.Type() != reflect.TypeFor[map[string]string]():
			if was, is := shown(a), shown(b); was != is {
				out = append(out, Detail{name + "." + k, was, is})
			}
		case !a.IsValid():
			out = append(out, Detail{name + "." + k, "", size(b.String())})
		case !b.IsValid():
			out = append(out, Detail{name + "." + k, size(a.String()), ""})
		case a.String() != b.String():
			less, more := lineDifference(a.String(), b.String())
			out = append(out, Detail{name + "." + k, size(a.String()),
				fmt.Sprintf("%s (%d removed, %d added)", size(b.String()), less, more)})
		}
	}
	return out
}

// fileDifference says how two files differ, of which one may not be there.
func fileDifference(a, b reflect.Value) (d Detail) {
	var was, is model.File
	if a.IsValid() {
		was = a.Interface().(model.File)
		d.Old = was.String()
	}
	if b.IsValid() {
		is = b.Interface().(model.File)
		d.New = is.String()
	}
	switch {
	case d.Old == "" || d.New == "" || was.Content() == is.Content():
	case len(was.Base64)+len(is.Base64) > 0:
		d.New += " (other content)"
	default:
		less, more := lineDifference(was.Text, is.Text)
		d.New += fmt.Sprintf(" (%d removed, %d added)", less, more)
	}
	return d
}

// shown is a map's value in a word; empty where there is none.
func shown(v reflect.Value) string {
	if !v.IsValid() {
		return ""
	}
	if s := text(v); s != "" {
		return s
	}
	return `""`
}

func size(s string) string {
	if n := len(lines(s)); n != 1 {
		return fmt.Sprintf("%d lines", n)
	}
	return "1 line"
}

func lines(s string) []string { return slices.Collect(strings.Lines(s)) }

// lineDifference counts the lines that only one of two texts has.
func lineDifference(a, b string) (less, more int) {
	count := map[string]int{}
	for _, l := range lines(a) {
		count[l]++
	}
	for _, l := range lines(b) {
		if count[l]--; count[l] < 0 {
			more++
		}
	}
	for _, n := range count {
		less += max(n, 0)
	}
	return less, more
}

// longList is the number of entries up to which a list is shown whole.
const longList = 4

// walkList compares lists as a whole. Short ones are shown; of long ones, what goes and what comes.
func walkList(out []Detail, name string, old, new reflect.Value) []Detail {
	a, b := entries(old), entries(new)
	if slices.Equal(a, b) {
		return out
	}
	if len(a) > longList || len(b) > longList {
		gone := slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
		come := slices.DeleteFunc(slices.Clone(b), func(s string) bool { return slices.Contains(a, s) })
		if len(gone)+len(come) > 0 && len(gone)+len(come) < len(a)+len(b) {
			out = append(out, each.Of(gone, func(s string) Detail { return Detail{name, s, ""} })...)
			out = append(out, each.Of(come, func(s string) Detail { return Detail{name, "", s} })...)
			return out
		}
	}
	return append(out, Detail{name, strings.Join(a, ", "), strings.Join(b, ", ")})
}

func entries(list reflect.Value) []string {
	var out []string
	for i := range list.Len() {
		out = append(out, text(list.Index(i)))
	}
	return out
}

var stringer = reflect.TypeFor[fmt.Stringer]()

// isLeaf tells whether a value is shown as one word.
func isLeaf(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Slice, reflect.Array, reflect.Map, reflect.Pointer:
		return false
	case reflect.Struct:
		return t.Implements(stringer)
	}
	return true
}

// text shows a value. If it is not set, the text is empty.
func text(v reflect.Value) string {
	switch {
	case v.Kind() == reflect.Pointer:
		if v.IsNil() {
			return ""
		}
		if inner := text(v.Elem()); inner != "" {
			return inner
		}
		return "on"
	case isLeaf(v.Type()):
		if v.IsZero() {
			return ""
		}
		if v.Kind() == reflect.Float64 { // a link's loss, as people say it: 1 could be one percent or all
			return strconv.FormatFloat(100*v.Float(), 'g', 12, 64) + "%"
		}
		return fmt.Sprint(v.Interface())
	case v.Type() == reflect.TypeFor[model.End]():
		end := v.Interface().(model.End)
		return end.Element + ":" + end.Interface
	case v.Kind() == reflect.Slice || v.Kind() == reflect.Array:
		return strings.Join(entries(v), " ")
	case v.Kind() == reflect.Map: // of something new, what there is by name
		names := each.Of(v.MapKeys(), func(k reflect.Value) string { return k.String() })
		slices.Sort(names)
		return strings.Join(names, " ")
	}
	var parts []string
	for i := range v.NumField() {
		switch s := text(v.Field(i)); {
		case s == "":
		case v.Type().Field(i).Anonymous: // its fields are the struct's
			parts = append(parts, s)
		default:
			parts = append(parts, jsonName(v.Type().Field(i))+" "+s)
		}
	}
	return strings.Join(parts, " ")
}

// jsonName is the field's name for people: in JSON, unless a file of the network calls it otherwise.
func jsonName(f reflect.StructField) string {
	if key := f.Tag.Get("key"); key != "" {
		return key
	}
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}
