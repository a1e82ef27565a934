// Command polyplane runs many virtual networks on one set of Linux hosts. This package is the composition root: it
// puts commands, flags and packages together and does nothing else.
package main

import "os"

func main() {
	app := newApp()
	root := newRoot(app)
	os.Exit(app.Execute(root, os.Args[1:]))
}
