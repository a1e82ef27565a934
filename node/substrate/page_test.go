package substrate

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// TestPageIsTrue reads docs/substrate.md as a user does: its example is a file that Parse takes, and its tables have
// the keys that there are.
func TestPageIsTrue(t *testing.T) {
	data, err := os.ReadFile("../../docs/substrate.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	_, rest, ok := strings.Cut(page, "```yaml\n")
	example, _, closed := strings.Cut(rest, "```\n")
	if !ok || !closed {
		t.Fatal("the page has no example")
	}
	s, err := Parse("page.yaml", []byte(example), machine)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Nodes) != 3 || s.Nodes[0].Location != "rio" || s.Nodes[1].Hook != model.HookTC ||
		s.Nodes[2].CPU != machine.CPU/3 || len(s.Links) != 3 || s.Links[1].Bandwidth != 1_500_000_000 {
		t.Errorf("the example is read as %+v", s)
	}
	var rows []string
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "| `") {
			rows = append(rows, line)
		}
	}
	var want []string
	for _, k := range nodeKeys {
		want = append(want, fmt.Sprintf("| `%s` | %s | %s |\n", k.name, k.takes, k.meaning))
	}
	for _, k := range linkKeys {
		want = append(want, fmt.Sprintf("| `%s` | %s | %s |\n", k.name, k.takes, k.meaning))
	}
	if strings.Join(rows, "") != strings.Join(want, "") {
		t.Errorf("the page's tables are\n%swant\n%s", strings.Join(rows, ""), strings.Join(want, ""))
	}
	for _, fact := range []string{fmt.Sprintf("There are 1 to %d.", MaxNodes), fmt.Sprintf("(MTU %d)", UnderlayMTU)} {
		if !strings.Contains(page, fact) {
			t.Errorf("the page does not say %q", fact)
		}
	}
	// Each key is one that the example or its like may state, and says so when it makes no sense.
	for _, k := range nodeKeys {
		if _, err := Parse("x", []byte("nodes:\n  n1: {"+k.name+": '?'}\n"), machine); err == nil ||
			!strings.Contains(err.Error(), "n1's "+k.name) {
			t.Errorf("%s: %v", k.name, err)
		}
	}
	for _, k := range linkKeys {
		if _, err := Parse("x", []byte("nodes: {a: , b: }\nlinks: [a -- b: {"+k.name+": '?'}]\n"), machine); err == nil ||
			!strings.Contains(err.Error(), "link a -- b: "+k.name) {
			t.Errorf("%s: %v", k.name, err)
		}
	}
}
