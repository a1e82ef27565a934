package netns

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
)

// TestReplacedDirectories has an element's root put links in the place of directories: the error tells what helps, and
// it does.
func TestReplacedDirectories(t *testing.T) {
	n := newNode(t)
	jobs := frrLine("lab", 7, 2)
	jobs[1].Element.Software = model.SoftwareStatic
	id, plain := jobs[0].ID, jobs[1].ID
	n.apply(t, jobs)
	n.run(t, id, "sh", "-c",
		"echo mine >/root/mine && mv /root /was && ln -s /was /root && mv /etc/frr /etc/own && ln -s /etc/own /etc/frr")
	jobs[0].Element.Routes = []model.Route{{To: netip.MustParsePrefix("192.0.2.0/24"),
		Via: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}}
	r := n.Apply(t.Context(), jobs)[0]
	if r.Err == nil || !strings.Contains(r.Err.Error(), `its /root is a symbolic link to "/was" now`) ||
		!strings.Contains(r.Err.Error(), "restart lab/r0") {
		t.Errorf("a link in the place of a directory gave %v: want what is wrong and what helps", r.Err)
	}
	if got := n.run(t, id, "pwd"); got != "/\n" {
		t.Errorf("a command began in %q", got)
	}
	jobs[0].Element.Restarts++
	got := strings.Join(changes(n.apply(t, jobs)), "\n")
	for _, want := range []string{`/root, which was a symbolic link to "/was", is now /root.replaced`,
		"is now /etc/frr.replaced", "restarted: as requested"} {
		if !strings.Contains(got, want) {
			t.Errorf("the restart said\n%s\nwant %q", got, want)
		}
	}
	n.untilRuns(t, id, "192.0.2.0/24", "vtysh", "-c", "show running-config")
	if got := n.run(t, id, "sh", "-c",
		"pwd; cat /root.replaced/mine; readlink /etc/frr.replaced"); got != "/root\nmine\n/etc/own\n" {
		t.Errorf("after the restart there is %q", got)
	}
	// Something that is no file where the configuration is, and a directory where a file is: the element's own doing.
	n.run(t, id, "sh", "-c",
		"rm /etc/frr/frr.conf && ln -s /etc/own/frr.conf /etc/frr/frr.conf && rm /etc/hosts && mkdir /etc/hosts")
	jobs[0].Element.Routes = nil
	if r := n.apply(t, jobs)[0]; r.Warning.Reason != "ConfigurationKept" {
		t.Errorf("a link in the place of the configuration gave the warning %+v: want that it is kept", r.Warning)
	}
	jobs[0].Element.Overwrites++
	jobs[0].Element.Restarts++
	n.apply(t, jobs)
	n.run(t, id, "sh", "-c",
		"test -f /etc/frr/frr.conf && ! test -L /etc/frr/frr.conf && test -f /etc/hosts && test -d /etc/hosts.replaced")

	// An element without processes needs no restart.
	n.run(t, plain, "sh", "-c", "mv /etc /was && ln -s /nowhere /etc")
	if got := n.run(t, plain, "sh", "-c", "cat /etc/hostname; readlink /etc.replaced"); got != "r1\n/nowhere\n" {
		t.Errorf("after /etc was taken away there is %q", got)
	}
}

// TestCrashLoop has software end again and again: that is failed, with its words, until it runs for a while; and its
// files can be mended meanwhile.
func TestCrashLoop(t *testing.T) {
	n := newNode(t)
	jobs := frrLine("lab", 7, 2)[:1]
	jobs[0].Element.Software = model.SoftwareBIRD
	id := jobs[0].ID
	n.apply(t, jobs)
	n.untilRuns(t, id, "BIRD", "birdc", "show", "status")
	n.run(t, id, "sh", "-c", "cp /etc/bird/bird.conf /root && echo 'garbage {{{' >/etc/bird/bird.conf")
	jobs[0].Element.Restarts++
	n.apply(t, jobs)
	p := &n.elements[id].process
	ends := func() {
		if p.pidfd > 0 {
			awaitEnd(p.pidfd, -1)
		}
	}
	fails := func(times string) {
		t.Helper()
		r := n.Apply(context.Background(), jobs)[0]
		if r.Err == nil || r.Phase != model.PhaseFailed ||
			!strings.Contains(r.Err.Error(), times+" soon after their start") ||
			!strings.Contains(r.Err.Error(), "/etc/bird/bird.conf:1:") ||
			!strings.Contains(r.Err.Error(), "logs lab/r0") {
			t.Errorf("crashing software gave %s, %v: want failed, %s, with its words", r.Phase, r.Err, times)
		}
	}
	soon := func() { p.next = time.Now() }
	later := func() { p.next = time.Now().Add(time.Hour) }
	ends()
	later()
	fails("1 time")
	soon()
	n.apply(t, jobs) // one death is an accident
	ends()
	later()
	fails("2 times")
	soon()
	fails("2 times") // started once more, and not trusted
	ends()
	later()
	fails("3 times")
	n.run(t, id, "sh", "-c", "cp /root/bird.conf /etc/bird")
	soon()
	fails("3 times")
	n.untilRuns(t, id, "BIRD", "birdc", "show", "status")
	fails("3 times")
	p.began = p.began.Add(-lasting)
	n.apply(t, jobs)
	// Who asks for a restart does not wait.
	unix.PidfdSendSignal(p.pidfd, unix.SIGKILL, nil, 0)
	ends()
	p.failures, p.began = 9, time.Now()
	later()
	jobs[0].Element.Restarts++
	n.apply(t, jobs)
	n.pidOf(t, id)
}
