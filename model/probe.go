package model

import (
	"net/netip"
	"time"
)

// ProbePort is the UDP port that responders answer on, from IANA's dynamic range (RFC 6335).
const ProbePort = 49877

// Responder makes one element answer probes on every address that it has. It answers with its own ID and Secret, so
// that a probe is noticed that has reached somebody else with the same address.
type Responder struct {
	ID     ID     `json:"id"`
	Secret string `json:"secret"`
}

// RespondersRequest asks an agent to open responders inside elements of its node (POST /v1/responders). One that
// is open already answers with this secret, too, where a question asks for it. Each secret counts for Seconds.
type RespondersRequest struct {
	Responders []Responder `json:"responders"`
	Seconds    int         `json:"seconds"`
}

// RespondersResult tells which responders could not be opened.
type RespondersResult struct {
	Failed []ResponderFailure `json:"failed,omitempty"`
}

// ResponderFailure is one element without a responder, and why, in words.
type ResponderFailure struct {
	ID      ID     `json:"id"`
	Message string `json:"message"`
}

// Probe asks From to reach To at Address; the answer must carry To's Secret.
type Probe struct {
	From    ID         `json:"from"`
	To      ID         `json:"to"`
	Address netip.Addr `json:"address"`
	Secret  string     `json:"secret"`
	Not     bool       `json:"not,omitempty"` // To must not be reached
}

// ProbesRequest asks an agent to run probes from elements of its node (POST /v1/probes), all at once. Each sends
// Attempts datagrams, spread evenly over Timeout, and ends with the first answer.
type ProbesRequest struct {
	Probes   []Probe       `json:"probes"`
	Timeout  time.Duration `json:"timeout"`
	Attempts int           `json:"attempts,omitempty"` // 1 when zero
}

// ProbesResult holds one result a probe, in their order.
type ProbesResult struct {
	Results []ProbeResult `json:"results"`
}
