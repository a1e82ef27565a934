package netns

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
)

// TestRunningTellsWhatWasWrittenInside asks routers and a host what they are by now: while they run, while a daemon
// hangs, while they are stopped.
func TestRunningTellsWhatWasWrittenInside(t *testing.T) {
	n := newNode(t)
	jobs := frrLine("lab", 9, 3)
	frr, bird, host := jobs[0].ID, jobs[1].ID, jobs[2].ID
	giveBIRD(&jobs[1].Element, "first")
	jobs[2].Element.Kind, jobs[2].Element.Software = model.Host, ""
	n.apply(t, jobs)
	running := func(id model.ID) model.Running {
		t.Helper()
		r, err := n.Running(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := running(host); len(r.Config) > 0 || r.Stale != "" || len(r.Files) > 0 || r.More {
		t.Errorf("a host in which nothing ever ran has %+v", r)
	}
	n.awaitPhases(t, jobs[:2], model.PhaseRunning)
	if r := running(frr); r.Stale != "" || len(r.Files) > 0 ||
		!strings.Contains(r.Config["frr.conf"], "hostname r0") || strings.Contains(r.Config["frr.conf"], "Building") {
		t.Errorf("a new router has %+v", r)
	}

	n.run(t, frr, "vtysh", "-c", "configure terminal", "-c", "ip route 192.0.2.0/24 blackhole")
	n.run(t, bird, "sh", "-c", "echo '# mine' >> /etc/bird/bird.conf; echo 'include' > /etc/bird/more.conf")
	n.run(t, host, "sh", "-c", "echo done > /root/work; echo 192.0.2.1 > /etc/resolv.conf; mkdir -p /home/a/b; "+
		"echo x > /home/a/b/c; echo log > /var/log/mine; ln -s /etc/shadow /root/link; mkfifo /root/pipe; "+
		"echo y > /tmp/z")
	if r := running(frr); r.Stale != "" || !strings.Contains(r.Config["frr.conf"], "ip route 192.0.2.0/24 blackhole") {
		t.Errorf("what was typed into vtysh, and not written, is not told: %+v", r)
	}
	paths := func(r model.Running) (all []string) {
		for _, f := range r.Files {
			all = append(all, fmt.Sprintf("%s %d", f.Path, f.Size))
		}
		return all
	}
	if r := running(bird); r.Stale != "" || !strings.HasSuffix(r.Config["bird.conf"], "# first\n# mine\n") ||
		!slices.Equal(paths(r), []string{"/etc/bird/more.conf 8"}) {
		t.Errorf("BIRD's file was edited, and there is a second one: told is %+v", r)
	}
	want := []string{"/etc/resolv.conf 10", "/home/a/b/c 2", "/root/link 11", "/root/work 5"}
	if r := running(host); !slices.Equal(paths(r), want) {
		t.Errorf("the host's files are %q, want %q", paths(r), want)
	}

	// A daemon that hangs is told, not waited for; the file as it was last written is something.
	n.asked = 300 * time.Millisecond
	goOn := n.hangAll(t, frr, "staticd")
	if r := running(frr); !strings.Contains(r.Stale, "within 300ms") ||
		!strings.Contains(r.Config["frr.conf"], "hostname r0") ||
		strings.Contains(r.Config["frr.conf"], "192.0.2.0/24") {
		t.Errorf("with a daemon that hangs, told is %+v", r)
	}
	goOn()
	n.asked = askedFor

	n.run(t, frr, "vtysh", "-c", "write")
	for i := range jobs {
		jobs[i].Element.Stopped = true
	}
	n.apply(t, jobs)
	if r := running(frr); r.Stale != "" ||
		!strings.Contains(r.Config["frr.conf"], "ip route 192.0.2.0/24 blackhole") {
		t.Errorf("a stopped router that had written its configuration has %+v", r)
	}
	if err := n.unmountDisk(host, 0); err != nil {
		t.Fatal(err)
	}
	if r := running(host); !slices.Equal(paths(r), want) {
		t.Errorf("the stopped host's files are %q, want %q", paths(r), want)
	}
	if linux.IsMount(n.dirs.Files(host)) {
		t.Error("a disk that was not mounted stays mounted after it was read")
	}
	if _, err := n.Running(t.Context(), model.ID{Network: "lab", Element: "nobody"}); err == nil ||
		!strings.Contains(err.Error(), "lab/nobody is not on this node") {
		t.Errorf("of an element that is not there: %v", err)
	}
}

// TestRunningIsBounded has an element with more, deeper and larger things than anybody shall wait for.
func TestRunningIsBounded(t *testing.T) {
	n := newNode(t)
	jobs := lineOf("lab", 9, 1)
	jobs[0].Element.Kind, jobs[0].Element.Software = model.Host, ""
	id := jobs[0].ID
	n.apply(t, jobs)
	n.run(t, id, "sh", "-c", `mkdir /root/many /root/deep && cd /root/many && seq 1 1500 | xargs touch &&
cd /root/deep && for i in $(seq 1 60); do mkdir d && cd d; done && touch bottom`)
	r, err := n.Running(t.Context(), id)
	if err != nil || len(r.Files) != model.MaxOwnFiles || !r.More {
		t.Errorf("%d files are told, more: %v, %v", len(r.Files), r.More, err)
	}
	n.run(t, id, "rm", "-r", "/root/many")
	if r, err = n.Running(t.Context(), id); err != nil || len(r.Files) != 0 || !r.More {
		t.Errorf("of what is too deep, told are %v, more: %v, %v", r.Files, r.More, err)
	}
}

// TestNameServersOfPolyplaneAreNobodysWork: the lines that polyplane writes into /etc/resolv.conf are not told as changed
// by whom the element belongs to; what he writes beside them is.
func TestNameServersOfPolyplaneAreNobodysWork(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	f := &elementFiles{root: root, base: os.Getuid()}
	first := map[string]string{resolvConf: firstResolv}
	ours := withBlock(firstResolv, firstResolv, "nameserver 192.0.2.53\n")
	if err := root.Mkdir("etc", 0o755); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		firstResolv: false, ours: false, "": false,
		ours + "search lab\n": true, "nameserver 192.0.2.1\n" + ours: true, "nameserver 192.0.2.53\n": true,
		strings.Repeat("#", mostLines+1): true,
	} {
		if err := root.WriteFile(resolvConf, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		changed := false
		f.visit(resolvConf, first, func(model.OwnFile, fs.FileInfo) { changed = true })
		if changed != want {
			t.Errorf("/etc/resolv.conf with %.300q is told as changed: %v", text, changed)
		}
	}
}

// TestFRRAnswer takes the configuration out of what vtysh says, and believes nothing that is not whole.
func TestFRRAnswer(t *testing.T) {
	const answer = " zebra staticd\nBuilding configuration...\n\nCurrent configuration:\n!\nfrr version 8.4\nend\n"
	if got, err := frrAnswer(answer, []string{"zebra", "staticd"}); err != nil || got != "frr version 8.4\nend\n" {
		t.Errorf("%q, %v", got, err)
	}
	for text, words := range map[string]string{
		answer:              "bgpd does not answer",
		"Exiting: failed\n": "does not say a configuration",
		strings.Replace(answer, "8.4", "\xff", 1):                                        "no text",
		strings.Replace(answer, "8.4", "\x00", 1):                                        "no text",
		" bgpd\n\nCurrent configuration:\n!\n\n":                                         "an empty configuration",
		" bgpd\n\nCurrent configuration:\n" + strings.Repeat("x", model.MaxConfigSize+1): "more than",
	} {
		if got, err := frrAnswer(text, []string{"bgpd"}); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%.60q gives %.60q, %v: want an error with %q", text, got, err, words)
		}
	}
}

var _ control.Teller = (*Driver)(nil)
