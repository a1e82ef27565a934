package netns

import (
	"errors"
	"slices"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/port"
)

// link is a device in an element.
type link struct {
	port.Link
	raise bool // down because it is new or was taken down to be renamed, and not because somebody wants it down
}

// readLinks reads the devices of c's namespace, by name. Who makes and removes devices without end disturbs every
// reading. That is no reason to give up where all wanted interfaces were read: what else was missed the next look
// finds.
func readLinks(c *linux.Rtnetlink, w *want) (map[string]*link, error) {
	links, err := port.Links(c)
	if err != nil && !errors.Is(err, linux.ErrDumpInterrupted) {
		return nil, err
	}
	named := make(map[string]*link, len(links))
	for i := range links {
		named[links[i].Name] = &link{Link: links[i]}
	}
	if err != nil && !(named["lo"] == nil || slices.ContainsFunc(w.interfaces,
		func(i wantInterface) bool { return named[i.Pair.Name] == nil })) {
		err = nil
	}
	return named, err
}

// findPorts reads the ports, and returns every device of the node by name.
func (d *Driver) findPorts() (port.Ports, map[string]*port.Link, error) {
	found, names, err := port.Find(d.node, d.dirs.AliasPrefix(), d.lastPorts)
	d.lastPorts = len(found)
	return found, names, err
}

func portOf(text string) model.PortID {
	var p model.PortID
	p.UnmarshalText([]byte(text)) // never fails
	return p
}
