package fast

import (
	"testing"
	"time"
)

// Tables that never fit are tried ever more rarely, however often they are filled meanwhile.
func TestWhatNeverFitsIsTriedRarely(t *testing.T) {
	var a again
	now, tries := time.Unix(0, 0), 0
	for range int(10 * time.Minute / releaseEvery) {
		now = now.Add(releaseEvery)
		a.due(now, false, false) // being filled
		if a.due(now, false, true) {
			tries++
		}
	}
	if tries < 10 || tries > 20 {
		t.Errorf("%d tries in ten minutes", tries)
	}
	if a.due(now, true, false) || !a.due(now, false, true) {
		t.Error("after everything fitted, the next that does not is tried at once")
	}
}
