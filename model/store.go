package model

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// StoreIdentity tells one store from all others, and what a store knows from what it has lost.
type StoreIdentity struct {
	ID string `json:"id"` // random, made with the store
	// Generation is raised by every restore of a backup, from 1.
	Generation int64 `json:"generation"`
	// Ended are the last revisions of the generations before this one, as far as this store knows them. Ended[0] is
	// that of the first generation. Zero says that nothing is known of it. Whatever a generation has told after its
	// last revision is lost.
	Ended []int64 `json:"ended,omitempty"`
	// Early tells that the store was used before stores had identities. Nodes that remember no store were told by such
	// a one.
	Early bool      `json:"early,omitempty"`
	Made  time.Time `json:"made,omitzero"`
}

// StoreMemory is what a node remembers of the store that it was last told by.
type StoreMemory struct {
	ID         string `json:"id"`
	Generation int64  `json:"generation"`
	Revision   int64  `json:"revision"` // of the state that it was told
}

// Memory is what a node remembers of a state that it follows.
func (s *NodeState) Memory() StoreMemory {
	return StoreMemory{ID: s.Store.ID, Generation: s.Store.Generation, Revision: s.Revision}
}

// Lacks tells, in words, why a store that is at this revision may not know what a node was told. It is empty when the
// store knows all of it.
func (s StoreIdentity) Lacks(m StoreMemory, revision int64) string {
	switch {
	case m.ID == "" && (s.ID == "" || s.Early):
		return ""
	case m.ID == "":
		return "this store was made after the node was told what to have"
	case m.ID != s.ID:
		return "this is another store than the one that told the node what to have"
	case m.Generation > s.Generation:
		return fmt.Sprintf("this store is older than the one that told the node what to have (generation %d, the node "+
			"knows %d)", s.Generation, m.Generation)
	case m.Generation == s.Generation && m.Revision > revision:
		return fmt.Sprintf("this store is older than what it has told the node (revision %d, the node knows %d)",
			revision, m.Revision)
	case m.Generation < s.Generation:
		ended := int64(0)
		if i := int(m.Generation) - 1; i >= 0 && i < len(s.Ended) {
			ended = s.Ended[i]
		}
		if m.Revision > ended {
			return "this store was restored from a backup that is older than what the node was told"
		}
	}
	return ""
}

// Restored is the identity of a store into which a backup is put back. The backup's own store ended at the revision.
// Known are further generations, such as that of the store that is replaced.
func (s StoreIdentity) Restored(revision int64, known ...int64) StoreIdentity {
	next := s
	next.Generation = max(s.Generation, slices.Max(append(known, 0))) + 1
	next.Ended = make([]int64, next.Generation-1)
	copy(next.Ended, s.Ended)
	if s.Generation >= 1 {
		next.Ended[s.Generation-1] = revision
	}
	return next
}

// GoneNetwork is a network of which a node shall have nothing any longer.
type GoneNetwork struct {
	Name string `json:"name"`
	// Now tells that its files do not go to the trash.
	Now bool `json:"now,omitempty"`
	// Deleted tells that the store does not have the network, and knows that somebody has deleted it. A node lets go of
	// it even while it holds others.
	Deleted bool `json:"deleted,omitempty"`
}

// HeldNetwork is a network that a node has, and that the store does not know or knows in an older form. The node leaves
// it as it is.
type HeldNetwork struct {
	Name     string `json:"name"`
	Index    uint32 `json:"index,omitempty"` // zero where the node does not know it
	VNI      uint32 `json:"vni,omitempty"`   // the highest of its links'
	Elements int    `json:"elements"`
	Why      string `json:"why,omitempty"`
	// Title, Owner and Seal are what the node was told with it. A node that joined is believed only about networks that
	// were placed on it. The seal shows that where the store does not know it: it covers the node, the name, the
	// numbers and the owner. Nodes of earlier versions keep no titles, so that they are not in it: FitsKey shows them.
	Title string `json:"title,omitempty"`
	Owner string `json:"owner,omitempty"`
	Seal  string `json:"seal,omitempty"`
	// Cut are its elements that an administrator has in quarantine, as the node was told.
	Cut []string `json:"cut,omitempty"`
}

// Held is what is told of a network that a node was told to have, if it holds it.
func (n *NodeNetwork) Held() HeldNetwork {
	h := HeldNetwork{Name: n.Name, Index: n.Index, Elements: len(n.Elements), Title: n.Title,
		Owner: n.Owner, Seal: n.Seal}
	for i := range n.Elements {
		for _, f := range n.Elements[i].Interfaces {
			if f.Far != nil {
				h.VNI = max(h.VNI, f.Far.VNI)
				for _, also := range f.Far.Also {
					h.VNI = max(h.VNI, also.VNI)
				}
			}
		}
	}
	return h
}

// Sealed are the words that a seal covers.
func (h *HeldNetwork) Sealed(node string) []string {
	return []string{"placed", node, h.Name, strconv.FormatUint(uint64(h.Index), 10),
		strconv.FormatUint(uint64(h.VNI), 10), h.Owner}
}

// Deleted is what a store keeps of a network that was deleted, so that a node that was away meanwhile lets go of it.
type Deleted struct {
	Index uint32    `json:"index"` // zero: of whatever index
	Time  time.Time `json:"time"`
	// Owner and Title are whose it was, and what it was called if that was not its key. Earlier versions noted neither.
	Owner string `json:"owner,omitempty"`
	Title string `json:"title,omitempty"`
}

// NetworkName is all that the network of that key was called.
func (d *Deleted) NetworkName(key string) NetworkName {
	return NetworkName{key, d.Owner, cmp.Or(d.Title, key)}
}
