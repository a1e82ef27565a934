package turns

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/polyplane/polyplane/measure/frame"
	"github.com/polyplane/polyplane/measure/netdev"
	"github.com/polyplane/polyplane/measure/sink"
	"github.com/polyplane/polyplane/measure/source"
)

// Path is what source and sink are joined by, and how they send and check at full speed.
type Path struct {
	From, To netdev.Ref
	Before   netdev.Ref // sends to To, whose full ring shows there
	Generic  bool       // see sink.Options
	Stream   source.Stream
	CPU      int
	// TimeEvery and CheckEvery: see sink.Options.
	TimeEvery, CheckEvery int
	// Batch: see source.Options. What a batch sets off in softirqs must not last so long (2 ms) that the kernel leaves
	// the rest to a thread: that one's time would be in no loop's.
	Batch int
	// MayLose is the share of frames that may be lost in between.
	MayLose float64
}

// Measured is the loop of source and sink, as trials have them at full speed.
func Measured(p Path) Loop {
	return Loop{p.From, func(ctx context.Context, thread func(int)) (err error) {
		const run = 1
		flows, ok := p.Stream.Flows()
		if !ok {
			return errors.New("the stream's destinations are not in a row")
		}
		k, err := sink.Open(sink.Options{Device: p.To, Sender: p.Before, Streams: 1, TimeEvery: p.TimeEvery,
			CheckEvery: p.CheckEvery, Generic: p.Generic, Flows: []frame.Flows{flows}})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, k.Close()) }()
		if err := k.Start(run); err != nil {
			return err
		}
		x, err := source.OpenXDP(source.Options{Device: p.From, Streams: []source.Stream{p.Stream}, Duration: time.Hour,
			Run: run, CPU: p.CPU, Batch: p.Batch, KeepPayload: p.CheckEvery > 1, Thread: thread})
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
		s := got.Streams[0]
		if s.Unique > come || float64(come-s.Unique) > p.MayLose*float64(come) || s.Duplicated+
			s.Reordered+s.Corrupted > 0 {
			return fmt.Errorf("from %v to %v: of %d frames, %d without room in the ring, %d came; duplicated %d, "+
				"reordered %d, corrupted %d",
				p.From, p.To, sent.Sent(), sent.Sent()-come, s.Unique, s.Duplicated, s.Reordered, s.Corrupted)
		}
		return nil
	}}
}
