package model

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// TestKeys holds what the lists say to what JSON, the readers and the checks make of it.
func TestKeys(t *testing.T) {
	checkList(t, "element", Amounts{}.Keys())
	checkList(t, "slice", Slice{}.Keys())
	checkList(t, "link", Link{}.Keys())
	checkList(t, "network settings", networkSettings)
	checkList(t, "element settings", elementSettings)
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
		// The names in JSON, which stores and agents know, are those of the files.
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(data, &fields); err != nil {
			t.Fatal(err)
		}
		if _, ok := fields[k.Name]; !ok && list != "network settings" {
			t.Errorf("%s: JSON has %s", what, data)
		}
	}
}

// TestBoundsOfKeys asks for less than the least and more than the most.
func TestBoundsOfKeys(t *testing.T) {
	for key, c := range map[string]struct {
		set  func(*Network)
		want string
	}{
		"memory":       {func(n *Network) { n.Elements[0].Memory = 1 }, "memory 1B is less than the 8MiB that a process needs to start"},
		"connections":  {func(n *Network) { n.Elements[0].Connections = 1 << 23 }, "connections 8388608 is more tracked connections than Linux has (at most 4194304)"},
		"slice/memory": {func(n *Network) { n.Slice.Memory = 1 << 50 }, "slice: memory 1024TiB is more than any machine has (at most 64TiB)"},
		"slice/punts":  {func(n *Network) { n.Slice.Punts = 5 }, "slice: punts 5 is less than the 100 a second that finding neighbours needs"},
		"loss":         {func(n *Network) { n.Links[0].Loss = 1.5 }, "loss 1.5 is more than all packets (at most 1)"},
		"jitter":       {func(n *Network) { n.Links[0].Jitter = -1 }, "jitter -1ns is less than the 0s that is none"},
	} {
		net := settable()
		c.set(&net)
		p := net.Validate()
		if len(p) != 1 || p[0].Field != key || !strings.Contains(p[0].Message, c.want) {
			t.Errorf("%s: %v, want %s", key, p, c.want)
		}
	}
}
