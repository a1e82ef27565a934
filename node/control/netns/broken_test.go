package netns

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/change"
	"github.com/polyplane/polyplane/node/control"
)

// An element whose disk an error has made read-only goes on; when its files must change it is restarted, with its disk
// mended and all that was on it.
func TestBrokenDiskIsMendedWhenFilesMustChange(t *testing.T) {
	n := newNode(t)
	jobs := birdLine("lab", 48, 2)
	n.apply(t, jobs)
	broken, other := jobs[0].ID, jobs[1].ID
	n.run(t, broken, "sh", "-c", "echo kept > /root/mine; sync")
	sh(t, "mount -o remount,abort "+strconv.Quote(n.dirs.Files(broken)))
	if !isBroken(n.dirs.Files(broken)) {
		t.Fatal("the file system was told to abort and is not read-only")
	}
	was, others := n.pidOf(t, broken), n.pidOf(t, other)
	n.apply(t, jobs)
	if n.pidOf(t, broken) != was {
		t.Error("it was restarted although nothing had to change")
	}
	jobs[0].Element.Config = map[string]string{"bird.conf": "router id 10.0.0.77;\nprotocol device {}\n"}
	results := n.Apply(t.Context(), jobs)
	if err := results[0].Err; err != nil {
		t.Fatal(err)
	}
	if n.pidOf(t, broken) == was || !said(results[0], "had made its disk read-only") {
		t.Errorf("it was not restarted, or that was not said: %q", results[0].Changed)
	}
	if out := n.run(t, broken, "sh", "-c",
		"echo more >> /root/mine; cat /root/mine; grep -c 10.0.0.77 "+
			"/etc/bird/bird.conf"); strings.TrimSpace(out) != "kept\nmore\n1" {
		t.Errorf("afterwards its files say %q", out)
	}
	if n.pidOf(t, other) != others {
		t.Error("its neighbour was restarted")
	}
}

// A router whose disk has become read-only goes on, until a daemon of it ends: FRR's then find no log to write to. It
// is restarted with its disk mended, by itself, and nobody else is.
func TestBrokenDiskIsMendedWhenDaemonsFail(t *testing.T) {
	n := newNode(t)
	jobs := frrLine("lab", 49, 2)
	for i := range jobs {
		jobs[i].Element.Config = map[string]string{"frr.conf": "log file /var/log/frr/frr.log notifications\nrouter " +
			"ospf\n network 10.0.0.0/8 area 0\n"}
	}
	n.awaitPhases(t, jobs, model.PhaseRunning)
	broken, other := jobs[0].ID, jobs[1].ID
	n.run(t, broken, "sh", "-c", "echo kept > /root/mine; sync")
	sh(t, "mount -o remount,abort "+strconv.Quote(n.dirs.Files(broken)))
	was, others := n.pidOf(t, broken), n.pidOf(t, other)
	for _, r := range n.Apply(t.Context(), jobs) {
		if r.Err != nil || r.Phase != model.PhaseRunning {
			t.Errorf("%s is %s although nothing asks for its disk: %v", r.ID, r.Phase, r.Err)
		}
	}
	n.run(t, broken, "sh", "-c", "kill -KILL $(cat /run/frr/ospfd.pid)")
	n.elements[broken].process.ready = false // it is looked at only every few seconds while all is well
	n.lookAtAll(true)
	var told []string
	for deadline := time.Now().Add(3 * time.Minute); n.pidOf(t, broken) == was; {
		if time.Now().After(deadline) {
			t.Fatalf("it has not been restarted; told was %q, and its phase is %s", told, n.elements[broken].phase())
		}
		told = append(told, n.awaitPhases(t, jobs, model.PhaseRunning)...)
	}
	if all := strings.Join(told, "\n"); !strings.Contains(all, "had made its disk read-only") {
		t.Errorf("what was told is %q", all)
	}
	if out := n.run(t, broken, "sh", "-c",
		"echo more >> /root/mine; cat /root/mine; vtysh -c 'show running-config ospfd'"); !strings.Contains(out,
		"kept\nmore\n") || !strings.Contains(out, "network 10.0.0.0/8 area 0") {
		t.Errorf("afterwards it says %q", out)
	}
	if n.pidOf(t, other) != others {
		t.Error("its neighbour was restarted")
	}
}

func said(r control.Result, words string) bool {
	return slices.ContainsFunc(r.Changed, func(c change.Change) bool { return strings.Contains(c.String(), words) })
}
