package main

import "github.com/polyplane/polyplane/node/control/netns"

// childMain does not return in the short-lived children that make namespaces.
func childMain() { netns.ChildMain() }
