package model

import (
	"fmt"
	"strconv"
)

// STP is whether a switch runs the spanning tree protocol (IEEE 802.1D), which lets switches be connected in loops:
// empty where it does not, STPUsual, or its priority.
type STP string

// STPUsual is STP with the usual priority.
const STPUsual STP = "true"

// Priorities of switches (IEEE 802.1D-2004, table 17-2). The lowest one of a segment becomes its root.
const (
	usualSTPPriority = 32768
	stepSTPPriority  = 4096
	maxSTPPriority   = 61440
)

// The times of the root, which count for all of its segment. They are the shortest that the standard allows for the
// shortest forward delay of 4 s: a port is silent for twice that, and a switch that is not heard any more is believed
// for MaxAge.
const (
	STPForwardDelay = 4 * second
	STPHello        = second
	STPMaxAge       = 6 * second
)

// ParseSTP reads a switch's STP, and returns it as files have it.
func ParseSTP(s string) (STP, error) {
	switch s {
	case "false":
		return "", nil
	case string(STPUsual):
		return STPUsual, nil
	}
	p, err := strconv.ParseUint(s, 10, 32)
	if err != nil || p > maxSTPPriority || p%stepSTPPriority != 0 {
		return "", fmt.Errorf("%q is no spanning tree; write true, or its priority, a multiple of %d up to %d (the "+
			"lowest becomes the root)", s, stepSTPPriority, maxSTPPriority)
	}
	return STP(strconv.FormatUint(p, 10)), nil
}

// Priority is the switch's priority; on tells whether it runs the protocol at all.
func (s STP) Priority() (priority uint16, on bool) {
	if s == "" || s == STPUsual {
		return usualSTPPriority, s != ""
	}
	p, err := strconv.ParseUint(string(s), 10, 16)
	if err != nil {
		return usualSTPPriority, true
	}
	return uint16(p), true
}
