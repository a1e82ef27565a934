package netdev

import (
	"os"
	"strings"
)

// ThreadsVisible tells whether this process can see the kernel's threads, as it must to place those that receive. In a
// process namespace of its own, as containers have one, it cannot.
func ThreadsVisible() bool {
	b, err := os.ReadFile("/proc/2/comm") // kthreadd, the parent of them all
	return err == nil && strings.TrimSpace(string(b)) == "kthreadd"
}
