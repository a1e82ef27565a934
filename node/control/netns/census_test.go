package netns

import (
	"os/exec"
	"testing"
)

// Both ways to count the machine's neighbours must see what is added. Others' entries come and go meanwhile.
func TestNeighboursOfTheMachineAreCounted(t *testing.T) {
	n := newNode(t)
	jobs := lineOf("lab", 2, 2)
	n.apply(t, jobs)
	const many = 2000
	ways := map[string]func() (int, error){"files": n.census.neighbours, "netlink": n.census.askNeighbours}
	before := map[string]int{}
	for way, count := range ways {
		var err error
		if before[way], err = count(); err != nil {
			t.Fatal(err)
		}
	}
	script := `for i in $(seq 1000); do echo "neighbour add 10.200.$((i / 250)).$((i % 250 + 1)) dev r1 lladdr 02:00:00:00:00:01 nud permanent"
		echo "neighbour add fd00:200::$i dev r1 lladdr 02:00:00:00:00:01 nud permanent"; done | ip -batch -`
	if out, err := exec.Command("nsenter", "--net="+n.dirs.Namespace(jobs[0].ID), "sh", "-c",
		script).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for way, count := range ways {
		is, err := count()
		if err != nil {
			t.Fatal(err)
		}
		if more := is - before[way]; more < many-200 || more > many+200 {
			t.Errorf("by %s %d more neighbours are counted, %d were added", way, more, many)
		}
	}
	if _, ok := tableEntries("/proc/1/net/stat/none"); ok {
		t.Error("a file that is not there was read")
	}
}

func TestMountsThatChangeAreSeen(t *testing.T) {
	n := newNode(t)
	jobs := lineOf("lab", 2, 2)
	n.apply(t, jobs)
	n.mounts.changed()
	if err := exec.Command("umount", "-l", n.dirs.Namespace(jobs[0].ID)).Run(); err != nil {
		t.Fatal(err)
	}
	differ, err := n.Audit(t.Context())
	if err != nil || len(differ) != 1 || differ[0] != jobs[0].ID {
		t.Errorf("the audit says that %v differ (%v): %s lost its mount", differ, err, jobs[0].ID)
	}
}
