package manager

import (
	"fmt"
	"maps"
	"slices"

	"github.com/polyplane/polyplane/model"
)

// Elements' disks take what is written to them, so all of them together may be larger than the disk that they are on.
// Nothing is refused for that; people are told, when they make it more.

// notePromises notes with the first network that makes it more where elements may write more than their node's disk
// can hold. The nodes of this machine have one disk.
func (m *Manager) notePromises(others []model.Record, results []model.ApplyResult) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	type disk struct {
		size, promised model.Bytes
		grows          int // 1 + the result
	}
	disks := map[string]*disk{} // by node that joined; "" is this machine's
	of := func(node string) *disk {
		n := m.nodes[node]
		if n == nil {
			return &disk{} // which the substrate no longer has
		}
		key := ""
		if n.Joined {
			key = node
		}
		if disks[key] == nil {
			disks[key] = &disk{}
		}
		d := disks[key]
		d.size = max(d.size, n.disk)
		return d
	}
	for i := range others {
		for node, bytes := range diskByNode(&others[i]) {
			of(node).promised += bytes
		}
	}
	for i := range results {
		was := map[string]model.Bytes{}
		if results[i].Before != nil {
			was = diskByNode(results[i].Before)
		}
		for node, bytes := range diskByNode(&results[i].Record) {
			d := of(node)
			if d.promised += bytes; bytes > was[node] && d.grows == 0 {
				d.grows = i + 1
			}
		}
	}
	for _, node := range slices.Sorted(maps.Keys(disks)) {
		d := disks[node]
		if d.grows == 0 || d.size == 0 || d.promised <= d.size {
			continue
		}
		where := "node " + node
		if node == "" {
			where = "this machine"
		}
		result := &results[d.grows-1]
		result.Notes = append(result.Notes, fmt.Sprintf("the disks of all elements on %s may take %s together, and "+
			"the disk that they are on has %s: what is written when that is full fails (`polyplane get nodes -o "+
			"wide` tells what is free)", where, d.promised.Rounded(), d.size.Rounded()))
	}
}

// diskByNode is how large the disks of a network's elements may get, by node.
func diskByNode(r *model.Record) map[string]model.Bytes {
	all := map[string]model.Bytes{}
	if r.Deleting {
		return all
	}
	for i := range r.Network.Elements {
		if e := &r.Network.Elements[i]; e.Kind != model.Switch {
			all[r.Assigned.Placement.Elements[e.Name]] += e.Limits().Disk
		}
	}
	return all
}
