package model

import "time"

// TrashItem is what a removed element owned on disk.
type TrashItem struct {
	ID      string `json:"id"` // NET/ELEMENT@TIME
	Element ID     `json:"element"`
	// Owner is whose the element was; empty where nobody noted it, as before nodes did.
	Owner string `json:"owner,omitempty"`
	// Title is what the network was called, as far as that is remembered.
	Title string    `json:"title,omitempty"`
	Node  string    `json:"node"`
	Time  time.Time `json:"time"`
	Size  Bytes     `json:"size"` // what it takes of the node's disk
	// Moved is of an element that was moved to another node with a copy of it.
	Moved bool `json:"moved,omitempty"`
}

// MaxOwnerNoted bounds the owners' names that are noted with what is thrown away, in bytes.
const MaxOwnerNoted = 256

// TrashRequest names items of one or several nodes' trash.
type TrashRequest struct {
	Items []string `json:"items"`
	// AnyOwner gives an item also to an element of somebody else than whose it was.
	AnyOwner bool `json:"anyOwner,omitempty"`
}

// TrashOrder is what a node is told to give back.
type TrashOrder struct {
	TrashRequest
	// Into are the elements that get the items, where these are not of the items' own names: of a network that its
	// owner had before owners had names of their own, and has made anew.
	Into map[string]ID `json:"into,omitempty"`
}

// TrashList is what is in the trash.
type TrashList struct {
	Items []TrashItem `json:"items,omitempty"`
	// Silent are the nodes that could not be asked, and why.
	Silent []string `json:"silent,omitempty"`
}
