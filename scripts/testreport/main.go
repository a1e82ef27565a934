// Command testreport reads `go test -json` from its standard input, prints what failed with its output, the time of
// each package and the counts, and fails when a test failed or one was skipped that the list of known skips does not
// name. With -attacks it also prints a line for each attack: what the attacker did, and what others lost by it. A test
// is an attack when it says so by t.Attr("attack", what was done) and t.Attr("lost", what others lost).
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64
	Key     string // of an attribute
	Value   string
}

func main() {
	attacks := flag.Bool("attacks", false, "print a line for each attack")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: go test -json ./... | testreport [-attacks] SKIPLIST")
		os.Exit(2)
	}
	known, err := readSkips(flag.Arg(0))
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport: reading the list of known skips:", err)
		os.Exit(2)
	}
	os.Exit(report(bufio.NewReaderSize(os.Stdin, 1<<20), os.Stdout, known, *attacks))
}

// readSkips reads one "package test" a line; # begins a comment.
func readSkips(file string) (map[string]bool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		if f := strings.Fields(line); len(f) == 2 {
			known[f[0]+" "+f[1]] = true
		}
	}
	return known, nil
}

func report(in *bufio.Reader, out io.Writer, known map[string]bool, attacks bool) int {
	var passed, failed, skipped int
	var unknown []string
	output := map[string][]string{}
	did, lost := map[string]string{}, map[string]string{}
	dec := json.NewDecoder(in)
	for dec.More() {
		var e event
		if err := dec.Decode(&e); err != nil {
			fmt.Fprintln(out, "testreport: not the output of go test -json:", err)
			return 1
		}
		key := e.Package + " " + e.Test
		switch e.Action {
		case "build-output":
			fmt.Fprint(out, e.Output)
		case "output":
			output[key] = append(output[key], e.Output)
		case "attr":
			switch e.Key {
			case "attack":
				did[key] = e.Value
			case "lost":
				lost[key] = e.Value
			}
		case "pass", "fail", "skip":
			if e.Test == "" {
				fmt.Fprintf(out, "%-5s %-50s %6.1f s\n", e.Action, short(e.Package), e.Elapsed)
				if e.Action == "fail" {
					failed++
					fmt.Fprint(out, strings.Join(output[key], ""))
					unfinished(out, e.Package, output)
				}
				break
			}
			if what := did[key]; attacks && what != "" {
				verdict := map[string]string{"pass": "held", "fail": "NOT HELD", "skip": "not tried"}[e.Action]
				fmt.Fprintf(out, "%-9s %s %s\n          did:  %s\n          lost: %s\n",
					verdict, short(e.Package), e.Test, what, cmp.Or(lost[key], "(the test did not get so far)"))
			}
			switch e.Action {
			case "pass":
				passed++
			case "fail":
				failed++
				fmt.Fprintf(out, "FAIL  %s %s\n%s", short(e.Package), e.Test, strings.Join(output[key], ""))
			case "skip":
				skipped++
				if !known[short(e.Package)+" "+e.Test] {
					unknown = append(unknown, short(e.Package)+" "+e.Test+"\n"+strings.Join(output[key], ""))
				}
			}
			delete(output, key)
		}
	}
	slices.Sort(unknown)
	for _, u := range unknown {
		failed++
		fmt.Fprintln(out, "skipped, but not in the list of known skips:", u)
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", passed, failed, skipped)
	if failed > 0 || passed == 0 {
		return 1
	}
	return 0
}

// unfinished prints what the package's tests printed that never ended: the package's process was ended in their middle.
func unfinished(out io.Writer, pkg string, output map[string][]string) {
	for _, key := range slices.Sorted(maps.Keys(output)) {
		if test, ok := strings.CutPrefix(key, pkg+" "); ok && test != "" {
			fmt.Fprintf(out, "NEVER ENDED  %s %s\n%s", short(pkg), test, strings.Join(output[key], ""))
			delete(output, key)
		}
	}
}

func short(pkg string) string {
	return strings.TrimPrefix(pkg, "github.com/polyplane/polyplane/")
}
