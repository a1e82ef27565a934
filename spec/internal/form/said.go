package form

import (
	"reflect"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
)

// Said are those keys of a list of the model's that a mapping states. A key that is stated as zero is told from one
// that is not stated: where defaults say something, a zero takes it back.
type Said[T interface{ Keys() []model.Key[T] }] struct {
	Value T
	said  uint64 // by the keys' places in the list
}

// Keys is what Said is to the decoder, the schema and the page, whichever list it is of.
type Keys interface {
	Known() []KnownKey
	// Say reads a value.
	Say(key, text string) error
}

// KnownKey is a key of a list.
type KnownKey struct {
	Name, Meaning string
	Type          reflect.Type // of its value
}

// Known is Keys'.
func (s *Said[T]) Known() (all []KnownKey) {
	return each.Of(s.Value.Keys(), func(k model.Key[T]) KnownKey { return KnownKey{k.Name, k.Meaning, k.Type} })
}

// Say is Keys'.
func (s *Said[T]) Say(key, text string) error {
	for i, k := range s.Value.Keys() {
		if k.Name == key {
			if err := k.Parse(&s.Value, text); err != nil {
				return err
			}
			s.said |= 1 << i
			return nil
		}
	}
	panic("form: no key " + key)
}

// Or takes from the defaults what is not stated.
func (s *Said[T]) Or(defaults *Said[T]) T {
	v := s.Value
	for i, k := range v.Keys() {
		if s.said>>i&1 == 0 {
			k.Copy(&v, &defaults.Value)
		}
	}
	return v
}

// Over is Or as what is stated.
func (s *Said[T]) Over(defaults *Said[T]) Said[T] {
	return Said[T]{s.Or(defaults), s.said | defaults.said}
}

// Each calls f for each key that is stated, with its value as a file says it.
func (s *Said[T]) Each(f func(key, value string)) {
	for i, k := range s.Value.Keys() {
		if s.said>>i&1 == 1 {
			f(k.Name, k.Text(&s.Value))
		}
	}
}

// Zeros are the keys that are stated as zero.
func (s *Said[T]) Zeros() (keys []string) {
	for i, k := range s.Value.Keys() {
		if s.said>>i&1 == 1 && k.Zero(&s.Value) {
			keys = append(keys, k.Name)
		}
	}
	return keys
}

// Nothings calls f for each key that is stated as zero where that says nothing: it takes nothing back, and zero is no
// value.
func (s *Said[T]) Nothings(defaults *Said[T], f func(key, why string)) {
	for i, k := range s.Value.Keys() {
		if s.said>>i&1 == 1 && k.Nothing != "" && k.Zero(&s.Value) && k.Zero(&defaults.Value) {
			f(k.Name, k.Nothing)
		}
	}
}
