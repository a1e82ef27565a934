package resolve

import (
	"slices"
	"strings"

	"github.com/polyplane/polyplane/model"
)

// Unknown is what is not known of a document because a part of its file could not be read. That part is left out of the
// document. Read then tells only what is wrong whatever that part may have said. A nil Unknown is empty.
type Unknown struct {
	Name     bool // of the network
	Families bool // which address families links have that state none
	// Elements are names that elements may have which the document lacks. Links and Edges are elements that may have
	// links or edges which it lacks.
	Elements, Links, Edges Names

	keys map[unknownKey]struct{}
}

type unknownKey struct {
	about model.Subject
	index int
	key   string
}

// Names are some names: words, all that begin with a prefix, or all that there could be.
type Names struct {
	All      bool
	Of       map[string]struct{}
	Prefixes []string
}

// Has tells whether a name is among them.
func (n *Names) Has(name string) bool {
	_, ok := n.Of[name]
	return ok || n.All || slices.ContainsFunc(n.Prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// AllKeys stands for every key of an object.
const AllKeys = "*"

// Add notes that an object's key is not known. Keys are called as in the file: ospf/hello.
func (u *Unknown) Add(about model.Subject, index int, key string) {
	if u.keys == nil {
		u.keys = map[unknownKey]struct{}{}
	}
	u.keys[unknownKey{about, index, key}] = struct{}{}
}

// has tells whether one of an object's keys is not known.
func (u *Unknown) has(about model.Subject, index int, keys ...string) bool {
	if u == nil || len(u.keys) == 0 {
		return false
	}
	if _, all := u.keys[unknownKey{about, index, AllKeys}]; all {
		return true
	}
	for _, key := range keys {
		if _, ok := u.keys[unknownKey{about, index, key}]; ok {
			return true
		}
	}
	return false
}

// ofNetwork, ofElement, ofLink and ofEdge tell it of their objects.
func (ps *problems) ofNetwork(keys ...string) bool {
	return ps.unknown.has(model.AboutNetwork, 0, keys...)
}

func (ps *problems) ofElement(i int, keys ...string) bool {
	return ps.unknown.has(model.AboutElement, i, keys...)
}

func (ps *problems) ofLink(i int, keys ...string) bool {
	return ps.unknown.has(model.AboutLink, i, keys...)
}

func (ps *problems) ofEdge(i int, keys ...string) bool {
	return ps.unknown.has(model.AboutEdge, i, keys...)
}

// mayBe tells whether there may be an element of this name that the document lacks.
func (ps *problems) mayBe(name string) bool {
	return ps.unknown != nil && ps.unknown.Elements.Has(name)
}

// mayBeLink tells it of a link. Its name is its own, or made of those of its ends.
func (ps *problems) mayBeLink(name string) bool {
	if ps.unknown == nil || ps.unknown.Links.Has(name) {
		return ps.unknown != nil
	}
	a, b, _ := strings.Cut(name, "--")
	if at := strings.LastIndexByte(b, '.'); at > 0 && ps.unknown.Links.Has(a) && ps.unknown.Links.Has(b[:at]) {
		return true // a--b.2 is of a and b
	}
	return ps.unknown.Links.Has(a) && ps.unknown.Links.Has(b)
}

// mayBeJoined tells whether an element may have interfaces that the document lacks, or addresses of theirs.
func (ps *problems) mayBeJoined(i int) bool {
	name := ps.net.Elements[i].Name
	return ps.unknown != nil && (ps.unknown.Links.Has(name) || ps.unknown.Edges.Has(name) ||
		ps.ofElement(i, "interfaces", "addresses"))
}

// mayHave tells it of one interface. What is left out names it, or the far end that it is called after.
func (ps *problems) mayHave(i int, iface string) bool {
	u, name := ps.unknown, ps.net.Elements[i].Name
	return u != nil && (u.Links.Has(name) && u.Links.Has(iface) || u.Edges.Has(name) && u.Edges.Has(iface))
}
