package cli

import (
	"bytes"
	"io"
	"regexp"
	"unicode/utf8"
)

// readable is where text goes that an element's programs printed. Of its control characters only those for lines and
// colours reach a terminal: whoever wrote the text may be somebody else than the one who reads it.
func (c *CLI) readable() io.Writer {
	if !c.terminal() {
		return c.Out
	}
	return &tamed{w: c.Out}
}

// tamed passes text on as printable does, but for colours and the ends of lines.
type tamed struct {
	w    io.Writer
	held []byte // the beginning of a character or of a colour, whose end has not come yet
}

var (
	// colour is what sets colours and the like (ECMA-48, "Select Graphic Rendition"); begun is how one may begin.
	colour = regexp.MustCompile("\x1b\\[[0-9;:]*m|\r+\n")
	begun  = regexp.MustCompile("(?:\x1b(?:\\[[0-9;:]{0,32})?|\r+)$")
)

func (t *tamed) Write(p []byte) (int, error) {
	text := append(t.held, p...)
	cut := len(text)
	for back := 1; back < utf8.UTFMax && back <= len(text); back++ {
		if at := len(text) - back; utf8.RuneStart(text[at]) {
			if !utf8.FullRune(text[at:]) {
				cut = at
			}
			break
		}
	}
	if at := begun.FindIndex(text[:cut]); at != nil {
		cut = at[0]
	}
	t.held = bytes.Clone(text[cut:])
	var out []byte
	from := 0
	for _, is := range colour.FindAllIndex(text[:cut], -1) {
		out = append(out, printable(string(text[from:is[0]]))...)
		out = append(out, text[is[0]:is[1]]...)
		from = is[1]
	}
	out = append(out, printable(string(text[from:cut]))...)
	if _, err := t.w.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}
