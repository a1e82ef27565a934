package agent

import (
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/node/kerneltime"
	"github.com/polyplane/polyplane/node/watch"
)

// tallied has things happen to one element every so many seconds, for so many times, and judges every five seconds; it
// tells whether that is suspicious, and of whom.
func tallied(every time.Duration, times int, happen func(a *Agent, id model.ID, now time.Time)) (found []watch.Signal) {
	a := &Agent{watcher: newWatcher()}
	w := watch.New()
	id, other := model.ID{Network: "lab", Element: "h1"}, model.ID{Network: "lab", Element: "h2"}
	begin := time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	next, n := time.Duration(0), 0
	for at := time.Duration(0); at < 3*time.Minute; at += usageEvery {
		for ; n < times && next <= at; next, n = next+every, n+1 {
			happen(a, id, begin.Add(next))
		}
		for _, v := range w.Look(id, begin.Add(at), a.watcher.tally.values(id, begin.Add(at))) {
			found = append(found, v.Signal)
		}
		if others := w.Look(other, begin.Add(at), a.watcher.tally.values(other, begin.Add(at))); others != nil {
			found = append(found, "another's")
		}
	}
	return found
}

func TestWhatOthersTellTheWatch(t *testing.T) {
	trim := func(table control.Table, had int) func(*Agent, model.ID, time.Time) {
		return func(a *Agent, id model.ID, now time.Time) {
			a.watcher.trimmed(control.Trimmed{ID: id, Table: table, Had: had}, now)
		}
	}
	kernel := func(barred bool, devices ...string) func(*Agent, model.ID, time.Time) {
		return func(a *Agent, id model.ID, now time.Time) {
			a.kernel.count(a, kerneltime.Verdict[model.ID]{ID: id, Barred: barred,
				Excess: kerneltime.Excess{Devices: devices}}, now)
		}
	}
	slow := func(paced time.Duration) func(*Agent, model.ID, time.Time) {
		return func(a *Agent, id model.ID, now time.Time) {
			a.kernel.count(a, kerneltime.Verdict[model.ID]{ID: id, Paced: paced}, now)
		}
	}
	loops := 0
	for name, c := range map[string]struct {
		every  time.Duration
		times  int
		happen func(*Agent, model.ID, time.Time)
		want   watch.Signal
	}{
		"a loop, once":                       {time.Second, 1, kernel(false, "br0"), ""},
		"a loop, made again after 2 minutes": {2 * time.Minute, 2, kernel(true, "br0"), ""},
		"a loop, made again at once": {time.Second, 2, func(a *Agent, id model.ID, now time.Time) {
			loops++
			kernel(loops == 2, "br0")(a, id, now)
		}, watch.Kernel},
		"slow rules, paced":                           {time.Second, 1, slow(kerneltime.PacedFor), ""},
		"slow rules, paced with ports that came late": {400 * time.Millisecond, 8, slow(kerneltime.PacedFor), ""},
		"slow rules, still there after a minute":      {time.Second, 1, slow(2 * kerneltime.PacedFor), watch.Kernel},
		"a table over its limit, once":                {time.Second, 1, trim(control.Connections, 70_000), ""},
		"a table over its limit, now and then":        {40 * time.Second, 4, trim(control.Connections, 70_000), ""},
		"a table filled again and again": {2 * time.Second, 20,
			trim(control.Neighbours, 20_000), watch.Tables},
		"tcpdump with too little memory": {time.Second, 10, trim(control.Rings, 1), ""},
		"rings asked for in a loop":      {2 * time.Second, 20, trim(control.Rings, 2_000), watch.Sockets},
		"filters asked for in a loop": {2 * time.Second, 20,
			trim(control.Filters, 2_000), watch.Sockets},
	} {
		found := tallied(c.every, c.times, c.happen)
		if c.want == "" && len(found) > 0 || c.want != "" && (len(found) != 1 || found[0] != c.want) {
			t.Errorf("%s: found %q, want %q", name, found, c.want)
		}
	}
	a := &Agent{watcher: newWatcher()}
	a.watcher.tally.add(model.ID{Network: "lab", Element: "h1"}, watch.Kernel, 1, time.Now())
	a.watcher.tally.keep(func(model.ID) bool { return false })
	if n := len(a.watcher.tally.all); n != 0 {
		t.Errorf("of elements that are gone %d are remembered", n)
	}
}

// Small disks are filled and emptied within less than a second: what a look every five seconds cannot see, frequent
// looks do.
func TestDisksAreLookedAtOften(t *testing.T) {
	id := model.ID{Network: "lab", Element: "h1"}
	begin := time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	most := func(share func(at time.Duration) float64, busy bool) (turns float64) {
		all := disks{}
		for at := time.Duration(0); at < time.Minute; at += diskEvery {
			if at%usageEvery == 0 {
				turns = max(turns, all.turns(id, begin.Add(at), share(at), busy))
			}
			all.look(begin.Add(at), func(model.ID) float64 { return share(at) })
		}
		all.look(begin.Add(3*time.Minute), nil)
		if len(all) != 0 {
			t.Error("an element that is gone is remembered")
		}
		return turns
	}
	saw := func(period time.Duration) func(time.Duration) float64 {
		return func(at time.Duration) float64 { return float64(at%period) / float64(period) }
	}
	once := func(at time.Duration) float64 { return min(1, at.Seconds()/20) }
	floor := watch.RuleOf(watch.Writing).Floor
	for _, c := range []struct {
		what  string
		share func(time.Duration) float64
		busy  bool
		found bool
	}{
		{"filled in 0.7 s, again and again", saw(700 * time.Millisecond), true, true},
		{"filled in 5 s, again and again", saw(5 * time.Second), true, true},
		{"filled in 7.3 s, by one that is held back", saw(7300 * time.Millisecond), false, true},
		{"filled in 20 s, again and again", saw(20 * time.Second), true, false},
		{"filled once", once, true, false},
		{"at rest", func(time.Duration) float64 { return 0.4 }, true, false},
		{"a tenth written and removed, again and again",
			func(at time.Duration) float64 { return saw(time.Second)(at) / 10 }, true, false},
	} {
		if turns := most(c.share, c.busy); (turns >= floor) != c.found {
			t.Errorf("%s: %g turns in a minute, suspicious from %g", c.what, turns, floor)
		}
	}
}
