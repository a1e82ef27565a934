package cli

import (
	"os"
	"os/exec"
	"path/filepath"
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
		"stop lab/r1 lab/r":   "lab/r2 lab/r1--r2",
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

// The bash script works without the bash-completion package, with names that have ":" in them.
func TestBashCompletion(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal("the completion script is for bash, and there is none here")
	}
	script := run(t, lab(), "completion", "bash")
	if script.code != ExitOK {
		t.Fatalf("got %+v", script)
	}
	// In place of the program stands a function that tells what it was asked for and offers two names.
	test := script.out + `
polyplane() { echo "$*" > "$ASKED"; printf 'lab/r1:h1\nlab/r1:h2\n:4\n'; }
COMP_LINE='polyplane capture lab/r1:' COMP_WORDS=(polyplane capture lab/r1 :) COMP_CWORD=3 COMP_TYPE=9
COMP_POINT=${#COMP_LINE}
__start_polyplane
printf '%s\n' "${COMPREPLY[@]}"
# Files are offered by a function of that package's as well.
polyplane() { printf 'yaml\n:8\n'; }
cd "$FILES" && COMP_LINE='polyplane apply -f la' COMP_WORDS=(polyplane apply -f la) COMP_CWORD=3 COMP_POINT=21 COMPREPLY=()
__start_polyplane
printf '%s\n' "${COMPREPLY[@]}"
`
	asked, files := filepath.Join(t.TempDir(), "asked"), t.TempDir()
	if err := os.WriteFile(filepath.Join(files, "lab.yaml"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bash, "--norc", "--noprofile", "-c", test)
	cmd.Env = append(os.Environ(), "ASKED="+asked, "FILES="+files)
	var out, errOut strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, errOut.String())
	}
	if got, err := os.ReadFile(asked); err != nil || string(got) != "__complete capture lab/r1:\n" {
		t.Errorf("asked for %q, %v", got, err)
	}
	// Bash replaces only what stands after the last colon.
	if strings.Join(strings.Fields(out.String()), " ") != "h1 h2 lab.yaml" {
		t.Errorf("offered: %q, %s", out.String(), errOut.String())
	}
	if r := run(t, lab(), "completion", "tcsh"); r.code != ExitUsage || !strings.Contains(r.err, "bash, fish") {
		t.Errorf("got %+v", r)
	}
	for _, shell := range []string{"zsh", "fish", "powershell"} {
		if r := run(t, lab(), "completion", shell); r.code != ExitOK || len(r.out) < 1000 {
			t.Errorf("%s: %d bytes, %s", shell, len(r.out), r.err)
		}
	}
}
