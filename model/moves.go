package model

import "time"

// Moving is a move of an element to another node that is under way. It is kept in the network's record, so that
// whoever takes over goes on with it.
type Moving struct {
	// Move names it, as no other move. The nodes know by it what belongs to it.
	Move    string    `json:"move"`
	Element string    `json:"element"`
	From    string    `json:"from"`
	To      string    `json:"to"`
	Began   time.Time `json:"began"`
	Step    MoveStep  `json:"step"`
	// Placement is the network's once the element is at its new node. It is reserved beside the one that counts until
	// then.
	Placement Placement `json:"placement,omitzero"`
}

// MoveStep is how far a move is.
type MoveStep string

const (
	// MoveCopying: the element stands still at its old node, whose it is, and its disk is sent to the new one. Whatever
	// fails, the move is taken back, and the element starts where it was.
	MoveCopying MoveStep = "copying"
	// MoveStarting: it is the new node's, which has its disk and starts it.
	MoveStarting MoveStep = "starting"
	// MoveDone and MoveUndone are those of a move that has ended.
	MoveDone   MoveStep = "done"
	MoveUndone MoveStep = "undone"
)

// Copies tells whether an element stands still where it is, since it is being moved away.
func (m *Moving) Copies(element string) bool {
	return m != nil && m.Step == MoveCopying && m.Element == element
}

// Arrival is an element whose disk is being sent to a node.
type Arrival struct {
	Element string `json:"element"`
	Move    string `json:"move"`
	Disk    Bytes  `json:"disk"` // it has at most this
}

// MoveRequest asks for an element to be moved.
type MoveRequest struct {
	To string `json:"to" doc:"the node that it is to be on"`
	// Cold allows that it stands still meanwhile.
	Cold   bool `json:"cold,omitempty" doc:"it stands still while its files are copied, and starts anew at its new node"`
	DryRun bool `json:"dryRun,omitempty" doc:"refuse what a move would refuse, tell what it would do, and do nothing"`
}

// MoveResult is what a move does, or would do.
type MoveResult struct {
	ID    ID          `json:"id"`
	From  string      `json:"from"`
	To    string      `json:"to"`
	Move  string      `json:"move,omitempty"` // none of a dry run
	Links []MovedLink `json:"links,omitempty"`
	// Disk is what the element's disk takes now, as its node told last. Most is how large it may be.
	Disk    Bytes       `json:"disk"`
	Most    Bytes       `json:"most"`
	Promise MovePromise `json:"promise"`
	// Stands is about how long the element will stand still: its processes end, what is on its disk is sent, and they
	// start.
	Stands Duration `json:"stands"`
	Notes  []string `json:"notes,omitempty"`
}

// MovedLink is a link whose path changes with a move. A link within one node has no path.
type MovedLink struct {
	Link   string     `json:"link"`
	Before []LinkPath `json:"before,omitempty"`
	After  []LinkPath `json:"after,omitempty"`
}

// MovePromise tells what a move of an element keeps, what it interrupts, and what is lost, in words.
type MovePromise struct {
	Keeps      []string `json:"keeps,omitempty"`
	Interrupts []string `json:"interrupts,omitempty"`
	Loses      []string `json:"loses,omitempty"`
}

// MoveStatus is a move that is under way, or has ended lately.
type MoveStatus struct {
	Moving
	ID ID `json:"id"`
	// Owner and Title are the network's; Title is empty where that is its name.
	Owner string `json:"owner,omitempty"`
	Title string `json:"title,omitempty"`
	// Sent are the bytes of the disk that the new node has.
	Sent Bytes `json:"sent,omitempty"`
	// Stands is how long the element stood still.
	Stands Duration `json:"stands,omitempty"`
	// Message tells why it has been taken back, or what it waits for.
	Message string    `json:"message,omitempty"`
	Ended   time.Time `json:"ended,omitzero"`
}
