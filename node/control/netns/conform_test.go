package netns

import (
	"testing"

	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/node/control/controltest"
)

func TestConforms(t *testing.T) {
	n := newNode(t)
	index := uint32(0)
	controltest.Conforms(t, controltest.Subject{
		Restart: func() control.Driver { n.restart(t); return n.Driver },
		Job: func(name string) control.Job {
			index++
			job := lineOf("conform-"+name, 74+index, 3)[1]
			job.ID.Element, job.Element.Name = name, name
			return job
		},
		Spoil: func(j *control.Job) { j.Element.Interfaces[1].MAC = "nobody's" },
	})
}
