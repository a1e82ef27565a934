// Package metrics shows a manager's view of everything as Prometheus metrics. Nothing is kept and nothing is worked out
// until somebody asks: each scrape is made from what the manager knows at that moment, so what has gone leaves no
// series behind, and an instance that nobody watches pays nothing.
package metrics

import (
	"time"

	"github.com/polyplane/polyplane/model"
)

// Source is what metrics are made from; the manager is one.
type Source interface {
	// Metrics is one consistent picture. What it refers to must not change any more.
	Metrics() State
}

// State is everything that is exported but what this package measures itself.
type State struct {
	Instance string
	Store    Store
	Revision int64 // of the nodes' desired state
	Events   []EventCount
	Networks []model.NetworkStatus
	Nodes    []Node
	Elements []model.ElementStatus
	Ports    []Port
	Links    []model.SubstrateLinkStatus
}

// Store is where networks are kept.
type Store struct {
	Place string // "embedded", or the external cluster's URLs
	// Size and Used are the database's, in bytes: what the file takes, and what of it is in use. Zero is unknown.
	Size, Used int64
}

// EventCount is how often something happened since the manager started.
type EventCount struct {
	Severity model.Severity
	Reason   string
	Count    uint64
}

// Node is one node.
type Node struct {
	model.NodeStatus
	Connected bool            // the agent's
	Measures  *model.Measures // nil when there are none
}

// Port is one port, and the node that it is on.
type Port struct {
	Node string
	model.PortStatus
}

// seconds is a time in seconds since the epoch, as Prometheus has it; zero stays zero.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
