// Command testreport reads `go test -json` from its standard input, prints what failed with its output, the time of
// each package and the counts, and fails when a test failed or one was skipped that the list of known skips does not
// name.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
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
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go test -json ./... | testreport SKIPLIST")
		os.Exit(2)
	}
	known, err := readSkips(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport: reading the list of known skips:", err)
		os.Exit(2)
	}
	os.Exit(report(bufio.NewReaderSize(os.Stdin, 1<<20), known))
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

func report(in *bufio.Reader, known map[string]bool) int {
	var passed, failed, skipped int
	var unknown []string
	output := map[string][]string{}
	dec := json.NewDecoder(in)
	for dec.More() {
		var e event
		if err := dec.Decode(&e); err != nil {
			fmt.Println("testreport: not the output of go test -json:", err)
			return 1
		}
		key := e.Package + " " + e.Test
		switch e.Action {
		case "build-output":
			fmt.Print(e.Output)
		case "output":
			output[key] = append(output[key], e.Output)
		case "pass", "fail", "skip":
			if e.Test == "" {
				fmt.Printf("%-5s %-50s %6.1f s\n", e.Action, short(e.Package), e.Elapsed)
				if e.Action == "fail" {
					failed++
					fmt.Print(strings.Join(output[key], ""))
				}
				break
			}
			switch e.Action {
			case "pass":
				passed++
			case "fail":
				failed++
				fmt.Printf("FAIL  %s %s\n%s", short(e.Package), e.Test, strings.Join(output[key], ""))
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
		fmt.Println("skipped, but not in the list of known skips:", u)
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped)
	if failed > 0 || passed == 0 {
		return 1
	}
	return 0
}

func short(pkg string) string {
	return strings.TrimPrefix(pkg, "github.com/polyplane/polyplane/")
}
