package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

func TestSet(t *testing.T) {
	f := lab()
	if r := run(t, f, "set", "lab/r1", "cpu=0.25", "processes=100"); r.code != ExitOK ||
		r.out != "lab/r1 cpu: 0.5 → 0.25\nlab/r1 processes: unset → 100\n" {
		t.Errorf("got %+v", r)
	}
	if r := run(t, f, "set", "lab/r1", "processes=100"); r.code != ExitOK || r.out != "lab/r1 is so already\n" {
		t.Errorf("got %+v", r)
	}
	if r := run(t, f, "set", "lab", "bandwidth=1Gbit"); r.code != ExitOK || r.out != "lab bandwidth: unset → 1Gbit\n" {
		t.Errorf("got %+v", r)
	}
	var view setView
	r := run(t, f, "set", "lab/h1--r1", "loss=1%", "-o", "json")
	if err := json.Unmarshal([]byte(r.out), &view); err != nil || view.Object != "h1--r1" || !view.Changed ||
		len(view.Changes) != 1 {
		t.Errorf("%v, got %+v", err, r)
	}
	for args, want := range map[string]string{
		"lab/r1 cpu":             `"cpu" sets nothing: KEY=VALUE is expected`,
		"lab/r1":                 "KEY=VALUE is missing",
		"lab/r1:h1 cpu=1":        "is an interface",
		"lab/rr1 cpu=1":          `network lab has no element or link "rr1"; did you mean r1?`,
		"nope cpu=1":             `there is no network "nope"`,
		"lab/r1 color=red":       `no key "color" that can be set; there are cpu=0.5`,
		"lab/h1--r1 memory=1GiB": "a link has no key",
		"lab/r1 memory=1 cpu=x":  "memory:",
	} {
		if r := run(t, lab(), append([]string{"set"}, strings.Fields(args)...)...); r.code == ExitOK ||
			!strings.Contains(r.err, want) {
			t.Errorf("%s: %+v, want %q", args, r, want)
		}
	}
	// What makes no sense of anything is a mistake of the command line, as the same is in a file; all of it is told.
	for args, want := range map[string]string{
		"lab/r1 memory=1":                   "lab/r1 is not changed: memory: \"1\" is no size: it has no unit",
		"lab/r1 memory=1MiB":                "is less than the 8MiB",
		"lab/h1--r1 loss=2":                 "more than all packets",
		"lab slice=1 memory=1":              "has no unit",
		"lab/r1 ospf.hello=1500ms":          "not a whole number of seconds",
		"lab/r1 memory=1 cpu=x open-files=": "cpu:",
	} {
		f := lab()
		if r := run(t, f, append([]string{"set"}, strings.Fields(args)...)...); r.code != ExitUsage ||
			!strings.Contains(r.err, want) {
			t.Errorf("%s: %+v, want %q", args, r, want)
		}
	}
	// A node that has not done it is waited for.
	f.revision = 7
	if r := run(t, f, "set", "lab/r1", "cpu=0.75", "--timeout", "60ms"); r.code != ExitTimeout ||
		!strings.Contains(r.err, "not yet in place on n1") {
		t.Errorf("got %+v", r)
	}
	if r := run(t, f, "set", "lab/r1", "cpu=0.8", "--wait=false"); r.code != ExitOK {
		t.Errorf("got %+v", r)
	}
}

func TestSetCompletes(t *testing.T) {
	for args, want := range map[string]string{
		"set lab/r":                   "lab/r1 lab/r2 lab/r1--r2",
		"set lab ":                    "bandwidth= cpu= memory= mode= owner=",
		"set lab/r1 cpu=1 ":           "memory= processes= open-files= disk= forwarding=",
		"set lab/h1--r1 b":            "bandwidth=",
		"set lab/h1 forwarding=":      "forwarding=guest",
		"set lab/h1 attack=":          "attack=tell attack=quarantine attack=stop attack=delete",
		"set lab attack=q":            "attack=quarantine",
		"set lab/r1 hook=":            "hook=auto hook=tc hook=xdp",
		"set lab/h1--r1 state=":       "state=up state=down",
		"quota ow":                    "owner/alice",
		"quota owner/alice cpu=1 net": "networks=",
		"suspend lab/r":               "lab/r1 lab/r2",
	} {
		f := lab()
		f.quotas = []model.QuotaStatus{{Kind: model.QuotaOfOwner, Name: "alice"},
			{Kind: model.QuotaOfNetwork, Name: "lab"}}
		words := strings.Fields(args)
		if strings.HasSuffix(args, " ") {
			words = append(words, "")
		}
		got := strings.Fields(complete(t, f, words...))
		for _, w := range strings.Fields(want) {
			if !strings.Contains(" "+strings.Join(got, " ")+" ", " "+w+" ") {
				t.Errorf("%q offers %q, want %q", args, got, want)
			}
		}
	}
}

func TestQuota(t *testing.T) {
	f := lab()
	if r := run(t, f, "quota"); r.code != ExitOK || r.out != "there are no networks and no quotas yet\n" {
		t.Errorf("got %+v", r)
	}
	f.quotas = []model.QuotaStatus{
		{Kind: model.QuotaOfOwner, Name: "alice", Limit: model.Quota{Networks: 3, CPU: 4000, Memory: 8 << 30},
			Used: model.Quota{Networks: 1, Elements: 4, CPU: 500, Memory: 600 << 20}},
		{Kind: model.QuotaOfNetwork, Name: "lab", Used: model.Quota{Elements: 4, CPU: 500, Memory: 600 << 20}}}
	r := run(t, f, "quota")
	for _, want := range []string{"owner/alice     1 of 3", "0.5 of 4", "600MiB of 8GiB", "lab"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("%q is missing in\n%s", want, r.out)
		}
	}
	if r := run(t, f, "quota", "owner/bob"); r.code != ExitNotFound || !strings.Contains(r.err, "known owners: alice") {
		t.Errorf("got %+v", r)
	}
	if r := run(t, f, "quota", "owner/bob", "cpu=2", "networks=1"); r.code != ExitOK ||
		!strings.Contains(r.out, "0 of 1") || !strings.Contains(r.out, "0 of 2") {
		t.Errorf("got %+v", r)
	}
	if r := run(t, f, "quota", "lab/r1", "cpu=2"); r.code != ExitUsage {
		t.Errorf("got %+v", r)
	}
}

func TestSuspend(t *testing.T) {
	f := lab()
	r := run(t, f, "suspend", "lab/r1")
	if r.code != ExitOK || r.out != "lab/r1 suspended\n" || strings.Join(f.acted, ",") != "suspend lab/r1" {
		t.Errorf("acted %v, %+v", f.acted, r)
	}
	if r := run(t, f, "exec", "lab/r1", "--", "true"); r.code == ExitOK ||
		!strings.Contains(r.err, "polyplane resume lab/r1") {
		t.Errorf("got %+v", r)
	}
	if r := run(t, f, "resume", "lab/r1"); r.code != ExitOK || r.out != "lab/r1 resumed\n" {
		t.Errorf("got %+v", r)
	}
}

// Who has typed the command owns what it makes, also behind sudo.
func TestApplyTellsTheOwner(t *testing.T) {
	for env, want := range map[string]string{"SUDO_USER=alice USER=root": "alice", "USER=bob": "bob", "": "root"} {
		c := &CLI{Getenv: func(key string) string {
			for _, v := range strings.Fields(env) {
				if name, value, _ := strings.Cut(v, "="); name == key {
					return value
				}
			}
			return ""
		}}
		if got := c.User(); got != want {
			t.Errorf("%s: %q, want %q", env, got, want)
		}
	}
}
