package linux

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// ProbeDelay says why this kernel cannot delay packets, in words that begin with "its kernel". It returns nil if it
// can. To find out, it adds a netem in a network namespace that it then removes.
func ProbeDelay() error {
	return inScratch(probeDelay)
}

func probeDelay(c *Rtnetlink) error {
	var b Batch
	b.ReplaceQueue(1, Queue{Delay: time.Millisecond, Frames: 1}) // lo
	errs := c.Do(&b)
	switch {
	case errs == nil:
		return nil
	case errors.Is(errs[0], unix.ENOENT):
		return fmt.Errorf("its kernel %s has no netem (CONFIG_NET_SCH_NETEM, the module sch_netem)", release())
	}
	return fmt.Errorf("its kernel %s refuses a netem: %w", release(), errs[0])
}

// ProbeIDMappedLayers returns why this kernel shows no layers of an overlay with other user IDs: it does so since Linux
// 5.19 (Documentation/filesystems/idmappings.rst).
func ProbeIDMappedLayers() error {
	var major, minor int
	if n, _ := fmt.Sscanf(release(), "%d.%d", &major, &minor); n == 2 && (major > 5 || major == 5 && minor >= 19) {
		return nil
	}
	return fmt.Errorf("its kernel %s has no overlays with layers of other user IDs, which images need: Linux 5.19 has",
		release())
}

// release is the first two numbers of the running kernel's version.
func release() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "(of unknown release)"
	}
	text := unix.ByteSliceToString(u.Release[:])
	dots := 0
	for i, r := range text {
		if r == '.' {
			dots++
		}
		if dots == 2 || r != '.' && (r < '0' || r > '9') {
			return text[:i]
		}
	}
	return text
}
