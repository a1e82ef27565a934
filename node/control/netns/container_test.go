package netns

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
)

// run runs a command inside an element.
func (n *testNode) run(t testing.TB, id model.ID, args ...string) (status int, out string) {
	t.Helper()
	var b bytes.Buffer
	status, err := n.Exec(context.Background(), id, control.Command{Args: args}, control.Stdio{Out: &b, Err: &b})
	if err != nil {
		t.Fatalf("exec %v in %s: %v\n%s", args, id, err, b.String())
	}
	return status, b.String()
}

func frrLine(network string, index uint32, n int) []control.Job {
	jobs := lineOf(network, index, n)
	for i := range jobs {
		jobs[i].Element.Software = model.SoftwareFRR
	}
	return jobs
}

func TestFRRRuns(t *testing.T) {
	n := newNode(t)
	jobs := frrLine("lab", 7, 2)
	start := time.Now()
	r := n.apply(t, jobs)
	t.Log(time.Since(start), changes(r))
	s, out := n.run(t, jobs[0].ID, "/bin/sh", "-c", "id; hostname; cat /etc/hosts; ps ax; ls -la / /etc; cat /etc/shadow; mount")
	t.Log(s, out)
	s, out = n.run(t, jobs[0].ID, "vtysh", "-c", "show interface brief")
	t.Log(s, out)
	if !strings.Contains(out, "r1") {
		t.Error("no")
	}
	start = time.Now()
	r = n.apply(t, jobs)
	t.Log(time.Since(start), changes(r))
}
