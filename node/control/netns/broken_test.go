package netns

import (
	"strconv"
	"strings"
	"testing"

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
	if out := n.run(t, broken, "sh", "-c", "echo more >> /root/mine; cat /root/mine; grep -c 10.0.0.77 /etc/bird/bird.conf"); strings.TrimSpace(out) != "kept\nmore\n1" {
		t.Errorf("afterwards its files say %q", out)
	}
	if n.pidOf(t, other) != others {
		t.Error("its neighbour was restarted")
	}
}

func said(r control.Result, words string) bool {
	return strings.Contains(strings.Join(r.Changed, "\n"), words)
}
