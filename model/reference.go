package model

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// NetworkName is all that a network is called. Its key is the instance's: no other network has it, it never changes,
// and everything below the API goes by it. Its title is its owner's: none of the owner's other networks has it.
type NetworkName struct {
	Key, Owner, Title string
}

// Called is what a network's owner calls it.
func (n *Network) Called() string { return cmp.Or(n.Title, n.Name) }

// NetworkName is all that the record's network is called.
func (r *Record) NetworkName() NetworkName {
	return NetworkName{r.Network.Name, r.WhoseItIs(), r.Network.Called()}
}

// NamesHeader asks the API to call networks as people call them: by the title if they are the asker's own, else
// OWNER/TITLE. Its value is who root on the manager's machine is; of others their token says that. Without it whoever
// sees everything is told keys; an owner never is.
const NamesHeader = "Polyplane-Names"

// Asker is who names networks, and is told their names.
type Asker struct {
	// Name is whose own networks come first.
	Name string
	// Only tells that the own networks are all that there is for the asker.
	Only bool
	// Keys tells that answers call networks by their keys. So what is asked for is a key first.
	Keys bool
}

// Names are the networks that an asker may name.
type Names struct {
	asker   Asker
	byKey   map[string]NetworkName
	byTitle map[string][]NetworkName // in the order of their owners
	left    []NetworkName            // of which only something is left
}

// Among are the networks that the asker may name, of all that there are.
func (a Asker) Among(all []NetworkName) *Names {
	n := &Names{asker: a, byKey: make(map[string]NetworkName, len(all)),
		byTitle: make(map[string][]NetworkName, len(all))}
	for _, is := range all {
		if a.Only && is.Owner != a.Name {
			continue
		}
		n.byKey[is.Key] = is
		n.byTitle[is.Title] = append(n.byTitle[is.Title], is)
	}
	for _, same := range n.byTitle {
		slices.SortFunc(same, func(x, y NetworkName) int {
			return cmp.Or(cmp.Compare(x.Owner, y.Owner), cmp.Compare(x.Key, y.Key))
		})
	}
	return n
}

// SplitReference splits OWNER/TITLE; without an owner owned is false. Before the slash there may be nothing: /TITLE is
// the network of that title that nobody owns.
func SplitReference(s string) (owner, title string, owned bool) {
	at := strings.LastIndexByte(s, '/') // titles have none in them
	if at < 0 {
		return "", s, false
	}
	return s[:at], s[at+1:], true
}

// CheckReference tells what is wrong with [OWNER/]TITLE.
func CheckReference(s string) error {
	owner, title, _ := SplitReference(s)
	if strings.ContainsFunc(owner, func(r rune) bool {
		return r == '/' || r == ':' || unicode.IsSpace(r) || !unicode.IsGraphic(r)
	}) {
		return fmt.Errorf("%q is no owner; OWNER/NETWORK is expected", owner)
	}
	return CheckName(title)
}

// ErrNoNetwork tells that the asker has no network of a name.
var ErrNoNetwork = errors.New("there is no such network")

// SeveralError tells that several networks may be meant.
type SeveralError struct {
	Reference string
	Choices   []string // what says which
}

func (e *SeveralError) Error() string {
	return fmt.Sprintf("%s may be %s: say which", e.Reference, strings.Join(e.Choices, " or "))
}

// Find is the network that an asker means: [OWNER/]TITLE, or a key. Without an owner it is the asker's own, else the
// one that nobody owns, else the only one of that title; and else the one with that key. Whoever is told keys means
// them first. The error is ErrNoNetwork or a SeveralError.
func (n *Names) Find(reference string) (NetworkName, error) {
	is, keyed := n.byKey[reference]
	if keyed && n.asker.Keys {
		return is, nil
	}
	owner, title, owned := SplitReference(reference)
	same := n.byTitle[title]
	of := func(owner string) (NetworkName, bool) {
		i := slices.IndexFunc(same, func(is NetworkName) bool { return is.Owner == owner })
		if i < 0 {
			return NetworkName{}, false
		}
		return same[i], true
	}
	if owned {
		if found, ok := of(owner); ok {
			return found, nil
		}
		return NetworkName{}, ErrNoNetwork
	}
	for _, owner := range []string{n.asker.Name, ""} {
		if found, ok := of(owner); ok {
			return found, nil
		}
	}
	switch {
	case len(same) == 1:
		return same[0], nil
	case len(same) > 1:
		several := &SeveralError{Reference: reference}
		for _, is := range same {
			several.Choices = append(several.Choices, is.Owner+"/"+is.Title)
		}
		return NetworkName{}, several
	case keyed:
		return is, nil
	}
	return NetworkName{}, ErrNoNetwork
}

// Call is what the asker calls a network, so that Find finds it: the title of an own one, else OWNER/TITLE; or its key,
// where the asker is told keys. What the asker knows nothing of stays as it is.
func (n *Names) Call(key string) string {
	is, ok := n.byKey[key]
	if !ok {
		return key
	}
	return n.Name(is)
}

// Name is Call for a network that may be none of those that there are, such as one that is about to be made.
func (n *Names) Name(is NetworkName) string {
	switch {
	case n.asker.Only && is.Owner != n.asker.Name:
		return is.Key
	case n.asker.Keys:
		return is.Key
	case is.Owner == n.asker.Name:
		return is.Title
	case is.Owner != "":
		return is.Owner + "/" + is.Title
	}
	if slices.ContainsFunc(n.byTitle[is.Title], func(o NetworkName) bool { return o.Owner == n.asker.Name }) {
		return "/" + is.Title
	}
	return is.Title
}

// Narrow tells that the asker sees own networks only.
func (n *Names) Narrow() bool { return n.asker.Only }

// Title is what a network's owner calls it; empty where the asker knows nothing of it.
func (n *Names) Title(key string) string { return n.byKey[key].Title }

// Add makes another network known: one that is gone, and of which something is left.
func (n *Names) Add(is NetworkName) {
	if _, there := n.byKey[is.Key]; !there && (!n.asker.Only || is.Owner == n.asker.Name) {
		n.byKey[is.Key] = is
		n.left = append(n.left, is)
	}
}

// FindLeft is the key of a network of which only something is left. What the asker knows nothing of stays as it is.
func (n *Names) FindLeft(reference string) string {
	if _, keyed := n.byKey[reference]; keyed && n.asker.Keys {
		return reference
	}
	owner, title, owned := SplitReference(reference)
	key := ""
	for _, is := range n.left {
		switch {
		case n.Name(is) == reference || owned && is.Owner == owner && is.Title == title:
			return is.Key
		case !owned && is.Title == title && key == "":
			key = is.Key
		case !owned && is.Title == title:
			return reference // it may be several
		}
	}
	return cmp.Or(key, reference)
}

// Keyed are the networks' keys, in their order.
func (n *Names) Keyed() []string { return slices.Sorted(maps.Keys(n.byKey)) }

// Told is a text in which the asker's names stand for keys. Texts come from whoever knows keys only: from nodes, also
// of earlier versions. Only numbered keys are replaced. A key that is a title too may be a word of the text.
func (n *Names) Told(text string) string {
	if n.asker.Keys {
		return text
	}
	return ReplaceNames(text, func(word string) (string, bool) {
		is, ok := n.byKey[word]
		return n.Name(is), ok && is.Key != is.Title
	})
}

// ReplaceNames replaces names in a text, each as a whole.
func ReplaceNames(text string, by func(name string) (string, bool)) string {
	var b strings.Builder
	for at := 0; at < len(text); {
		end := at
		for end < len(text) && isNameByte(text[end]) {
			end++
		}
		if end == at {
			b.WriteByte(text[at])
			at++
			continue
		}
		word := text[at:end]
		at = end
		bare := strings.TrimRight(word, ".") // of the sentence
		if other, ok := by(bare); ok {
			word = other + word[len(bare):]
		}
		b.WriteString(word)
	}
	return b.String()
}

func isNameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '.' || c == '-'
}

// Of is an object, which begins with a network's key, as the asker calls it: "net", "net/element", "net link".
func (n *Names) Of(object, key string) string {
	rest, ok := strings.CutPrefix(object, key)
	if !ok {
		return object
	}
	return n.Call(key) + rest
}

// FitsKey tells whether a network of that key may have that title: the key is the title, or a numbered one for it.
func FitsKey(key, title string) bool {
	if key == title {
		return true
	}
	at := strings.LastIndexByte(key, '.')
	if at <= 0 || CheckName(title) != nil {
		return false
	}
	number := key[at+1:]
	if number == "" || strings.Trim(number, "0123456789") != "" {
		return false
	}
	return key[:at] == title[:min(len(title), MaxName-1-len(number))]
}

// KeyTries is how many keys are tried with a short number.
const KeyTries = 32

// NumberedKey is a key for a network that cannot have its title as one, or must not, since who makes it could tell from
// it whether somebody else has that. The number says nothing to whoever does not know the salt, and is always the same
// for one owner and title, so that what was thrown away finds what is made anew. Each try gives another one.
func NumberedKey(salt, owner, title string, try int) string {
	h := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %d", salt, owner, title, try))
	least, most := uint64(1_000), uint64(10_000)
	if try >= KeyTries {
		least, most = 1_000_000, 10_000_000
	}
	number := strconv.FormatUint(least+binary.BigEndian.Uint64(h[:])%(most-least), 10)
	return title[:min(len(title), MaxName-1-len(number))] + "." + number
}
