// Command polyplane runs many virtual networks on one set of Linux hosts. This package is the composition root: it
// puts commands, flags and packages together and does nothing else.
package main

import (
	"os"
	"runtime"

	"github.com/polyplane/polyplane/node/control/netns"
)

// init keeps the process's first thread for main alone: a goroutine that enters an element's namespace for good ends
// its thread with it, and the first thread cannot end before the process does.
func init() { runtime.LockOSThread() }

func main() {
	netns.ChildMain() // does not return in the short-lived children that make namespaces
	app := newApp()
	root := newRoot(app)
	root.AddCommand(daemonCommands(app)...)
	os.Exit(app.Execute(root, os.Args[1:]))
}
