package model

import "time"

// TrashItem is what a removed element owned on disk.
type TrashItem struct {
	ID      string    `json:"id"` // NET/ELEMENT@TIME
	Element ID        `json:"element"`
	Node    string    `json:"node"`
	Time    time.Time `json:"time"`
	Size    Bytes     `json:"size"` // what it takes of the node's disk
}

// TrashRequest names items of one or several nodes' trash.
type TrashRequest struct {
	Items []string `json:"items"`
}

// TrashList is what is in the trash.
type TrashList struct {
	Items []TrashItem `json:"items,omitempty"`
	// Silent are the nodes that could not be asked, and why.
	Silent []string `json:"silent,omitempty"`
}
