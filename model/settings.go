package model

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Settings tells which fields of a network were set at run time (`polyplane set`), by their keys. Their values are in the
// network's document as all others are. An apply that gives such a field another value takes it over; one that leaves it
// out, or says what it is, keeps it set.
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

// setting is one field of T that can be set at run time.
type setting[T any] struct {
	key     string
	example string
	set     func(of *T, text string) error
	// inherit gives the field the other's value unless it has one; it tells whether it did.
	inherit func(to, from *T) bool
}

func field[T any, V comparable](key, example string, of func(*T) *V, parse func(string) (V, error)) setting[T] {
	return setting[T]{key: key, example: example,
		set: func(t *T, text string) error {
			var v, zero V
			if text != "" {
				var err error
				if v, err = parse(text); err != nil {
					return fmt.Errorf("%s: %w", key, err)
				}
				if v == zero && !zeroMeans[key] {
					return fmt.Errorf("%s: %s is no limit at all; write %s= for the default", key, text, key)
				}
			}
			*of(t) = v
			return nil
		},
		inherit: func(to, from *T) bool {
			var zero V
			if *of(to) != zero {
				return false
			}
			*of(to) = *of(from)
			return true
		}}
}

// zeroMeans are the fields of which zero is a value like others.
var zeroMeans = map[string]bool{"delay": true, "jitter": true, "loss": true}

func parseWord[T ~string](s string) (T, error) { return T(s), nil }

func parseCount(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%q is no number; write digits only, like 1024", s)
	}
	return n, nil
}

// What can be set, in the order in which people are told of it.
var (
	networkSettings = []setting[Network]{
		field("bandwidth", "1Gbit", func(n *Network) *Bandwidth { return &n.Slice.Bandwidth }, ParseBandwidth),
		field("packets", "100000", func(n *Network) *int { return &n.Slice.Packets }, parseCount),
		field("tables", "64MiB", func(n *Network) *Bytes { return &n.Slice.Tables }, ParseBytes),
		field("nexthops", "4096", func(n *Network) *int { return &n.Slice.NextHops }, parseCount),
		field("punts", "5000", func(n *Network) *int { return &n.Slice.Punts }, parseCount),
		field("cpu", "4", func(n *Network) *CPU { return &n.Slice.CPU }, ParseCPU),
		field("memory", "8GiB", func(n *Network) *Bytes { return &n.Slice.Memory }, ParseBytes),
		field("mode", "strict", func(n *Network) *string { return &n.Slice.Mode }, parseWord),
		field("attack", "quarantine", func(n *Network) *AttackPolicy { return &n.Attack }, parseWord),
		field("owner", "alice", func(n *Network) *string { return &n.Owner }, parseWord),
	}
	elementSettings = []setting[Element]{
		field("cpu", "0.5", func(e *Element) *CPU { return &e.CPU }, ParseCPU),
		field("memory", "256MiB", func(e *Element) *Bytes { return &e.Memory }, ParseBytes),
		field("processes", "1024", func(e *Element) *int { return &e.Processes }, parseCount),
		field("files", "4096", func(e *Element) *int { return &e.Files }, parseCount),
		field("neighbours", "8192", func(e *Element) *int { return &e.Neighbours }, parseCount),
		field("connections", "65536", func(e *Element) *int { return &e.Connections }, parseCount),
		field("disk", "256MiB", func(e *Element) *Bytes { return &e.Disk }, ParseBytes),
		field("forwarding", "guest", func(e *Element) *Forwarding { return &e.Forwarding }, parseWord),
		field("attack", "quarantine", func(e *Element) *AttackPolicy { return &e.Attack }, parseWord),
		field("hook", "auto", func(e *Element) *Hook { return &e.Hook }, parseWord),
	}
	linkSettings = []setting[Link]{
		field("bandwidth", "100Mbit", func(l *Link) *Bandwidth { return &l.Bandwidth }, ParseBandwidth),
		field("delay", "10ms", func(l *Link) *Duration { return &l.Delay }, ParseDuration),
		field("jitter", "1ms", func(l *Link) *Duration { return &l.Jitter }, ParseDuration),
		field("loss", "1%", func(l *Link) *float64 { return &l.Loss }, ParseLoss),
		field("mtu", "9000", func(l *Link) *int { return &l.MTU }, parseCount),
	}
)

func keysOf[T any](all []setting[T]) []string {
	keys := make([]string, len(all))
	for i, s := range all {
		keys[i] = s.key + "=" + s.example
	}
	return keys
}

// SettingsOfNetwork, SettingsOfElement and SettingsOfLink are what can be set, as KEY=EXAMPLE.
func SettingsOfNetwork() []string { return keysOf(networkSettings) }

// SettingsOfElement is SettingsOfNetwork for elements.
func SettingsOfElement() []string { return keysOf(elementSettings) }

// SettingsOfLink is SettingsOfNetwork for links.
func SettingsOfLink() []string { return keysOf(linkSettings) }

// ErrNoObject tells that a network has neither an element nor a link of a name.
var ErrNoObject = errors.New("neither an element nor a link")

// Assign gives fields of the network ("" as the object), of an element or of a link their values, and notes that they
// were set. It returns what comes of it, or everything that is wrong; the arguments are not changed. Whether the values
// are possible is Validate's to say.
func Assign(net Network, marks Settings, object string, values []Assignment) (Network, Settings, []error) {
	marks = Settings{slices.Clone(marks.Network), maps.Clone(marks.Elements), maps.Clone(marks.Links)}
	if object == "" {
		errs := assign(networkSettings, &net, "a network", &marks.Network, values)
		return net, marks, errs
	}
	if i := slices.IndexFunc(net.Elements, func(e Element) bool { return e.Name == object }); i >= 0 {
		net.Elements = slices.Clone(net.Elements)
		kept := slices.Clone(marks.Elements[object])
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

func assign[T any](all []setting[T], of *T, what string, marks *[]string, values []Assignment) []error {
	var errs []error
	seen := map[string]bool{}
	for _, v := range values {
		i := slices.IndexFunc(all, func(s setting[T]) bool { return s.key == v.Key })
		switch {
		case i < 0:
			errs = append(errs, fmt.Errorf("%s has no key %q that can be set; there are %s", what, v.Key, strings.Join(keysOf(all), ", ")))
			continue
		case seen[v.Key]:
			errs = append(errs, fmt.Errorf("%s is set twice; say it once", v.Key))
			continue
		}
		seen[v.Key] = true
		if err := all[i].set(of, v.Value); err != nil {
			errs = append(errs, err)
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

// keep stores a list under a name, or takes the name away where it is empty.
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

// Inherit returns a document with what was set on the network that it is about to replace and what it does not name
// itself, and the marks of that. A field that is zero is one that the document does not name. An element that becomes one
// of another kind is another one: nothing was set on that.
func Inherit(doc, old Network, marks Settings) (Network, Settings) {
	left := Settings{Network: inherit(networkSettings, &doc, &old, marks.Network)}
	if len(marks.Elements) > 0 {
		doc.Elements = slices.Clone(doc.Elements)
		was := make(map[string]*Element, len(old.Elements))
		for i := range old.Elements {
			was[old.Elements[i].Name] = &old.Elements[i]
		}
		for i := range doc.Elements {
			e := &doc.Elements[i]
			if from := was[e.Name]; from != nil && from.Kind == e.Kind && len(marks.Elements[e.Name]) > 0 {
				keep(&left.Elements, e.Name, inherit(elementSettings, e, from, marks.Elements[e.Name]))
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
				keep(&left.Links, l.Name, inherit(linkSettings, l, from, marks.Links[l.Name]))
			}
		}
	}
	return doc, left
}

func inherit[T any](all []setting[T], to, from *T, marks []string) (left []string) {
	for _, s := range all {
		if slices.Contains(marks, s.key) && s.inherit(to, from) {
			left = append(left, s.key)
		}
	}
	slices.Sort(left)
	return left
}
