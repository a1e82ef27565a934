package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api/client"
)

func TestApply(t *testing.T) {
	f := lab()
	f.slow = 2
	r := runWith(t, f, duo, "apply", "-f", "-")
	if r.code != ExitOK || !strings.Contains(r.out, "duo: ready in") || !strings.Contains(r.out, "+") {
		t.Errorf("got %+v", r)
	}
	// It must be new still: somebody else's network of the same name is not overwritten.
	if len(f.applied) != 1 || f.applied[0].Base != model.BaseNew {
		t.Errorf("applied = %+v", f.applied)
	}
}

func TestApplyOfSeveralNames(t *testing.T) {
	f := lab()
	r := runWith(t, f, duo, "apply", "-f", "-", "--name", "alice,bob")
	if r.code != ExitOK || len(f.applied) != 2 || !strings.Contains(r.out, "alice, bob: ready in") {
		t.Errorf("applied %+v, %+v", f.applied, r)
	}
}

// An apply that changes nothing asks once, writes nothing and says so.
func TestApplyWithoutChanges(t *testing.T) {
	f := lab()
	f.dump.Networks[0].Phase = model.PhaseRunning
	file := "network: lab\nrouters: [a, b, c, d]\n" // as many elements as there are, which is what the fake compares
	r := runWith(t, f, file, "apply", "-f", "-")
	if r.code != ExitOK || r.out != "lab: no changes\n" || len(f.applied) != 0 {
		t.Errorf("applied %+v, %+v", f.applied, r)
	}
	if f.requests > 3 {
		t.Errorf("%d requests for nothing", f.requests)
	}
	if r := runWith(t, f, file, "plan", "-f", "-", "--exit-code"); r.code != ExitOK {
		t.Errorf("plan --exit-code without changes: %+v", r)
	}
}

// What was planned against is what the change is based on.
func TestApplyIsBasedOnWhatWasShown(t *testing.T) {
	f := lab()
	f.dump.Networks[0].Phase = model.PhaseRunning
	r := runWith(t, f, "network: lab\nrouters: [a]\n", "apply", "-f", "-", "--overwrite")
	if r.code != ExitOK || len(f.applied) != 1 || f.applied[0].Base != 3 || !f.applied[0].Overwrite {
		t.Errorf("applied %+v, %+v", f.applied, r)
	}
	if r := runWith(t, f, "network: lab\nrouters: [a]\n", "plan", "-f", "-", "--exit-code"); r.code != ExitFailed {
		t.Errorf("plan --exit-code with changes: %+v", r)
	}
	var plans []planView
	r = runWith(t, lab(), duo, "plan", "-f", "-", "-o", "json")
	if err := json.Unmarshal([]byte(r.out), &plans); err != nil || len(plans) != 1 || !plans[0].New ||
		len(plans[0].Changes) != 3 {
		t.Errorf("plan -o json: %v, %+v", err, r)
	}
}

func TestApplyTellsWhatFails(t *testing.T) {
	f := lab()
	f.fails = true
	r := runWith(t, f, duo, "apply", "-f", "-")
	if r.code != ExitFailed || !strings.Contains(r.err, "duo/r1 has failed on n1: no disk space") {
		t.Errorf("got %+v", r)
	}
}

// A failure that the agent's next try mends is none to whoever waits.
func TestShortFailuresAreWaitedOut(t *testing.T) {
	for _, command := range [][]string{{"restart", "lab/r1"}, {"set", "lab/r1", "cpu=0.7"}} {
		f := lab()
		f.trouble = 4
		if r := run(t, f, command...); r.code != ExitOK || f.trouble != 0 {
			t.Errorf("%v: %+v, %d more to come", command, r, f.trouble)
		}
		f = lab()
		f.trouble = math.MaxInt
		if r := run(t, f, command...); r.code != ExitFailed || !strings.Contains(r.err, "has failed: the next try") {
			t.Errorf("%v, for ever: %+v", command, r)
		}
	}
}

func TestApplyTimesOut(t *testing.T) {
	f := lab()
	f.never = true
	r := runWith(t, f, duo, "apply", "-f", "-", "--timeout", "60ms")
	if r.code != ExitTimeout || !strings.Contains(r.err, "goes on being applied") ||
		!strings.Contains(r.err, "node n2 is unknown") {
		t.Errorf("got %+v", r)
	}
	if r := runWith(t, f, duo, "apply", "-f", "-", "--wait=false"); r.code != ExitOK {
		t.Errorf("without waiting: %+v", r)
	}
}

// A node that says nothing for a while is waited for, and that is told: it may only be busy.
func TestApplyWaitsForMuteNodes(t *testing.T) {
	t.Parallel()
	f := lab()
	f.mute = time.Now().Add(failureGrace + 500*time.Millisecond)
	r := runWith(t, f, duo, "apply", "-f", "-", "--timeout", "1m")
	if r.code != ExitOK || strings.Count(r.err,
		"node n2 is unknown: no answer since a minute; waiting for it, at most 1m0s in all") != 1 {
		t.Errorf("got %+v", r)
	}
}

// ^C ends the waiting, says that the rest goes on, and takes nothing back.
func TestApplyInterrupted(t *testing.T) {
	f := lab()
	f.never = true
	ctx, cancel := context.WithCancel(t.Context())
	var out, errOut bytes.Buffer
	c := New(func(string) (Client, error) { return &interrupting{fake: f, cancel: cancel}, nil })
	c.In, c.Out, c.Err = strings.NewReader(duo), &out, &errOut
	c.Getenv = func(string) string { return "" }
	code := c.ExecuteContext(ctx, c.Root(), []string{"apply", "-f", "-"})
	if code != ExitInterrupted || !strings.Contains(errOut.String(), "duo goes on being applied") {
		t.Errorf("status %d, %s", code, errOut.String())
	}
	if len(f.applied) != 1 || len(f.deleted) != 0 {
		t.Errorf("applied %v, deleted %v", f.applied, f.deleted)
	}
}

// interrupting presses ^C when a command begins to wait.
type interrupting struct {
	*fake
	cancel context.CancelFunc
}

func (i *interrupting) Networks(ctx context.Context) ([]model.NetworkStatus, error) {
	i.cancel()
	return i.fake.Networks(ctx)
}

// TestDeleteAllIsTheCallersOwn has an administrator delete "all" where others have networks, too.
func TestDeleteAllIsTheCallersOwn(t *testing.T) {
	class := func() *fake {
		f := lab()
		f.who = &model.Whoami{Instance: "default", User: "carol", Role: model.RoleAdmin}
		one := f.dump.Networks[0]
		f.dump.Networks = nil
		for name, owner := range map[string]string{"duo": "ann", "trio": "ann", "mine": "carol", "system": "",
			"far": "ben"} {
			one.Name, one.Owner, one.Phase = name, owner, model.PhaseRunning
			if name == "far" {
				one.Phase = model.PhaseHeld
			}
			f.dump.Networks = append(f.dump.Networks, one)
		}
		slices.SortFunc(f.dump.Networks, func(a, b model.NetworkStatus) int {
			return strings.Compare(a.Name, b.Name)
		})
		return f
	}
	for _, c := range []struct {
		answer, args, deleted string
		code                  int
		says                  string
	}{
		{"", "--all", "mine", ExitOK, "3 networks are not yours and stay (without an owner: system; ann: duo, trio); " +
			"--all-owners removes them as well"},
		{"", "--all-owners", "", ExitRefused, "3 networks are of other owners (without an owner: system; " +
			"ann: duo, trio). Remove them"},
		{"no\n", "--all-owners", "", ExitRefused, "nothing was removed"},
		{"y\n", "--all-owners", "duo mine system trio", ExitOK, ""},
		{"YES", "--all --all-owners", "duo mine system trio", ExitOK, ""},
		{"", "--all-owners --yes", "duo mine system trio", ExitOK, ""},
		{"", "--all --yes", "", ExitUsage, "--all-owners"},
		{"", "--all-owners mine", "", ExitUsage, "exclude each other"},
	} {
		f := class()
		r := runWith(t, f, c.answer, append([]string{"delete", "--wait=false"}, strings.Fields(c.args)...)...)
		slices.Sort(f.deleted)
		got := strings.Join(f.deleted, " ")
		if got != c.deleted || r.code != c.code || !strings.Contains(r.err, c.says) {
			t.Errorf("delete %s, answered %q, removed %q (want %q), status %d: %s", c.args, c.answer, got, c.deleted,
				r.code, r.err)
		}
	}
	// Root on the manager's machine has what root applied there, and what has no owner.
	f := class()
	f.who = &model.Whoami{Instance: "default", Role: model.RoleAdmin}
	for i := range f.dump.Networks {
		if f.dump.Networks[i].Name == "trio" {
			f.dump.Networks[i].Owner = "root"
		}
	}
	if r := run(t, f, "delete", "--all", "--wait=false"); r.code != ExitOK ||
		strings.Join(f.deleted, " ") != "system trio" || !strings.Contains(r.err, "(ann: duo; carol: mine)") {
		t.Errorf("root deleted %v: %+v", f.deleted, r)
	}
	f = class()
	f.dump.Networks = f.dump.Networks[2:3]
	if r := run(t, f, "delete", "--all-owners", "--wait=false"); r.code != ExitOK || r.err != "" ||
		!slices.Equal(f.deleted, []string{"mine"}) {
		t.Errorf("with nobody else's, deleted are %v: %+v", f.deleted, r)
	}
}

func TestDelete(t *testing.T) {
	f := lab()
	r := run(t, f, "delete", "lab", "lab", "line")
	if r.code != ExitOK || strings.Join(f.deleted, " ") != "lab line" ||
		!strings.Contains(r.out, "lab, line removed in") {
		t.Errorf("deleted %v, %+v", f.deleted, r)
	}
	f = lab()
	f.who = &model.Whoami{Instance: "default", Role: model.RoleAdmin}
	if r := run(t, f, "delete", "--all", "--wait=false"); r.code != ExitOK || len(f.deleted) != 2 || r.err != "" {
		t.Errorf("deleted %v, %+v", f.deleted, r)
	}
	f = lab()
	if r := runWith(t, f, strings.Replace(duo, "duo", "lab", 1), "delete", "-f", "-"); r.code != ExitOK ||
		len(f.deleted) != 1 {
		t.Errorf("deleted %v, %+v", f.deleted, r)
	}
	if r := run(t, f, "delete", "nope", "--ignore-not-found"); r.code != ExitOK {
		t.Errorf("--ignore-not-found: %+v", r)
	}
	if r := run(t, f, "delete", "line", "nope"); r.code != ExitNotFound || len(f.deleted) != 1 {
		t.Errorf("one unknown name must keep all: deleted %v, %+v", f.deleted, r)
	}
}

func TestActions(t *testing.T) {
	f := lab()
	r := run(t, f, "stop", "lab/h1", "lab/r1")
	if r.code != ExitOK || r.out != "lab/h1 stopped\nlab/r1 stopped\n" ||
		strings.Join(f.acted, ",") != "stop lab/h1,stop lab/r1" {
		t.Errorf("acted %v, %+v", f.acted, r)
	}
	if r := run(t, f, "restart", "lab/h1"); r.code != ExitOK || r.out != "lab/h1 restarted\n" {
		t.Errorf("got %+v", r)
	}
}

func TestExec(t *testing.T) {
	f := lab()
	f.exit = 42
	r := runWith(t, f, "some input", "exec", "lab/r1", "--", "grep", "-c", "x", "--", "y")
	if r.code != 42 || r.out != "some input" || r.err != "on stderr\n" {
		t.Errorf("got %+v", r)
	}
	command := f.commands[0]
	if strings.Join(command.Args, " ") != "grep -c x -- y" || command.TTY {
		t.Errorf("command = %+v", command)
	}
	f.exit = 0
	if r := runWith(t, f, "eaten?", "exec", "-n", "-e", "A=b", "lab/r1", "ls", "-l"); r.code != ExitOK || r.out != "" {
		t.Errorf("got %+v", r)
	}
	if c := f.commands[1]; strings.Join(c.Args, " ") != "ls -l" || strings.Join(c.Env, " ") != "A=b" {
		t.Errorf("command = %+v", c)
	}
	if r := runWith(t, f, "", "exec", "lab/r1", "-n", "-e", "A=c", "--", "ls", "-T"); r.code != ExitOK {
		t.Errorf("got %+v", r)
	}
	if c := f.commands[2]; strings.Join(c.Args, " ") != "ls -T" || strings.Join(c.Env, " ") != "A=c" {
		t.Errorf("command = %+v", c)
	}
}

func TestExecDetached(t *testing.T) {
	f := lab()
	r := runWith(t, f, "eaten?", "exec", "-d", "lab/r1", "--", "iperf3", "-s")
	if c := f.commands[0]; r.code != ExitOK || r.out != "" || !c.Detach || c.TTY || strings.Join(c.Args, " ") != "iperf3 -s" {
		t.Errorf("got %+v, command = %+v", r, c)
	}
	if r := runWith(t, f, "", "exec", "-d", "-t", "lab/r1", "sh"); r.code != ExitUsage ||
		!strings.Contains(r.err, "--tty and --detach exclude each other") {
		t.Errorf("got %+v", r)
	}
}

func TestPing(t *testing.T) {
	for args, want := range map[string]string{
		"lab/h1 lab/r1":             "ping -n -i 0.2 -s 56 -c 4 10.0.0.1",
		"lab/h1 r1 -6":              "ping -n -i 0.2 -s 56 -c 4 fd00::1",
		"lab/h1 r2":                 "ping -n -i 0.2 -s 56 -c 4 10.255.0.2", // not a neighbour: its loopback
		"lab/r1 r2 -c 0 -i 1 -s 10": "ping -n -i 1 -s 10 10.0.0.6",
		"lab/r1 2001:db8::1":        "ping -n -i 0.2 -s 56 -c 4 2001:db8::1",
		"-c1 lab/h1 h1":             "ping -n -i 0.2 -s 56 -c 1 10.0.0.2",
		"lab/h1 192.0.2.1 -c 2":     "ping -n -i 0.2 -s 56 -c 2 192.0.2.1",
	} {
		f := lab()
		r := run(t, f, append([]string{"ping"}, strings.Fields(args)...)...)
		if r.code != ExitOK || strings.Join(f.commands[0].Args, " ") != want {
			t.Errorf("%s: %v, want %s; %+v", args, f.commands, want, r)
		}
	}
	f := lab()
	f.exit = 1
	if r := run(t, f, "ping", "lab/h1", "r1"); r.code != 1 || strings.Contains(r.err, "polyplane") {
		t.Errorf("no answer: %+v", r)
	}
}

func TestLogsAndVersion(t *testing.T) {
	if r := run(t, lab(), "logs", "lab/r1"); r.code != ExitOK || r.out != "zebra started\n" {
		t.Errorf("got %+v", r)
	}
	if r := run(t, lab(), "version"); !strings.HasPrefix(r.out, "polyplane 1.2.3") ||
		!strings.Contains(r.out, "running for 60m") {
		t.Errorf("got %+v", r)
	}
	if r := run(t, &fake{down: true}, "version"); r.code != ExitOK || !strings.Contains(r.out, "not running") {
		t.Errorf("got %+v", r)
	}
	if r := run(t, lab(), "schema"); r.out != "{}\n" {
		t.Errorf("got %+v", r)
	}
}

func TestCheck(t *testing.T) {
	f := lab()
	if r := run(t, f, "check", "lab", "--mesh"); r.code != ExitFailed || strings.Contains(r.err, "check lab --mesh") ||
		!strings.Contains(r.err, "no pair of hosts to probe") {
		t.Errorf("without a pair --mesh says %+v", r)
	}
	f.checked = model.CheckResult{Network: "lab", Probes: []model.ProbeResult{
		{From: "lab/h1", To: "lab/r2", Address: prefixes("10.0.0.6/30")[0].Addr(), OK: true, Reached: true,
			RTT: 340 * time.Microsecond},
		{From: "lab/h1", To: "lab/h2", Address: prefixes("10.0.1.2/30")[0].Addr(), Reached: true, Answered: "eve/h2",
			RTT: time.Millisecond},
		{From: "lab/h1", To: "lab/s1", Address: prefixes("10.0.2.2/30")[0].Addr(), Not: true, OK: true},
		{From: "lab/h2", To: "lab/s1", Address: prefixes("10.0.2.2/30")[0].Addr(), Not: true, Reached: true},
	}}
	r := run(t, f, "check", "lab")
	if r.code != ExitFailed || r.err != "" {
		t.Errorf("got %+v", r)
	}
	golden(t, "check.txt", r.out)
	f.checked.States = []model.StateResult{
		{Expected: "r1 ospf neighbor r2 full", OK: true, Message: "Full"},
		{Expected: "r1 no route 10.9.0.0/16", OK: true},
		{Expected: "r1 bgp neighbor r2 established", Message: "r1: BGP neighbour r2 is Active, not Established"},
	}
	golden(t, "check-states.txt", run(t, f, "check", "lab").out)
	f.checked.OK, f.checked.Probes, f.checked.States = true, nil, f.checked.States[:2]
	if r := run(t, f, "check", "lab"); r.code != ExitOK || !strings.Contains(r.out, "all 2 states as expected") {
		t.Errorf("got %+v", r)
	}
	f.checked.Probes, f.checked.States = []model.ProbeResult{{From: "lab/h1", To: "lab/r2", OK: true, Reached: true,
		Address: prefixes("10.0.0.6/30")[0].Addr()}}, nil
	if r := run(t, f, "check", "lab"); r.code != ExitOK || !strings.Contains(r.out, "all 1 probes as expected") {
		t.Errorf("got %+v", r)
	}
	f.checked.OK = false
	if r := run(t, f, "check", "lab", "-o", "json"); r.code != ExitFailed || !strings.Contains(r.out, `"ok": false`) {
		t.Errorf("got %+v", r)
	}
}

// Agents that are starting are waited for, with a word; one that does not come is named.
func TestApplyWaitsForAgents(t *testing.T) {
	for _, command := range []string{"plan", "apply"} {
		f := lab()
		f.dump.Nodes[1].LastSeen = time.Time{}
		f.late, f.patience = 3, time.Hour
		r := runWith(t, f, duo, command, "-f", "-")
		if r.code != ExitOK || strings.Count(r.err, "waiting for the agent of node n2 to report") != 1 ||
			(len(f.applied) == 1) != (command == "apply") {
			t.Errorf("%s: applied %v, %+v", command, f.applied, r)
		}
		f = lab()
		f.dump.Nodes[1].LastSeen, f.patience = time.Time{}, time.Millisecond
		r = runWith(t, f, duo, command, "-f", "-")
		if r.code != ExitRefused || !strings.Contains(r.err, "the agent of node n2 has not reported") ||
			len(f.applied) != 0 {
			t.Errorf("%s: applied %v, %+v", command, f.applied, r)
		}
	}
	// What is refused for another reason is not waited for.
	f := lab()
	f.patience = time.Hour
	f.refusals = map[string]error{"duo": &client.Error{Status: 503, Detail: "the store does not answer"}}
	if r := runWith(t, f, duo, "apply", "-f", "-"); r.code != ExitRefused ||
		!strings.Contains(r.err, "the store does not answer") {
		t.Errorf("got %+v", r)
	}
}

// All networks of a file are asked for at once, those that change nothing with what they are based on.
func TestApplyOfSeveralIsOneRequest(t *testing.T) {
	f := lab()
	f.dump.Networks[0].Phase = model.PhaseRunning
	file := "network: lab\nrouters: [a]\n---\n" + duo
	if r := runWith(t, f, file, "apply", "-f", "-"); r.code != ExitOK || len(f.applied) != 2 ||
		f.applied[0].Base != 3 || f.applied[1].Base != model.BaseNew {
		t.Errorf("applied %+v, %+v", f.applied, r)
	}
	f = lab()
	f.refusals = map[string]error{"duo": &client.Error{Status: 422, Detail: "1 of 2 networks are refused",
		Reasons: []client.Reason{{Message: "network duo does not fit"}}}}
	if r := runWith(t, f, file, "apply", "-f", "-"); r.code != ExitRefused || len(f.applied) != 0 ||
		!strings.Contains(r.err, "network duo does not fit") {
		t.Errorf("applied %+v, %+v", f.applied, r)
	}
}

// A node is told of what concerns it only: its revision stays behind that of others, and nobody waits for it.
func TestActionsWaitForTheirOwnRevision(t *testing.T) {
	f := lab()
	f.revision = 7
	f.dump.Nodes[0].Revision = 7
	if r := run(t, f, "stop", "lab/h1"); r.code != ExitOK || r.out != "lab/h1 stopped\n" {
		t.Errorf("got %+v", r)
	}
	f.dump.Nodes[0].Revision = 5
	if r := run(t, f, "stop", "lab/h1"); r.code != ExitOK || r.out != "lab/h1 is stopped already\n" {
		t.Errorf("what is so already: %+v", r)
	}
	if r := run(t, f, "start", "lab/r1", "--timeout", "1m"); r.code != ExitOK ||
		r.out != "lab/r1 is running already\n" {
		t.Errorf("what is so already: %+v", r)
	}
	// A change that the node has not made yet is waited for.
	if r := run(t, f, "restart", "lab/r1", "--timeout", "100ms"); r.code != ExitTimeout {
		t.Errorf("got %+v", r)
	}
}

// --overwrite of what the file says already replaces what was edited, and says so instead of counting nothing.
func TestOverwriteTellsWhatItReplaces(t *testing.T) {
	for _, command := range []string{"plan", "apply"} {
		f := lab()
		f.dump.Networks[0].Phase = model.PhaseRunning
		r := runWith(t, f, "network: lab\nrouters: [a, b, c, d]\n", command, "-f", "-", "--overwrite")
		if r.code != ExitOK || !strings.HasPrefix(r.out,
			"network lab: the file says nothing new\n  note: edited inside r1\n") || strings.Contains(r.out, "0 to") {
			t.Errorf("%s: %+v", command, r)
		}
	}
}

// Two people apply at once: the later plans anew, on what the earlier has made.
func TestApplyPlansAgainAfterAConflict(t *testing.T) {
	f := lab()
	f.dump.Networks[0].Phase = model.PhaseRunning
	f.conflicts = 2
	r := runWith(t, f, "network: lab\nrouters: [a]\n", "apply", "-f", "-")
	if r.code != ExitOK || len(f.applied) != 1 || f.applied[0].Base != 5 || strings.Count(r.err, "planned again") != 2 {
		t.Errorf("applied %+v, %+v", f.applied, r)
	}
	f = lab()
	f.conflicts = 100
	if r := runWith(t, f, "network: lab\nrouters: [a]\n", "apply", "-f", "-"); r.code != ExitRefused ||
		!strings.Contains(r.err, "changed meanwhile") {
		t.Errorf("for ever: %+v", r)
	}
}

func TestManyNetworksAreCounted(t *testing.T) {
	f := lab()
	var names []string
	for i := range 20 {
		names = append(names, "n"+strconv.Itoa(i))
	}
	if r := runWith(t, f, duo, "apply", "-f", "-", "--name", strings.Join(names, ",")); r.code != ExitOK ||
		!strings.Contains(r.out, "\n20 networks: ready in") {
		t.Errorf("got %+v", r)
	}
}

func TestCobraSpeaksLikeUs(t *testing.T) {
	for text, want := range map[string]string{
		"if any flags in the group [nodes substrate host] are set none of the others can be; [host nodes] were all " +
			"set": "--host and --nodes exclude each other",
		`unknown command "extra" for "polyplane up"`: `unexpected argument "extra"`,
	} {
		if got := cobraWords(text); got != want {
			t.Errorf("%q", got)
		}
	}
}

func TestFollowedEventsBeginWithTheLast(t *testing.T) {
	r := run(t, lab(), "get", "events", "-w", "-n", "2", "-o", "json")
	if strings.Count(r.out, "\n") != 2 || !strings.Contains(r.out, `"seq":4`) || !strings.Contains(r.out, `"seq":5`) {
		t.Errorf("got %+v", r)
	}
}
