package cli

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/trust"
)

func TestTokenCreate(t *testing.T) {
	for _, c := range []struct {
		args []string
		want model.TokenRequest
		out  string
	}{
		{nil, model.TokenRequest{}, "polyplane join --manager 192.0.2.1:7455 --token pp1.text -d\n"},
		{[]string{"--node", "rio-1", "--ttl", "12h"}, model.TokenRequest{Node: "rio-1", TTL: 12 * time.Hour},
			"polyplane join --manager 192.0.2.1:7455 --token pp1.text -d\n"},
		{[]string{"--user", "alice", "--role", "owner", "--ttl", "90d"},
			model.TokenRequest{User: "alice", Role: model.RoleOwner, TTL: 90 * 24 * time.Hour},
			"polyplane login 192.0.2.1:7455 --token pp1.text\n"},
		{[]string{"--user", "alice", "--role", "viewer", "--ttl", "never"},
			model.TokenRequest{User: "alice", Role: model.RoleViewer, TTL: -1},
			"polyplane login 192.0.2.1:7455 --token pp1.text\n"},
	} {
		f := &fake{}
		r := run(t, f, append([]string{"token", "create"}, c.args...)...)
		if r.code != ExitOK || r.out != c.out || len(f.requested) != 1 || f.requested[0] != c.want {
			t.Errorf("%v: %d, asked for %+v, printed %q", c.args, r.code, f.requested, r.out)
		}
		if !strings.Contains(r.err, "server1:7455") {
			t.Errorf("%v: the other addresses are not told: %q", c.args, r.err)
		}
	}
	for _, wrong := range [][]string{{"--user", "alice"}, {"--role", "owner"}, {"--ttl", "soon"},
		{"--ttl", "-1h"}, {"--ttl", "never"},
		{"--role", "king", "--user", "x"}, {"--node", "a", "--user", "b", "--role", "owner"}} {
		f := &fake{}
		if r := run(t, f, append([]string{"token", "create"}, wrong...)...); r.code != ExitUsage ||
			len(f.requested) > 0 {
			t.Errorf("%v: %d %q", wrong, r.code, r.err)
		}
	}
}

func TestTokenList(t *testing.T) {
	f := &fake{tokens: []model.Token{
		{ID: "aaaaaaaaaa", Created: now.Add(-time.Minute), Expires: now.Add(time.Hour)},
		{ID: "bbbbbbbbbb", Node: "rio-1", Created: now.Add(-2 * time.Hour), Expires: now.Add(-time.Hour)},
		{ID: "cccccccccc", Created: now.Add(-time.Hour), Expires: now.Add(time.Hour),
			Used: now.Add(-time.Minute), UsedBy: "rio-2"},
		{ID: "dddddddddd", User: "alice", Role: model.RoleOwner, Created: now.Add(-time.Hour)},
		{ID: "eeeeeeeeee", User: "bob", Role: model.RoleViewer, Created: now.Add(-time.Hour), Revoked: now},
	}}
	got := run(t, f, "token", "list")
	for _, gone := range []string{"bbbb", "cccc", "eeee"} {
		if strings.Contains(got.out, gone) {
			t.Errorf("%s is good for nothing, and listed:\n%s", gone, got.out)
		}
	}
	got = run(t, f, "token", "list", "--all")
	for _, want := range []string{"join as rio-1", "expired", "used by rio-2", "alice", "never", "revoked",
		"join as a new node"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("nothing of %q in\n%s", want, got.out)
		}
	}
	if got = run(t, f, "token", "revoke", "cccccccccc"); got.code != ExitOK ||
		!strings.Contains(got.err, "polyplane node remove rio-2") {
		t.Errorf("revoking a used token says %q", got.err)
	}
	if got = run(t, f, "token", "revoke", "zzzzzzzzzz"); got.code != ExitNotFound {
		t.Errorf("an unknown token: %d %q", got.code, got.err)
	}
	if got = run(t, f, "node", "remove", "far"); got.code != ExitOK ||
		!reflect.DeepEqual(f.deleted, []string{"node/far"}) {
		t.Errorf("%d %v", got.code, f.deleted)
	}
}

// Which manager a command is for, by the command line, the environment and a login.
func TestWhomCommandsAreFor(t *testing.T) {
	home := t.TempDir()
	pin := trust.Pin{1}
	alice, bob := trust.NewToken(pin), trust.NewToken(pin)
	bobs := filepath.Join(home, "bob")
	if err := os.WriteFile(bobs, []byte(bob.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{}
	asked := "" // whom the last command was for
	command := func(stdin string, args ...string) (int, string) {
		f := &fake{}
		var out, errs strings.Builder
		c := New(func(name string) (Client, error) { asked = "instance " + name; return f, nil })
		c.ConnectServer = func(server string, token trust.Token) (Client, error) {
			asked = server + " " + map[trust.Token]string{alice: "alice", bob: "bob"}[token]
			return f, nil
		}
		c.In, c.Out, c.Err = strings.NewReader(stdin), &out, &errs
		c.Getenv = func(name string) string { return env[name] }
		asked = ""
		return c.ExecuteContext(t.Context(), c.Root(), args), errs.String()
	}
	expect := func(want string, args ...string) {
		t.Helper()
		if code, errs := command("", args...); asked != want {
			t.Errorf("%v is for %q, want %q (%d %s)", args, asked, want, code, errs)
		}
	}
	list := []string{"token", "list"}
	env["HOME"] = home
	expect("instance default", list...)
	expect("", append(list, "--server", "server1")...) // no token
	expect("server1:7455 bob", append(list, "--server", "server1", "--token-file", bobs)...)
	env["POLYPLANE_TOKEN"] = alice.String()
	expect("[2001:db8::1]:1 alice", append(list, "--server", "[2001:db8::1]:1")...)
	expect("server1:7455 bob", append(list, "--server", "server1", "--token-file", bobs)...)
	env["POLYPLANE_SERVER"] = "server2"
	expect("server2:7455 alice", list...)
	// Whoever sends packets into elements from outside of them is root of the manager's machine, and nobody else.
	// Others measure by commands inside their elements, which the manager lets them run or not.
	for _, args := range [][]string{{"--self-test"}, {"lab/h1", "lab/h2", "--search", "mlr"},
		{"lab/h1", "lab/h2", "--destinations", "10.0.0.0/24"}, {"lab/h1", "lab/h2", "--burst"}} {
		if code, errs := command("", append([]string{"traffic"}, args...)...); code != ExitUsage || asked != "" ||
			!strings.Contains(errs, "needs root on the machine that has the elements") {
			t.Errorf("traffic %v by another machine's user: %d %q, asked %q", args, code, errs, asked)
		}
	}
	expect("server2:7455 alice", "traffic", "lab/h1", "lab/h2")
	expect("instance lab", append(list, "--instance", "lab")...)
	env["POLYPLANE_TOKEN"], env["POLYPLANE_TOKEN_FILE"] = "", bobs
	expect("server2:7455 bob", list...)
	// Who says contradictory things is told. The more explicit one counts, and neither where both are equally so.
	env["POLYPLANE_INSTANCE"] = "lab"
	for _, c := range []struct {
		args        string
		asked, said string
	}{
		{"", "", "POLYPLANE_INSTANCE=lab is an instance of this machine, and POLYPLANE_SERVER=server2 a manager elsewhere"},
		{"--server server1", "server1:7455 bob", "note: --server server1 counts, and not POLYPLANE_INSTANCE=lab\n"},
		{"--instance x", "instance x", "note: --instance x counts, and not POLYPLANE_SERVER=server2\n"},
		{"--instance x --server server1", "", "say one of them"},
	} {
		code, errs := command("", append(list, strings.Fields(c.args)...)...)
		if asked != c.asked || !strings.Contains(errs, c.said) || (code == ExitUsage) != (c.asked == "") {
			t.Errorf("%q is for %q, and told is %q (%d)", c.args, asked, errs, code)
		}
	}
	env["POLYPLANE_SERVER"] = ""
	expect("instance lab", list...)
	if code, errs := command("", append(list, "--token-file", bobs)...); code != ExitUsage || asked != "" ||
		!strings.Contains(errs, "--token-file is for a manager elsewhere, and this is for instance lab") {
		t.Errorf("a token for this machine's instance: %d %q, asked %q", code, errs, asked)
	}
	env = map[string]string{"HOME": home}

	if code, errs := command(alice.String()+"\n", "login", "server3"); code != ExitOK || asked != "server3:7455 alice" {
		t.Fatalf("login: %d %s", code, errs)
	}
	file := filepath.Join(home, ".config", "polyplane", "login.json")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the login is kept with mode %v: %v", info.Mode(), err)
	}
	expect("server3:7455 alice", list...)
	expect("server3:7455 alice", append(list, "--server", "server3:7455")...)
	expect("", append(list, "--server", "server4")...) // alice's token is not for it
	expect("instance default", append(list, "--instance", "default")...)
	if code, errs := command("nonsense\n", "login", "server3"); code != ExitUsage ||
		strings.Contains(errs, "nonsense") {
		t.Errorf("a wrong token: %d %s", code, errs)
	}
	if code, _ := command("", "login", "server 3", "--token", alice.String()); code != ExitUsage {
		t.Errorf("a wrong server: %d", code)
	}
	expect("server3:7455 alice", list...) // as it was
	if code, _ := command("", "logout"); code != ExitOK {
		t.Errorf("logout: %d", code)
	}
	expect("instance default", list...)
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, errs := command("", list...); code == ExitOK || !strings.Contains(errs, file) {
		t.Errorf("a damaged login: %d %s", code, errs)
	}
}
