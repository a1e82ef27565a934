package system

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
)

// twoHosts makes two network namespaces that are two machines on one wire, and returns their paths.
func twoHosts(t *testing.T) (a, b string) {
	t.Helper()
	names := []string{family + "a", family + "b"}
	for _, n := range names {
		sh(t, "/proc/self/ns/net", "ip netns add "+n+" && ip -n "+n+" link set lo up")
		t.Cleanup(func() { exec.Command("ip", "netns", "del", n).Run() }) //nolint:errcheck // the tests' namespace ends anyway
	}
	sh(t, "/proc/self/ns/net",
		fmt.Sprintf("ip link add wire mtu 1500 netns %s type veth peer name wire mtu 1500 netns %s",
			names[0], names[1]))
	for i, n := range names {
		sh(t, "/proc/self/ns/net",
			fmt.Sprintf("ip -n %s addr add 198.51.100.%d/24 dev wire && ip -n %s link set wire up", n, i+1, n))
	}
	return "/run/netns/" + names[0], "/run/netns/" + names[1]
}

// words are those of a command line that polyplane printed, without its own name.
func words(t *testing.T, line string) []string {
	t.Helper()
	w := strings.Fields(line)
	if len(w) < 3 || w[0] != "polyplane" {
		t.Fatalf("%q is no command", line)
	}
	return w[1:]
}

const wide = `network: wide
hosts:
  h1: {node: here}
  h2: {node: far}
links: [h1 -- h2]
expect:
  - h1 reaches h2
  - h2 reaches h1
`

// TestAnotherHostJoins takes a second host in over TLS, places a network across both, and has everything die that can.
func TestAnotherHostJoins(t *testing.T) {
	hostA, hostB := twoHosts(t)
	a, b := newPlatformOn(t, hostA), newPlatformOn(t, hostB)
	b.env = []string{"POLYPLANE_RENEW_AFTER=2s"}
	b.hidden = true // as many try it: join has to find the machine's mounts
	a.run("up", "--host", "--underlay", "198.51.100.1", "--listen", "198.51.100.1:7455", "-d")
	var nodes []model.NodeStatus
	decode(t, a.run("get", "nodes", "-o", "json"), &nodes)
	here := nodes[0].Name

	revoked := words(t, a.run("token", "create"))
	a.run("token", "revoke", strings.Split(revoked[4], ".")[1])
	mistake{"", refused, []string{"was revoked"}}.make(t, b, revoked...)
	join := words(t, a.run("token", "create", "--node", "far"))
	if out := b.run(join...); !strings.Contains(out, "node far of") {
		t.Errorf("join says %q", out)
	}
	mistake{"", refused, []string{"already running"}}.make(t, b, join...)
	a.run("apply", "-f", file(t, strings.ReplaceAll(wide, "here", here)))
	if out := a.run("exec", "wide/h2", "--", "hostname"); strings.TrimSpace(out) != "h2" {
		t.Errorf("h2 calls itself %q", out)
	}
	a.run("check", "wide")
	// A wire as most are carries a tunnel's packets of 1450 bytes, and whole ones get there.
	if out := a.run("exec", "wide/h1", "--", "ip", "link", "show", "dev", "h2"); !strings.Contains(out, " mtu 1450 ") {
		t.Errorf("h1's interface is\n%s", out)
	}
	a.run("exec", "wide/h1", "--", "ping", "-c1", "-W60", "-M", "do", "-s", "1422", hostAddress(a, "wide", "h2"))

	renewed := identityOf(t, b)
	ping := a.flood("wide", "h1", hostAddress(a, "wide", "h2"))
	t.Run("agent and manager killed", func(t *testing.T) {
		a, b := a.with(t), b.with(t)
		b.kill("agent far")
		a.ready()
		a.kill("manager")
		a.ready()
		if out := a.run("exec", "wide/h2", "--", "hostname"); strings.TrimSpace(out) != "h2" {
			t.Errorf("afterwards h2 calls itself %q", out)
		}
		if lost := ping.stop(t); lost > 0 {
			t.Errorf("%d packets were lost", lost)
		}
		b.await("the certificate to be renewed", func() bool { return identityOf(t, b) != renewed },
			func() string { return "it is as it was" })
		a.run("check", "wide")
	})
	t.Run("users", func(t *testing.T) { usersFromAfar(t, a.with(t), b.with(t)) })
	t.Run("plaintext", func(t *testing.T) {
		var c net.Conn
		within(t, hostB, func() (err error) {
			c, err = net.Dial("tcp", "198.51.100.1:7455")
			return err
		})
		defer c.Close()
		fmt.Fprintf(c, "GET /v1/ping HTTP/1.1\r\nHost: a\r\n\r\n")
		if answer, _ := io.ReadAll(c); len(answer) > 0 {
			t.Errorf("plaintext is answered with %q", answer)
		}
		if out := in(t, hostA, "ss", "-Hlnt"); strings.Count(out, "\n") != 1 ||
			!strings.Contains(out, "198.51.100.1:7455") {
			t.Errorf("the manager's host listens at\n%s", out)
		}
		if out := in(t, hostB, "ss", "-Hlnt"); out != "" {
			t.Errorf("the other host listens at\n%s", out)
		}
	})
	t.Run("reboot of both, the manager's later", func(t *testing.T) {
		a, b := a.with(t), b.with(t)
		rebooted(t, a)
		rebooted(t, b)
		if out := b.run("up", "-d"); !strings.Contains(out, "cannot be reached") {
			t.Errorf("without a manager, up says %q", out)
		}
		b.await("h2 to be there without a manager", func() bool {
			return holds(b.dirs.Node("far").Namespace(model.ID{Network: "wide", Element: "h2"}),
				"ip addr show h1 | grep -q inet")
		}, func() string { return "it is not" })
		a.run("up", "-d")
		a.ready()
		a.run("check", "wide", "--wait", "1m")
	})
	b.run("down")
	a.await("the node to be away", func() bool { return strings.Contains(a.run("get", "nodes"), " unknown ") },
		func() string { return a.run("get", "nodes") })
	a.run("node", "remove", "far")
	if out := b.run("up", "-d"); !strings.Contains(out, "member no longer") {
		t.Errorf("removed, its up says %q", out)
	}
}

// usersFromAfar has users of each role type commands on another host.
func usersFromAfar(t *testing.T, a, b *platform) {
	dir := t.TempDir()
	token := func(user, role string) string {
		var made model.TokenResult
		decode(t, a.run("token", "create", "--user", user, "--role", role, "-o", "json"), &made)
		path := filepath.Join(dir, user)
		if err := os.WriteFile(path, []byte(made.Text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	as := func(user string, args ...string) []string {
		return append([]string{"--server", "198.51.100.1", "--token-file", user}, args...)
	}
	admin, owner, viewer := token("root2", "admin"), token("alice", "owner"), token("vic", "viewer")
	if out := b.run(as(admin, "exec", "wide/h2", "--", "hostname")...); strings.TrimSpace(out) != "h2" {
		t.Errorf("for an admin h2 calls itself %q", out)
	}
	mine := file(t, "network: mine\nhosts:\n  h1:\n  h2: {node: far}\nlinks: [h1 -- h2]\n")
	b.run(as(owner, "apply", "-f", mine)...)
	b.run(as(owner, "ping", "mine/h1", "mine/h2", "-c", "1")...)
	var networks []model.NetworkStatus
	decode(t, b.run(as(owner, "get", "networks", "-o", "json")...), &networks)
	if len(networks) != 1 || networks[0].Name != "mine" || networks[0].Owner != "alice" {
		t.Errorf("alice sees %+v", networks)
	}
	measuredByOwners(t, b, func(args ...string) []string { return as(owner, args...) })
	mistake{"", refused, []string{"a viewer"}}.make(t, b, as(viewer, "traffic", "mine/h1", "mine/h2")...)
	mistake{"", unknown, []string{"wide"}}.make(t, b, as(owner, "traffic", "wide/h1", "wide/h2")...)
	mistake{"", unknown, []string{"wide"}}.make(t, b, as(owner, "exec", "wide/h1", "--", "true")...)
	mistake{"", unknown, []string{"wide"}}.make(t, b, as(owner, "delete", "wide")...)
	mistake{"", refused, []string{"a viewer"}}.make(t, b, as(viewer, "exec", "mine/h1", "--", "true")...)
	mistake{"", refused, []string{"an owner"}}.make(t, b, as(owner, "token", "list")...)
	if out := b.run(as(viewer, "metrics")...); !regexp.MustCompile(
		`polyplane_network_info\{network="mine\.\d+",owner="alice",title="mine"\} 1`).MatchString(out) {
		t.Errorf("a viewer's metrics:\n%s", out)
	}
	// Work is handed in: also what is on the node that joined comes along, and goes back there.
	b.run(as(owner, "exec", "mine/h1", "--", "sh", "-c", "echo one > /root/work")...)
	b.run(as(owner, "exec", "mine/h2", "--", "sh", "-c", "echo two > /root/work")...)
	archive := filepath.Join(dir, "mine.tar")
	b.run(as(owner, "export", "mine", "-o", archive)...)
	mistake{"", unknown, []string{"wide"}}.make(t, b, as(owner, "export", "wide", "-o", archive+"2")...)
	mistake{"", failed, []string{"a viewer"}}.make(t, b, as(viewer, "export", "mine", "-o", archive+"2")...)
	mistake{"", refused, []string{"a viewer"}}.make(t, b, as(viewer, "import", archive, "--name", "his")...)
	if out := b.run(as(admin, "delete", "--all")...); !strings.Contains(out, "nothing to remove") {
		t.Errorf("an administrator without networks deletes all of its own: %s", out)
	}
	b.run(as(owner, "delete", "--all")...)
	b.run(as(owner, "import", archive)...)
	for element, want := range map[string]string{"mine/h1": "one", "mine/h2": "two"} {
		if out := b.run(as(owner, "exec", element, "--", "cat", "/root/work")...); strings.TrimSpace(out) != want {
			t.Errorf("after an import %s has %q, want %q", element, out, want)
		}
	}
	decode(t, b.run(as(owner, "get", "networks", "-o", "json")...), &networks)
	if len(networks) != 1 || networks[0].Owner != "alice" || !networks[0].Provisional.IsZero() {
		t.Errorf("after an import alice has %+v", networks)
	}
	trashOfOwners(t, b, as, admin, owner, token("bob", "owner"))
	b.run(as(owner, "delete", "mine")...)
	var tokens []model.Token
	decode(t, a.run("token", "list", "-o", "json"), &tokens)
	for _, k := range tokens {
		if k.User == "vic" {
			a.run("token", "revoke", k.ID)
		}
	}
	mistake{"", refused, []string{"was revoked"}}.make(t, b, as(viewer, "get", "networks")...)
}

// trashOfOwners has two owners have networks of one name. What the first threw away is not given to the second, and
// goes back to the first.
func trashOfOwners(t *testing.T, p *platform, as func(string, ...string) []string, admin, alice, bob string) {
	t.Helper()
	net := file(t, "network: shared\nhosts:\n  h: {node: far}\n  k: {node: far}\nlinks: [h -- k]\n")
	p.run(as(alice, "apply", "-f", net)...)
	p.run(as(alice, "exec", "shared/h", "--", "sh", "-c", "echo secret > /root/work")...)
	p.run(as(alice, "delete", "shared")...)
	item := func(user string) string {
		t.Helper()
		var all []model.TrashItem
		decode(t, p.run(as(user, "trash", "list", "-o", "json")...), &all)
		for _, i := range all {
			if i.Element.Element == "h" && i.Title == "shared" && i.Owner == "alice" {
				return i.ID
			}
		}
		return ""
	}
	thrown := item(alice)
	if thrown == "" || item(admin) != "alice/"+thrown || item(bob) != "" {
		t.Errorf("alice sees %q of hers in the trash, the administrator %q, bob %q", thrown, item(admin), item(bob))
	}
	p.run(as(bob, "apply", "-f", net)...)
	p.run(as(bob, "stop", "shared/h")...)
	mistake{"", unknown, []string{"there is no " + thrown}}.make(t, p, as(bob, "trash", "restore", thrown)...)
	mistake{"", refused, []string{"an owner"}}.make(t, p, as(bob, "trash", "restore", "--any-owner", thrown)...)
	mistake{"", refused, []string{"an owner"}}.make(t, p, as(alice, "trash", "empty", thrown)...)
	for user, item := range map[string]string{alice: thrown, admin: "alice/" + thrown} { // bob's is another network
		about := mistake{"", refused, []string{item[:strings.IndexByte(item, '@')]}}
		about.make(t, p, as(user, "trash", "restore", item)...)
	}
	p.run(as(bob, "delete", "shared", "--now")...)
	p.run(as(alice, "apply", "-f", net)...)
	p.run(as(alice, "stop", "shared/h")...)
	p.run(as(alice, "trash", "restore", thrown)...)
	p.run(as(alice, "start", "shared/h")...)
	if out := p.run(as(alice, "exec", "shared/h", "--", "cat", "/root/work")...); strings.TrimSpace(out) != "secret" {
		t.Errorf("back from the trash the file says %q", out)
	}
	p.run(as(alice, "delete", "shared", "--now")...)
}

// measuredByOwners has an owner measure between two elements on different machines: at first all of it arrives, and then
// as much as the network's slice lets through.
func measuredByOwners(t *testing.T, p *platform, as func(...string) []string) {
	t.Helper()
	measure := func() (sent, lost float64) {
		t.Helper()
		var r struct {
			UDP struct{ Sent, Lost float64 }
		}
		decode(t, p.run(as("traffic", "mine/h1", "mine/h2", "--rate", "4kpps", "--size", "100", "--duration", "1s",
			"-o", "json")...), &r)
		return r.UDP.Sent, r.UDP.Lost
	}
	if sent, lost := measure(); sent < 100 || lost > sent/2 {
		t.Errorf("without a bound %g datagrams were sent, and %g lost", sent, lost)
	}
	const bound = 500 // datagrams a second, of which the measurement's own connection needs a few
	p.run(as("set", "mine", fmt.Sprintf("packets=%d", bound))...)
	if sent, lost := measure(); sent > 3*bound && sent-lost > 3*bound {
		t.Errorf("the slice lets %d packets a second pass: of %g datagrams in a second %g were lost", bound, sent, lost)
	}
	p.run(as("set", "mine", "packets=")...)
}

// identityOf is a joined host's certificate.
func identityOf(t *testing.T, p *platform) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(p.dirs.Data, "identity", "identity.pem"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// rebooted leaves of a host's instance what a reboot does: its data.
func rebooted(t *testing.T, p *platform) {
	t.Helper()
	p.run("down")
	if _, err := os.Stat(p.dirs.Run); err == nil {
		t.Errorf("%s is still there", p.dirs.Run)
	}
}

// flood is ping's, from an element on this host.
type flood struct {
	c   *exec.Cmd
	out bytes.Buffer
}

func (p *platform) flood(network, from, to string) *flood {
	p.t.Helper()
	f := &flood{c: exec.Command("nsenter", "--net="+p.namespace(network, from), "ping", "-q", "-i", "0.01", to)}
	f.c.Stdout = &f.out
	if err := f.c.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { f.c.Process.Kill(); f.c.Wait() }) //nolint:errcheck // it may have ended
	return f
}

var pinged = regexp.MustCompile(`(\d+) packets transmitted, (\d+) received`)

// stop ends it and returns how many of its packets were not answered; the last one may have been on its way.
func (f *flood) stop(t *testing.T) int {
	t.Helper()
	f.c.Process.Signal(unix.SIGINT) //nolint:errcheck // what it says tells
	f.c.Wait()                      //nolint:errcheck // likewise
	m := pinged.FindStringSubmatch(f.out.String())
	if m == nil {
		t.Fatalf("ping says %q", f.out.String())
	}
	sent, _ := strconv.Atoi(m[1])
	received, _ := strconv.Atoi(m[2])
	if sent < 10 {
		t.Errorf("only %d packets were sent", sent)
	}
	return max(0, sent-received-1)
}
