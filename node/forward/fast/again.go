package fast

import "time"

// lastAgain is the longest wait before what did not fit is tried again. It must be long: a router's root can make it
// not fit for ever, and telling a whole table anew costs seconds of the node's time.
const lastAgain = time.Minute

// again says when to try again what did not fit. Each wait is twice as long as the one before.
type again struct {
	wait time.Duration
	at   time.Time
}

// due tells whether to try now. fits says that everything fits, full that something does not; while tables are being
// filled both may be false.
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
