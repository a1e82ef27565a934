package model

import (
	"net/netip"
	"slices"
	"time"
)

// Histogram counts observations by size, since whoever keeps it began.
type Histogram struct {
	// Bounds are the classes' upper bounds, in seconds and ascending; what is greater than all of them has a class of
	// its own.
	Bounds []float64 `json:"bounds,omitempty"`
	Counts []uint64  `json:"counts,omitempty"` // by class, one more than there are bounds
	Sum    float64   `json:"sum,omitempty"`    // of all observations, in seconds
}

// NewHistogram returns an empty histogram with the bounds, which it keeps.
func NewHistogram(bounds ...float64) Histogram {
	return Histogram{Bounds: bounds, Counts: make([]uint64, len(bounds)+1)}
}

// Observe counts one duration.
func (h *Histogram) Observe(d time.Duration) {
	at, _ := slices.BinarySearch(h.Bounds, d.Seconds()) // the first bound that is not smaller
	h.Counts[at]++
	h.Sum += d.Seconds()
}

// Clone returns a histogram that h no longer changes.
func (h Histogram) Clone() Histogram {
	h.Counts = slices.Clone(h.Counts)
	return h
}

// Measures is what a node's agent has measured of its own work and of the links to its neighbours. All counts begin at
// the agent's start.
type Measures struct {
	Node    string    `json:"node"`
	Started time.Time `json:"started"` // when the agent started
	CPU     float64   `json:"cpu"`     // processor time of the agent, in seconds
	Memory  Bytes     `json:"memory"`  // the agent's resident memory
	// Passes are the times that it took to look at everything and to put right what was wrong.
	Passes Histogram `json:"passes"`
	// Audits counts how often a part of the elements was looked into. Findings counts the elements that were found to
	// be other than they should be.
	Audits   uint64 `json:"audits"`
	Findings uint64 `json:"findings"`
	// Round counts the rounds of probing. Links are the results of the latest one.
	Round uint64        `json:"round,omitempty"`
	Links []LinkMeasure `json:"links,omitempty"`
}

// Link is what was measured of the link to a neighbour, and nil when nothing was. Measures may be nil.
func (m *Measures) Link(to string) *LinkMeasure {
	if m == nil {
		return nil
	}
	for i := range m.Links {
		if m.Links[i].To == to {
			return &m.Links[i]
		}
	}
	return nil
}

// LinkMeasure is what a node has measured of a link of the substrate, in the direction away from it.
type LinkMeasure struct {
	To string `json:"to"`
	// Up tells that the neighbour has answered a probe lately.
	Up bool `json:"up"`
	// Problem is why the link cannot be measured, in words.
	Problem string `json:"problem,omitempty"`
	// Device is the node's own device that leads there.
	Device string `json:"device,omitempty"`
	// RTTMin and RTTMedian are the smallest and the median round-trip time of the last round that had an answer.
	RTTMin    time.Duration `json:"rttMin,omitempty"`
	RTTMedian time.Duration `json:"rttMedian,omitempty"`
	RTT       Histogram     `json:"rtt"`
	Sent      uint64        `json:"sent"` // probes
	Lost      uint64        `json:"lost"` // probes that no answer came to in time
	// Capacity is what the link can carry this way, as far as it is known: the least of what the substrate's file says,
	// what the device's own queue lets pass, and what the device says its speed is. Zero is unknown.
	Capacity Bandwidth `json:"capacity,omitempty"`
	// Used is what the device sent, on average over the last round, and Available what Capacity leaves beside it.
	Used      Bandwidth `json:"used"`
	Available Bandwidth `json:"available,omitempty"`
}

// NodeLink is a link of the substrate, as one of its ends sees it.
type NodeLink struct {
	To        string     `json:"to"`
	Address   netip.Addr `json:"address"` // the neighbour's, in the underlay
	Bandwidth Bandwidth  `json:"bandwidth,omitempty"`
}

// TunnelPort is the UDP port of the tunnels between nodes, VXLAN's (RFC 7348).
const TunnelPort = 4789

// LinkProbePort is the UDP port on which nodes answer their neighbours' probes, from IANA's dynamic range (RFC 6335).
const LinkProbePort = 49878

// SubstrateLinkStatus is one link of the substrate at a glance, with what its ends have measured of it.
type SubstrateLinkStatus struct {
	SubstrateLink
	// Reserved is what virtual links have of it in each direction.
	Reserved Bandwidth `json:"reserved,omitempty"`
	// Forth is what A measured towards B, Back the other way; nil while nothing is known.
	Forth *LinkMeasure `json:"forth,omitempty"`
	Back  *LinkMeasure `json:"back,omitempty"`
	// Found is what the nodes have found of it; nil while nothing is known. Unstated tells that the substrate states no
	// such link: it was only found.
	Found    *FoundLink `json:"found,omitempty"`
	Unstated bool       `json:"unstated,omitempty"`
}
