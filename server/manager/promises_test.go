package manager

import (
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// More disk may be promised than there is: whoever makes it more is told, in a plan too, and once; nothing is refused.
// What the node has, and has free, is shown.
func TestPromisedDiskIsTold(t *testing.T) {
	f := start(t, t.TempDir(), substrateOf(2))
	for _, node := range []string{"n1", "n2"} { // both are on this machine, and have one disk
		if err := f.Report(model.Report{Node: node, Disk: 2 << 30, DiskFree: 1 << 30}); err != nil {
			t.Fatal(err)
		}
	}
	if n := firstNode(t, f.Manager); n.Disk != 2<<30 || n.DiskFree != 1<<30 {
		t.Errorf("of the disk is told %v free of %v", n.DiskFree, n.Disk)
	}
	larger := line("last", 1)
	larger.Elements[0].Disk = 4 << 30
	one := line("last", 1)
	for i, c := range []struct {
		net   model.Network
		dry   bool
		takes string // what the note says; none when empty
	}{
		{line("some", 4), false, ""},
		{line("more", 4), false, ""}, // eight times 256 MiB, which is all
		{one, true, "2.2GiB together"},
		{one, false, "2.2GiB together"},
		{one, false, ""}, // it makes it no more
		{larger, false, "6GiB together"},
	} {
		r, err := f.Apply(t.Context(), c.net, model.ApplyOptions{DryRun: c.dry})
		if err != nil {
			t.Fatal(err)
		}
		notes := strings.Join(r.Notes, "\n")
		if c.takes == "" && notes != "" || !strings.Contains(notes, c.takes) ||
			c.takes != "" && !strings.Contains(notes, "the disk that they are on has 2GiB") {
			t.Errorf("%d: noted is %q, want %q", i, notes, c.takes)
		}
	}
}
