package netns

import (
	"context"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/system/attack"
)

// trimAll calls Trim until every element has been looked at.
func (n *testNode) trimAll(t *testing.T, elements int) (all []control.Trimmed) {
	t.Helper()
	for range elements {
		trimmed, err := n.Trim(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, trimmed...)
	}
	return all
}

func TestKernelTablesAreBounded(t *testing.T) {
	attack.Tell(t, "an element fills the tables of neighbours and of tracked connections",
		"what it has too much of is taken away")
	n := newNode(t)
	jobs := lineOf("lab", 3, 3)
	const most = 300
	mean := job(jobs, "r1")
	mean.Element.Neighbours, mean.Element.Connections = most, 1024
	n.apply(t, jobs)
	other := job(jobs, "r0").ID
	n.in(t, other, "ip neighbour add 192.0.2.1 dev r1 lladdr 02:00:00:00:00:55 nud permanent")
	count := func(id model.ID) int {
		return len(strings.Split(strings.TrimSpace(n.in(t, id, "ip neighbour show nud all")), "\n"))
	}
	run := func(script string) {
		t.Helper()
		if out, err := exec.Command("nsenter", "--net="+n.dirs.Namespace(mean.ID), "sh", "-c",
			script).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	fill := func(entries int, state string) {
		t.Helper()
		run(`for i in $(seq ` + strconv.Itoa(entries) + `); do echo "neighbour replace 10.200.$((i / 250)).$((i % 250 + 1)) dev r2 lladdr 02:00:00:00:00:01 nud ` + state + `"
			echo "neighbour replace fd00:200::$i dev r2 lladdr 02:00:00:00:00:01 nud ` + state + `"; done | ip -batch -`)
	}
	before := count(mean.ID)
	fill(most/2-10, "permanent")
	if trimmed := n.trimAll(t, 2*len(jobs)); len(trimmed) != 0 {
		t.Errorf("below the limit %+v was trimmed", trimmed)
	}
	for _, state := range []string{"permanent", "reachable", "permanent extern_learn proto 112"} {
		fill(most/2+50, state)
		trimmed := n.trimAll(t, 2*len(jobs))
		if len(trimmed) == 0 || trimmed[0].ID != mean.ID || trimmed[0].Table != control.Neighbours ||
			trimmed[0].Had <= most || trimmed[0].Limit != most {
			t.Errorf("%s: trimmed %+v", state, trimmed)
		}
		if is := count(mean.ID); is > before {
			t.Errorf("%s: %d neighbours are left, of %d at first", state, is, before)
		}
	}
	if mac, _ := n.neighbour(t, mean.ID, "10.0.2.1"); mac == "" {
		t.Error("a neighbour that the network makes known was forgotten")
	}
	if is := n.in(t, other, "ip neighbour show nud permanent"); !strings.Contains(is, "192.0.2.1") {
		t.Errorf("another element's neighbour was forgotten: %q", is)
	}

	run(`nft 'add table inet t; add chain inet t o { type filter hook output priority 0; }; add rule inet t o ct state new accept'
		ip link set lo up; perl -e 'socket $s, 2, 2, 0; for $p (1 .. 3000) { send $s, "x", 0, pack "SnC4x8", 2, $p, 127, 0, 0, 1 }'`)
	trimmed := n.trimAll(t, 2*len(jobs))
	if len(trimmed) != 1 || trimmed[0].ID != mean.ID || trimmed[0].Table != control.Connections ||
		trimmed[0].Had < 3000 || trimmed[0].Limit != 1024 {
		t.Errorf("trimmed %+v", trimmed)
	}
	if left := strings.TrimSpace(n.in(t, mean.ID, "cat /proc/sys/net/netfilter/nf_conntrack_count")); left != "0" {
		t.Errorf("%s tracked connections are left", left)
	}
}
