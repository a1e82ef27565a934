package spec

import (
	"reflect"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// A zero that the file states is not what it leaves out: it may take back a default, or what was set at run time.
func TestZerosAreStated(t *testing.T) {
	nets, err := Parse("lab.yaml", []byte(`network: lab
defaults: {hosts: {cpu: 0.5}, links: {loss: 1%}}
hosts: {h1: {cpu: 0, memory: 64MiB}, h2: {}, h3: {}}
switches: {s: {}}
links:
  - h1 -- s: {loss: 0, delay: 0s}
  - h2 -- s
  - h3 -- s: {loss: 2%}
`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := model.Settings{Elements: map[string][]string{"h1": {"cpu"}},
		Links: map[string][]string{"h1--s": {"delay", "loss"}}}
	if got := nets[0].Zeros; !reflect.DeepEqual(got, want) {
		t.Errorf("stated as zero: %+v, want %+v", got, want)
	}
	if n := nets[0]; n.Elements[0].CPU != 0 || n.Elements[1].CPU != 500 || n.Links[0].Loss != 0 ||
		n.Links[1].Loss != 0.01 {
		t.Errorf("%+v", n)
	}
	if complete := read(nets[0]).Network(); !reflect.DeepEqual(complete.Zeros, model.Settings{}) {
		t.Errorf("a complete document has %+v", complete.Zeros)
	}
}
