package cli

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api/client"
)

// Every failure has its status, says what is wrong and what would be right, in words and without a stack trace.
func TestFailures(t *testing.T) {
	stopped := lab()
	stopped.dump.Elements[0].Phase = model.PhaseStopped
	down := &fake{down: true}
	for _, test := range []struct {
		f    *fake
		args string
		code int
		says []string
	}{
		{lab(), "gte", ExitUsage, []string{`no command "gte"`, "did you mean get?"}},
		{lab(), "get", ExitUsage, []string{"networks, nodes, elements, links, substrate, moves, events or fib", "Usage:"}},
		{lab(), "get elemnts", ExitUsage, []string{"did you mean elements?"}},
		{lab(), "get networks lab", ExitUsage, []string{`unexpected argument "lab"`}},
		{lab(), "get networks --outputt json", ExitUsage, []string{"unknown flag"}},
		{lab(), "get networks -o xml", ExitUsage, []string{"one of json, yaml, wide, name is expected"}},
		{lab(), "get elements lub", ExitNotFound, []string{`there is no network "lub"`, "did you mean lab?"}},
		{lab(), "get elements zzzzzz", ExitNotFound, []string{"known networks: lab, line"}},
		{lab(), "get elements lab/x9", ExitNotFound, []string{`network lab has no element "x9"`,
			"known elements: h1, r1, r2, s1"}},
		{lab(), "get links lab:r1", ExitUsage, []string{"NET/ELEMENT"}},
		{lab(), "describe lab/r1:ge-0/0/2", ExitNotFound, []string{"did you mean ge-0/0/1?"}},
		{lab(), "describe lab/r11", ExitNotFound, []string{"did you mean"}},
		{lab(), "describe node/n3", ExitNotFound, []string{`no node "n3"`, "n1 or n2"}},
		{lab(), "describe", ExitUsage, []string{"NET/ELEMENT:IF or node/NAME is missing"}},
		{lab(), "graph labb", ExitNotFound, []string{"did you mean lab?"}},
		{lab(), "graph lab --format svg", ExitUsage, []string{"dot, mermaid"}},
		{lab(), "save nope", ExitNotFound, []string{"known networks"}},
		{lab(), "delete", ExitUsage, []string{"NET…, -f FILE or --all"}},
		{lab(), "delete lab/r1", ExitUsage, []string{"whole networks are removed"}},
		{lab(), "delete lab lin", ExitNotFound, []string{"did you mean line?"}},
		{lab(), "delete lab --all", ExitUsage, []string{"exclude each other"}},
		{lab(), "stop lab", ExitUsage, []string{"NET/ELEMENT is expected, such as lab/r1"}},
		{lab(), "stop lab/r9", ExitNotFound, []string{"r1"}},
		{lab(), "exec lab/r1", ExitUsage, []string{"the command to run in lab/r1 is missing"}},
		{lab(), "exec lab/x1 ip a", ExitNotFound, []string{`no element "x1"`}},
		{stopped, "exec lab/h1 -- ls", ExitFailed, []string{"lab/h1 is stopped", "polyplane start lab/h1"}},
		{lab(), "exec lab/r2 -- ls", ExitFailed, []string{"lab/r2 has failed: runc: exit status 1"}},
		{lab(), "console lab/r1", ExitUsage, []string{"needs a terminal", "polyplane exec lab/r1 -- COMMAND"}},
		{lab(), "ping lab/h1", ExitUsage, []string{"NET/A and NET/B or an address is missing"}},
		{lab(), "ping lab/h1 line/r1", ExitFailed, []string{"separate networks"}},
		{lab(), "ping lab/h1 s1", ExitFailed, []string{"has no address", "polyplane describe lab/s1"}},
		{lab(), "ping -4 -6 lab/h1 r1", ExitUsage, []string{"exclude each other"}},
		{lab(), "ping -s 70000 lab/h1 r1", ExitUsage, []string{"0 to 65507"}},
		{lab(), "ping lab/h1 r1 -i 0", ExitUsage, []string{"seconds"}},
		{lab(), "capture lab/r1", ExitUsage, []string{"NET/ELEMENT:IF is expected"}},
		{lab(), "capture lab/r1:h2", ExitNotFound, []string{"did you mean h1?"}},
		{lab(), "check nope", ExitNotFound, []string{"known networks"}},
		{lab(), "check lab", ExitFailed, []string{"nothing was checked", "--mesh"}},
		{lab(), "example dou", ExitNotFound, []string{"did you mean duo?"}},
		{lab(), "example line --routers 0", ExitUsage, []string{"routers 0: 1 to"}},
		{lab(), "example duo --routers 5", ExitUsage, []string{"example line"}},
		{lab(), "plan", ExitUsage, []string{"-f FILE is missing"}},
		{lab(), "apply -f /nonexistent/x.yaml", ExitUsage, []string{"there is no file /nonexistent/x.yaml",
			"polyplane example"}},
		{lab(), "top -d 1ms", ExitUsage, []string{"100ms or more"}},
		{down, "get networks", ExitNotRunning, []string{"not running", "polyplane up"}},
		{down, "describe lab/r1", ExitNotRunning, []string{"polyplane up"}},
		{down, "exec lab/r1 -- ls", ExitNotRunning, []string{"polyplane up"}},
		{down, "top", ExitNotRunning, []string{"polyplane up"}},
		{down, "delete lab", ExitNotRunning, []string{"polyplane up"}},
		{down, "get events", ExitNotRunning, []string{"polyplane up"}},
		{down, "check lab", ExitNotRunning, []string{"polyplane up"}},
		{down, "capture lab/r1:h1", ExitNotRunning, []string{"polyplane up"}},
	} {
		r := run(t, test.f, strings.Fields(test.args)...)
		if r.code != test.code {
			t.Errorf("%s: status %d, want %d (%s)", test.args, r.code, test.code, r.err)
		}
		if !strings.HasPrefix(r.err, "polyplane") {
			t.Errorf("%s: the message does not begin with what was being done: %s", test.args, r.err)
		}
		for _, s := range test.says {
			if !strings.Contains(r.err, s) {
				t.Errorf("%s: %q is not in: %s", test.args, s, r.err)
			}
		}
	}
}

const duo = "network: duo\nrouters: [r1, r2]\nlinks:\n  - r1 -- r2\n"

// One bad document keeps all the others from being applied.
func TestNothingIsAppliedWhenOneFileIsBad(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a.yaml": duo, "b.yml": "network: two\nrouters: [r1]\nlink: []\n",
		"c.txt": "ignored"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f := lab()
	r := run(t, f, "apply", "-f", dir)
	if r.code != ExitUsage || !strings.Contains(r.err, "b.yml:3") || !strings.Contains(r.err, "links") {
		t.Errorf("got %+v", r)
	}
	f.refusals = map[string]error{"bob": &client.Error{Status: http.StatusUnprocessableEntity,
		Detail: "it does not fit", Reasons: []client.Reason{{Message: "no node has 3 cores"}}}}
	r = runWith(t, f, duo, "apply", "-f", "-", "--name", "alice,bob")
	if r.code != ExitRefused || !strings.Contains(r.err, "it does not fit: no node has 3 cores") {
		t.Errorf("got %+v", r)
	}
	if len(f.applied) != 0 {
		t.Errorf("%d networks were applied", len(f.applied))
	}
}

func TestNames(t *testing.T) {
	for _, test := range []struct {
		stdin, names, says string
		code               int
	}{
		{duo, "alice,alice", "twice", ExitUsage},
		{duo, "a/b/c", "no owner", ExitUsage},
		{duo + "---\n" + strings.Replace(duo, "duo", "trio", 1), "alice",
			"renames one network, and there are 2", ExitUsage},
		{"", "", "no network", ExitUsage},
		{"{", "", "YAML", ExitUsage},
	} {
		args := []string{"apply", "-f", "-"}
		if test.names != "" {
			args = append(args, "--name", test.names)
		}
		if r := runWith(t, lab(), test.stdin, args...); r.code != test.code || !strings.Contains(r.err, test.says) {
			t.Errorf("%q named %s: %+v", test.stdin, test.names, r)
		}
	}
}

func TestEditDistance(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "", 3}, {"lab", "lba", 1}, {"lab", "lub", 1}, {"kitten", "sitting", 3}} {
		if got := editDistance(test.a, test.b); got != test.want {
			t.Errorf("editDistance(%q, %q) = %d, want %d", test.a, test.b, got, test.want)
		}
	}
}

// What only the instance can refuse is told as the file's own mistakes are: with line and excerpt.
func TestRefusalsNameTheLine(t *testing.T) {
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one.yaml"), filepath.Join(dir, "two.yaml")
	for path, text := range map[string]string{
		one: "network: one\nhosts:\n  h1: {gateway: 192.0.2.7}\nrouters: [r1]\nlinks:\n  - h1 -- r1\n---\nnetwork: " +
			"other\nrouters: [r1]\n",
		two: "network: two\nrouters:\n  r1: {cpu: 500}\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	of := func(network, name, field, message string) client.Reason {
		return client.Reason{Message: message, Problems: []model.Problem{{Network: network, About: model.AboutElement,
			Name: name, Field: field, Message: message}}}
	}
	refusal := &client.Error{Status: http.StatusUnprocessableEntity, Detail: "2 of 3 networks are refused",
		Reasons: []client.Reason{
			of("one", "h1", "gateways", "host h1: the gateway is far away"),
			of("two", "r1", "cpu", "r1 needs 500 cores"),
			{Message: "and 7 more"}}}
	want := "2 of 3 networks are refused:\n" +
		one + ":3:17: host h1: the gateway is far away\n     1 | network: one\n     2 | hosts:\n>    3 |   h1: " +
		"{gateway: 192.0.2.7}\n       |                 ^^^^^^^^^\n" +
		two + ":3:13: r1 needs 500 cores\n     1 | network: two\n     2 | routers:\n>    3 |   r1: {cpu: 500}\n      " +
		" |             ^^^\nand 7 more\n"
	for _, command := range []string{"plan", "apply"} {
		f := lab()
		f.refusals = map[string]error{"one": refusal}
		if r := run(t, f, command, "-f", one, "-f", two); r.code != ExitRefused || r.err != "polyplane "+command+": "+
			want || len(f.applied) > 0 {
			t.Errorf("%s: got %+v, want %s", command, r, want)
		}
	}
	f := lab()
	f.refusals = map[string]error{"alice": &client.Error{Status: http.StatusUnprocessableEntity,
		Detail:  "network alice is refused",
		Reasons: []client.Reason{of("alice", "r1", "cpu", "r1 needs 500 cores")}}}
	if r := run(t, f, "apply", "-f", two, "--name", "alice"); r.code != ExitRefused ||
		!strings.Contains(r.err, "network alice is refused:\n"+two+":3:13: r1 needs") {
		t.Errorf("renamed: got %+v", r)
	}
}

// Messages name commands that can be typed as they stand: for the instance that this one was for.
func TestHintsNameTheInstance(t *testing.T) {
	stopped := lab()
	for i := range stopped.dump.Elements {
		stopped.dump.Elements[i].Phase = model.PhaseStopped
	}
	stopped.events = append(stopped.events, model.Event{Seq: 6, Time: now, Severity: model.Warning, Object: "lab/h1",
		Reason: "MemoryLimit",
		Message: "its memory limit was reached (`polyplane set lab/h1 memory=` with more raises it; `polyplane " +
			"example duo | polyplane apply -f -`; " +
			"`polyplane up --instance other`)"})
	for _, c := range []struct {
		args, says string
	}{
		{"--instance two exec lab/h1 -- ls", "`polyplane --instance two start lab/h1`"},
		{"exec lab/h1 -- ls", "`polyplane start lab/h1`"},
		{"--instance default exec lab/h1 -- ls", "`polyplane start lab/h1`"},
		{"--instance two get events", "`polyplane --instance two set lab/h1 memory=` with"},
		{"--instance two get events", "`polyplane example duo | polyplane --instance two apply -f -`"},
		{"--instance two get events", "`polyplane up --instance other`"},
		{"--instance two quarantine lab/h1", "`polyplane --instance two release lab/h1` ends it"},
	} {
		if r := run(t, stopped, strings.Fields(c.args)...); !strings.Contains(r.out+r.err, c.says) {
			t.Errorf("%s: %q is not in: %s%s", c.args, c.says, r.out, r.err)
		}
	}
	var out bytes.Buffer
	c := New(func(string) (Client, error) { return stopped, nil })
	c.In, c.Out, c.Err, c.Now = strings.NewReader(""), &out, &out, func() time.Time { return now }
	c.Getenv = func(name string) string { return map[string]string{instance.Variable: "two"}[name] }
	c.ExecuteContext(t.Context(), c.Root(), []string{"exec", "lab/h1", "--", "ls"})
	if !strings.Contains(out.String(), "`polyplane start lab/h1`") {
		t.Errorf("where the environment names the instance it says %s", out.String())
	}
}
