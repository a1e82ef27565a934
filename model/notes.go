package model

import (
	"fmt"
	"strings"
)

// Notes tells what the document asks for and is kept, but has no effect yet, in words: one sentence a link.
func (n Network) Notes() []string {
	var notes []string
	for _, l := range n.Links {
		var idle []string
		if l.Delay > 0 || l.Jitter > 0 {
			idle = append(idle, "delay")
		}
		if l.Loss > 0 {
			idle = append(idle, "loss")
		}
		switch {
		case l.Bandwidth > 0 && len(idle) > 0:
			notes = append(notes, fmt.Sprintf("link %s: its bandwidth is reserved on the nodes, but not yet a cap; its %s is kept, but not yet applied to packets",
				l.Name, strings.Join(idle, " and ")))
		case l.Bandwidth > 0:
			notes = append(notes, fmt.Sprintf("link %s: its bandwidth is reserved on the nodes, but not yet a cap", l.Name))
		case len(idle) > 0:
			notes = append(notes, fmt.Sprintf("link %s: its %s is kept, but not yet applied to packets", l.Name, strings.Join(idle, " and ")))
		}
	}
	if n.Slice.Bandwidth > 0 {
		notes = append(notes, "the slice's bandwidth is kept, but not yet a cap")
	}
	return notes
}
