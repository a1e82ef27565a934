package agent

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
)

// Tables that do not fit are told once, and once when they do; what comes and goes all the time is told now and then.
func TestFullTablesAreTold(t *testing.T) {
	a := &Agent{Config: Config{Dirs: instance.NewDirs("test").Node("n1")},
		reporter: newReporter(nil, "n1", slog.Default())}
	id, now := model.ID{Network: "lab", Element: "r1"}, time.Now()
	look := func(after time.Duration, lack *model.TableLack, want ...string) {
		t.Helper()
		now = now.Add(after)
		a.lacks(map[model.ID]model.FastTables{id: {Lack: lack}}, now)
		var told []string
		for _, e := range a.reporter.events {
			told = append(told, string(e.Severity)+" "+e.Object+" "+e.Reason+": "+e.Message)
		}
		a.reporter.events = nil
		if len(told) != len(want) {
			t.Fatalf("told %q, not %q", told, want)
		}
		for i := range want {
			if !strings.Contains(told[i], want[i]) {
				t.Errorf("told %q, not %q", told[i], want[i])
			}
		}
	}
	tables := &model.TableLack{Quota: "tables", Limit: 64 << 20}
	look(0, nil)
	look(time.Second, tables,
		"warning lab/r1 TablesFull: its routes do not all fit: the 64MiB of tables that the slice has on this node "+
			"are used up; what does not fit the router itself forwards (`polyplane set lab tables=`")
	look(time.Second, tables)
	look(time.Second, nil, "info lab/r1 TablesFit")
	look(time.Second, tables)
	look(time.Second, nil)
	look(time.Minute, &model.TableLack{Quota: "nexthops", Limit: 100}, "the 100 next hops that the slice has")
	look(time.Minute, &model.TableLack{Quota: "routes", Limit: 2048},
		"the 2048 routes, one for each 32 bytes of tables, that the slice has on this node are used up; what does "+
			"not fit the router itself forwards (`polyplane set lab tables=`")
	look(time.Minute, &model.TableLack{Quota: "tables", Limit: 256 << 20, Node: true},
		"of the 256MiB of tables that a node has is used up; what does not fit the router itself forwards "+
			"(`polyplane set lab mode=strict tables=`")
	a.lacks(nil, now)
	look(time.Second, nil)
	look(time.Second, tables, "TablesFull")
}

// A router whose changes keep the agent busy is told of; a table that is loaded once is not.
func TestRouteChurnIsTold(t *testing.T) {
	a := &Agent{Config: Config{Dirs: instance.NewDirs("test").Node("n1")},
		reporter: newReporter(nil, "n1", slog.Default())}
	id, now, busy := model.ID{Network: "lab", Element: "r1"}, time.Now(), time.Duration(0)
	step := func(seconds int, share float64) (told []string) {
		for range seconds {
			now, busy = now.Add(time.Second), busy+time.Duration(share*1e9)
			a.churn(map[model.ID]model.FastTables{id: {Busy: busy}}, now)
		}
		for _, e := range a.reporter.events {
			told = append(told, e.Object+" "+e.Reason+": "+e.Message)
		}
		a.reporter.events = nil
		return told
	}
	if told := append(step(3, 1), step(60, 0.3)...); len(told) > 0 {
		t.Errorf("told %q", told)
	}
	if told := step(30, 0.8); len(told) != 1 ||
		!strings.Contains(told[0], "lab/r1 RouteChurn: it changes its routes so much") ||
		!strings.Contains(told[0], "`polyplane set lab/r1 forwarding=guest`") {
		t.Errorf("told %q", told)
	}
	busy = 0 // its tables are made anew
	if told := step(5, 0.1); len(told) > 0 {
		t.Errorf("told %q", told)
	}
}
