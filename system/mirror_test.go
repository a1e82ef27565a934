package system

import (
	"strings"
	"syscall"
	"testing"
)

// TestMirrorOfALink has what passes a link copied to a host on another node: both directions come there, the document
// that `save` writes says the same as is there, and without the mirror nothing comes any more.
func TestMirrorOfALink(t *testing.T) {
	p := up(t, 2)
	lab := strings.Replace(watched, "h3: {node: n1}", "h3: {node: n2}", 1)
	with := lab + "mirrors:\n  - {link: h1--r1, to: h3, bandwidth: 20Mbit}\n"
	p.run("apply", "-f", file(t, lab))
	if out := p.run("plan", "-f", file(t, with)); !strings.Contains(out, "mirror0") {
		t.Errorf("the plan that makes a mirror says\n%s", out)
	}
	p.run("apply", "-f", file(t, with))
	if out := p.run("plan", "-f", file(t, with)); !strings.Contains(out, "no changes") {
		t.Errorf("applied, the plan says\n%s", out)
	}
	saved := p.run("save", "lab")
	if !strings.Contains(saved, "mirrors:") || !strings.Contains(saved, "20Mbit") {
		t.Errorf("saved is\n%s", saved)
	}
	if out := p.run("plan", "-f", file(t, saved)); !strings.Contains(out, "no changes") {
		t.Errorf("what was saved would change\n%s", out)
	}

	p.run("exec", "lab/h3", "--", "ip", "link", "set", "mirror0", "up")
	var seen spoken
	look := p.command("exec", "lab/h3", "--", "tcpdump", "-Z", "root", "-lnni", "mirror0", "icmp")
	look.Stdout, look.Stderr = &seen, &seen
	if err := look.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { look.Process.Signal(syscall.SIGTERM); look.Wait() })
	p.await("tcpdump to look", func() bool { return strings.Contains(seen.String(), "listening") }, seen.String)
	there, back := "10.1.0.1 > 10.2.0.1: ICMP echo request", "10.2.0.1 > 10.1.0.1: ICMP echo reply"
	end := p.begin("lab/h1", "ping", "-i", "0.2", "10.2.0.1")
	p.await("both directions to be copied", func() bool {
		return strings.Contains(seen.String(), there) && strings.Contains(seen.String(), back)
	}, seen.String)
	if p.reaches("lab", "h3", "10.9.9.9") {
		t.Error("an address that nobody has answers")
	}

	p.run("apply", "-f", file(t, lab+"mirrors: []\n"))
	if saved := p.run("save", "lab"); strings.Contains(saved, "link: h1--r1") {
		t.Errorf("without the mirror, saved is\n%s", saved)
	}
	if out, _, err := p.try("exec", "lab/h3", "--", "ip", "link", "show", "mirror0"); err == nil {
		t.Errorf("the mirror's interface is still there:\n%s", out)
	}
	if !p.reaches("lab", "h1", "10.2.0.1") || !p.reaches("lab", "h3", "10.1.0.1") {
		t.Error("without the mirror, the link itself does not pass packets")
	}
	end()
}
