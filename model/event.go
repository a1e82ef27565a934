package model

import "time"

// Severity grades an event.
type Severity string

const (
	Info    Severity = "info"
	Warning Severity = "warning"
	Error   Severity = "error"
)

// Event is something that happened, for people to read.
type Event struct {
	// Seq is the manager's count, from 1; zero until the manager has seen it.
	Seq      int64     `json:"seq,omitempty"`
	Time     time.Time `json:"time"`
	Severity Severity  `json:"severity"`
	// Object is what it happened to: "manager", a node, "net", "net/element", "net/element:interface" or "net link".
	Object string `json:"object"`
	// Network is the network that it happened to, or to a part of. It is empty for what concerns the platform, since
	// nodes may have the names of networks.
	Network string `json:"network,omitempty"`
	// Owner and Title are the network's, as the manager knew them then.
	Owner string `json:"owner,omitempty"`
	Title string `json:"title,omitempty"`
	// Reason is one CamelCase word for programs (ElementStarted, PortRestored, …); Message is for people.
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Node    string `json:"node,omitempty"`
}
