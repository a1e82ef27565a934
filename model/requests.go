package model

import "time"

// Pong is the manager's answer to a ping.
type Pong struct {
	Instance string    `json:"instance"`
	Started  time.Time `json:"started"`
	Revision int64     `json:"revision"` // of the nodes' desired state
	Networks int       `json:"networks"`
	Nodes    int       `json:"nodes"`
	Ready    int       `json:"ready"` // nodes
	Store    string    `json:"store"` // "embedded", or the external cluster's URLs
	// Waits is what changes wait for, in words, if that takes longer than usual.
	Waits string `json:"waits,omitempty"`
}

// ApplyOptions say how a network's document is applied.
type ApplyOptions struct {
	// DryRun refuses what an apply would refuse, returns what it would make, and changes nothing.
	DryRun bool
	// Overwrite replaces configuration and files that were edited inside elements by the document's.
	Overwrite bool
	// LoseFiles lets elements move to other nodes without what was written inside them. A dry run allows it as well,
	// and has a note for it.
	LoseFiles bool
	// Base is the revision that the document was made from; the apply is refused when the network has moved on. Zero
	// means any, BaseNew that there must be no such network.
	Base int64
	// Owner is who a new network belongs to unless the document says it.
	Owner string
	// Provisional networks are removed after ProvisionalTime unless they are kept. Only new networks can be.
	Provisional bool
}

// ProvisionalTime is how long a provisional network is there unless it is kept.
const ProvisionalTime = 10 * time.Minute

// BaseNew is the Base of a document for a network that does not exist yet.
const BaseNew = -1

// ApplyResult is what became of an apply.
type ApplyResult struct {
	// Record is the network as it is now (or would be, in a dry run).
	Record Record `json:"record"`
	// Before is what it was; nil for a new network.
	Before *Record `json:"before,omitempty"`
	// Changed is false when the network was like that already: nothing was written, no node was told.
	Changed bool `json:"changed"`
	// Notes are for people: what they should know and a comparison of the documents does not show, such as which
	// elements' own configuration is replaced.
	Notes []string `json:"notes,omitempty"`
}

// RecoverRequest asks to put networks together again from what nodes were told to have.
type RecoverRequest struct {
	// Networks are those to take in; all that no store knows when empty.
	Networks []string `json:"networks,omitempty"`
	// DryRun tells what would be done, and does nothing.
	DryRun bool `json:"dryRun,omitempty"`
	// Changed also takes in what could not be put together exactly as it was.
	Changed bool `json:"changed,omitempty"`
}

// RecoverResult is what became of it.
type RecoverResult struct {
	Networks []RecoveredNetwork `json:"networks,omitempty"`
	// Silent are the nodes that could not be asked, and why.
	Silent []string `json:"silent,omitempty"`
}

// RecoveredNetwork is one network that nodes have.
type RecoveredNetwork struct {
	Name     string   `json:"name"`
	Taken    bool     `json:"taken"` // into the store, or would be
	Elements int      `json:"elements"`
	Links    int      `json:"links"`
	Nodes    []string `json:"nodes,omitempty"`
	// Problem says why it is not taken. Notes say what of it could not be recovered.
	Problem string   `json:"problem,omitempty"`
	Notes   []string `json:"notes,omitempty"`
}

// Action is something one does to an element.
type Action string

const (
	ActionStart   Action = "start"
	ActionStop    Action = "stop"
	ActionRestart Action = "restart"
	ActionSuspend Action = "suspend"
	ActionResume  Action = "resume"
	// ActionQuarantine cuts an element's links and keeps the element; ActionRelease joins them again.
	ActionQuarantine Action = "quarantine"
	ActionRelease    Action = "release"
)

// ActionRequest asks for an action.
type ActionRequest struct {
	Action Action `json:"action" enum:"start,stop,restart,suspend,resume,quarantine,release"`
	// Reason is why it is put into quarantine, in words.
	Reason string `json:"reason,omitempty" maxLength:"1024"`
}

// ActionResult is what became of an action.
type ActionResult struct {
	// Changed is false when the element was wanted like that already, so that nothing was written and no node was told.
	Changed bool `json:"changed"`
	// Revision is that of the element's node's desired state with the action in it.
	Revision int64 `json:"revision,omitempty"`
	// Aside tells, in words, that the store has not taken it yet, and where it is kept until then.
	Aside string `json:"aside,omitempty"`
}

// SetRequest asks to set fields of a network, or of one element or link of it.
type SetRequest struct {
	// Object is the element's or link's name; empty for the network itself.
	Object string       `json:"object,omitempty"`
	Values []Assignment `json:"values"`
	// LoseFiles lets elements move to other nodes without what was written inside them.
	LoseFiles bool `json:"loseFiles,omitempty"`
}

// SetResult is what became of it.
type SetResult struct {
	// Record is the network as it is now, Before what it was.
	Record Record `json:"record"`
	Before Record `json:"before"`
	// Changed is false when everything was so already. Then no node was told, and nothing was written but, at most,
	// that it was set.
	Changed bool `json:"changed"`
	// Nodes are the nodes that were told, with the revision of their desired state that has the change in it.
	Nodes map[string]int64 `json:"nodes,omitempty"`
}

// Registration is how an agent makes itself known.
type Registration struct {
	// Socket is the path of the Unix socket on which the agent serves its own API. It is empty for nodes that joined:
	// they are reached by the tunnel that they hold open.
	Socket string `json:"socket,omitempty"`
	// Machine is what a node that joined is now; nil leaves what is known of it.
	Machine *Machine `json:"machine,omitempty"`
	PID     int      `json:"pid,omitempty"`
	// Offers are what the node's drivers offer. Where they say nothing, the node is taken to have everything.
	Offers Offers `json:"offers,omitempty"`
	BareOffers
}

// KeepAlive is the longest silence of a watch stream; a reader that hears nothing for three of them may take the other
// side for dead.
const KeepAlive = 10 * time.Second

// EventUpdate is one line of an event stream: an event, or nothing (a keep-alive).
type EventUpdate struct {
	Event *Event `json:"event,omitempty"`
}

// DumpUpdate is one line of a watched dump: everything, or nothing (a keep-alive).
type DumpUpdate struct {
	Dump *Dump `json:"dump,omitempty"`
}
