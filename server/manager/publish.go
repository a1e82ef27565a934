package manager

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/polyplane/polyplane/model"
)

// part is what one node is to have of one network: a model.NodeNetwork, encoded once.
type part struct {
	encoded  []byte
	elements int
	revision int64 // the state's revision that brought its latest change
}

// makeParts computes a network's parts by node.
func (m *Manager) makeParts(r model.Record, resolved model.Resolved,
	substrate model.Substrate) (map[string]part, error) {
	states := model.NodeStates([]model.ResolvedRecord{{Network: resolved, Assigned: r.Assigned, Overrides: r.Overrides,
		Policies: r.Policies}}, substrate)
	parts := map[string]part{}
	for node, state := range states {
		for _, nn := range state.Networks {
			nn.Owner = r.WhoseItIs()
			if err := m.seal(node, &nn, substrate); err != nil {
				return nil, err
			}
			b, err := json.Marshal(nn)
			if err != nil {
				return nil, fmt.Errorf("encode network %s for node %s: %w", nn.Name, node, err)
			}
			parts[node] = part{encoded: b, elements: len(nn.Elements)}
		}
	}
	return parts, nil
}

// advance gives the nodes' desired state its next revision. That is the revision of the write that made the change
// durable, so it does not go back when this process starts again. The caller holds the lock.
func (m *Manager) advance(storeRevision int64) { m.revision = max(storeRevision, m.revision+1) }

// publish makes parts what the network's nodes are to have. It tells only nodes whose part has changed. The caller
// holds the lock.
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

// tell wakes the streams of the node's desired state. The caller holds the lock.
func (m *Manager) tell(n *node) {
	n.revision = m.revision
	close(n.told)
	n.told = make(chan struct{})
}

// header is a node's desired state without its networks. The caller holds the lock.
func (m *Manager) header(n *node) model.NodeState {
	state := model.NodeStates(nil, m.substrate)[n.Name]
	state.Node, state.Revision, state.Store, state.Gone = n.Name, n.revision, m.identity, m.goneNetworks(n)
	for name, network := range m.networks {
		if network.damaged != nil {
			state.Hold = append(state.Hold, name)
		}
	}
	slices.Sort(state.Hold)
	return state
}

// whole is a model.Update with the node's whole state. It uses the encoded parts instead of encoding them again. Agents
// of earlier versions ask for it. The caller holds the lock.
func (m *Manager) whole(n *node) [][]byte {
	var parts [][]byte
	for _, name := range slices.Sorted(maps.Keys(m.networks)) {
		if p, ok := m.networks[name].parts[n.Name]; ok {
			parts = append(parts, p.encoded)
		}
	}
	return encodeState(m.header(n), parts)
}

// sent is what a stream was told last.
type sent struct {
	revision int64
	networks map[string]int64 // the revisions of their parts
}

// changes are the model.Updates that lead from what a stream was sent last (nil at its beginning) to what the node is
// to have now: each network whose part has changed, and then the rest. The caller holds the lock.
func (m *Manager) changes(n *node, before *sent) ([][]byte, *sent) {
	now := &sent{n.revision, map[string]int64{}}
	change := model.StateChange{Whole: before == nil}
	if before == nil {
		before = &sent{}
	} else {
		change.Since = before.revision
	}
	var changed [][]byte
	for name, network := range m.networks {
		p, ok := network.parts[n.Name]
		if !ok {
			continue
		}
		now.networks[name] = p.revision
		if was, had := before.networks[name]; !had || was != p.revision {
			changed = append(changed, p.encoded)
		}
	}
	for name := range before.networks {
		if _, has := now.networks[name]; !has {
			change.Dropped = append(change.Dropped, name)
		}
	}
	slices.Sort(change.Dropped)
	change.Networks = len(now.networks)
	return encodeChange(m.header(n), change, changed), now
}

// encodeChange encodes the model.Updates of a change: a line for each network, which is encoded already, and then the
// state without networks, which puts them in force.
func encodeChange(state model.NodeState, change model.StateChange, networks [][]byte) [][]byte {
	head, tail := []byte(`{"network":`), []byte("}\n")
	pieces := make([][]byte, 0, 3*len(networks)+1)
	for _, p := range networks {
		pieces = append(pieces, head, p, tail)
	}
	state.Networks = nil
	last, err := json.Marshal(model.Update{State: &state, Change: &change})
	if err != nil {
		panic(fmt.Sprintf("encode the state of node %s: %v", state.Node, err)) // names and numbers
	}
	return append(pieces, append(last, '\n'))
}

// encodeState encodes a model.Update with a state whose networks are encoded already.
func encodeState(state model.NodeState, networks [][]byte) [][]byte {
	state.Networks = nil
	rest, err := json.Marshal(model.Update{State: &state})
	if err != nil {
		panic(fmt.Sprintf("encode the state of node %s: %v", state.Node, err)) // names and numbers
	}
	// The networks go before the two closing braces.
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
