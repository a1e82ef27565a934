package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
)

// A network's title is its owner's, its key the instance's (model.NetworkName). People say titles, and the API makes
// keys of them before anybody here is asked; but for documents, which may be of networks that do not exist: what they
// are of is decided here, under the lock under which they are made.

// Names are all that the networks of an owner are called, or all networks, and those that only nodes know, if owner is
// empty.
func (k *known) Names(owner string) []model.NetworkName {
	k.mu.RLock()
	defer k.mu.RUnlock()
	all := make([]model.NetworkName, 0, len(k.networks))
	for key, n := range k.networks {
		is := model.NetworkName{Key: key, Title: key}
		if n.damaged == nil {
			is = n.record.NetworkName()
		}
		if owner == "" || n.damaged == nil && is.Owner == owner {
			all = append(all, is)
		}
	}
	if owner == "" {
		all = append(all, each.Of(k.unknownHeld(), k.nameOf)...)
	}
	return all
}

// Left are all that networks were called of which only something is left: those of an owner, or all if owner is empty.
func (k *known) Left(owner string) []model.NetworkName {
	k.mu.RLock()
	defer k.mu.RUnlock()
	var all []model.NetworkName
	for key, d := range k.deleted {
		if is := d.NetworkName(key); k.networks[key] == nil && (owner == "" || is.Owner == owner) {
			all = append(all, is)
		}
	}
	return all
}

// nameOf is all that a network is called, as far as it is known: also one that only nodes know, or that was deleted.
// The caller holds the lock.
func (k *known) nameOf(key string) model.NetworkName {
	if n := k.networks[key]; n != nil {
		if n.damaged != nil {
			return model.NetworkName{Key: key, Title: key}
		}
		return n.record.NetworkName()
	}
	for _, h := range k.nodes.heldOn(key) {
		return model.NetworkName{Key: key, Owner: h.Owner, Title: cmp.Or(h.Title, key)}
	}
	d := k.deleted[key]
	return d.NetworkName(key)
}

// checkTitle refuses an owner a second network of one title. But is the key of the network that is to have it. The
// caller holds changing.
func (k *known) checkTitle(is model.NetworkName) error {
	for _, other := range k.Names("") {
		if other.Owner == is.Owner && other.Title == is.Title && other.Key != is.Key {
			if is.Owner == "" {
				return api.Conflict("there is a network %s without an owner already", is.Title)
			}
			return api.Conflict("user %s has a network %s already", is.Owner, is.Title)
		}
	}
	return nil
}

// named are documents with their networks' keys.
type named struct {
	given     []model.Document
	documents []model.Document
	owners    []string // who makes each that is new
	said      []string // what the documents call them
}

// namer finds out which networks documents are of.
type namer struct {
	*known
	quotas     *quotas
	restraints *restraints
}

func newNamer(m *Manager) namer { return namer{m.known, &m.quotas, &m.restraints} }

// name finds out which networks documents are of, and chooses keys for those that do not exist yet. Nothing is kept
// for these: whoever makes them asks again under the lock.
func (m namer) name(ctx context.Context, given []model.Document, maker string) (named, error) {
	as := api.Asking(ctx)
	as.Name = cmp.Or(maker, as.Name)
	narrow := ""
	if as.Only {
		narrow = as.Name
	}
	names := as.Among(m.Names(narrow))
	n := named{given: given, documents: slices.Clone(given), owners: make([]string, len(given)),
		said: make([]string, len(given))}
	chosen, twice := map[string]bool{}, map[model.NetworkName]bool{}
	for i := range n.documents {
		doc := &n.documents[i]
		n.said[i] = doc.Network.Name
		is, err := meant(names, as, doc, maker)
		if err != nil {
			return named{}, err
		}
		whose := model.NetworkName{Owner: is.Owner, Title: is.Title}
		if twice[whose] {
			return named{}, api.Invalid(fmt.Sprintf("network %s is there twice; what is applied together must have "+
				"different names", n.said[i]))
		}
		twice[whose], n.owners[i] = true, is.Owner
		net := &doc.Network
		switch {
		case is.Key != "":
			if net.Owner == "" {
				net.Owner = m.saidOwner(is.Key) // only `set owner=` gives a network away
			}
		case model.CheckName(is.Title) != nil:
			is.Key = is.Title // what is wrong is told with all that is wrong
		default:
			plain := !as.Only && (is.Owner == as.Name || is.Owner == "")
			is.Key = m.freeKey(is, plain, chosen)
			chosen[is.Key] = true
		}
		if net.Name, net.Title = is.Key, is.Title; is.Title == is.Key {
			net.Title = ""
		}
	}
	return n, nil
}

// meant is the network that a document is of. Of one that does not exist yet it has no key.
func meant(names *model.Names, as model.Asker, doc *model.Document, maker string) (model.NetworkName, error) {
	net := &doc.Network
	owner, title, owned := model.SplitReference(net.Name)
	switch {
	case owned && net.Owner != "" && net.Owner != owner:
		return model.NetworkName{}, api.Invalid(fmt.Sprintf("network %s: %s and %s (owner:) cannot both own it",
			net.Name, owner, net.Owner))
	case !owned && net.Owner != "":
		owner, owned = net.Owner, true
	}
	reference := net.Name
	if owned {
		reference = owner + "/" + title
		if as.Only && owner != as.Name {
			return model.NetworkName{}, api.Forbidden("network %s: user %s is an owner and may make networks in the "+
				"own name only, not in %s's", net.Name, as.Name, owner)
		}
	}
	is, err := names.Find(reference)
	var several *model.SeveralError
	switch {
	case err == nil && (owned || doc.Base != model.BaseNew || is.Owner == maker || is.Owner == ""):
		return is, nil
	case errors.As(err, &several) && doc.Base != model.BaseNew: // a new one is the maker's
		several.Choices = append(several.Choices, fmt.Sprintf("%s/%s, which would be new", maker, title))
		return is, api.Conflict("network %v (network: OWNER/NAME)", several)
	}
	if !owned {
		owner = maker
	}
	if net.Title != "" && model.CheckName(net.Title) == nil {
		title = net.Title // what it is called where it comes from, and where it has another key
		if is, err := names.Find(owner + "/" + title); err == nil {
			return is, nil
		}
	}
	return model.NetworkName{Owner: owner, Title: title}, nil
}

// saidOwner is the owner that a network's document says.
func (k *known) saidOwner(key string) string {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if n := k.networks[key]; n != nil {
		return n.record.Network.Owner
	}
	return ""
}

// freeKey chooses the key of a network that is about to be made. If whoever makes it sees everything, that is the
// title, if it is free.
func (m namer) freeKey(is model.NetworkName, plain bool, chosen map[string]bool) string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if plain && !chosen[is.Title] && m.mayHave(is.Title, is.Owner, true) {
		return is.Title
	}
	// A network of before owners had names of their own had its title for a key. What is left of it – what an
	// administrator has decided about its elements, disks – is found under that.
	if d, left := m.deleted[is.Title]; left && d.Owner != "" && d.Owner == is.Owner && !chosen[is.Title] &&
		m.mayHave(is.Title, is.Owner, false) {
		return is.Title
	}
	for try := 0; ; try++ {
		key := model.NumberedKey(m.identity.ID, is.Owner, is.Title, try)
		if !chosen[key] && m.mayHave(key, is.Owner, false) {
			return key
		}
	}
}

// mayHave tells whether a new network of this owner may have a key. Nothing that is left of another owner's may be
// found under it: disks in the trash, what nodes that are away still have, quotas, quarantines. What earlier versions
// left is said to be nobody's, and whoever sees everything may have it. The caller holds the lock.
func (m namer) mayHave(key, owner string, plain bool) bool {
	if m.networks[key] != nil || len(m.nodes.heldOn(key)) > 0 {
		return false
	}
	if d, left := m.deleted[key]; left {
		return d.Owner == owner || plain && d.Owner == ""
	}
	if _, bound := m.quotas.limits.Networks[key]; bound && !plain {
		return false // else somebody who sees everything said what the network may have before it is there
	}
	return !slices.ContainsFunc(m.restraints.all(), func(r model.Restraint) bool {
		return r.ID.Network == key && r.Owner != owner
	})
}

// same tells whether the documents are of the same networks.
func (n *named) same(o *named) bool {
	return slices.EqualFunc(n.documents, o.documents, func(a, b model.Document) bool {
		return a.Network.Name == b.Network.Name && a.Network.Title == b.Network.Title &&
			a.Network.Owner == b.Network.Owner
	})
}

// told is an error in which the networks are called as the documents call them.
func (n *named) told(err error) error {
	if err == nil {
		return nil
	}
	said, numbered := map[string]string{}, map[string]string{}
	for i := range n.documents {
		net := &n.documents[i].Network
		if said[net.Name] = n.said[i]; net.Title != "" {
			numbered[net.Name] = n.said[i]
		}
	}
	return api.Retold(err, func(text string) string {
		return model.ReplaceNames(text, func(word string) (string, bool) { is, ok := numbered[word]; return is, ok })
	}, func(key string) string { return cmp.Or(said[key], key) })
}
