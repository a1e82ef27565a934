package fast_test

import (
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/forward"
	"github.com/polyplane/polyplane/node/forward/forwardtest"
)

func TestConforms(t *testing.T) {
	l := newLab(t)
	begun := false
	s := forwardtest.Subject{Forgets: true, Restart: func() forward.Plane {
		if begun {
			l.end()
			l.open()
		}
		begun = true
		return l.plane
	}, Steer: func(to map[model.ID]forward.Steering) {
		for id, s := range to {
			s.Owner = model.ForwardXDP
			l.steering[id] = s
		}
		l.apply()
	}, Place: func(id model.ID) forward.Place { return l.fabric.Place(id) }}
	for i, name := range l.routerNames() {
		for _, j := range l.jobs {
			if j.ID == id(name) {
				s.Jobs[i] = l.job(&j)
			}
		}
	}
	forwardtest.Conforms(t, s)
}
