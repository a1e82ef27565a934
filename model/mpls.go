package model

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// LSP is what a router does with packets of one static label-switched path (RFC 3031): it labels those to a prefix, or
// takes in packets with a label and sends them on with others, or without any.
type LSP struct {
	// In is the label of packets that come in; zero where packets get their first label here.
	In int `json:"in,omitempty"`
	// To is the prefix whose packets get their first label here.
	To netip.Prefix `json:"to,omitzero"`
	// Out are the labels that packets leave with, the outermost first.
	Out []int `json:"out,omitempty"`
	// Via is the neighbour that they are sent to, by its name or an address. Where it is empty, the label is taken off,
	// and the packet goes as the router's own tables say.
	Via string `json:"via,omitempty"`

	// NextHop and Interface are what Via is; documents have neither.
	NextHop   netip.Addr `json:"nextHop,omitzero"`
	Interface string     `json:"interface,omitempty"`
}

// Labels up to 15 have meanings of their own (RFC 3032, section 2.1). The kernel keeps a table with a place for each
// label, in memory that it charges to nobody, so that not all of 20 bits can be had.
const (
	MinLabel   = 16
	MaxLabel   = 65535
	MostLabels = 4 // of one packet
	MostLSPs   = 4096
)

// String is what is said of it: "10.9.0.0/24 push 100 via r2", "100 swap 200 via r3", "200 pop via r4", "200 pop".
func (l LSP) String() string {
	var words []string
	switch {
	case l.To.IsValid():
		words = append(words, l.To.String(), "push", LabelsText(l.Out))
	case len(l.Out) > 0:
		words = append(words, strconv.Itoa(l.In), "swap", LabelsText(l.Out))
	default:
		words = append(words, strconv.Itoa(l.In), "pop")
	}
	if l.In != 0 && l.To.IsValid() {
		words = append(words, "in", strconv.Itoa(l.In))
	}
	if l.Via != "" {
		words = append(words, "via", Shorten(l.Via, MaxName))
	}
	if l.NextHop.IsValid() && l.NextHop.String() != l.Via {
		words = append(words, "at", l.NextHop.String())
	}
	if l.Interface != "" && l.Interface != l.Via {
		words = append(words, "on", l.Interface)
	}
	return strings.Join(words, " ")
}

// LabelsText is a stack of labels, the outermost first.
func LabelsText(labels []int) string {
	words := make([]string, len(labels))
	for i, l := range labels {
		words[i] = strconv.Itoa(l)
	}
	return strings.Join(words, "/")
}

// ParseLabel reads a label.
func ParseLabel(s string) (int, error) {
	n, err := parseCount(s)
	if err != nil {
		return 0, fmt.Errorf("%q is no label; write a number from %d to %d", s, MinLabel, MaxLabel)
	}
	return n, CheckLabel(n)
}

// CheckLabel tells why a number is no label that can be had.
func CheckLabel(n int) error {
	if n < MinLabel || n > MaxLabel {
		return fmt.Errorf("the label %d is not between %d and %d", n, MinLabel, MaxLabel)
	}
	return nil
}

// Described is what a document says of it.
func (l LSP) Described() LSP {
	l.NextHop, l.Interface = netip.Addr{}, ""
	return l
}
