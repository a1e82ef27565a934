package netns

import (
	"os/exec"
	"path/filepath"
	"sync"

	"github.com/polyplane/polyplane/instance"
)

// Purge has runc end and forget every container of a node, whose agent has ended. What runc cannot end goes as every process in
// an element's namespaces does.
func Purge(dirs instance.NodeDirs) {
	states, _ := filepath.Glob(filepath.Join(dirs.Runc(), "*", "state.json")) // the pattern is right
	const workers = 8
	next := make(chan string)
	var wg sync.WaitGroup
	for range min(workers, len(states)) {
		wg.Go(func() {
			for s := range next {
				exec.Command("runc", "--root", dirs.Runc(), "delete", "--force", filepath.Base(filepath.Dir(s))).Run() //nolint:errcheck
			}
		})
	}
	for _, s := range states {
		next <- s
	}
	close(next)
	wg.Wait()
}
