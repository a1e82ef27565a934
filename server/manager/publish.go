package manager

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

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
	states := model.NodeStates([]model.ResolvedRecord{{Network: resolved, Assigned: r.Assigned, Overrides: r.Overrides, Policies: r.Policies}}, substrate)
	parts := map[string]part{}
	for node, state := range states {
		for _, nn := range state.Networks {
			nn.Owner = ownerOf(&r)
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
			delete(node.gone, n.record.Network.Name)
		} else {
			node.goneFrom(n.record.Network.Name, n.record.Discard)
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
	var parts [][]byte
	state := model.NodeStates(nil, m.substrate)[n.Name]
	state.Node, state.Revision, state.Store, state.Gone = n.Name, m.revision, m.identity, n.goneNetworks()
	for _, name := range slices.Sorted(maps.Keys(m.networks)) {
		network := m.networks[name]
		if network.damaged != nil {
			state.Hold = append(state.Hold, name)
		}
		if p, ok := network.parts[n.Name]; ok {
			parts = append(parts, p.encoded)
		}
	}
	return encodeState(state, parts)
}

// encodeState is a model.Update with a state whose networks are encoded already.
func encodeState(state model.NodeState, networks [][]byte) [][]byte {
	state.Networks = nil
	rest, err := json.Marshal(model.Update{State: &state})
	if err != nil {
		panic(fmt.Sprintf("encode the state of node %s: %v", state.Node, err)) // names and numbers
	}
	// The networks go in front of the two braces at its end.
	head, tail := rest[:len(rest)-2:len(rest)-2], append(slices.Clone(rest[len(rest)-2:]), '\n')
	if len(networks) == 0 {
		return [][]byte{head, tail}
	}
	pieces := [][]byte{append(head, `,"networks":[`...)}
	for i, p := range networks {
		if i > 0 {
			pieces = append(pieces, []byte{','})
		}
		pieces = append(pieces, p)
	}
	return append(pieces, append([]byte{']'}, tail...))
}
