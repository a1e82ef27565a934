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
	// Network is the network that it is about, where that is not clear by itself.
	Network string  `json:"network,omitempty"`
	About   Subject `json:"about"`
	// Index is the object's place in the network's Elements, Links, Edges or Expect. In a Problem that the manager
	// tells, it means nothing.
	Index int    `json:"index"`
	Name  string `json:"name"` // the object's
	// Field says where in the object: a field's name in JSON, followed by "/" and what is below it ("interfaces/eth0",
	// "routing/bgp"). It is empty for the object as a whole.
	Field string `json:"field,omitempty"`
	// Message says what is wrong and what would be right, naming the object.
	Message string `json:"message"`
}

func (p Problem) Error() string { return p.Message }

// ProblemOf is a problem with the object of that name. The message does not name the object yet, and is formatted as by
// fmt.Sprintf.
func ProblemOf(about Subject, name, field, format string, args ...any) Problem {
	return Problem{About: about, Name: name, Field: field, Message: fmt.Sprintf("%s %s: %s", about, name,
		fmt.Sprintf(format, args...))}
}

// ProblemOfElement is ProblemOf for an element, which is called by its kind.
func ProblemOfElement[I any](e *ElementOf[I], field, format string, args ...any) Problem {
	p := ProblemOf(AboutElement, e.Name, field, format, args...)
	p.Message = fmt.Sprintf("%s %s: %s", e.Kind, e.Name, fmt.Sprintf(format, args...))
	return p
}
