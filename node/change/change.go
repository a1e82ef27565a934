// Package change is how drivers and the fabric tell what they did: as values. What people read, and the event that
// programs look for, is said once for each kind, in kinds.go.
package change

import (
	"fmt"
	"strings"
)

// Change is something that was done on a node.
type Change struct {
	Kind   Kind
	Object string // what it was done to
	Detail string // what more there is to say: a value, another object, a reason
	More   string
}

// Kind is what was done. The zero Kind is of no change.
type Kind struct{ reason, words string }

// Of is a change of this kind. Its object comes first, and then what the kind's words have in the places of {detail}
// and {more}.
func (k Kind) Of(parts ...any) Change {
	c := Change{Kind: k}
	for i, to := range []*string{&c.Object, &c.Detail, &c.More}[:len(parts)] {
		*to = fmt.Sprint(parts[i])
	}
	return c
}

// Reason is that of the change's event: one word for programs.
func (k Kind) Reason() string { return k.reason }

// String is the change in words for people.
func (c Change) String() string {
	return strings.NewReplacer("{object}", c.Object, "{detail}", c.Detail, "{more}", c.More).Replace(c.Kind.words)
}
