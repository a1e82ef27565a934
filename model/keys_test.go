package model

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
)

// TestKeys holds what the lists say to what JSON, the readers and the checks make of it.
func TestKeys(t *testing.T) {
	checkList(t, "element", Amounts{}.Keys())
	checkList(t, "slice", Slice{}.Keys())
	checkList(t, "placement", Placing{}.Keys())
	checkList(t, "link", Link{}.Keys())
	checkList(t, "network settings", networkSettings)
	checkList(t, "element settings", ownSettings)
	checkList(t, "ospf", OSPFTimers{}.Keys())
	checkList(t, "isis", ISISTimers{}.Keys())
	checkList(t, "bgp", BGPTimers{}.Keys())
	checkList(t, "rip", RIPTimers{}.Keys())
	checkList(t, "quota", quotaSettings)
}

func checkList[T any](t *testing.T, list string, keys []Key[T]) {
	t.Helper()
	seen := map[string]bool{}
	if len(keys) > 64 {
		t.Errorf("%s: a reader has a bit for each of 64 keys, there are %d", list, len(keys))
	}
	for _, k := range keys {
		what := list + " " + k.Name
		if seen[k.Name] {
			t.Errorf("%s is there twice", what)
		}
		seen[k.Name] = true
		if words := k.Words(); words != nil && !slices.Contains(words, k.Example) {
			t.Errorf("%s: its example %s is none of %v", what, k.Example, words)
		}
		var v, usual, back T
		if !k.Zero(&v) || k.Check(&v) != "" {
			t.Errorf("%s: a value that nobody gave is wrong", what)
		}
		if k.fill(&usual); k.Check(&usual) != "" {
			t.Errorf("%s: the usual value is wrong: %s", what, k.Check(&usual))
		}
		if err := k.Parse(&v, k.Example); err != nil || k.Zero(&v) || k.Check(&v) != "" {
			t.Errorf("%s: its example is wrong: %v %s", what, err, k.Check(&v))
		}
		was := fmt.Sprint(v)
		if k.fill(&v); fmt.Sprint(v) != was {
			t.Errorf("%s: the usual takes the place of what was said", what)
		}
		if err := k.Parse(&back, k.Text(&v)); err != nil || !k.Same(&v, &back) {
			t.Errorf("%s: %q is read as %q (%v)", what, k.Text(&v), k.Text(&back), err)
		}
		var copied T
		if k.Copy(&copied, &v); !k.Same(&copied, &v) || fmt.Sprint(copied) != fmt.Sprint(back) {
			t.Errorf("%s: a copy is another", what)
		}
		if k.Clear(&copied); !k.Zero(&copied) {
			t.Errorf("%s: what was given back is there", what)
		}
		// The names in JSON, which stores and agents know, are those of the files, or those that they had first.
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(data, &fields); err != nil {
			t.Fatal(err)
		}
		if _, ok := fields[cmp.Or(k.Was, k.Name)]; !ok && list != "network settings" {
			t.Errorf("%s: JSON has %s", what, data)
		}
	}
}
