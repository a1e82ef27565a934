package agent

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
)

// A limit that bites is told at once, and again only after a while, with all that happened in between.
func TestLimitsAreTold(t *testing.T) {
	a := &Agent{Config: Config{Dirs: instance.NewDirs("test").Node("n1")}, reporter: newReporter(nil, "n1", slog.Default())}
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
	expect(step(func(u *control.Usage) { u.Killed++ }, 5*time.Second), "MemoryLimit: its memory limit of 64MiB was reached: 1 process was ended (`polyplane set lab/r1 memory=`")
	expect(step(func(u *control.Usage) { u.Killed += 2 }, 5*time.Second))
	expect(step(func(u *control.Usage) { u.Refused += 40 }, 5*time.Second), "ProcessLimit: its limit of 100 processes and threads was reached: 40 more were refused")
	expect(step(func(u *control.Usage) { u.Killed++ }, time.Minute), "3 processes were ended")
	expect(step(func(u *control.Usage) { u.Throttled += 100 * time.Millisecond }, 5*time.Second))
	expect(step(func(u *control.Usage) { u.Throttled += 2 * time.Second }, 5*time.Second), "CPULimit: its processes used up their 0.5 cores and were held back for 2s in the last 5s")
	expect(step(func(u *control.Usage) { u.DiskFull = true }, 5*time.Second), "DiskFull: its disk is full")
	expect(step(nothing, 5*time.Minute))
	expect(step(func(u *control.Usage) { u.DiskFull = false }, 5*time.Second))
	expect(step(func(u *control.Usage) { u.DiskFull = true }, 5*time.Second), "DiskFull")
}
