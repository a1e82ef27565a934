package netns

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/system/attack"
)

// TestStoppedBridgesHoldUpNobody: an element with many bridges that are up is stopped. Another network is made while
// the kernel removes them, the element counts as stopped before they are gone, a new agent goes on after one that was
// killed, and who wants the element again gets it without them.
func TestStoppedBridgesHoldUpNobody(t *testing.T) {
	const many = 120
	attack.Tell(t, fmt.Sprintf("an element with %d bridges that are up is stopped", many),
		"nobody else's work waits until they are gone, and nor does the stop")
	n := newNode(t)
	jobs := lineOf("lab", 2, 2)
	n.apply(t, jobs)
	mean := job(jobs, "r1")
	var lines strings.Builder
	for i := range many {
		fmt.Fprintf(&lines, "link add z%d type bridge\nlink set z%d up\n", i, i)
	}
	n.run(t, mean.ID, "sh", "-c", "ip -batch - <<'END'\n"+lines.String()+"END")
	namespace, err := os.Open(n.dirs.Namespace(mean.ID))
	if err != nil {
		t.Fatal(err)
	}
	defer namespace.Close()
	left := func() (found []int, up bool) {
		t.Helper()
		if err := linux.InsideWith(int(namespace.Fd()), func(c *linux.Rtnetlink) error {
			found, err = bridges(c)
			links, failed := readLinks(c, &want{})
			for _, l := range links {
				up = up || l.Bridge && l.Up()
			}
			if failed != nil {
				return failed
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return found, up
	}

	// The agent is killed soon after it has begun.
	ctx, kill := context.WithCancel(t.Context())
	n.Hurry()
	mean.Element.Stopped = true
	n.Apply(ctx, jobs)
	kill()
	n.restart(t)
	if found, up := left(); len(found) < many/2 || up {
		t.Errorf("the agent's pass took until %d of %d bridges were left; up are some: %v", len(found), many, up)
	}

	// The next one goes on, by the mark that they bear, and makes another network meanwhile.
	step := n.hurry(t)
	both := append(slices.Clone(jobs), lineOf("other", 3, 3)...)
	stepUntil(t, step, both, all("other", model.PhaseRunning))
	stepUntil(t, step, both, func(results map[model.ID]control.Result) bool {
		r := results[mean.ID]
		return r.Phase == model.PhaseStopped && !r.Busy
	})
	if found, up := left(); len(found) == 0 || up {
		t.Errorf("another network was ready, and it told as stopped, when %d of %d bridges were left; up are some: %v",
			len(found), many, up)
	}
	both[1].Element.Stopped = false
	said := stepUntil(t, step, both, all("lab", model.PhaseRunning))
	if found, _ := left(); len(found) > 0 {
		t.Errorf("it runs again with %d bridges of those that were to go", len(found))
	}
	if words := strings.Join(said[mean.ID], "\n"); !strings.Contains(words, " devices that were made in it removed: z") {
		t.Errorf("what was done is told as %q", words)
	}
}
