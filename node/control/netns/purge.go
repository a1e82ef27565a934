package netns

import (
	"os/exec"
	"path/filepath"
	"sync"

	"github.com/polyplane/polyplane/instance"
)

// Purge has runc end and forget every container of a node whose agent has ended. It ignores errors: the caller then
// ends all processes in the elements' namespaces.
func Purge(dirs instance.NodeDirs) {
	states, _ := filepath.Glob(filepath.Join(dirs.Runc(), "*", "state.json")) // the pattern is right
	const workers = 8
	next := make(chan string)
	var wg sync.WaitGroup
	for range min(workers, len(states)) {
		wg.Go(func() {
			for s := range next {
				id := filepath.Base(filepath.Dir(s))
				exec.Command("runc", "--root", dirs.Runc(), "delete", "--force", id).Run() //nolint:errcheck // said above
			}
		})
	}
	for _, s := range states {
		next <- s
	}
	close(next)
	wg.Wait()
}
