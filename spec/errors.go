package spec

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/token"
)

// Error is one thing that is wrong with a file.
type Error struct {
	File    string
	Line    int // from 1; 0 where it is about the file as a whole
	Column  int
	Message string // what is wrong, and what would be right
	Excerpt string // the line with those before it, and a mark below; ends with a newline
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return e.File + ": " + e.Message
	}
	return fmt.Sprintf("%s:%d:%d: %s\n%s", e.File, e.Line, e.Column, e.Message, strings.TrimSuffix(e.Excerpt, "\n"))
}

// Errors are all that is wrong with a file, in its order; never empty.
type Errors []*Error

// maxErrors ends the search in a hopeless file.
const maxErrors = 100

// maxShown keeps a hopeless file's errors on one screen.
const maxShown = 8

func (es Errors) Error() string {
	var b strings.Builder
	for i, e := range es {
		if i == maxShown {
			more := strconv.Itoa(len(es) - maxShown)
			if len(es) >= maxErrors {
				more += " or"
			}
			fmt.Fprintf(&b, "\n… and %s more", more)
			break
		}
		if i > 0 {
			b.WriteString("\n")
		}
		b.WriteString(e.Error())
	}
	return b.String()
}

// sort brings errors into the order of their places in the file.
func sort(es Errors) {
	slices.SortStableFunc(es, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// source is the file's text, for excerpts.
type source struct {
	name string
	data []byte
}

func (s source) whole(format string, args ...any) *Error {
	return &Error{File: s.name, Message: fmt.Sprintf(format, args...)}
}

// at makes an error that points at a token.
func (s source) at(t *token.Token, format string, args ...any) *Error {
	if t == nil || t.Position == nil {
		return s.whole(format, args...)
	}
	text, _, _ := strings.Cut(t.Value, "\n")
	return s.position(t.Position.Line, t.Position.Column, utf8.RuneCountInString(text), format, args...)
}

// position makes an error that points at so many characters of a line; columns count characters from 1.
func (s source) position(line, column, width int, format string, args ...any) *Error {
	e := &Error{File: s.name, Line: line, Column: column, Message: fmt.Sprintf(format, args...)}
	var b strings.Builder
	rest, text := s.data, []byte(nil)
	for n := 1; n <= line; n++ {
		if n > 1 && len(rest) == 0 {
			return e
		}
		text, rest, _ = bytes.Cut(rest, []byte("\n"))
		if n < line-2 {
			continue
		}
		mark := ' '
		if n == line {
			mark = '>'
		}
		fmt.Fprintf(&b, "%c%5d | %s\n", mark, n, shown(text))
	}
	if column <= maxLine {
		width = max(1, min(width, utf8.RuneCountInString(shown(text))-column+1))
		fmt.Fprintf(&b, "       | %s%s\n", strings.Repeat(" ", max(0, column-1)), strings.Repeat("^", width))
	}
	e.Excerpt = b.String()
	return e
}

// maxLine is how much of a line an excerpt shows, in characters.
const maxLine = 140

// shown is a line as a terminal can show it: cut, and without control characters.
func shown(line []byte) string {
	var b strings.Builder
	n := 0
	for _, c := range string(bytes.TrimSuffix(line, []byte("\r"))) {
		if n++; n > maxLine {
			b.WriteString("…")
			break
		}
		switch {
		case c == '\t':
			c = '→'
		case c < ' ' || c == 0x7f || c == utf8.RuneError || c >= 0x80 && c < 0xa0:
			c = '�'
		}
		b.WriteRune(c)
	}
	return b.String()
}
