package model

import "net/netip"

// Look asks what an element's routing knows.
type Look struct {
	Element ID `json:"element"`
	Known
	Not bool `json:"not,omitempty"` // it must not be so
	// Family restricts the sessions of a neighbour to those of one address family.
	Family Family `json:"family,omitempty"`
	// To is the root that a spanning tree is expected to have; the element itself when empty.
	To string `json:"to,omitempty"`
	// Peer is the neighbour, or the element that the route leads by; nil if it may lead by any.
	Peer *LookedFor `json:"peer,omitempty"`
}

// LookedFor is an element as its neighbours know it.
type LookedFor struct {
	Name      string       `json:"name"`
	RouterID  netip.Addr   `json:"routerID,omitzero"`
	Addresses []netip.Addr `json:"addresses,omitempty"` // link-local ones among them
	// Devices are those of the asked element's interfaces at whose other end there is nobody else.
	Devices []string `json:"devices,omitempty"`
}

// LooksRequest asks an agent to look into elements of its node (POST /v1/looks).
type LooksRequest struct {
	Looks []Look `json:"looks"`
}

// LooksResult holds one answer a look, in their order.
type LooksResult struct {
	Answers []LookAnswer `json:"answers"`
}

// LookAnswer is what was seen.
type LookAnswer struct {
	// So tells that it is as the look asks.
	So bool `json:"so,omitempty"`
	// Seen is what there is instead, or in particular: "Init", "via 10.0.0.2".
	Seen string `json:"seen,omitempty"`
	// Error says why nothing could be seen.
	Error string `json:"error,omitempty"`
}

// StateResult is the outcome of an expectation of what routing knows.
type StateResult struct {
	Expected string `json:"expected"` // the sentence that the file has
	OK       bool   `json:"ok"`
	Message  string `json:"message,omitempty"` // what is so
}
