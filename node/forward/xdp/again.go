package xdp

import "time"

// lastAgain is the longest wait before what did not fit is tried again. A router's root can have it not fit for ever, and
// telling a whole table anew costs seconds of the node's time.
const lastAgain = time.Minute

// again says when to try again what did not fit: each time after twice as long.
type again struct {
	wait time.Duration
	at   time.Time
}

// due tells whether to try now; fits is whether everything does, full whether something does not. While tables are being
// filled it may be neither.
func (a *again) due(now time.Time, fits, full bool) bool {
	if fits {
		*a = again{}
	}
	if !full || now.Before(a.at) {
		return false
	}
	a.wait = min(max(2*a.wait, releaseEvery), lastAgain)
	a.at = now.Add(a.wait)
	return true
}
