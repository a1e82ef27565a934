package netns

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"
)

// runcTime is how long one of our runc commands may take while the machine is not crowded; runcMost is how long it may
// take in any case. An element can make it wait. But where processes wait for a processor most of the time, a command
// that takes long may just be slow.
const (
	runcTime = 30 * time.Second
	runcMost = 2 * time.Minute
)

// crowded: a machine is crowded if for this part of the last ten seconds, in percent, some process waited for a
// processor.
const crowded = 50

// withRuncTime returns a context for a runc command. When the time is over, its cause is errTooLong.
func withRuncTime(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		began, tick := time.Now(), time.NewTimer(runcTime)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if pressure("/proc/pressure/cpu") < crowded || time.Since(began) >= runcMost {
				cancel(errTooLong)
				return
			}
			tick.Reset(time.Second)
		}
	}()
	return ctx, func() { cancel(nil) }
}

// tooLongError is why a runc command was ended that hung while the processors had time for it.
type tooLongError struct{}

func (tooLongError) Error() string { return "it took too long" }

var errTooLong = tooLongError{}

// pressure reads how scarce one of the machine's resources is, from "some avg10=12.34 avg60=…" (PSI). A kernel that
// does not count this returns no pressure.
func pressure(path string) float64 {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for word := range strings.FieldsSeq(string(data)) {
		if value, ok := strings.CutPrefix(word, "avg10="); ok {
			percent, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0
			}
			return percent // of "some", the first line
		}
	}
	return 0
}
