package agent

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/node/fabric"
)

// Packets in a tunnel that no peer sent for a link of the node are told once they are many, and again after a while.
// What is on its way when a network goes is not.
func TestStrangePacketsAreTold(t *testing.T) {
	a := &Agent{Config: Config{Dirs: instance.NewDirs("test").Node("n1")},
		reporter: newReporter(nil, "n1", slog.Default())}
	now := time.Now()
	of := model.PortID{ID: model.ID{Network: "lab", Element: "r1"}, Interface: "r2"}
	counters := map[model.PortID]fabric.Counters{{}: {Drops: map[fabric.Drop]uint64{fabric.NoPort: 50_000}}}
	look := func(after time.Duration, unknown, forged uint64) (told []string) {
		now = now.Add(after)
		counters[model.PortID{}].Drops[fabric.NoPort] += unknown
		if forged > 0 {
			counters[of] = fabric.Counters{Drops: map[fabric.Drop]uint64{fabric.NotThePeer: counters[of].Drops[fabric.NotThePeer] + forged, fabric.OverPackets: 1 << 20}}
		}
		a.strangers(counters, now)
		for _, e := range a.reporter.events {
			if e.Severity != model.Warning || e.Object != "n1" || e.Reason != "StrangePackets" {
				t.Errorf("event %+v", e)
			}
			told = append(told, e.Message)
		}
		a.reporter.events = nil
		return told
	}
	for i, step := range []struct {
		after           time.Duration
		unknown, forged uint64
		want            string
	}{
		{0, 0, 0, ""},             // what was there before the agent
		{time.Second, 900, 0, ""}, // a network goes
		{time.Minute, 900, 0, ""}, // and another
		{time.Second, 50, 0, ""},  // counted from anew
		{time.Second, 0, 500, "1450 packets came to its tunnels in the last 2s"},
		{time.Second, 5000, 0, ""}, // told just now
		{time.Minute, 0, 1, "5001 packets came to its tunnels in the last 1m1s"},
		{2 * time.Minute, 0, 0, ""}, // it is over
	} {
		told := look(step.after, step.unknown, step.forged)
		if (len(told) != 0) != (step.want != "") || len(told) == 1 && !strings.Contains(told[0], step.want) {
			t.Errorf("look %d tells %q, want %q", i, told, step.want)
		}
	}
	delete(counters, of) // its count has gone with it
	if told := look(time.Second, 0, 0); len(told) != 0 {
		t.Errorf("a port that has gone: %q", told)
	}
	if told := look(time.Second, 999, 0); len(told) != 0 {
		t.Errorf("after that: %q", told)
	}
}

// A limit that bites is told at once, and again only after a while, with all that happened in between.
func TestLimitsAreTold(t *testing.T) {
	a := &Agent{Config: Config{Dirs: instance.NewDirs("test").Node("n1")},
		reporter: newReporter(nil, "n1", slog.Default())}
	id := model.ID{Network: "lab", Element: "r1"}
	limits := model.Limits{CPU: 500, Memory: 64 << 20, Processes: 100, Disk: 16 << 20}
	now := time.Now()
	was := control.Usage{Limits: limits}
	step := func(change func(u *control.Usage), after time.Duration) []string {
		t.Helper()
		is := was
		change(&is)
		now = now.Add(after)
		a.limits(id, was, is, now, after)
		was = is
		var told []string
		for _, e := range a.reporter.events {
			told = append(told, e.Reason+": "+e.Message)
			if e.Severity != model.Warning || e.Object != "lab/r1" {
				t.Errorf("event %+v", e)
			}
		}
		a.reporter.events = nil
		return told
	}
	expect := func(got []string, want ...string) {
		t.Helper()
		if len(got) != len(want) {
			t.Fatalf("told %q, want %q", got, want)
		}
		for i := range want {
			if !strings.Contains(got[i], want[i]) {
				t.Errorf("told %q, want %q", got[i], want[i])
			}
		}
	}
	nothing := func(*control.Usage) {}
	expect(step(nothing, 5*time.Second))
	expect(step(func(u *control.Usage) { u.Killed++ }, 5*time.Second),
		"MemoryLimit: its memory limit of 64MiB was reached: 1 process was ended (`polyplane set lab/r1 memory=`")
	expect(step(func(u *control.Usage) { u.Killed += 2 }, 5*time.Second))
	expect(step(func(u *control.Usage) { u.Refused += 40 }, 5*time.Second),
		"ProcessLimit: its limit of 100 processes and threads was reached: 40 more were refused")
	expect(step(func(u *control.Usage) { u.Killed++ }, time.Minute), "3 processes were ended")
	expect(step(func(u *control.Usage) { u.Throttled += 100 * time.Millisecond }, 5*time.Second))
	expect(step(func(u *control.Usage) { u.Throttled += 2 * time.Second }, 5*time.Second),
		"CPULimit: its processes used up their 0.5 cores and were held back for 2s in the last 5s")
	expect(step(func(u *control.Usage) { u.DiskFull = true }, 5*time.Second), "DiskFull: its disk is full")
	expect(step(nothing, 5*time.Minute))
	expect(step(func(u *control.Usage) { u.DiskFull = false }, 5*time.Second))
	expect(step(func(u *control.Usage) { u.DiskFull = true }, 5*time.Second), "DiskFull")
}
