package fast_test

import (
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/forward"
	"github.com/polyplane/polyplane/node/mirror"
)

// elsewhere is a source of routes that the plane knows nothing of: it only tells, and may be made anew.
type elsewhere struct {
	mirror.Source
	identity uint64
	opened   int
}

func (e *elsewhere) Identity() (uint64, error) { return e.identity, nil }

func (e *elsewhere) Open() (mirror.Stream, error) {
	e.opened++
	return e.Source.Open()
}

// TestRoutesComeFromTheJob: tables follow the source that the job names, the next one once it is another, and without
// one the plane says what is missing.
func TestRoutesComeFromTheJob(t *testing.T) {
	l := newChain(t, 1)
	var job forward.Job
	for _, j := range l.jobs {
		if j.ID == id("r1") {
			job = l.job(&j)
			job.Routes = nil
		}
	}
	if r := l.plane.Prepare(ctx, []forward.Job{job}); r[0].Err == nil || !strings.Contains(r[0].Err.Error(),
		"tells no routes") {
		t.Errorf("a job without routes gave %+v", r[0])
	}
	source := &elsewhere{Source: l.driver.Routes(id("r1")), identity: 1}
	job.Routes = source
	for want := 1; want <= 2; want++ {
		source.identity = uint64(want)
		for range 2 {
			l.take(l.plane, model.ForwardXDP, []forward.Job{job})
			l.apply()
		}
		if source.opened != want {
			t.Errorf("source %d was opened %d times", want, source.opened)
		}
		l.in("h1", "ping -c3 -i0.01 -W10 10.0.1.2; ping -c3 -i0.01 -W10 2001:db8:1::2")
		before := l.forwarded("r1").Packets
		l.in("h1", "ping -c10 -i0.002 -W10 10.0.1.2; ping -c10 -i0.002 -W10 2001:db8:1::2")
		if n := l.forwarded("r1").Packets - before; n != 40 {
			t.Errorf("of 40 packets the tables of source %d forwarded %d", want, n)
		}
	}
}
