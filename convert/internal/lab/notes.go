package lab

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Note says what of a line was not carried over, or not as it was.
type Note struct {
	Line    int
	Message string
}

// Notes are a file's.
type Notes struct{ all []Note }

// Add notes something about a line.
func (n *Notes) Add(line int, format string, args ...any) {
	note := Note{line, fmt.Sprintf(format, args...)}
	if !slices.Contains(n.all, note) {
		n.all = append(n.all, note)
	}
}

// Sorted are all notes in the lines' order.
func (n *Notes) Sorted() []Note {
	slices.SortStableFunc(n.all, func(a, b Note) int { return a.Line - b.Line })
	return n.all
}

// Rest notes the keys of a mapping that nobody has asked for.
func (n *Notes) Rest(m *Node, what string, known ...string) {
	if m == nil {
		return
	}
	for _, p := range m.Pairs {
		if !slices.Contains(known, p.Key) {
			n.Add(p.Line, "%s: %s is not carried over", what, p.Key)
		}
	}
}

// Loss sets the share of packets that a link loses, in percent.
func (n *Notes) Loss(settings *Map, line int, text string) {
	text = strings.TrimSuffix(text, "%")
	if f, err := strconv.ParseFloat(text, 64); err == nil && f >= 0 && f <= 100 {
		settings.Set("loss", Raw(strconv.FormatFloat(f, 'f', -1, 64)+"%"))
	} else {
		n.Add(line, "the loss %q is no percentage", text)
	}
}

// Name makes a name that the file may have; it is noted where it is another.
func (n *Notes) Name(line int, what, text string) string {
	var b strings.Builder
	for _, c := range text {
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		switch {
		case alnum, b.Len() > 0 && strings.ContainsRune("_.-", c):
			b.WriteRune(c)
		case b.Len() > 0:
			b.WriteByte('-')
		}
		if b.Len() == 63 {
			break
		}
	}
	name := b.String()
	if name == "" || slices.Contains([]string{"lo", "all", "default"}, name) {
		name = "lab-" + name
	}
	name = strings.TrimSuffix(name, "-")
	if name != text {
		n.Add(line, "%s %q is called %s: names have letters, digits, _, . and -", what, text, name)
	}
	return name
}
