package netns

import (
	"context"
	"github.com/polyplane/polyplane/model"
	"testing"
	"time"
)

func TestBenchQuick(t *testing.T) {
	n := newNode(t)
	jobs := lineOf("net", 1, 1000)
	start := time.Now()
	n.apply(t, jobs)
	t.Log("create", time.Since(start))
	start = time.Now()
	r := n.apply(t, jobs)
	t.Log("again", time.Since(start), len(changes(r)))
	n.restart(t)
	start = time.Now()
	r = n.apply(t, jobs)
	t.Log("after restart", time.Since(start), len(changes(r)))
	start = time.Now()
	ids, err := n.Audit(context.Background())
	t.Log("audit", time.Since(start), len(ids), err)
	var all []model.ID
	for _, j := range jobs {
		all = append(all, j.ID)
	}
	start = time.Now()
	if err := n.Remove(context.Background(), all, false); err != nil {
		t.Fatal(err)
	}
	t.Log("remove", time.Since(start))
}
