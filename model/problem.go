package model

import "fmt"

// Subject tells what a Problem is about.
type Subject string

const (
	AboutNetwork Subject = "network"
	AboutElement Subject = "element"
	AboutLink    Subject = "link"
	AboutEdge    Subject = "edge"
	AboutExpect  Subject = "expectation"
)

// Problem is one thing that is wrong with a network.
type Problem struct {
	// Network is which network it is about, where that is not clear by itself.
	Network string  `json:"network,omitempty"`
	About   Subject `json:"about"`
	// Index is the object's in the network's Elements, Links, Edges or Expect. A Problem of the manager's says nothing with it.
	Index int    `json:"index"`
	Name  string `json:"name"` // the object's
	// Field is where in the object: a field's name in JSON, with "/" and what is below it ("interfaces/eth0", "routing/bgp");
	// empty for the object as a whole.
	Field string `json:"field,omitempty"`
	// Message says what is wrong and what would be right, naming the object.
	Message string `json:"message"`
}

func (p Problem) Error() string { return p.Message }

// ProblemOf is a problem with the object of that name. The message does not name it yet, and is as for fmt.Sprintf.
func ProblemOf(about Subject, name, field, format string, args ...any) Problem {
	return Problem{About: about, Name: name, Field: field, Message: fmt.Sprintf("%s %s: %s", about, name, fmt.Sprintf(format, args...))}
}

// ProblemOfElement is ProblemOf for an element, which is called by its kind.
func ProblemOfElement[I any](e *ElementOf[I], field, format string, args ...any) Problem {
	p := ProblemOf(AboutElement, e.Name, field, format, args...)
	p.Message = fmt.Sprintf("%s %s: %s", e.Kind, e.Name, fmt.Sprintf(format, args...))
	return p
}

// problems collects them.
type problems struct {
	net  *Network
	v6   bool // links without prefixes get IPv6
	list []Problem
	more int // beyond those in the list
}

func (ps *problems) add(about Subject, index int, name, field, format string, args ...any) {
	if len(ps.list) >= MaxProblems {
		ps.more++ // without its words: a hopeless document may have a million
		return
	}
	// What is wrong is quoted, and may be long.
	ps.list = append(ps.list, Problem{About: about, Index: index, Name: Shorten(name, maxMessage/4), Field: Shorten(field, maxMessage/4),
		Message: Shorten(fmt.Sprintf(format, args...), maxMessage)})
}

func (ps *problems) network(field, format string, args ...any) {
	ps.add(AboutNetwork, 0, ps.net.Name, field, "network %s: %s", Shorten(ps.net.Name, MaxName), fmt.Sprintf(format, args...))
}

func (ps *problems) element(i int, field, format string, args ...any) {
	e := &ps.net.Elements[i]
	ps.add(AboutElement, i, e.Name, field, "%s %s: %s", e.Kind, e.Name, fmt.Sprintf(format, args...))
}

func (ps *problems) link(i int, field, format string, args ...any) {
	name := ps.net.Links[i].Name
	ps.add(AboutLink, i, name, field, "link %s: %s", name, fmt.Sprintf(format, args...))
}

func (ps *problems) edge(i int, field, format string, args ...any) {
	name := ps.net.Edges[i].Name
	ps.add(AboutEdge, i, name, field, "edge %s: %s", name, fmt.Sprintf(format, args...))
}
