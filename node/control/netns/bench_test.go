package netns

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
)

const benchRouters = 1000

// BenchmarkLine makes, leaves alone and removes a line of 1,000 static routers – two pairs a link, sysctls, addresses,
// all up –, and next to it what is the least of that by bare `ip -batch`: the namespaces and one pair a link, still
// down and without addresses. It reports milliseconds and the ratio to the bare ones.
func BenchmarkLine(b *testing.B) {
	n := newNode(b)
	jobs := lineOf("line", 1, benchRouters)
	ids := make([]model.ID, len(jobs))
	for i := range jobs {
		ids[i] = jobs[i].ID
	}
	var spent [6]time.Duration
	timed := func(i int, f func()) {
		start := time.Now()
		f()
		spent[i] += time.Since(start)
	}
	bare := newBareLine(b)
	rounds := 0
	for b.Loop() {
		rounds++
		timed(4, func() { bare.make(b) })
		timed(5, func() { bare.remove(b) })
		timed(0, func() { n.apply(b, jobs) })
		timed(1, func() {
			if got := changes(n.apply(b, jobs)); len(got) != 0 {
				b.Fatalf("an apply of what is there changed %d things", len(got))
			}
		})
		n.restart(b)
		timed(2, func() {
			if got := changes(n.apply(b, jobs)); len(got) != 0 {
				b.Fatalf("an apply after a restart changed %d things, first %q", len(got), got[0])
			}
		})
		timed(3, func() {
			if err := n.Remove(context.Background(), ids, false); err != nil {
				b.Fatal(err)
			}
		})
	}
	for i, name := range []string{"create", "unchanged", "restarted", "remove", "bare-create", "bare-remove"} {
		b.ReportMetric(float64(spent[i].Milliseconds())/float64(rounds), name+"-ms")
	}
	b.ReportMetric(spent[0].Seconds()/spent[4].Seconds(), "create-ratio")
	b.ReportMetric(spent[3].Seconds()/spent[5].Seconds(), "remove-ratio")
	b.ReportMetric(0, "ns/op")
}

// bareLine is the line as `ip -batch` makes it.
type bareLine struct{ prefix, dir string }

func newBareLine(b *testing.B) *bareLine {
	l := &bareLine{prefix: fmt.Sprintf("ppb%d-", os.Getpid()), dir: b.TempDir()}
	var spaces, links, gone strings.Builder
	for i := range benchRouters {
		fmt.Fprintf(&spaces, "netns add %s%d\n", l.prefix, i)
		fmt.Fprintf(&gone, "netns del %s%d\n", l.prefix, i)
		if i < benchRouters-1 {
			fmt.Fprintf(&links, "link add r%d netns %s%d numtxqueues 1 numrxqueues 1 type veth peer name r%d netns "+
				"%s%d numtxqueues 1 numrxqueues 1\n",
				i+1, l.prefix, i, i, l.prefix, i+1)
		}
	}
	for name, content := range map[string]string{"spaces": spaces.String(), "links": links.String(),
		"gone": gone.String()} {
		if err := os.WriteFile(filepath.Join(l.dir, name), []byte(content), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	return l
}

func (l *bareLine) make(b *testing.B) {
	sh(b, "cd "+l.dir+" && ip -batch spaces && ip -batch links")
}

func (l *bareLine) remove(b *testing.B) {
	sh(b, "cd "+l.dir+" && ip -batch gone")
	// "netns del" returns before the kernel is done; a marker namespace made now is cleaned up after those before it.
	done := make(chan error, 1)
	go func() { done <- onThread(func() error { return unix.Unshare(unix.CLONE_NEWNET) }) }()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}
