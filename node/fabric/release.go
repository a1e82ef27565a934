package fabric

import (
	"errors"
	"fmt"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/linux"
)

// ReleaseEdges gives real devices back that are edges of a node: it takes the fabric's filter off all devices of the
// network namespace that the calling thread is in, and ends their receiving of frames to every address. It needs
// nothing of what the node keeps in files, and nothing being there is no error. The devices of slices' and ports'
// queues go with them, and the programs in drivers; what tells which offloads these had is in a file, and they get them
// back if it is there.
func ReleaseEdges(dirs instance.NodeDirs) error {
	c, err := linux.DialRtnetlink()
	if err != nil {
		return fmt.Errorf("release the edges of node %s: %w", dirs.Node, err)
	}
	defer c.Close()
	f := &Fabric{dirs: dirs, netlink: c}
	k, err := f.look()
	if err == nil {
		err = errors.Join(f.detachEdges(k, nil), f.removeShapers(k, nil), f.removeQueues(k), f.removeMirrors(k),
			f.releaseDrivers(k))
	}
	if err != nil {
		return fmt.Errorf("release the edges of node %s: %w", dirs.Node, err)
	}
	return nil
}
