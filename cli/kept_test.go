package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

const keeps = "note: lab/r1 keeps its own configuration; `polyplane apply --overwrite` replaces it\n"

// TestApplySaysWhatItKeeps changes a network in which somebody has edited two routers. That is known only once the
// nodes have the change. Whoever applied it is told after the wait, for each router, with what to do.
func TestApplySaysWhatItKeeps(t *testing.T) {
	file := "network: lab\nrouters: [a]\n"
	f := lab()
	f.edited, f.dump.Networks[0].Phase = []string{"r1", "h1"}, model.PhaseRunning
	r := runWith(t, f, file, "apply", "-f", "-")
	_, after, _ := strings.Cut(r.out, "to delete\n")
	want := strings.Replace(keeps, "r1", "h1", 1) + keeps + "lab: ready in"
	if r.code != ExitOK || !strings.HasPrefix(after, want) {
		t.Errorf("got %+v", r)
	}
	// Nothing is kept, nothing is known without a wait, and what a node told before it went silent is not news.
	for name, change := range map[string]func(*fake){
		"nothing is kept": func(f *fake) { f.edited = nil },
		"as last told":    func(f *fake) { f.dump.Elements[1].LastTold = 5 },
		"it does not run": func(f *fake) { f.dump.Elements[1].Phase = model.PhaseStopped },
	} {
		f := lab()
		f.edited, f.dump.Networks[0].Phase = []string{"r1"}, model.PhaseRunning
		change(f)
		if r := runWith(t, f, file, "apply", "-f", "-"); r.code != ExitOK || strings.Contains(r.out, "note:") {
			t.Errorf("%s: %+v", name, r)
		}
	}
	f = lab()
	f.edited = []string{"r1"}
	if r := runWith(t, f, file, "apply", "-f", "-", "--wait=false"); strings.Contains(r.out, "note:") {
		t.Errorf("without a wait: %+v", r)
	}
}

// TestApplySaysThatManyAreKept bounds what is printed, and tells how many there are.
func TestApplySaysThatManyAreKept(t *testing.T) {
	f := lab()
	f.dump.Networks[0].Phase = model.PhaseRunning
	for i := range 100 {
		one := f.dump.Elements[1]
		one.ID.Element = fmt.Sprintf("x%d", i)
		f.edited = append(f.edited, one.ID.Element)
		f.dump.Elements = append(f.dump.Elements, one)
	}
	r := runWith(t, f, "network: lab\nrouters: [a]\n", "apply", "-f", "-")
	if strings.Count(r.out, "keeps its own") != shownKept || !strings.Contains(r.out, fmt.Sprintf(
		"note: %d more of lab keep their own configuration; `polyplane get elements lab -o wide` shows them\n",
		100-shownKept)) {
		t.Errorf("got %+v", r)
	}
}

// TestSetSaysWhatIsKept sets something that is part of a configuration which was edited.
func TestSetSaysWhatIsKept(t *testing.T) {
	for args, want := range map[string]int{"lab/r1 cpu=0.25": 1, "lab/h1--r1 loss=2%": 1, "lab/h1 cpu=0.25": 0} {
		f := lab()
		f.dump.Elements[1].Message = strings.TrimPrefix(strings.TrimSpace(keeps), "note: lab/r1 ")
		r := run(t, f, append([]string{"set"}, strings.Fields(args)...)...)
		if r.code != ExitOK || strings.Count(r.out, keeps) != want {
			t.Errorf("%s: %+v", args, r)
		}
		if r := run(t, f, append([]string{"set", "-o", "json"}, strings.Fields(args)...)...); strings.Contains(r.out,
			"note:") {
			t.Errorf("%s as JSON: %+v", args, r)
		}
	}
}
