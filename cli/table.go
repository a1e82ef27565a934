package cli

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
)

// style is how a cell is painted on a terminal.
type style string

// The styles are what a terminal is sent (ECMA-48, "Select Graphic Rendition").
const (
	plain  style = ""
	good   style = "\x1b[32m"
	warn   style = "\x1b[33m"
	bad    style = "\x1b[31m"
	strong style = "\x1b[1m"
	faint  style = "\x1b[2m"

	resetStyle = "\x1b[0m"
)

// cell is one field of a table.
type cell struct {
	text  string
	style style
}

func text(s string) cell { return cell{text: s} }

// texts makes a row of unpainted cells.
func texts(fields ...string) []cell {
	return each.Of(fields, func(f string) cell { return cell{text: f} })
}

// table is aligned columns. A heading that begins with ">" is aligned to the right (the ">" is not shown).
type table struct {
	head []string
	rows [][]cell
	// widths, once set, are kept by later prints: what a watch appends stays aligned.
	widths []int
	// closer is by how much the columns stand closer than usual.
	closer int
	// spare are the columns that fit may leave out, the least important first.
	spare []int
}

func (t *table) add(row ...cell) {
	for i := range row {
		row[i].text = printable(row[i].text)
	}
	t.rows = append(t.rows, row)
}

// measure grows the widths to what the rows need.
func (t *table) measure() {
	if t.widths == nil {
		t.widths = make([]int, len(t.head))
		for i, h := range t.head {
			t.widths[i] = utf8.RuneCountInString(strings.TrimPrefix(h, ">"))
		}
	}
	for _, row := range t.rows {
		for i, c := range row {
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(c.text))
		}
	}
}

// write prints the table; an empty field is shown as "-", so that the columns can be counted.
func (t *table) write(w io.Writer, colour, heading bool, indent string) error {
	t.measure()
	b := bufio.NewWriter(w)
	if heading {
		head := each.Of(t.head, func(h string) cell { return text(strings.TrimPrefix(h, ">")) })
		t.writeRow(b, head, colour, indent, "")
	}
	for _, row := range t.rows {
		t.writeRow(b, row, colour, indent, "-")
	}
	return b.Flush()
}

const columnGap = 3

func (t *table) columnGap() int { return columnGap - t.closer }

// narrowest is the least width to which a column is cut.
const narrowest = 8

// fit makes the table fit a width. First its columns move closer, then spare columns are left out, then the widest
// words are cut.
func (t *table) fit(width int) {
	t.measure()
	all := func() int {
		sum := t.columnGap() * (len(t.widths) - 1)
		for _, w := range t.widths {
			sum += w
		}
		return sum
	}
	for t.closer < columnGap-1 && all() > width {
		t.closer++
	}
	for len(t.spare) > 0 && all() > width {
		t.drop(t.spare[0])
	}
	for all() > width {
		widest := -1
		for i, w := range t.widths {
			if !strings.HasPrefix(t.head[i], ">") && w > narrowest && (widest < 0 || w > t.widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		t.widths[widest]--
	}
	for _, row := range t.rows {
		for i := range row {
			if runes := []rune(row[i].text); len(runes) > t.widths[i] {
				row[i].text = string(runes[:t.widths[i]-1]) + "…"
			}
		}
	}
}

// drop leaves out the spare column.
func (t *table) drop(column int) {
	t.head, t.widths = slices.Delete(slices.Clone(t.head), column, column+1), slices.Delete(t.widths, column, column+1)
	for i, row := range t.rows {
		t.rows[i] = slices.Delete(row, column, column+1)
	}
	t.spare = t.spare[1:]
	for i, s := range t.spare {
		if s > column {
			t.spare[i]--
		}
	}
}

// printable makes text safe for the user's terminal: names and messages come from anywhere, and could control it. Line
// breaks and tabs stay.
func printable(s string) string { return model.Printable(s, "\n\t") }

// say prints a sentence with others' words in it.
func say(w io.Writer, format string, a ...any) { fmt.Fprint(w, printable(fmt.Sprintf(format, a...))) }

// writeRow writes one row; empty is what stands in an empty field.
func (t *table) writeRow(b *bufio.Writer, row []cell, colour bool, indent, empty string) {
	b.WriteString(indent)
	for i, c := range row {
		c.text = cmp.Or(c.text, empty)
		padding := t.widths[i] - utf8.RuneCountInString(c.text)
		if strings.HasPrefix(t.head[i], ">") {
			writeSpaces(b, padding)
			padding = 0
		}
		if colour && c.style != plain {
			b.WriteString(string(c.style))
			b.WriteString(c.text)
			b.WriteString(resetStyle)
		} else {
			b.WriteString(c.text)
		}
		if i < len(row)-1 {
			writeSpaces(b, padding+t.columnGap())
		}
	}
	b.WriteByte('\n')
}

func writeSpaces(b *bufio.Writer, n int) {
	for ; n > 0; n-- {
		b.WriteByte(' ')
	}
}

// terminalFD returns the descriptor of a stream that is a terminal.
func terminalFD(stream any) (int, bool) {
	f, ok := stream.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0, false
	}
	return int(f.Fd()), true
}

// columns is the width of the terminal that is printed to; 0 if it is no terminal.
func (c *CLI) columns() int { return terminalColumns(c.Out) }

func terminalColumns(stream any) int {
	fd, ok := terminalFD(stream)
	if !ok {
		return 0
	}
	columns, _, err := term.GetSize(fd)
	if err != nil {
		return 0
	}
	return columns
}

// terminal tells whether what is printed goes to a terminal that understands control sequences.
func (c *CLI) terminal() bool {
	_, ok := terminalFD(c.Out)
	return ok && c.Getenv("TERM") != "dumb"
}

// colour tells whether output is painted (https://no-color.org).
func (c *CLI) colour() bool { return c.terminal() && c.Getenv("NO_COLOR") == "" }
