package fabric

import (
	"errors"
	"fmt"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/linux"
)

// ReleaseEdges gives real devices back that are edges of a node. It detaches the fabric's filter from all devices of
// the calling thread's network namespace, and ends their receiving of frames to every address. It needs none of the
// node's files, and it is no error if there is nothing to release. The devices of slices' and ports' queues are removed
// as well, and programs in drivers. If the file that says which offloads devices had is there, they get them back.
func ReleaseEdges(dirs instance.NodeDirs) error {
	c, err := linux.DialRtnetlink()
	if err != nil {
		return fmt.Errorf("release the edges of node %s: %w", dirs.Node, err)
	}
	defer c.Close()
	f := &Fabric{dirs: dirs, netlink: c}
	k, err := f.look()
	if err == nil {
		err = errors.Join(f.detachWires(k, nil, nil), f.removeShapers(k, nil), f.removeQueues(k), f.removeMirrors(k),
			f.releaseDrivers(k))
	}
	if err != nil {
		return fmt.Errorf("release the edges of node %s: %w", dirs.Node, err)
	}
	return nil
}
