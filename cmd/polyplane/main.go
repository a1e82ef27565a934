// Command polyplane runs many virtual networks on one set of Linux hosts. This package is the composition root: it
// puts commands, flags and packages together and does nothing else.
package main

import (
	"os"

	"github.com/polyplane/polyplane/node/control/netns"
)

func main() {
	netns.ChildMain() // does not return in the short-lived children that make namespaces
	app := newApp()
	root := newRoot(app)
	root.AddCommand(daemonCommands(app)...)
	os.Exit(app.Execute(root, os.Args[1:]))
}
