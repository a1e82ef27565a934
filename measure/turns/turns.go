// Package turns compares systems that forward live frames: they take turns of milliseconds on one CPU. A machine's
// speed differs by a tenth from one second to the next, but much less within a second.
package turns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/measure/netdev"
)

// Loop sends frames out of a device that nobody else sends out of, until the context ends.
type Loop struct {
	From netdev.Ref
	// Run names its thread when it is about to begin, and waits until that returns.
	Run func(ctx context.Context, thread func(tid int)) error
}

// turn is for how long each loop of a round is measured.
const turn = 50 * time.Millisecond

// patience is for how many rounds' time a round goes on where others have the CPU, until each loop had an eighth of a
// turn.
const patience = 50

// running is a loop in a round.
type running struct {
	tid   chan int
	ended chan error
	gauge *netdev.Gauge
	begun uint64        // frames when measuring began
	used  time.Duration // CPU time then
}

// ErrEnded says that a loop did not go on until it should end.
var ErrEnded = errors.New("a loop of live frames ended by itself")

// settled is how many frames a loop sends before it counts: until then its pages and caches are not what they will be.
const settled = 50000

// Take runs several loops at once on one CPU, which the scheduler gives to one after the other for a few milliseconds
// each. So all have the same moments, good and bad ones, in the smallest pieces, and what setting a call up costs is in
// none of them. The rates are frames a second of CPU time, while each used it for about a turn.
func Take(ctx context.Context, loops []Loop, rng *rand.Rand) (rates []float64, err error) {
	whole := ctx
	ctx, cancel := context.WithCancel(ctx)
	run := make([]running, len(loops))
	// once all are ready: who is already sending takes the CPU that the others load their programs with
	begin := make(chan struct{})
	for _, i := range rng.Perm(len(loops)) {
		run[i] = running{tid: make(chan int, 1), ended: make(chan error, 1)}
		go func() { run[i].ended <- loops[i].Run(ctx, func(tid int) { run[i].tid <- tid; <-begin }) }()
	}
	start := sync.OnceFunc(func() { close(begin) })
	defer func() {
		cancel()
		start()
		for _, r := range run {
			if e := <-r.ended; e != nil && !errors.Is(e, context.Canceled) {
				err = errors.Join(err, e)
			}
			if r.gauge != nil {
				r.gauge.Close()
			}
		}
		if whole.Err() != nil { // then whatever failed did so because of that
			err = whole.Err()
		}
	}()
	for i := range run {
		select {
		case tid := <-run[i].tid:
			if run[i].gauge, err = netdev.NewGauge(loops[i].From, tid); err != nil {
				return nil, err
			}
			if run[i].begun, _, err = run[i].gauge.Read(); err != nil {
				return nil, err
			}
		case e := <-run[i].ended:
			run[i].ended <- nil
			return nil, cmp.Or(e, ErrEnded)
		}
	}
	start()
	for i := range run {
		for frames := run[i].begun; frames < run[i].begun+settled; {
			select {
			case e := <-run[i].ended:
				run[i].ended <- nil
				return nil, cmp.Or(e, ErrEnded)
			case <-time.After(time.Millisecond):
			}
			if frames, _, err = run[i].gauge.Read(); err != nil {
				return nil, err
			}
		}
	}
	for i := range run {
		if run[i].begun, run[i].used, err = run[i].gauge.Read(); err != nil {
			return nil, err
		}
	}
	for n := range patience {
		select {
		case <-whole.Done():
			return nil, whole.Err()
		case <-time.After(time.Duration(len(loops)) * turn):
		}
		var least time.Duration
		if rates, least, err = read(run); err != nil || least >= turn/8 {
			return rates, err
		}
		if n == patience-1 {
			return nil, fmt.Errorf("in %v a loop had %v of CPU time: the machine is too busy",
				patience*time.Duration(len(loops))*turn, least)
		}
	}
	return rates, nil
}

// read tells the loops' frames a second of CPU time since they began, and the least time that one had.
func read(run []running) (rates []float64, least time.Duration, err error) {
	rates = make([]float64, len(run))
	for i := range run {
		frames, used, err := run[i].gauge.Read()
		if err != nil {
			return nil, 0, err
		}
		used -= run[i].used
		rates[i] = float64(frames-run[i].begun) / used.Seconds()
		if least = min(least, used); i == 0 {
			least = used
		}
	}
	return rates, least, nil
}

// Interrupting ends the live frames of a thread when the context ends.
func Interrupting(ctx context.Context, tid int) (stop func()) {
	ended := make(chan struct{})
	go func() {
		select {
		case <-ended:
			return
		case <-ctx.Done():
		}
		for {
			unix.Tgkill(unix.Getpid(), tid, unix.SIGURG) // which the Go runtime ignores
			select {
			case <-ended:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	return func() { close(ended) }
}
