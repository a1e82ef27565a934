package resolve

import (
	"fmt"

	"github.com/polyplane/polyplane/model"
)

// problems collects them.
type problems struct {
	net     *model.Network
	unknown *Unknown // nil where all is known
	v6      bool     // links without prefixes get IPv6
	list    []model.Problem
	more    int // beyond those in the list
}

func (ps *problems) add(about model.Subject, index int, name, field, format string, args ...any) {
	if len(ps.list) >= model.MaxProblems {
		ps.more++ // without the words: a hopeless document may have a million problems
		return
	}
	// What is wrong is quoted, and may be long.
	ps.list = append(ps.list, model.Problem{About: about, Index: index, Name: model.Shorten(name, model.MaxMessage/4),
		Field:   model.Shorten(field, model.MaxMessage/4),
		Message: model.Shorten(fmt.Sprintf(format, args...), model.MaxMessage)})
}

func (ps *problems) network(field, format string, args ...any) {
	name := "network " + model.Shorten(ps.net.Name, model.MaxName)
	if ps.net.Name == "" {
		name = "the network"
	}
	ps.add(model.AboutNetwork, 0, ps.net.Name, field, "%s: %s", name, fmt.Sprintf(format, args...))
}

func (ps *problems) element(i int, field, format string, args ...any) {
	e := &ps.net.Elements[i]
	ps.add(model.AboutElement, i, e.Name, field, "%s %s: %s", e.Kind, e.Name, fmt.Sprintf(format, args...))
}

func (ps *problems) link(i int, field, format string, args ...any) {
	name := ps.net.Links[i].Name
	ps.add(model.AboutLink, i, name, field, "link %s: %s", name, fmt.Sprintf(format, args...))
}

func (ps *problems) edge(i int, field, format string, args ...any) {
	name := ps.net.Edges[i].Name
	ps.add(model.AboutEdge, i, name, field, "edge %s: %s", name, fmt.Sprintf(format, args...))
}
