package netns

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"
)

// runcTime is how long one runc command of ours may take, on a machine that has time for it, and runcMost in any case.
// What it waits for may be in an element's hands; but on a machine where processes wait for a processor most of the
// time, what takes long may just be slow.
const (
	runcTime = 30 * time.Second
	runcMost = 2 * time.Minute
)

// crowded is the part of the last ten seconds, in percent, in which some process waited for a processor, from which on
// the machine has no time.
const crowded = 50

// withRuncTime is a context for a runc command. Its cause is errTooLong when the time is over.
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

type tooLongError struct{}

func (tooLongError) Error() string { return "it took too long" }

var errTooLong = tooLongError{}

// pressure is what the kernel tells of one of the machine's resources: "some avg10=12.34 avg60=…". Kernels that do not
// count tell of none.
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
