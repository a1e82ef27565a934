package model

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Settings names fields of a network by their keys: those that were set at run time (`polyplane set`), or those that a
// document states as zero. The values of what was set are in the network's document as all others are. An apply that
// gives such a field another value takes it over; one that leaves it out, or says what it is, keeps it set.
type Settings struct {
	Network  []string            `json:"network,omitempty"`
	Elements map[string][]string `json:"elements,omitempty"` // by element
	Links    map[string][]string `json:"links,omitempty"`    // by link
}

// Assignment gives one field a value, written as in a file; an empty value gives back the default.
type Assignment struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// What can be set, in the order in which people are told of it. It is everything that a file says of a network, an
// element or a link by a single value, except for what makes it what it is.
var (
	networkSettings = append(append(within(func(n *Network) *Slice { return &n.Slice }, sliceKeys),
		within(func(n *Network) *Placing { return &n.Placing }, placingKeys)...),
		word("attack", "quarantine", func(n *Network) *AttackPolicy { return &n.Attack }),
		word("owner", "alice", func(n *Network) *string { return &n.Owner }))
	elementSettings = append(ownSettings, timerSettings()...)
	ownSettings     = append(within(func(e *Element) *Amounts { return &e.Amounts }, amounts),
		word("forwarding", "guest", func(e *Element) *Forwarding { return &e.Forwarding }),
		word("attack", "quarantine", func(e *Element) *AttackPolicy { return &e.Attack }),
		word("hook", "auto", func(e *Element) *Hook { return &e.Hook }))
	linkSettings = linkKeys
)

// word is a key that is in no list but this one, since only `set` has to know it.
func word[T any, V ~string](name, example string, of func(*T) *V) Key[T] {
	return newKey(name, of, parseWord[V], about[V]{example: example})
}

func keysOf[T any](all []Key[T]) []string {
	keys := make([]string, len(all))
	for i, k := range all {
		keys[i] = k.Name + "=" + k.Example
	}
	return keys
}

// SettingsOfNetwork, SettingsOfElement and SettingsOfLink are what can be set, as KEY=EXAMPLE.
func SettingsOfNetwork() []string { return keysOf(networkSettings) }

// SettingsOfElement is SettingsOfNetwork for elements.
func SettingsOfElement() []string { return keysOf(elementSettings) }

// SettingsOfLink is SettingsOfNetwork for links.
func SettingsOfLink() []string { return keysOf(linkSettings) }

// WordsOfNetwork are the words that a key of a network may be set to; nil where it takes other values.
func WordsOfNetwork(key string) []string { return wordsOf(networkSettings, key) }

// WordsOfElement is WordsOfNetwork for elements.
func WordsOfElement(key string) []string { return wordsOf(elementSettings, key) }

// WordsOfLink is WordsOfNetwork for links.
func WordsOfLink(key string) []string { return wordsOf(linkSettings, key) }

func wordsOf[T any](all []Key[T], key string) []string {
	if i := slices.IndexFunc(all, func(k Key[T]) bool { return k.Name == key }); i >= 0 {
		return all[i].Words()
	}
	return nil
}

// InPlace tells whether a key of an element changes without a restart. All that can be set does.
func InPlace(key string) bool {
	return slices.ContainsFunc(elementSettings, func(k Key[Element]) bool { return k.Name == key })
}

// ErrNoObject tells that a network has neither an element nor a link of a name.
var ErrNoObject = errors.New("neither an element nor a link")

// Assign gives fields of the network ("" as the object), of an element or of a link their values, and notes that they
// were set. It returns the network with them, or everything that is wrong. The arguments do not change. Whether the
// values are possible is for package resolve to say.
func Assign(net Network, marks Settings, object string, values []Assignment) (Network, Settings, []error) {
	marks = Settings{slices.Clone(marks.Network), maps.Clone(marks.Elements), maps.Clone(marks.Links)}
	if object == "" {
		errs := assign(networkSettings, &net, "a network", &marks.Network, values)
		return net, marks, errs
	}
	if i := slices.IndexFunc(net.Elements, func(e Element) bool { return e.Name == object }); i >= 0 {
		net.Elements = slices.Clone(net.Elements)
		kept := renamed(elementSettings, marks.Elements[object])
		errs := assign(elementSettings, &net.Elements[i], "an element", &kept, values)
		keep(&marks.Elements, object, kept)
		return net, marks, errs
	}
	if i := slices.IndexFunc(net.Links, func(l Link) bool { return l.Name == object }); i >= 0 {
		net.Links = slices.Clone(net.Links)
		kept := slices.Clone(marks.Links[object])
		errs := assign(linkSettings, &net.Links[i], "a link", &kept, values)
		keep(&marks.Links, object, kept)
		return net, marks, errs
	}
	return net, marks, []error{fmt.Errorf("network %s has %w called %s", net.Name, ErrNoObject, object)}
}

func assign[T any](all []Key[T], of *T, what string, marks *[]string, values []Assignment) []error {
	var errs []error
	seen := map[string]bool{}
	for _, v := range values {
		i := slices.IndexFunc(all, func(k Key[T]) bool { return k.Name == v.Key })
		switch {
		case i < 0:
			errs = append(errs, noKey(all, what, v.Key))
			continue
		case seen[v.Key]:
			errs = append(errs, fmt.Errorf("%s is set twice; say it once", v.Key))
			continue
		}
		seen[v.Key] = true
		if err := all[i].assign(of, v.Value); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", v.Key, err))
			continue
		}
		at, found := slices.BinarySearch(*marks, v.Key)
		switch {
		case v.Value == "" && found:
			*marks = slices.Delete(*marks, at, at+1)
		case v.Value != "" && !found:
			*marks = slices.Insert(*marks, at, v.Key)
		}
	}
	return errs
}

// noKey says that there is no such key, or what it is called by now.
func noKey[T any](all []Key[T], what, name string) error {
	if i := slices.IndexFunc(all, func(k Key[T]) bool { return k.Was == name && name != "" }); i >= 0 {
		return fmt.Errorf("%s is called %s by now; write %s=", name, all[i].Name, all[i].Name)
	}
	return fmt.Errorf("%s has no key %q that can be set; there are %s", what, name, strings.Join(keysOf(all), ", "))
}

// renamed are keys by the names that they have by now, in their order.
func renamed[T any](all []Key[T], keys []string) []string {
	keys = slices.Clone(keys)
	for i := range keys {
		if k := slices.IndexFunc(all, func(k Key[T]) bool { return k.Was == keys[i] }); k >= 0 {
			keys[i] = all[k].Name
		}
	}
	slices.Sort(keys)
	return keys
}

// assign gives a value as `set` says it; no text at all gives the default back.
func (k *Key[T]) assign(of *T, text string) error {
	if text == "" {
		k.Clear(of)
		return nil
	}
	was := *of
	if err := k.Parse(of, text); err != nil {
		return err
	}
	if k.Nothing != "" && k.Zero(of) {
		*of = was
		return fmt.Errorf("%s is no limit at all; write %s= for the default", text, k.Name)
	}
	return nil
}

// keep stores a list under a name, or takes the name away if the list is empty.
func keep(all *map[string][]string, name string, list []string) {
	if len(list) == 0 {
		delete(*all, name)
		return
	}
	if *all == nil {
		*all = map[string][]string{}
	}
	(*all)[name] = list
}

// Inherit returns a document and what it inherits from the network that it is about to replace: what was set there and
// is not named by the document itself, with the marks that it was set. A field that is zero counts as not named, unless
// the document's Zeros have it. An element that becomes one of another kind is another element, which nothing was set
// on.
func Inherit(doc, old Network, marks Settings) (Network, Settings) {
	zeros := doc.Zeros
	doc.Zeros = Settings{}
	left := Settings{Network: inherit(networkSettings, &doc, &old, marks.Network, zeros.Network)}
	if len(marks.Elements) > 0 {
		doc.Elements = slices.Clone(doc.Elements)
		was := make(map[string]*Element, len(old.Elements))
		for i := range old.Elements {
			was[old.Elements[i].Name] = &old.Elements[i]
		}
		for i := range doc.Elements {
			e := &doc.Elements[i]
			if from := was[e.Name]; from != nil && from.Kind == e.Kind && len(marks.Elements[e.Name]) > 0 {
				keep(&left.Elements, e.Name, inherit(elementSettings, e, from,
					renamed(elementSettings, marks.Elements[e.Name]), zeros.Elements[e.Name]))
			}
		}
	}
	if len(marks.Links) > 0 {
		doc.Links = slices.Clone(doc.Links)
		was := make(map[string]*Link, len(old.Links))
		for i := range old.Links {
			was[old.Links[i].Name] = &old.Links[i]
		}
		for i := range doc.Links {
			l := &doc.Links[i]
			if from := was[l.Name]; from != nil && len(marks.Links[l.Name]) > 0 {
				keep(&left.Links, l.Name, inherit(linkSettings, l, from, marks.Links[l.Name], zeros.Links[l.Name]))
			}
		}
	}
	return doc, left
}

func inherit[T any](all []Key[T], to, from *T, marks, zeros []string) (left []string) {
	for _, k := range all {
		if slices.Contains(marks, k.Name) && k.Zero(to) && !slices.Contains(zeros, k.Name) {
			k.Copy(to, from)
			left = append(left, k.Name)
		}
	}
	slices.Sort(left)
	return left
}

// CheckAssignments tells which values make no sense whatever they are said of: those that cannot be read, or are
// impossible by themselves. The object may be an element or a link; without one it is the network.
func CheckAssignments(object string, values []Assignment) (errs []error) {
	for _, v := range values {
		var all []error
		if object == "" {
			all = append(all, misread(networkSettings, v))
		} else {
			all = append(all, misread(linkSettings, v), misreadOfElement(v))
		}
		worst := all[0]
		for _, err := range all {
			if err == nil || errors.Is(worst, errNoKey) {
				worst = err
			}
		}
		if worst != nil && !errors.Is(worst, errNoKey) { // whoever knows the object says which keys it has
			errs = append(errs, worst)
		}
	}
	return errs
}

// misreadOfElement is misread for an element that speaks everything.
func misreadOfElement(v Assignment) error {
	speaks := func() Element {
		return Element{Routing: Routing{&OSPF{}, &OSPF{}, &ISIS{}, &BGP{}, &RIP{}}}
	}
	return misreadIn(elementSettings, speaks(), v)
}

var errNoKey = errors.New("there is no such key")

// misread tells what is wrong with a value by itself.
func misread[T any](all []Key[T], v Assignment) error {
	var of T
	return misreadIn(all, of, v)
}

func misreadIn[T any](all []Key[T], of T, v Assignment) error {
	i := slices.IndexFunc(all, func(k Key[T]) bool { return k.Name == v.Key })
	if i < 0 {
		return errNoKey
	}
	if err := all[i].assign(&of, v.Value); err != nil {
		return fmt.Errorf("%s: %w", v.Key, err)
	}
	if problem := all[i].Check(&of); problem != "" {
		return errors.New(problem)
	}
	return nil
}
