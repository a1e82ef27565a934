package sink_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/safchain/ethtool"

	"github.com/polyplane/polyplane/measure/frame"
	"github.com/polyplane/polyplane/measure/netdev"
	"github.com/polyplane/polyplane/measure/sink"
	"github.com/polyplane/polyplane/measure/source"
)

// wire is a veth pair from s to k, each in a namespace of its own.
func wire(t *testing.T) (s, k netdev.Ref) {
	t.Helper()
	var refs []netdev.Ref
	for _, name := range []string{"s", "k"} {
		ns, err := netdev.NewNamespace()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ns.Close() })
		refs = append(refs, netdev.Ref{Namespace: ns.Path(), Name: name})
	}
	if err := netdev.NewVeth(refs[0], refs[1], 1); err != nil {
		t.Fatal(err)
	}
	return refs[0], refs[1]
}

func ip4(rate float64, sizes frame.Sizes) source.Stream {
	return source.Stream{
		Headers: frame.Headers{Kind: frame.IPv4, SourceMAC: netdev.MAC(1), DestMAC: netdev.MAC(2),
			Source: netip.MustParseAddr("10.0.0.1")},
		Sizes: sizes, Destinations: source.Destinations(netip.MustParseAddr("10.1.0.0"), 4096), Rate: rate,
	}
}

func run(t *testing.T, o source.Options, so sink.Options) (source.Report, sink.Report) {
	t.Helper()
	so.Streams = len(o.Streams)
	for _, s := range o.Streams {
		f, ok := s.Flows()
		if !ok {
			t.Fatal("the destinations are not in a row")
		}
		so.Flows = append(so.Flows, f)
	}
	k, err := sink.Open(so)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	o.Run = 77
	if err := k.Start(o.Run); err != nil {
		t.Fatal(err)
	}
	src, err := source.OpenXDP(o)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	sent, err := src.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Settle(context.Background(), sent.Sent(), 300*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	got, err := k.Report()
	if err != nil {
		t.Fatal(err)
	}
	return sent, got
}

// Everything that was sent and that the ring had room for is counted, exactly, at full speed.
func TestExactAtFullSpeed(t *testing.T) {
	s, k := wire(t)
	for i, size := range []frame.Sizes{frame.Fixed(64), frame.IMIX(), frame.Fixed(1518), frame.IMIX(),
		frame.Fixed(1518)} {
		check := 1
		if i > 2 { // the last ones with the payload that the pages hold already
			check = 4
		}
		sent, got := run(t, source.Options{Device: s, Duration: time.Second / 2, CPU: -1,
			Streams: []source.Stream{ip4(0, size)}, KeepPayload: check > 1},
			sink.Options{Device: k, Sender: s, CheckEvery: check})
		st := got.Streams[0]
		t.Logf("%v: %.2f Mp/s sent, ring full %d, delay %v", size, sent.Rate()/1e6,
			sent.Refused.Sent, st.Delay.Digest())
		if st.Unique+sent.Refused.Sent != sent.Sent() {
			t.Errorf("%v: %d sent, %d refused by the ring, %d arrived", size, sent.Sent(), sent.Refused.Sent, st.Unique)
		}
		if st.Duplicated+st.Reordered+st.Corrupted+st.TooOld+st.Early+st.Strange+got.Corrupted > 0 {
			t.Errorf("%v: %+v", size, st)
		}
		if (len(got.Doubts) > 0) != (sent.Refused.Sent > 0) {
			t.Errorf("%v: %d frames did not fit the ring, doubts are %q", size, sent.Refused.Sent, got.Doubts)
		}
		if st.Delay.Count != st.Unique || st.Variation.Abs.Count != st.Unique-1 {
			t.Errorf("%v: %d frames, %d delays, %d variations", size, st.Unique, st.Delay.Count, st.Variation.Abs.Count)
		}
		if sent.Refused.Sent == 0 && st.Bytes != sent.Streams[0].Bytes {
			t.Errorf("%v: %d bytes sent, %d received", size, sent.Streams[0].Bytes, st.Bytes)
		}
	}
}

// Several streams of all kinds share a source; each keeps its own rate and is told apart.
func TestStreams(t *testing.T) {
	s, k := wire(t)
	streams := []source.Stream{ip4(20000, frame.Fixed(64)), ip4(5000, frame.Uniform(79, 1518)), ip4(1000, frame.IMIX()),
		ip4(10000, frame.Fixed(128))}
	streams[1].Headers.Kind, streams[1].Headers.Source = frame.IPv6, netip.MustParseAddr("2001:db8::1")
	streams[1].Destinations = source.Destinations(netip.MustParseAddr("2001:db8:1::"), 4096)
	streams[1].Sizes = frame.Uniform(84, 1518)
	streams[2].Poisson = true
	streams[3].Headers.Kind, streams[3].Destinations = frame.Raw, nil
	sent, got := run(t, source.Options{Device: s, Duration: 2 * time.Second, CPU: -1, Streams: streams, Seed: 3},
		sink.Options{Device: k, Sender: s})
	for i, st := range got.Streams {
		ss := sent.Streams[i]
		t.Logf("%v %s: %+v; delay %v", streams[i].Headers.Kind, streams[i].Sizes, ss, st.Delay.Digest())
		if lost := st.Lost(ss.Sent); lost != sent.Refused.Sent && lost > 0 {
			t.Errorf("stream %d lost %d", i, lost)
		}
		// A machine that had no time for the source to the end of the trial is said to have had none.
		if ss.Sent > ss.Intended || ss.Sent < ss.Intended && (ss.Late == 0 || ss.LateMax == 0) {
			t.Errorf("stream %d: %d frames sent, %d intended: %+v", i, ss.Sent, ss.Intended, ss)
		}
		want := streams[i].Rate * 2
		tolerance := 1.0
		if streams[i].Poisson {
			tolerance = 5 * 44.7 // five standard deviations of a Poisson count of 2,000
		}
		if d := float64(ss.Intended) - want; d > tolerance || d < -tolerance {
			t.Errorf("stream %d: %d frames intended, want %.0f", i, ss.Intended, want)
		}
		if mean := float64(st.Bytes) / float64(st.Frames); mean < streams[i].Sizes.Mean()*0.9 ||
			mean > streams[i].Sizes.Mean()*1.1 {
			t.Errorf("stream %d: %.1f bytes a frame, want %.1f", i, mean, streams[i].Sizes.Mean())
		}
	}
	if len(got.Doubts) > 0 && sent.Refused.Sent == 0 {
		t.Errorf("doubts: %q", got.Doubts)
	}
}

// The generic hook, behind the driver, counts the same.
func TestGenericHook(t *testing.T) {
	s, k := wire(t)
	sent, got := run(t, source.Options{Device: s, Duration: time.Second, CPU: -1,
		Streams: []source.Stream{ip4(20000, frame.Fixed(64)), ip4(5000, frame.Fixed(1518))}},
		sink.Options{Device: k, Sender: s, Generic: true})
	for i, st := range got.Streams {
		t.Logf("%+v; delay %v", sent.Streams[i], st.Delay.Digest())
		if lost := st.Lost(sent.Streams[i].Sent); lost > sent.Refused.Sent || st.Unique+lost != sent.Streams[i].Sent ||
			st.Corrupted+st.Duplicated > 0 {
			t.Errorf("stream %d: sent %+v, got %+v, %d refused", i, sent.Streams[i], st, sent.Refused.Sent)
		}
	}
}

// A packet socket sends the same frames, so the sink counts them the same way.
func TestPacketSocket(t *testing.T) {
	s, k := wire(t)
	sk, err := sink.Open(sink.Options{Device: k, Sender: s, Streams: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer sk.Close()
	if err := sk.Start(5); err != nil {
		t.Fatal(err)
	}
	src, err := source.OpenPacket(source.Options{Device: s, Run: 5, CPU: -1, Duration: time.Second,
		Streams: []source.Stream{ip4(2000, frame.Fixed(64)), ip4(1000, frame.IMIX())}})
	if err != nil {
		t.Fatal(err)
	}
	sent, err := src.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if err := sk.Settle(context.Background(), sent.Sent(), 300*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	got, err := sk.Report()
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []uint64{2000, 1000} {
		if ss := sent.Streams[i]; ss.Intended != want || ss.Sent+ss.Late < want*9/10 {
			t.Errorf("stream %d: %+v", i, ss)
		}
		if got.Streams[i].Lost(sent.Streams[i].Sent) != 0 || got.Streams[i].Corrupted != 0 {
			t.Errorf("stream %d: sent %+v, got %+v", i, sent.Streams[i], got.Streams[i])
		}
	}
}

// A stopped context ends a run early, and the report says what was really sent.
func TestStop(t *testing.T) {
	s, k := wire(t)
	sk, err := sink.Open(sink.Options{Device: k, Sender: s, Streams: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer sk.Close()
	if err := sk.Start(6); err != nil {
		t.Fatal(err)
	}
	src, err := source.OpenXDP(source.Options{Device: s, Run: 6, CPU: -1, Duration: time.Hour,
		Streams: []source.Stream{ip4(1000, frame.Fixed(64))}})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		for range 500 { // stop once the first frames have arrived
			if r, err := sk.Report(); err != nil || r.Streams[0].Unique >= 10 {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	sent, err := src.Run(ctx)
	if err != context.Canceled {
		t.Fatalf("%v", err)
	}
	if sent.Sent() < 10 || sent.Elapsed > 10*time.Minute {
		t.Errorf("%+v", sent)
	}
}

// Frames that the kernel drops without a word are noticed.
func TestVanishingFrames(t *testing.T) {
	s, k := wire(t)
	if err := netdev.In(k.Namespace, func() error {
		e, err := ethtool.NewEthtool()
		if err != nil {
			return err
		}
		defer e.Close()
		return e.Change(k.Name, map[string]bool{"rx-gro": false})
	}); err != nil {
		t.Fatal(err)
	}
	src, err := source.OpenXDP(source.Options{Device: s, Run: 6, CPU: -1, Duration: 100 * time.Millisecond,
		Streams: []source.Stream{ip4(1000, frame.Fixed(64))}})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if _, err := src.Run(context.Background()); !errors.Is(err, source.ErrVanished) {
		t.Errorf("%v", err)
	}
}

func TestRefusals(t *testing.T) {
	for _, o := range []sink.Options{{}, {Streams: 65}, {Streams: 1, TimeEvery: 3}, {Streams: 1, Window: 1000},
		{Streams: 1, Device: netdev.Ref{Name: "nosuchdevice"}}} {
		if k, err := sink.Open(o); err == nil {
			k.Close()
			t.Errorf("%+v was accepted", o)
		}
	}
}
