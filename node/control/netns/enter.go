package netns

import (
	"runtime"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/mirror"
)

// onThread runs f on a thread of its own, which ends with f. So no other code runs in the namespaces that f enters.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread dies with the goroutine
		done <- f()
	}()
	return <-done
}

// Enter runs f on a thread of its own inside the element's network namespace.
func (d *Driver) Enter(id model.ID, f func() error) error { return linux.InsideOf(d.Namespace(id), f) }

// Namespace is where the element's network namespace is mounted.
func (d *Driver) Namespace(id model.ID) string { return d.dirs.Namespace(id) }

// Routes says where an element's routes are.
func (d *Driver) Routes(id model.ID) mirror.Source { return mirror.Namespace(d.Namespace(id)) }

// inNode runs f on a thread of its own in the node's namespace, wherever the caller is.
func (d *Driver) inNode(f func() error) error { return linux.Inside(d.home, f) }
