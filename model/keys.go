package model

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Key is a key of the file that has one value. Everything that anybody has to know of it is said once, in the list of
// its kind: Amounts.Keys for elements, Slice.Keys, Link.Keys. From these lists follow the reader and the writer of
// files, the checks of values, what counts where nothing is said, `set`, what plan says of a change, what describe
// shows, the JSON Schema and docs/file-format.md. T is the type that has the value in the model.
type Key[T any] struct {
	Name    string       // in files, and of `set`
	Was     string       // its name in earlier versions, which JSON has still, and what was set may have
	Example string       // a value as files have it
	Meaning string       // for people; it also says what counts otherwise, and the bounds
	Unit    string       // is written behind the value where several stand in one line
	Nothing string       // why zero is refused in files; empty where zero is a value like others
	Type    reflect.Type // of the value

	Parse func(of *T, text string) error // reads a value as a file says it
	Text  func(of *T) string             // the value as a file says it
	Copy  func(to, from *T)
	Clear func(of *T) // gives the value back, so that the default counts
	Zero  func(of *T) bool
	Same  func(a, b *T) bool
	// Check tells what is impossible about a value; zero says nothing and is fine.
	Check func(of *T) string
	// fill gives the usual value to what has none.
	fill func(of *T)
}

// Words are those that the value may be; nil if it is none of a few.
func (k *Key[T]) Words() []string {
	if w, ok := reflect.Zero(k.Type).Interface().(Word); ok {
		return w.Words()
	}
	return nil
}

// about is what a list says about a key.
type about[V cmp.Ordered] struct {
	example, meaning, unit, nothing string
	was                             string // its name in earlier versions

	usual       V      // what counts where nothing is said; its place in the meaning is {usual}
	least, most V      // of a value; where most is zero there is no such bound
	few, many   string // few says who needs the least ("that routing software needs"), many what the most is more than
}

// newKey makes an entry of a list of keys. All that is done with a key follows from where its value is, and from what
// is said about it: decision 40.
func newKey[T any, V cmp.Ordered](name string, of func(*T) *V, parse func(string) (V, error), a about[V]) Key[T] {
	var zero V
	text := func(v V) string {
		if f, ok := any(v).(float64); ok {
			return strconv.FormatFloat(f, 'f', -1, 64)
		}
		return fmt.Sprint(v)
	}
	meaning := strings.ReplaceAll(a.meaning, "{usual}", text(a.usual))
	switch {
	case a.least != zero && a.most != zero:
		meaning += " From " + text(a.least) + " to " + text(a.most) + "."
	case a.least != zero:
		meaning += " At least " + text(a.least) + "."
	case a.most != zero:
		meaning += " At most " + text(a.most) + "."
	}
	return Key[T]{Name: name, Was: a.was, Example: a.example, Meaning: meaning, Unit: a.unit, Nothing: a.nothing,
		Type: reflect.TypeFor[V](),
		Parse: func(t *T, text string) (err error) {
			v, err := parse(text)
			if err == nil {
				*of(t) = v
			}
			return err
		},
		Text:  func(t *T) string { return text(*of(t)) },
		Copy:  func(to, from *T) { *of(to) = *of(from) },
		Clear: func(t *T) { *of(t) = zero },
		Zero:  func(t *T) bool { return *of(t) == zero },
		Same:  func(x, y *T) bool { return *of(x) == *of(y) },
		fill:  func(t *T) { *of(t) = cmp.Or(*of(t), a.usual) },
		Check: func(t *T) string {
			switch v := *of(t); {
			case v != zero && v < a.least:
				return name + " " + text(v) + " is less than the " + text(a.least) + " " + a.few
			case a.most != zero && !(v <= a.most): // a value that is not a number (NaN) ends up here, too
				return name + " " + text(v) + " is more " + a.many + " (at most " + text(a.most) + ")"
			}
			return ""
		}}
}

// within makes keys of the whole out of keys of a part.
func within[T, P any](part func(*T) *P, keys []Key[P]) []Key[T] {
	all := make([]Key[T], len(keys))
	for i, k := range keys {
		all[i] = Key[T]{Name: k.Name, Was: k.Was, Example: k.Example, Meaning: k.Meaning, Unit: k.Unit,
			Nothing: k.Nothing, Type: k.Type,
			Parse: func(t *T, text string) error { return k.Parse(part(t), text) },
			Text:  func(t *T) string { return k.Text(part(t)) },
			Copy:  func(to, from *T) { k.Copy(part(to), part(from)) },
			Clear: func(t *T) { k.Clear(part(t)) },
			Zero:  func(t *T) bool { return k.Zero(part(t)) },
			Same:  func(a, b *T) bool { return k.Same(part(a), part(b)) },
			Check: func(t *T) string { return k.Check(part(t)) },
			fill:  func(t *T) { k.fill(part(t)) }}
	}
	return all
}

// filled is a value in which the usual stands where nobody said anything.
func filled[T any](keys []Key[T], of T) T {
	for _, k := range keys {
		k.fill(&of)
	}
	return of
}

// CheckKeys tells what is impossible about the values of a list's keys.
func CheckKeys[T any](keys []Key[T], of *T, report func(key, problem string)) {
	for _, k := range keys {
		if problem := k.Check(of); problem != "" {
			report(k.Name, problem)
		}
	}
}

// newWord makes a key that takes one of a few words.
func newWord[T any, V interface {
	~string
	Word
}](name string, of func(*T) *V, a about[V]) Key[T] {
	check := func(v V) error {
		if v == "" || slices.Contains(v.Words(), string(v)) {
			return nil
		}
		return fmt.Errorf("%q is unknown; there are %s", string(v), Either(v.Words()))
	}
	k := newKey(name, of, func(text string) (V, error) {
		if text == "" {
			return "", fmt.Errorf("it takes %s", Either(V("").Words()))
		}
		return V(text), check(V(text))
	}, a)
	k.Check = func(t *T) string {
		if err := check(*of(t)); err != nil {
			return name + " " + err.Error()
		}
		return ""
	}
	return k
}

// newFlag makes a key that is true or false, and false where nothing is said.
func newFlag[T any](name string, of func(*T) *bool, a about[string]) Key[T] {
	return Key[T]{Name: name, Example: a.example, Meaning: a.meaning, Type: reflect.TypeFor[bool](),
		Parse: func(t *T, text string) error {
			if text != "true" && text != "false" {
				return fmt.Errorf("it takes true or false")
			}
			*of(t) = text == "true"
			return nil
		},
		Text:  func(t *T) string { return strconv.FormatBool(*of(t)) },
		Copy:  func(to, from *T) { *of(to) = *of(from) },
		Clear: func(t *T) { *of(t) = false },
		Zero:  func(t *T) bool { return !*of(t) },
		Same:  func(x, y *T) bool { return *of(x) == *of(y) },
		fill:  func(*T) {},
		Check: func(*T) string { return "" }}
}

func parseWord[T ~string](s string) (T, error) { return T(s), nil }

func parseCount(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 31)
	switch {
	case err == nil:
		return int(n), nil
	case strings.Trim(s, "0123456789") == "" && s != "":
		return 0, fmt.Errorf("%s is too large a number", s)
	}
	return 0, fmt.Errorf("%q is no whole number; write digits only, like 1024", s)
}
