package spec

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/resolve"
)

// examples are all example files, by name.
func examples(t testing.TB) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob("../examples/*.yaml")
	if err != nil || len(paths) < 10 {
		t.Fatalf("the examples are missing: %v %v", paths, err)
	}
	all := map[string][]byte{}
	for _, p := range paths {
		data, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		all[p] = data
	}
	return all
}

func TestExamples(t *testing.T) {
	for path, data := range examples(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			if !strings.HasPrefix(string(data), schemaComment+"\n") {
				t.Errorf("it does not begin with %q", schemaComment)
			}
			nets, err := Parse(path, data, Options{})
			if err != nil {
				t.Fatal(err)
			}
			for _, net := range nets {
				if len(nets) == 1 && net.Name != strings.TrimSuffix(filepath.Base(path), ".yaml") {
					t.Errorf("its network is %s", net.Name)
				}
				checkRoundTrip(t, net)
				if _, _, err := read(net).Resolve(model.Assigned{}, resolve.NewNumbers()); err != nil {
					t.Errorf("Resolve: %v", err)
				}
			}
		})
	}
}

// checkRoundTrip formats the network, parses that, and compares.
func checkRoundTrip(t interface {
	Helper()
	Fatalf(string, ...any)
}, net model.Network) []byte {
	t.Helper()
	text, err := Format(net)
	if err != nil {
		t.Fatalf("Format: %v", err)
	}
	back, err := Parse("formatted.yaml", text, Options{})
	if err != nil {
		t.Fatalf("Parse(Format(n)): %v\n%s", err, text)
	}
	if len(back) != 1 || !reflect.DeepEqual(read(back[0]).Network(), read(net).Network()) {
		t.Fatalf("Parse(Format(n)) is another network:\n%s\nwas %+v\n is %+v", text, net, back[0])
	}
	return text
}
