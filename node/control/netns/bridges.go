package netns

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/node/port"
)

// mostBridges is how many bridges the kernel may remove together with their namespace. For each bridge it waits for all
// its readers (rcu_barrier in br_multicast_dev_del, net/bridge/br_multicast.c), some 60 ms. With a namespace it does so
// for all of them under its one lock for network configuration: a thousand bridges would stop everybody's configuration
// for a minute.
const mostBridges = 8

// bridges returns the indices of a namespace's bridges.
func bridges(c *linux.Rtnetlink) ([]int, error) {
	links, err := port.Links(c)
	var found []int
	for i := range links {
		if links[i].Bridge {
			found = append(found, links[i].Index)
		}
	}
	if errors.Is(err, linux.ErrDumpInterrupted) {
		err = nil
	}
	return found, err
}

// hasManyBridges tells whether a namespace has more bridges than the kernel may remove with it.
func hasManyBridges(namespace *os.File) (many bool) {
	linux.InsideWith(int(namespace.Fd()), func(c *linux.Rtnetlink) error { //nolint:errcheck // then the kernel removes all
		found, err := bridges(c)
		many = len(found) > mostBridges
		return err
	})
	return many
}

// removeBridges removes a namespace's bridges one by one, so that others have their turns at the kernel's lock in
// between. Nothing runs in the namespace any more.
func removeBridges(namespace *os.File) error {
	return linux.InsideWith(int(namespace.Fd()), func(c *linux.Rtnetlink) error {
		found, err := bridges(c)
		if err != nil {
			return err
		}
		for _, index := range found {
			var b linux.Batch
			b.Request(unix.RTM_DELLINK, 0)
			b.Link(index, 0, 0)
			for _, failed := range c.Do(&b) {
				if failed != nil && !errors.Is(failed, unix.ENODEV) {
					err = failed
				}
			}
		}
		return err
	})
}

// part removes the bridges of a namespace that is about to go, in the background, if they are many. The namespace lives
// on meanwhile, without a name.
func (d *Driver) part(path string) {
	namespace, err := os.Open(path)
	if err != nil {
		return // it is gone
	}
	if !hasManyBridges(namespace) {
		namespace.Close()
		return
	}
	go func() {
		defer namespace.Close()
		if err := removeBridges(namespace); err != nil {
			d.log.Warn("remove the bridges of an element that is gone", "namespace", path, "error", err)
		}
	}()
}
