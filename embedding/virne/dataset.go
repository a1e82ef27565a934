// Package virne reads the data sets of Virne, a simulator of network embedding that many methods were compared with
// (https://github.com/GeminiLight/virne), makes such data sets, and replays them: requests arrive, are embedded with
// all their nodes on nodes of their own, and leave.
package virne

import "cmp"

// DataSet is a physical network, and what is asked of it when.
type DataSet struct {
	Physical Graph
	Requests []Graph
	Events   []Event
}

// Graph is a network. Nodes have an amount of processor, links one of bandwidth; what is there, or what is asked for.
type Graph struct {
	Nodes []float64
	Links []Link
}

// Link joins two nodes.
type Link struct {
	A, B      int
	Bandwidth float64
}

// Event is a request that arrives or leaves.
type Event struct {
	Time    float64
	Request int
	Arrives bool
}

func byTime(a, b Event) int { return cmp.Compare(a.Time, b.Time) }
