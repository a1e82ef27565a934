package cli

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

// Rows never wrap where there is room for their narrowest form, and keep their numbers whole.
func TestTablesFit(t *testing.T) {
	for _, width := range []int{60, 80, 90, 200} {
		tab := table{head: []string{"LINK", "PATH", ">RATE", ">LIMIT"}}
		tab.add(texts("a-network-with-a-name/a-router--another-router", "n1→n2→n3→n4→n5→n6", "100 Mbit/s", "1Gbit")...)
		tab.fit(width)
		var b bytes.Buffer
		if err := tab.write(&b, false, true, ""); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("%d columns in %d: %s", n, width, line)
			}
		}
		if !strings.Contains(b.String(), "100 Mbit/s") || width == 200 && strings.Contains(b.String(), "…") {
			t.Errorf("at %d:\n%s", width, b.String())
		}
	}
}

// Nothing that is shown can act upon the terminal.
func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"plain → text\n":   "plain → text\n",
		"a\x1b[31mred":     `a\x1b[31mred`,
		"bell\a":           `bell\a`,
		"csi\u009b31m":     `csi\u009b31m`,
		"turned\u202e":     `turned\u202e`,
		"broken \xff text": `broken \xff text`,
	} {
		if got := printable(in); got != want {
			t.Errorf("%q is shown as %q, want %q", in, got, want)
		}
	}
	for _, args := range [][]string{{"describe", "lab/\x1b[31m"}, {"ping", "\x1b[31m/a", "lab/h1"},
		{"exec", "\x1b[31m", "x"}, {"\x1b[31m"}} {
		if r := run(t, lab(), args...); r.code == ExitOK || strings.Contains(r.out+r.err, "\x1b") {
			t.Errorf("%q: %+v", args, r)
		}
	}
	f := lab()
	f.events[0].Message = "a file called \x1b]0;title\a"
	if r := run(t, f, "get", "events"); strings.Contains(r.out, "\x1b") || !strings.Contains(r.out, `\x1b]0;title\a`) {
		t.Errorf("got %+v", r)
	}
}
