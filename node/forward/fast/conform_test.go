package fast_test

import (
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/forward"
	"github.com/polyplane/polyplane/node/forward/forwardtest"
)

// TestConforms asks the planes of routers, those of package kernel as well, for what is promised of every plane.
func TestConforms(t *testing.T) {
	for _, way := range []model.Forwarding{model.ForwardXDP, model.ForwardRouter, model.ForwardBridge} {
		t.Run(string(way), func(t *testing.T) { conforms(t, way) })
	}
}

func conforms(t *testing.T, way model.Forwarding) {
	l := newLab(t)
	begun := false
	s := forwardtest.Subject{Forgets: way == model.ForwardXDP, Restart: func() forward.Plane {
		if begun {
			l.end()
			l.open()
		}
		begun = true
		return l.planes()[way]
	}, Steer: func(to map[model.ID]forward.Steering) {
		for id, s := range to {
			s.Owner = way
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
