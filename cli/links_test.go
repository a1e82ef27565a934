package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// A link is stopped and started by its name as `get links` has it, and by its ends as files have them.
func TestLinksAreStoppedAndStarted(t *testing.T) {
	for _, args := range [][]string{{"lab/h1--r1"}, {"lab/h1 -- r1"}, {"lab/r1 -- h1"}, {"lab/r1:h1 -- h1:r1"},
		{"lab/h1", "--", "r1"}} {
		f := lab()
		stop := append([]string{"stop"}, args...)
		if r := run(t, f, stop...); r.code != ExitOK || r.out != "lab/h1--r1 stopped\n" {
			t.Errorf("%q: %+v", args, r)
		}
		if s := f.records["lab"].Network.Links[0].State; s != model.LinkDown || len(f.acted) != 0 {
			t.Errorf("%q: the link is %q, acted %v", args, s, f.acted)
		}
		if r := run(t, f, "get", "links", "lab"); !strings.Contains(r.out, "lab/h1--r1   stopped") {
			t.Errorf("get links shows\n%s", r.out)
		}
		if r := run(t, f, stop...); r.out != "lab/h1--r1 is stopped already\n" {
			t.Errorf("%q again: %+v", args, r)
		}
		for format, want := range map[string]string{"dot": `, color="#8899aa", style=dotted]`,
			"mermaid": `-.-|"10.0.0.0/30<br/>fd00::/64<br/>stopped"|`} {
			if r := run(t, f, "graph", "lab", "--format", format); !strings.Contains(r.out, want) {
				t.Errorf("%s lacks %s:\n%s", format, want, r.out)
			}
		}
		if r := run(t, f, append([]string{"start"}, args...)...); r.out != "lab/h1--r1 started\n" {
			t.Errorf("%q: %+v", args, r)
		}
		if n := f.records["lab"]; n.Network.Links[0].State != "" || len(n.Set.Links) != 0 {
			t.Errorf("%q leaves %+v", args, n)
		}
	}
	f := lab()
	if r := run(t, f, "stop", "lab/h1", "lab/h1--r1"); r.out != "lab/h1 stopped\nlab/h1--r1 stopped\n" ||
		!slices.Equal(f.acted, []string{"stop lab/h1"}) {
		t.Errorf("an element and a link: %+v, %v", r, f.acted)
	}
	if r := run(t, f, "set", "lab/h1 -- r1", "loss=1%"); r.code != ExitOK ||
		r.out != "lab/h1--r1 loss: unset → 1%\n" {
		t.Errorf("set by the ends: %+v", r)
	}
}

func TestLinksThatCannotBeStopped(t *testing.T) {
	for args, want := range map[string]string{
		"stop|lab/h1|lab/h1--r9":  `network lab has no element or link "h1--r9"; did you mean h1--r1?`,
		"stop|lab/h1 -- r2":       "network lab has no link h1 -- r2; `polyplane get links lab` lists",
		"stop|nope/h1 -- r1":      `there is no network "nope"`,
		"stop|lab":                `"lab" is neither an element nor a link: NET/ELEMENT is expected`,
		"restart|lab/h1--r1":      "is a link; links can be started and stopped",
		"suspend|lab/h1 -- r1":    "no element",
		"stop|lab/r1 -- r2|extra": `"extra" is neither`,
	} {
		f := lab()
		before := f.records["lab"].Revision
		if r := run(t, f, strings.Split(args, "|")...); r.code == ExitOK || !strings.Contains(r.err, want) {
			t.Errorf("%s: %+v, want %q", args, r, want)
		}
		if len(f.acted) != 0 || f.records["lab"].Revision != before {
			t.Errorf("%s has changed something: %v", args, f.acted)
		}
	}
	f := lab()
	twin := f.dump.Links[0]
	twin.Link.Name = "h1--r1.2"
	f.dump.Links = append(f.dump.Links, twin)
	if r := run(t, f, "stop", "lab/h1 -- r1"); !strings.Contains(r.err, "2 links h1 -- r1: name one of h1--r1, h1--r1.2") {
		t.Errorf("%+v", r)
	}
}
