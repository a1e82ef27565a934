package lifecycle

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
)

// awaitKernel returns when the kernel has let go of all namespaces that were given up before. It works them off in
// order, some time after the last reference has gone; so one more namespace is given up, and when its device has
// vanished, so have all before it.
func awaitKernel() error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // not given back: the thread ends with its namespace
		done <- awaitLast()
	}()
	return <-done
}

func awaitLast() error {
	// Our end of the pair must not be the host's: two namespaces of our own, one to watch from.
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("make a network namespace: %w", err)
	}
	last, err := netns.Get()
	if err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		last.Close()
		return fmt.Errorf("make a network namespace: %w", err)
	}
	links, err := linux.Whole(netlink.LinkList) // opens this namespace's socket before there is anything to miss
	if err != nil || len(links) == 0 {
		last.Close()
		return fmt.Errorf("look into a new network namespace: %w", err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "here"
	err = netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "there", PeerNamespace: netlink.NsFd(last)})
	last.Close()
	if err != nil {
		return fmt.Errorf("make a device: %w", err)
	}
	const limit = time.Minute
	for start := time.Now(); ; {
		_, err := netlink.LinkByName("here")
		if _, ok := errors.AsType[netlink.LinkNotFoundError](err); ok {
			return nil
		}
		if err != nil {
			return err
		}
		if time.Since(start) > limit {
			return fmt.Errorf("the kernel has not let go of the namespaces after %s", limit)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
