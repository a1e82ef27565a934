package manager

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/polyplane/polyplane/model"
)

// part is what one node shall have of one network: a model.NodeNetwork, encoded once.
type part struct {
	encoded  []byte
	elements int
	revision int64 // the state's revision that brought its latest change
}

// makeParts works out a network's parts by node.
func makeParts(r model.Record, resolved model.Network, substrate model.Substrate) (map[string]part, error) {
	states := model.NodeStates([]model.ResolvedRecord{{Network: resolved, Assigned: r.Assigned, Overrides: r.Overrides}}, substrate)
	parts := map[string]part{}
	for node, state := range states {
		for _, nn := range state.Networks {
			b, err := json.Marshal(nn)
			if err != nil {
				return nil, fmt.Errorf("encode network %s for node %s: %w", nn.Name, node, err)
			}
			parts[node] = part{encoded: b, elements: len(nn.Elements)}
		}
	}
	return parts, nil
}

// advance gives the nodes' desired state its next revision: that of the write that made the change durable, so that it
// does not go back when this process starts again. The lock is held.
func (m *Manager) advance(storeRevision int64) { m.revision = max(storeRevision, m.revision+1) }

// publish makes parts what the network's nodes shall have; nodes whose part is as before are not told. The lock is held.
func (m *Manager) publish(n *network, parts map[string]part) {
	old := n.parts
	n.parts = parts
	for name, node := range m.nodes {
		was, had := old[name]
		now, has := parts[name]
		if had == has && bytes.Equal(was.encoded, now.encoded) {
			if has {
				parts[name] = was
			}
			continue
		}
		if has {
			now.revision = m.revision
			parts[name] = now
		}
		m.tell(node)
	}
	m.touch()
	m.poke()
}

// tell makes the node's line anew and wakes its stream. The lock is held.
func (m *Manager) tell(n *node) {
	n.revision = m.revision
	n.line = m.line(n)
	close(n.told)
	n.told = make(chan struct{})
}

// line is a model.Update with the node's whole state, put together from the parts without encoding those again.
func (m *Manager) line(n *node) [][]byte {
	var head, tail bytes.Buffer
	head.WriteString(`{"state":{"node":`)
	writeJSON(&head, n.Name)
	head.WriteString(`,"revision":` + strconv.FormatInt(m.revision, 10))
	var hold []string
	pieces := [][]byte{nil}
	for _, name := range slices.Sorted(maps.Keys(m.networks)) {
		network := m.networks[name]
		if network.damaged != nil {
			hold = append(hold, name)
		}
		if p, ok := network.parts[n.Name]; ok {
			separator := ","
			if len(pieces) == 1 {
				separator = `,"networks":[`
			}
			pieces = append(pieces, []byte(separator), p.encoded)
		}
	}
	pieces[0] = head.Bytes()
	if len(pieces) > 1 {
		tail.WriteByte(']')
	}
	ground := model.NodeStates(nil, m.substrate)[n.Name]
	if len(ground.Peers) > 0 {
		tail.WriteString(`,"peers":`)
		writeJSON(&tail, ground.Peers)
	}
	if len(ground.Links) > 0 {
		tail.WriteString(`,"links":`)
		writeJSON(&tail, ground.Links)
	}
	if len(hold) > 0 {
		tail.WriteString(`,"hold":`)
		writeJSON(&tail, hold)
	}
	tail.WriteString("}}\n")
	return append(pieces, tail.Bytes())
}

// writeJSON encodes what cannot fail: strings, lists of strings, peers, links.
func writeJSON[T string | []string | []model.Peer | []model.NodeLink](b *bytes.Buffer, v T) {
	encoded, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", v, err))
	}
	b.Write(encoded)
}
