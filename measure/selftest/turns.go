package selftest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/measure/frame"
	"github.com/polyplane/polyplane/measure/netdev"
	"github.com/polyplane/polyplane/measure/sink"
	"github.com/polyplane/polyplane/measure/source"
)

// loop sends over a pair until the context ends. When it is about to begin it names its thread, and waits until that returns.
type loop func(ctx context.Context, p pair, thread func(tid int)) error

// turn is for how long each loop of a round is measured.
const turn = 50 * time.Millisecond

var errEnded = errors.New("a loop of live frames ended by itself")

// settled is how many frames a loop sends before it counts: until then its pages and caches are not what they will be.
const settled = 50000

// takeTurns runs several loops at once on one CPU, each over a pair of its own, which the scheduler gives to one after the other
// for a few milliseconds each. So all have the same moments, good and bad ones, in the smallest pieces, and what setting a call up costs
// is in none of them. The rates are frames a second of CPU time, while each used it for about a turn.
func takeTurns(ctx context.Context, loops []loop, pairs []pair, rng *rand.Rand) (rates []float64, err error) {
	whole := ctx
	ctx, cancel := context.WithCancel(ctx)
	type running struct {
		tid   chan int
		ended chan error
		gauge *netdev.Gauge
		begun uint64
		used  time.Duration
	}
	run := make([]running, len(loops))
	begin := make(chan struct{}) // once all are ready: who is already sending takes the CPU that the others load their programs with
	on := rng.Perm(len(pairs))
	for _, i := range rng.Perm(len(loops)) {
		run[i] = running{tid: make(chan int, 1), ended: make(chan error, 1)}
		go func() { run[i].ended <- loops[i](ctx, pairs[on[i]], func(tid int) { run[i].tid <- tid; <-begin }) }()
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
			if run[i].gauge, err = netdev.NewGauge(pairs[on[i]].from, tid); err != nil {
				return nil, err
			}
			if run[i].begun, _, err = run[i].gauge.Read(); err != nil {
				return nil, err
			}
		case e := <-run[i].ended:
			run[i].ended <- nil
			return nil, cmp.Or(e, errEnded)
		}
	}
	start()
	for i := range run {
		for frames := run[i].begun; frames < run[i].begun+settled; {
			select {
			case e := <-run[i].ended:
				run[i].ended <- nil
				return nil, cmp.Or(e, errEnded)
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
	select {
	case <-whole.Done():
		return nil, whole.Err()
	case <-time.After(time.Duration(len(loops)) * turn):
	}
	rates = make([]float64, len(loops))
	for i := range run {
		frames, used, err := run[i].gauge.Read()
		if err != nil {
			return nil, err
		}
		if used -= run[i].used; used < turn/8 {
			return nil, fmt.Errorf("in %v a loop had %v of CPU time: the machine is too busy", time.Duration(len(loops))*turn, used)
		}
		rates[i] = float64(frames-run[i].begun) / used.Seconds()
	}
	return rates, nil
}

// measured is the loop of source and sink, as trials have them at full speed.
func measured(sizes frame.Sizes, cpu, check int) loop {
	return func(ctx context.Context, p pair, thread func(int)) (err error) {
		const run = 1
		k, err := sink.Open(sink.Options{Device: p.to, Sender: p.from, Streams: 1, TimeEvery: TimeEvery, CheckEvery: check})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, k.Close()) }()
		if err := k.Start(run); err != nil {
			return err
		}
		x, err := source.OpenXDP(source.Options{Device: p.from, Streams: []source.Stream{stream(sizes)}, Duration: time.Hour, Run: run, CPU: cpu, KeepPayload: check > 1, Thread: thread})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, x.Close()) }()
		sent, err := x.Run(ctx)
		if ctx.Err() == nil {
			return errors.Join(err, errors.New("the source stopped by itself"))
		}
		if err != nil && !errors.Is(err, ctx.Err()) {
			return err
		}
		come := sent.Sent() - min(sent.Refused.Sent, sent.Sent())
		if err := k.Settle(context.WithoutCancel(ctx), come, 200*time.Millisecond); err != nil {
			return err
		}
		got, err := k.Report()
		if err != nil {
			return err
		}
		if s := got.Streams[0]; s.Unique != come || s.Duplicated+s.Reordered+s.Corrupted > 0 {
			return fmt.Errorf("of %d frames with nothing in between, %d without room in the ring, %d came; duplicated %d, reordered %d, corrupted %d: source and sink are not exact here",
				sent.Sent(), sent.Sent()-come, s.Unique, s.Duplicated, s.Reordered, s.Corrupted)
		}
		return nil
	}
}

// interrupting ends the live frames of a thread when the context ends.
func interrupting(ctx context.Context, tid int) (stop func()) {
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
