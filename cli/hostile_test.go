package cli

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode"

	"github.com/goccy/go-yaml"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/system/attack"
)

// spoilt is what a hostile node or owner adds to every text: the terminal's title, its screen, a colour by C1.
const spoilt = "\x1b]0;mine\x07\x1b[2J\u009b31m\r"

// spoil adds it to all texts in a value but those that name something, whose letters are checked.
func spoil(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() && v.Kind() == reflect.Pointer {
			spoil(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			switch f.Name {
			case "ID", "Name", "Element", "Network", "Node", "Nodes", "Link", "Interface", "Object", "Owner", "A", "B",
				"Placement", "Location", "MAC", "From", "To":
				continue
			}
			if f.IsExported() {
				spoil(v.Field(i))
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			spoil(v.Index(i))
		}
	case reflect.Map:
		for k, e := range v.Seq2() {
			c := reflect.New(e.Type()).Elem()
			c.Set(e)
			spoil(c)
			v.SetMapIndex(k, c)
		}
	case reflect.String:
		if v.Type() == reflect.TypeFor[string]() && v.CanSet() {
			v.SetString(v.String() + spoilt)
		}
	}
}

// Whatever nodes and other owners say, no command lets it control the terminal of who reads it.
func TestNothingControlsTheTerminal(t *testing.T) {
	attack.Tell(t, "a node, and a network's owner, put control characters into every text that others may read",
		"no command writes them to the terminal")
	f := lab()
	f.checked = model.CheckResult{Network: "lab", Probes: []model.ProbeResult{{From: "lab/h1", To: "lab/r2", Message: "no"}},
		States: []model.StateResult{{Expected: "x", Message: "y"}}}
	f.traced = map[string]model.Trace{"lab/r1": {Verdict: model.Forwarded, Reason: "why", Kernel: "what"},
		"lab/r2": {Verdict: model.Blackhole, Reason: "why"}, "lab/s1": {Verdict: model.ToGuest, Reason: "why"}}
	f.fib = func(model.FIBRequest) model.FIB {
		fib := model.FIB{Entries: []model.FIBEntry{{Ways: []model.FIBWay{{}}}}}
		spoil(reflect.ValueOf(&fib))
		return fib
	}
	f.trash = model.TrashList{Silent: []string{"n1: no"}}
	f.policies = []model.PolicyView{{ID: model.ID{Network: "lab", Element: "r1"}, Quarantined: true, Reason: "why"}}
	f.running = map[string]model.Running{"r1": {}}
	for _, v := range []any{&f.dump, &f.events, &f.checked, &f.traced, &f.trash, &f.policies, &f.records, &f.quotas} {
		spoil(reflect.ValueOf(v))
	}
	for _, line := range []string{"get networks", "get networks -o wide", "get networks -o yaml", "get networks -o json",
		"get nodes", "get nodes -o wide", "get nodes -o yaml", "get elements", "get elements -o wide", "get elements -o yaml",
		"get links", "get links -o wide", "get links -o json", "get events", "get events -o yaml", "get events -o json",
		"describe lab", "describe lab/h1", "describe lab/r1", "describe lab/r2", "describe lab/r1:ge-0/0/1",
		"describe lab/r1--r2", "describe node/n1", "describe node/n2", "graph lab", "graph lab --format mermaid", "check lab",
		"trash list", "trace lab/r1 10.0.0.6", "trace lab/r2 10.0.0.6", "trace lab/s1 10.0.0.6", "get fib lab/r1", "save lab", "save lab --running",
		"quarantine list", "logs lab/r1", "restart lab/r2", "quota"} {
		r := run(t, f, strings.Fields(line)...)
		for what, text := range map[string]string{"its output": r.out, "its words": r.err} {
			if at := strings.IndexFunc(text, func(c rune) bool { return unicode.IsControl(c) && c != '\n' && c != '\t' }); at >= 0 {
				t.Errorf("%s: %s controls the terminal: %q", line, what, text[max(0, at-60):min(len(text), at+30)])
			}
		}
		if r.code == ExitUsage {
			t.Errorf("%s: %s", line, r.err)
		}
	}
}

func TestLogsKeepOnlyTheirColours(t *testing.T) {
	text := "a\x1b[1;31mred\x1b[0m\tb\r\nünï\x1b]0;mine\x07\x1b[2J\x9b31m\u009b31m\x1b[999999999999999999999999999999999999999\rover\n"
	want := "a\x1b[1;31mred\x1b[0m\tb\r\nünï\\x1b]0;mine\\a\\x1b[2J\\x9b31m\\u009b31m" +
		"\\x1b[999999999999999999999999999999999999999\\rover\n"
	for size := 1; size <= len(text); size++ {
		var out strings.Builder
		w := &tamed{w: &out}
		for at := 0; at < len(text); at += size {
			if _, err := w.Write([]byte(text[at:min(len(text), at+size)])); err != nil {
				t.Fatal(err)
			}
		}
		if out.String() != want {
			t.Fatalf("in pieces of %d bytes it is\n%q\nwant\n%q", size, out.String(), want)
		}
	}
}

// What is escaped in JSON is the same text; in YAML it is what a table shows.
func TestEscapedOutputIsTheSame(t *testing.T) {
	text := spoilt + "ä<&>\u202e\U000e0041\\u001b\\\"\n\tend"
	for format, decode := range map[string]func([]byte, any) error{formatJSON: json.Unmarshal,
		formatYAML: func(b []byte, v any) error { return yaml.Unmarshal(b, v) }} {
		var b bytes.Buffer
		if err := writeValue(&b, format, map[string]string{"text": text}); err != nil {
			t.Fatal(err)
		}
		var back map[string]string
		if err := decode(b.Bytes(), &back); err != nil {
			t.Fatalf("%s: %v: %q", format, err, b.String())
		}
		want := text
		if format == formatYAML {
			want = `\u001b]0;mine\u0007\u001b[2J\u009b31m\rä<&>\u202e\udb40\udc41\u001b\"` + "\n\tend"
		}
		if strings.ContainsFunc(b.String(), func(r rune) bool { return model.Printable(string(r), "\n\t") != string(r) }) ||
			back["text"] != want {
			t.Errorf("%s: %q, which is %q", format, b.String(), back["text"])
		}
	}
}
