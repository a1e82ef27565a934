package model

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// BGPToward is what is said of the sessions with a router by its name.
type BGPToward struct {
	In  string `json:"in,omitempty"`  // the policy for what it tells
	Out string `json:"out,omitempty"` // the policy for what it is told
}

// BGPRule is one rule of a policy. The first rule that a route matches decides; a route that matches none is denied.
type BGPRule struct {
	Match BGPMatch `json:"match,omitzero"`
	Deny  bool     `json:"deny,omitempty"`
	Set   BGPSet   `json:"set,omitzero"`
}

// BGPMatch is what a route must have, all of it; everything matches where nothing is said.
type BGPMatch struct {
	Prefixes  string   `json:"prefixes,omitempty"` // the name of a list of PrefixLists
	Community []string `json:"community,omitempty"`
}

// BGPSet is what a route that passes gets.
type BGPSet struct {
	LocalPreference *uint32 `json:"localPreference,omitempty" key:"local-preference"`
	MED             *uint32 `json:"med,omitempty"`
	// Prepend is how often the own autonomous system is put before the path once more.
	Prepend int `json:"prepend,omitempty"`
	// Community replaces all communities (NoCommunity leaves none), AddCommunity and DeleteCommunity change them.
	Community       []string `json:"community,omitempty"`
	AddCommunity    []string `json:"addCommunity,omitempty" key:"add-community"`
	DeleteCommunity []string `json:"deleteCommunity,omitempty" key:"delete-community"`
}

// NoCommunity stands for none at all.
const NoCommunity = "none"

// MostPrepended is how often an AS may be prepended.
const MostPrepended = 10

// String is the rule in a line.
func (r BGPRule) String() string {
	var words []string
	add := func(key string, values ...string) {
		if text := strings.Join(values, " "); text != "" {
			words = append(words, key+" "+text)
		}
	}
	number := func(n *uint32) (text string) {
		if n != nil {
			text = strconv.FormatUint(uint64(*n), 10)
		}
		return text
	}
	add("prefixes", r.Match.Prefixes)
	add("community", r.Match.Community...)
	if len(words) == 0 {
		words = append(words, "everything")
	}
	if r.Deny {
		words = append(words, "deny")
	}
	matched := len(words)
	add("local-preference", number(r.Set.LocalPreference))
	add("med", number(r.Set.MED))
	if r.Set.Prepend != 0 {
		add("prepend", strconv.Itoa(r.Set.Prepend))
	}
	add("community", r.Set.Community...)
	add("add-community", r.Set.AddCommunity...)
	add("delete-community", r.Set.DeleteCommunity...)
	if len(words) > matched {
		words[matched] = "set " + words[matched]
	}
	return strings.Join(words, " ")
}

// wellKnown are communities that have names (RFC 1997).
var wellKnown = map[string][2]uint16{"no-export": {65535, 65281}, "no-advertise": {65535, 65282}}

// ParseCommunity reads a community of RFC 1997, and returns it as files have it.
func ParseCommunity(s string) (string, error) {
	if _, known := wellKnown[s]; known || s == NoCommunity {
		return s, nil
	}
	n, err := CommunityNumbers(s)
	if err != nil {
		return "", err
	}
	for name, is := range wellKnown {
		if n == is {
			return name, nil
		}
	}
	return fmt.Sprintf("%d:%d", n[0], n[1]), nil
}

// CommunityNumbers are the two halves of a community.
func CommunityNumbers(s string) (n [2]uint16, err error) {
	if n, known := wellKnown[s]; known {
		return n, nil
	}
	wrong := fmt.Errorf("%q is no community; write two numbers of 0 to 65535, like 65001:80, or no-export or "+
		"no-advertise", s)
	halves := strings.Split(s, ":")
	if len(halves) != 2 {
		return n, wrong
	}
	for i, half := range halves {
		v, err := strconv.ParseUint(half, 10, 16)
		if err != nil {
			return n, wrong
		}
		n[i] = uint16(v)
	}
	return n, nil
}

// PrefixRange is an entry of a prefix list: the prefixes within one, of these lengths.
type PrefixRange struct {
	Prefix      netip.Prefix
	Least, Most int
}

// ParsePrefixRange reads a prefix, perhaps with the lengths that ones within it may have: `10.0.0.0/8 ge 16 le 24`.
func ParsePrefixRange(s string) (r PrefixRange, err error) {
	words := strings.Fields(s)
	if len(words) == 0 {
		return r, fmt.Errorf("a prefix list has prefixes, like 10.1.0.0/16 or 10.1.0.0/16 le 24")
	}
	p, err := netip.ParsePrefix(words[0])
	switch {
	case err != nil || p.Addr().Is4In6():
		return r, fmt.Errorf("%q is no prefix; write one like 10.1.0.0/16, 10.1.0.0/16 le 24 or 2001:db8::/32 ge 48",
			words[0])
	case p != p.Masked():
		return r, fmt.Errorf("%s has bits beyond its length; its prefix is %s", p, p.Masked())
	case len(words)%2 == 0 || len(words) > 5:
		return r, fmt.Errorf("%q: behind the prefix there is le and a length, ge and a length, or both", s)
	}
	r = PrefixRange{p, p.Bits(), p.Bits()}
	var le, ge bool
	for i := 1; i < len(words); i += 2 {
		n, err := strconv.Atoi(words[i+1])
		if err != nil || n < p.Bits() || n > p.Addr().BitLen() {
			return r, fmt.Errorf("%q: %s is followed by a length of %d to %d", s, words[i], p.Bits(),
				p.Addr().BitLen())
		}
		switch {
		case words[i] == "le" && !le:
			le, r.Most = true, n
		case words[i] == "ge" && !ge:
			ge, r.Least = true, n
		default:
			return r, fmt.Errorf("%q: behind the prefix there is le and a length, ge and a length, or both", s)
		}
	}
	if ge && !le {
		r.Most = p.Addr().BitLen()
	}
	if r.Least > r.Most {
		return r, fmt.Errorf("%q: no length is at least %d and at most %d", s, r.Least, r.Most)
	}
	return r, nil
}

// String is the entry as files have it.
func (r PrefixRange) String() string {
	s := r.Prefix.String()
	if r.Least > r.Prefix.Bits() {
		s += " ge " + strconv.Itoa(r.Least)
	}
	if r.Most > r.Prefix.Bits() && (r.Least == r.Prefix.Bits() || r.Most < r.Prefix.Addr().BitLen()) {
		s += " le " + strconv.Itoa(r.Most)
	}
	return s
}

// Used are the names of the policies that sessions have, each once, in their order.
func (b *BGP) Used() (names []string) {
	for _, n := range b.Neighbors {
		for _, name := range []string{n.In, n.Out} {
			if name != "" && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}
