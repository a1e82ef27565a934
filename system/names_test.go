package system

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// freePort is an address that nobody listens at.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

const namesake = `network: duo
routers: {r1: {software: bird}}
hosts: [h1, h2]
links: [h1 -- r1, r1 -- h2]
expect: [h1 reaches h2]
`

// TestTwoOwnersOfOneName has two owners, an administrator and root have a network of the same title each, with the same
// addresses and elements, through all that one does with a network; agents and the manager die in between. What one does
// to the own changes nothing of the other's, and no packet of it is lost.
func TestTwoOwnersOfOneName(t *testing.T) {
	p := newPlatform(t)
	server := freePort(t)
	p.run("up", "--nodes", "2", "--listen", server, "-d")
	dir := t.TempDir()
	user := func(name, role string) func(args ...string) []string {
		var made model.TokenResult
		decode(t, p.run("token", "create", "--user", name, "--role", role, "-o", "json"), &made)
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(made.Text), 0o600); err != nil {
			t.Fatal(err)
		}
		return func(args ...string) []string {
			return append([]string{"--server", server, "--token-file", path}, args...)
		}
	}
	ann, ben, ada := user("ann", "owner"), user("ben", "owner"), user("ada", "admin")
	says := func(what, out string, all ...string) {
		t.Helper()
		for _, want := range all {
			if !strings.Contains(out, want) {
				t.Errorf("%s says nothing of %q:\n%s", what, want, out)
			}
		}
	}
	description := file(t, namesake)
	for _, who := range []func(...string) []string{ann, ben} {
		says("apply", p.run(who("apply", "-f", description)...), "network duo (new)", "duo: ready in")
	}
	_, refusal, err := p.try("apply", "-f", description)
	if err == nil {
		t.Error("root's duo is applied, whose ever it would be")
	}
	says("the refusal", refusal, "ann/duo or ben/duo or ", "/duo, which would be new")
	says("apply", p.run("apply", "-f", description, "--name", me()+"/duo"), "network duo (new)", "duo: ready in")
	says("apply", p.run(ada("apply", "-f", description, "--name", "ada/duo")...), "network duo (new)", "duo: ready in")
	says("plan", p.run("plan", "-f", description), "duo: no changes")
	says("plan", p.run("plan", "-f", file(t, strings.Replace(namesake, "duo", "ann/duo", 1))), "ann/duo: no changes")
	says("plan", p.run("plan", "-f", file(t, namesake+"owner: ben\n")), "network ben/duo")

	// Each sees what it may, by the names that it types.
	for _, c := range []struct {
		who  func(...string) []string
		want string
	}{{ann, "duo"}, {ben, "duo"}, {ada, "ann/duo ben/duo duo " + me() + "/duo"},
		{func(args ...string) []string { return args }, "ada/duo ann/duo ben/duo duo"}} {
		names := strings.Fields(p.run(c.who("get", "networks", "-o", "name")...))
		want := strings.Fields(c.want)
		slices.Sort(names)
		if slices.Sort(want); !slices.Equal(names, want) {
			t.Errorf("the networks are called %q, want %q", names, want)
		}
	}
	says("get networks", p.run("get", "networks", "-o", "wide"), "OWNER", "ann/duo", "ada/duo")
	says("describe", p.run("describe", "ann/duo"), "network ann/duo", "Owner", "ann", "Key", "duo.")
	says("describe", p.run("describe", "ann/duo/r1"), "ann/duo/r1")
	says("describe", p.run(ann("describe", "duo/r1:h1")...), "duo/r1:h1")
	says("get elements", p.run(ann("get", "elements")...), "duo/h1 ", "duo/r1 ")
	says("get elements", p.run("get", "elements", "ann/duo"), "ann/duo/h1 ")
	if all := p.run("get", "elements"); strings.Index(all, "ada/duo/") > strings.Index(all, "ann/duo/") {
		t.Errorf("elements are not in the order of their networks' names:\n%s", all)
	}
	says("get events", p.run("get", "events", "ben/duo"), "ben/duo", "NetworkReady")
	says("get events", p.run(ann("get", "events", "duo")...), "duo", "NetworkReady")
	says("completion", p.run("__complete", "describe", "ann/"), "ann/duo/")
	says("completion", p.run("__complete", "stop", "ann/duo/"), "ann/duo/h1", "ann/duo/r1")
	says("completion", p.run(ann("__complete", "stop", "duo/")...), "duo/h1")
	for _, text := range []string{p.run(ann("get", "networks", "-o", "json")...), p.run(ann("get", "events")...),
		p.run(ann("get", "elements", "-o", "json")...), p.run(ann("describe", "duo")...)} {
		for _, other := range []string{"ben", "ada", "duo."} {
			if strings.Contains(text, other) {
				t.Errorf("ann is told of %q:\n%s", other, text)
			}
		}
	}
	for _, guess := range []string{"ben/duo", "ada/duo", keyOf(p, "ben", "duo"), "nothing"} {
		for _, args := range [][]string{{"describe", guess}, {"exec", guess + "/h1", "--", "true"}, {"stop", guess + "/h1"},
			{"delete", guess}, {"save", guess}, {"set", guess, "packets=1000"}} {
			first, _, _ := strings.Cut(guess, "/")
			mistake{"", unknown, []string{first}}.make(t, p, ann(args...)...)
		}
	}

	// Inside each is its owner's title.
	exec := func(who func(...string) []string, element, script string) string {
		t.Helper()
		return strings.TrimSpace(p.run(who("exec", element, "--", "sh", "-c", script)...))
	}
	for name, who := range map[string]func(...string) []string{"ann": ann, "ben": ben, "ada": ada} {
		if got := exec(who, "duo/r1", "echo "+name+" > /root/work; cat /root/work; echo $POLYPLANE_NETWORK; "+
			"grep -o duo/r1 /etc/bash.bashrc"); got != name+"\nduo\nduo/r1" {
			t.Errorf("inside %s's router: %q", name, got)
		}
	}
	if got := exec(ada, "ann/duo/r1", "cat /root/work"); got != "ann" {
		t.Errorf("an administrator finds %q in ann's router", got)
	}

	// From here on packets flow in Ben's.
	flow := p.flow("ben/duo", "h1", "h2", addressOf(p, "ben/duo", "h2", false), 0)
	p.kill("manager")
	p.ready()
	p.run(ann("stop", "duo/h2")...)
	if got := p.elements("ann/duo")["h2"].Phase; got != model.PhaseStopped {
		t.Errorf("ann's host is %s", got)
	}
	p.run(ann("start", "duo/h2")...)
	says("set", p.run(ann("set", "duo/r1", "memory=64MiB")...), "duo/r1 memory")
	says("set", p.run("set", "ann/duo/h1--r1", "bandwidth=100Mbit"), "ann/duo/h1--r1 bandwidth")
	p.run("stop", "ann/duo/h1 -- r1")
	p.run(ann("start", "duo/h1--r1")...)
	p.kill("agent n1", "agent n2")
	p.ready()
	p.run(ann("check", "duo", "--wait", "3m")...)
	captured := p.command(ann("capture", "duo/r1:h1", "-c", "1")...)
	if err := captured.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- captured.Wait() }()
	p.await("a packet to be captured", func() bool {
		p.run(ann("ping", "duo/h1", "duo/h2", "-c", "1")...)
		select {
		case err := <-ended:
			return err == nil
		default:
			return false
		}
	}, func() string { return "nothing came" })

	// Everything of it is handed in, and made anew.
	archive := filepath.Join(dir, "lab.tar")
	says("export", p.run("export", "ann/duo", "-o", archive), "ann/duo exported")
	mistake{"", refused, []string{"duo"}}.make(t, p, ann("import", archive)...)
	says("import", p.run("import", archive, "--name", "given"), "given imported")
	if got := exec(func(a ...string) []string { return a }, "given/r1", "cat /root/work"); got != "ann" {
		t.Errorf("in the archive is %q", got)
	}
	p.run("delete", "given", "--now")
	says("save", p.run("save", "ann/duo"), "network: ann/duo")
	says("save", p.run(ann("save", "duo")...), "network: duo\n")
	says("plan", p.run("plan", "-f", file(t, p.run("save", "ann/duo"))), "ann/duo: no changes")

	// Gone, and back with what was thrown away.
	p.run(ann("delete", "duo")...)
	p.kill("manager", "agent n1")
	p.ready()
	item := func(who []string) string {
		t.Helper()
		var all []model.TrashItem
		decode(t, p.run(who...), &all)
		for _, i := range all {
			if i.Element.Element == "r1" && i.Owner == "ann" {
				return i.ID
			}
		}
		return ""
	}
	thrown, seen := item(ann("trash", "list", "-o", "json")), item([]string{"trash", "list", "-o", "json"})
	if !strings.HasPrefix(thrown, "duo/r1@") || seen != "ann/"+thrown || item(ben("trash", "list", "-o", "json")) != "" {
		t.Fatalf("of ann's router is in the trash %q, and for root %q", thrown, seen)
	}
	mistake{"", unknown, []string{"there is no " + thrown}}.make(t, p, ben("trash", "restore", thrown)...)
	p.run(ann("apply", "-f", description)...)
	p.run(ann("stop", "duo/r1")...)
	p.run(ann("trash", "restore", thrown)...)
	p.run(ann("start", "duo/r1")...)
	if got := exec(ann, "duo/r1", "cat /root/work"); got != "ann" {
		t.Errorf("out of the trash came %q", got)
	}
	p.run(ann("delete", "duo", "--now")...)
	p.run("quota", "ben/duo", "elements=4")
	says("quota", p.run("quota", "ben/duo"), "ben/duo", "3 of 4")

	// Given away: it stays what it is, and is called otherwise.
	mistake{"", refused, []string{"ada has a network duo"}}.make(t, p, "set", "ben/duo", "owner=ada")
	key := keyOf(p, "ben", "duo")
	p.run("set", "ben/duo", "owner=zoe")
	if keyOf(p, "zoe", "duo") != key {
		t.Errorf("what was %s is %s", key, keyOf(p, "zoe", "duo"))
	}
	mistake{"", unknown, []string{"duo"}}.make(t, p, ben("describe", "duo")...)
	p.run(ben("apply", "-f", description)...)
	p.run(ben("check", "duo", "--wait", "3m")...)
	p.run(ben("delete", "--all")...)
	if sent, lost, duplicated := flow.stop(); sent < 1000 || lost+duplicated != 0 {
		t.Errorf("of %d packets in ben's network %d were lost and %d came twice", sent, lost, duplicated)
	}

	// An element and a network may be called alike.
	p.run("apply", "-f", file(t, "network: zoe\nhosts: [duo]\n"))
	mistake{"", refused, []string{"zoe/duo may be", me() + "/zoe/duo"}}.make(t, p, "describe", "zoe/duo")
	says("describe", p.run("describe", me()+"/zoe/duo"), "zoe/duo")
	says("exec", p.run("exec", "zoe/duo", "--", "hostname"), "duo")
	p.run("delete", "zoe/duo", "zoe", "ada/duo", "duo")
	if out := p.run("get", "networks", "-o", "name"); strings.TrimSpace(out) != "" {
		t.Errorf("left is %q", out)
	}
}

// me is whose networks are one's own, for commands of the tests.
func me() string {
	for _, name := range []string{"SUDO_USER", "USER", "LOGNAME"} {
		if user := os.Getenv(name); user != "" {
			return user
		}
	}
	return "root"
}

// keyOf is the name of an owner's network within the instance.
func keyOf(p *platform, owner, title string) string {
	p.t.Helper()
	var all []model.NetworkStatus
	if err := json.Unmarshal([]byte(p.run("get", "networks", "-o", "json")), &all); err != nil {
		p.t.Fatal(err)
	}
	for _, n := range all {
		if n.Owner == owner && n.Title == title {
			if n.Key == "" {
				return n.Name
			}
			return n.Key
		}
	}
	p.t.Fatalf("%s has no network %s", owner, title)
	return ""
}
