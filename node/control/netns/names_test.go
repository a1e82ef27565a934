package netns

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

func TestBlocks(t *testing.T) {
	block := func(lines string) string { return blockBegins + "\n" + lines + blockEnds + "\n" }
	for _, c := range []struct{ text, empty, lines, want string }{
		{"first\n", "", "a\n", "first\n" + block("a\n")},
		{"first\n" + block("a\n"), "", "b\nc\n", "first\n" + block("b\nc\n")},
		{"mine\n" + block("a\n") + "mine too", "", "b\n", "mine\n" + block("b\n") + "mine too"},
		{"no newline", "", "a\n", "no newline\n" + block("a\n")},
		{firstResolv, firstResolv, "nameserver 192.0.2.1\n", block("nameserver 192.0.2.1\n")},
		{block("nameserver 192.0.2.1\n"), firstResolv, "", firstResolv},
		{"nameserver 9.9.9.9\n", firstResolv, "", "nameserver 9.9.9.9\n"},
		{"nameserver 9.9.9.9\n" + block("x\n"), firstResolv, "", "nameserver 9.9.9.9\n"},
		// Without the mark at its end, what polyplane cannot have written stays, and all behind it.
		{"cut\n" + blockBegins + "\nthe rest stays", "", "a\n", "cut\n" + block("a\n") + "the rest stays"},
		{blockBegins + "\n10.0.0.1 r1\nfd00::1 r1\n# mine\n192.0.2.1 x\n\n", "", "10.0.0.2 r1\n",
			block("10.0.0.2 r1\n") + "# mine\n192.0.2.1 x\n\n"},
		{blockBegins + "\n10.0.0.1 r1\n1.2.3.4 myown\n", "", "10.0.0.1 r1\n10.0.0.2 r2\n",
			block("10.0.0.1 r1\n10.0.0.2 r2\n") + "1.2.3.4 myown\n"},
		{blockBegins + "\n10.0.0.1 r1\n10.0.0", "", "10.0.0.1 r1\n", block("10.0.0.1 r1\n") + "10.0.0"},
		{blockBegins + "\nnameserver 192.0.2.1\nsearch lan\n", firstResolv, "nameserver 192.0.2.1\n",
			block("nameserver 192.0.2.1\n") + "search lan\n"},
	} {
		got := withBlock(c.text, c.empty, c.lines)
		if got != c.want {
			t.Errorf("%q with %q is %q, want %q", c.text, c.lines, got, c.want)
		}
		if again := withBlock(got, c.empty, c.lines); again != got {
			t.Errorf("%q, written again, is %q", got, again)
		}
	}
	const conf = "# x\nnameserver 127.0.0.53\nnameserver 192.0.2.53\nsearch lan\nnameserver fe80::1\nnameserver ::1\n" +
		"nameserver fe80::1%eth0\nnameserver 2001:db8::53\nnameserver x\nnameserver\n"
	if got, want := reachable(conf), "nameserver 192.0.2.53\nnameserver 2001:db8::53\n"; got != want {
		t.Errorf("of the machine's name servers elements get %q, want %q", got, want)
	}
}

// TestElementsKnowNames: elements find each other by name, whether they run something or not, follow changes while they
// run, and keep what was written beside.
func TestElementsKnowNames(t *testing.T) {
	n := newNode(t)
	jobs := lineOf("lab", 71, 3)
	jobs[0].Element.Service = model.Service{Run: "sleep 1000"}
	name := func(name, address string) model.NamedAddresses {
		return model.NamedAddresses{Name: name, Addresses: []netip.Addr{netip.MustParseAddr(address)}}
	}
	tell := func(outside bool, names ...model.NamedAddresses) {
		for i := range jobs {
			jobs[i].Names, jobs[i].Outside = names, outside
		}
	}
	tell(false, name("r1", "10.255.0.1"), name("far", "192.0.2.7"))
	n.awaitPhases(t, jobs, model.PhaseRunning)
	pid := n.pidOf(t, jobs[0].ID)
	knows := func(who int, what, address string) {
		t.Helper()
		if out := n.run(t, jobs[who].ID, "sh", "-c", "getent hosts "+what+" || true"); address == "" && out != "" ||
			!strings.HasPrefix(out, address) {
			t.Errorf("%s knows %s as %q, want %q", jobs[who].ID, what, out, address)
		}
	}
	for i := range 2 {
		knows(i, "r1", "10.255.0.1")
		knows(i, "far", "192.0.2.7")
		knows(i, "localhost", "::1")
		n.run(t, jobs[i].ID, "sh", "-c", "sed -i '1i 198.51.100.1 mine' /etc/hosts; echo 198.51.100.2 also >> /etc/hosts")
	}
	if out := n.run(t, jobs[0].ID, "cat", "/etc/resolv.conf"); out != firstResolv {
		t.Errorf("without a way out, /etc/resolv.conf is\n%s", out)
	}
	tell(true, name("r1", "10.255.0.9"), name("new", "192.0.2.8"))
	if got := changes(n.apply(t, jobs)); len(got) > 0 {
		t.Errorf("other names were told as %q", got)
	}
	for i := range 2 {
		knows(i, "r1", "10.255.0.9")
		knows(i, "new", "192.0.2.8")
		knows(i, "far", "")
		knows(i, "mine", "198.51.100.1")
		knows(i, "also", "198.51.100.2")
		if out := n.run(t, jobs[i].ID, "cat", "/etc/resolv.conf"); out != withBlock(firstResolv, firstResolv, serverLines()) {
			t.Errorf("with a way out, /etc/resolv.conf is\n%s", out)
		}
	}
	if r, err := n.Running(t.Context(), jobs[1].ID); err != nil || len(r.Files) > 0 {
		t.Errorf("names and name servers of polyplane are told as changed by their owner: %+v, %v", r.Files, err)
	}
	if now := n.pidOf(t, jobs[0].ID); now != pid {
		t.Error("other names restarted an element")
	}
	// What is no file any more is the element's own matter.
	n.run(t, jobs[0].ID, "sh", "-c", "mv /etc/hosts /root/hosts; ln -s /root/hosts /etc/hosts; "+
		"ln -sf /dev/null /etc/resolv.conf")
	tell(true, name("r1", "10.255.0.1"))
	n.apply(t, jobs)
	knows(0, "r1", "10.255.0.9")
	n.restart(t)
	n.apply(t, jobs)
	if out := n.run(t, jobs[0].ID, "readlink", "/etc/hosts"); out != "/root/hosts\n" {
		t.Errorf("/etc/hosts leads to %q", out)
	}
}
