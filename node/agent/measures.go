package agent

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/model"
)

// passBounds are the upper bounds of the histogram of pass times, in seconds.
var passBounds = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}

// work counts what the agent does.
type work struct {
	node    string
	started time.Time

	mu               sync.Mutex // guards the two lines below
	passes           model.Histogram
	audits, findings uint64
}

func newWork(node string) *work {
	return &work{node: node, started: time.Now(), passes: model.NewHistogram(passBounds...)}
}

// passed counts a pass that has ended.
func (w *work) passed(took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.passes.Observe(took)
}

// audited counts an audit, and how many elements it found to differ from what is desired.
func (w *work) audited(findings int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.audits++
	w.findings += uint64(findings)
}

// measures are the agent's own, without any link's.
func (w *work) measures() model.Measures {
	m := model.Measures{Node: w.node, Started: w.started, Memory: residentMemory()}
	var usage unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &usage) == nil {
		m.CPU = (time.Duration(usage.Utime.Nano()) + time.Duration(usage.Stime.Nano())).Seconds()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	m.Passes, m.Audits, m.Findings = w.passes.Clone(), w.audits, w.findings
	return m
}

// residentMemory is this process's (proc(5): the second field of statm, in pages); zero when it cannot be read.
func residentMemory() model.Bytes {
	b, err := os.ReadFile("/proc/self/statm")
	fields := strings.Fields(string(b))
	if err != nil || len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseUint(fields[1], 10, 63)
	if err != nil {
		return 0
	}
	return model.Bytes(pages * uint64(os.Getpagesize()))
}

// courier carries the latest measures to the manager, in its own time. What could not be delivered is worth nothing
// once there are newer ones.
type courier struct {
	manager Manager
	latest  chan model.Measures // holds one, which newer ones replace
}

func newCourier(m Manager) *courier {
	return &courier{manager: m, latest: make(chan model.Measures, 1)}
}

// send replaces what still waits. Only one goroutine may call it.
func (c *courier) send(m model.Measures) {
	select {
	case <-c.latest:
	default:
	}
	c.latest <- m
}

func (c *courier) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case m := <-c.latest:
			_ = c.manager.Measure(ctx, m) // a manager that is away gets the next ones
		}
	}
}
