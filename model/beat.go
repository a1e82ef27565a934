package model

import "time"

// Beat is a sign of life of a node's agent. It proves nothing by having come: what it says of the agent's loop does.
type Beat struct {
	Node string `json:"node"`
	// Turns counts how often the loop has come round since the agent started.
	Turns uint64 `json:"turns"`
	// Step is what the loop is at, in words; empty while it waits for something to do.
	Step string `json:"step,omitempty"`
	// Still is how long the loop has made no progress. Time in which the whole agent could not run does not count.
	Still Duration `json:"still,omitempty"`
}

// The times of a lease. They are measured by monotonic clocks, so that setting a clock changes nothing. Time in which
// the listener itself could not run does not count.
const (
	// BeatEvery is how often an agent beats.
	BeatEvery = 2 * time.Second
	// LeaseTime is for how long a node counts as heard after its latest word.
	LeaseTime = 10 * time.Second
	// StillTime is for how long a loop may be at one step without any progress and be at work all the same: longer than
	// the half minute that one command for one element may take.
	StillTime = 45 * time.Second
)

// Condition is how a node is.
type Condition string

const (
	Ready Condition = "ready"
	// NotReady is a node that says so itself, whose agent's loop does not come round, or whose agent has just gone.
	NotReady Condition = "notReady"
	// Unknown is a node that nothing was heard of for the time of a lease.
	Unknown Condition = "unknown"
)

// Conditions are all that a node may be in.
var Conditions = []Condition{Ready, NotReady, Unknown}
