package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"golang.org/x/sys/unix"
)

// Purge has runc end and forget every container of a node whose agent has ended. What fails there is no error: the
// caller then ends all processes in the elements' namespaces.
func Purge(dirs instance.NodeDirs) error {
	states, err := filepath.Glob(filepath.Join(dirs.Runc(), "*", "state.json"))
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
	namespaces, other := filepath.Glob(dirs.Namespace(model.ID{Network: "*", Element: "*"}))
	for _, path := range namespaces {
		if namespace, err := os.Open(path); err == nil {
			if hasManyBridges(namespace) {
				removeBridges(namespace) //nolint:errcheck // said above
			}
			namespace.Close()
		}
	}
	return errors.Join(err, other)
}

// PurgeRest removes what elements leave behind when their processes have ended and nothing of theirs is mounted: it
// waits for their disks, and removes the instance's control groups.
func PurgeRest(d instance.Dirs) error {
	awaitDisks(d.Data)
	return sweepCgroups(d)
}

// awaitDisks waits until the kernel has let go of the elements' disks. They go a moment after the last process that
// used them. If somebody else holds one, it does not wait for ever, and no harm is done.
func awaitDisks(data string) {
	for range 500 {
		held := false
		paths, _ := filepath.Glob("/sys/block/loop*/loop/backing_file") // the pattern is right
		for _, path := range paths {
			b, err := os.ReadFile(path)
			held = held || err == nil && strings.HasPrefix(string(b), data+"/")
		}
		if !held {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// sweepCgroups removes the instance's cgroups, in every hierarchy; their processes have ended.
func sweepCgroups(d instance.Dirs) error {
	roots, err := filepath.Glob("/sys/fs/cgroup/*/polyplane/" + d.Name)
	if err != nil {
		return err
	}
	for _, root := range append(roots, "/sys/fs/cgroup/polyplane/"+d.Name) {
		var dirs []string
		filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error { //nolint:errcheck // most do not exist
			if err == nil && e.IsDir() {
				dirs = append(dirs, p)
			}
			return nil
		})
		for _, p := range slices.Backward(dirs) {
			if err := removeCgroup(p); err != nil {
				return fmt.Errorf("remove the cgroup %s: %w", p, err)
			}
		}
		os.Remove(filepath.Dir(root)) //nolint:errcheck // only if no other instance has any
	}
	return nil
}

// removeCgroup removes one cgroup. The kernel needs a moment after the last process has ended.
func removeCgroup(path string) error {
	var err error
	for range 100 {
		if err = unix.Rmdir(path); !errors.Is(err, unix.EBUSY) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}
