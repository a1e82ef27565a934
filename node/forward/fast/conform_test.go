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
	}}
	for i, name := range l.routerNames() {
		for _, j := range l.jobs {
			if j.ID == id(name) {
				s.Jobs[i] = forward.Job{ID: j.ID, Element: j.Element, Routes: l.driver.Routes(j.ID), Quota: l.quota()}
			}
		}
	}
	forwardtest.Conforms(t, s)
}
