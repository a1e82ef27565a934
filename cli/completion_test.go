package cli

import (
	"strings"
	"testing"
)

// complete returns what a shell is offered.
func complete(t *testing.T, f *fake, args ...string) string {
	t.Helper()
	r := run(t, f, append([]string{"__completeNoDesc"}, args...)...)
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	if len(lines) == 0 || r.code != ExitOK {
		t.Fatalf("completion of %q: %+v", args, r)
	}
	return strings.Join(lines[:len(lines)-1], " ")
}

func TestCompletion(t *testing.T) {
	for args, want := range map[string]string{
		"get e":               "elements events",
		"get elements ":       "lab lab/ line line/",
		"get elements lab/":   "lab/h1 lab/r1 lab/r2 lab/s1",
		"graph l":             "lab line",
		"delete lab ":         "line",
		"exec ":               "lab/ line/",
		"exec lab/r":          "lab/r1 lab/r2",
		"stop lab/r1 lab/r":   "lab/r2",
		"capture lab/r":       "lab/r1: lab/r2:",
		"capture lab/r1:":     "lab/r1:h1 lab/r1:ge-0/0/1",
		"describe node":       "node/n1 node/n2",
		"ping lab/h1 lab/h":   "lab/h1",
		"example ":            "bare duo square line",
		"get networks -o ":    "json yaml wide name",
		"graph lab --format ": "dot mermaid",
	} {
		words := strings.Fields(args)
		if strings.HasSuffix(args, " ") {
			words = append(words, "")
		}
		got := complete(t, lab(), words...)
		for _, w := range strings.Fields(want) {
			if !strings.Contains(" "+got+" ", " "+w+" ") {
				t.Errorf("%q offers %q, want %q", args, got, want)
			}
		}
		if len(strings.Fields(got)) != len(strings.Fields(want)) {
			t.Errorf("%q offers %q, want %q", args, got, want)
		}
	}
}

// Without a running instance a pressed key offers nothing, and complains of nothing.
func TestCompletionWithoutInstance(t *testing.T) {
	for _, args := range [][]string{{"graph", ""}, {"exec", "lab/"}, {"capture", "lab/r1:"}, {"describe", ""}} {
		if got := complete(t, &fake{down: true}, args...); got != "" {
			t.Errorf("%q offers %q", args, got)
		}
	}
}
