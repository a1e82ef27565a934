package xdp

import "time"

// RefreshEvery changes how often neighbours are confirmed, of planes that are made afterwards.
func RefreshEvery(d time.Duration) (undo func()) {
	was := refreshEvery
	refreshEvery = d
	return func() { refreshEvery = was }
}
