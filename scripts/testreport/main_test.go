package main

import (
	"bufio"
	"strings"
	"testing"
)

const run = `{"Action":"attr","Package":"github.com/polyplane/polyplane/system","Test":"TestA/flood","Key":"attack","Value":"93 frames"}
{"Action":"attr","Package":"github.com/polyplane/polyplane/system","Test":"TestA/flood","Key":"lost","Value":"0 of 10"}
{"Action":"output","Package":"github.com/polyplane/polyplane/system","Test":"TestA/flood","Output":"words of the flood\n"}
{"Action":"pass","Package":"github.com/polyplane/polyplane/system","Test":"TestA/flood","Elapsed":1}
{"Action":"attr","Package":"github.com/polyplane/polyplane/system","Test":"TestA/worse","Key":"attack","Value":"7 frames"}
{"Action":"output","Package":"github.com/polyplane/polyplane/system","Test":"TestA/worse","Output":"what went wrong\n"}
{"Action":"fail","Package":"github.com/polyplane/polyplane/system","Test":"TestA/worse","Elapsed":1}
{"Action":"skip","Package":"github.com/polyplane/polyplane/system","Test":"TestB","Elapsed":0}
{"Action":"skip","Package":"github.com/polyplane/polyplane/system","Test":"TestC","Elapsed":0}
`

func TestReport(t *testing.T) {
	for _, c := range []struct {
		name    string
		in      string
		attacks bool
		status  int
		has     []string
		hasNot  []string
	}{
		{"failures are told with their output", run, false, 1,
			[]string{"FAIL  system TestA/worse\nwhat went wrong\n", "not in the list of known skips: system TestC",
				"1 passed, 2 failed, 2 skipped\n"},
			[]string{"words of the flood", "TestB", "93 frames"}},
		{"attacks tell what they did, and what was lost", run, true, 1,
			[]string{"held      system TestA/flood\n          did:  93 frames\n          lost: 0 of 10\n",
				"NOT HELD  system TestA/worse\n          did:  7 frames\n          lost: (the test did not get so " +
					"far)\n"}, nil},
		{"all is well", strings.Join(strings.SplitAfter(run, "\n")[:4], ""), false, 0,
			[]string{"1 passed, 0 failed, 0 skipped\n"}, nil},
		{"a package ended in the middle of a test",
			`{"Action":"output","Package":"github.com/polyplane/polyplane/system","Test":"TestLong","Output":"goroutine 1 waits\n"}
{"Action":"fail","Package":"github.com/polyplane/polyplane/system","Elapsed":1}`, false, 1,
			[]string{"NEVER ENDED  system TestLong\ngoroutine 1 waits\n", "0 passed, 1 failed, 0 skipped\n"}, nil},
		{"no test ran", "", false, 1, []string{"0 passed, 0 failed, 0 skipped\n"}, nil},
		{"not what go test prints", "oops", false, 1, []string{"not the output of go test -json"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			status := report(bufio.NewReader(strings.NewReader(c.in)), &out,
				map[string]bool{"system TestB": true}, c.attacks)
			if status != c.status {
				t.Errorf("its exit status is %d: want %d", status, c.status)
			}
			for _, words := range c.has {
				if !strings.Contains(out.String(), words) {
					t.Errorf("it does not say %q:\n%s", words, out.String())
				}
			}
			for _, words := range c.hasNot {
				if strings.Contains(out.String(), words) {
					t.Errorf("it says %q:\n%s", words, out.String())
				}
			}
		})
	}
}
