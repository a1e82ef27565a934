package manager

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/polyplane/polyplane/model"
)

// part is what one node is to have of one network.
type part struct {
	line     []byte // the model.Update that tells it, encoded once
	elements int
	revision int64           // the state's revision that brought its latest change
	relays   map[uint32]bool // the VNIs that the node is to relay; nil if there are none
}

// makeParts computes a network's parts by node.
func (k *known) makeParts(r model.Record, resolved model.Resolved, substrate model.Substrate) (map[string]part, error) {
	states := model.NodeStates([]model.ResolvedRecord{{Network: resolved, Assigned: r.Assigned, Overrides: r.Overrides,
		Policies: r.Policies, Moving: r.Moving}}, substrate)
	parts := map[string]part{}
	for node, state := range states {
		for _, nn := range state.Networks {
			nn.Title, nn.Owner = r.Network.Title, r.WhoseItIs()
			if err := k.seal(node, &nn, substrate); err != nil {
				return nil, err
			}
			b, err := json.Marshal(model.Update{Network: &nn})
			if err != nil {
				return nil, fmt.Errorf("encode network %s for node %s: %w", nn.Name, node, err)
			}
			p := part{line: append(b, '\n'), elements: len(nn.Elements)}
			for _, r := range nn.Relays {
				if p.relays == nil {
					p.relays = map[uint32]bool{}
				}
				p.relays[r.VNI] = true
			}
			parts[node] = p
		}
	}
	return parts, nil
}

// advance gives the nodes' desired state its next revision. That is the revision of the write that made the change
// durable, so it does not go back when this process starts again. The caller holds the lock.
func (k *known) advance(storeRevision int64) { k.revision = max(storeRevision, k.revision+1) }

// publish makes parts what the network's nodes are to have. It tells only nodes whose part has changed. The caller
// holds the lock.
func (k *known) publish(n *network, parts map[string]part) {
	old := n.parts
	n.parts = parts
	for name, node := range k.nodes {
		was, had := old[name]
		now, has := parts[name]
		if had == has && bytes.Equal(was.line, now.line) {
			if has {
				parts[name] = was
			}
			continue
		}
		if has {
			now.revision = k.revision
			parts[name] = now
			delete(node.gone, n.record.Network.Name)
		} else {
			node.goneFrom(n.record.Network.Name, n.record.Discard)
		}
		k.tell(node)
	}
	k.touch()
	k.poke()
}

// tell wakes the streams of the node's desired state. The caller holds the lock.
func (k *known) tell(n *node) {
	n.revision = k.revision
	close(n.told)
	n.told = make(chan struct{})
}

// header is a node's desired state without its networks. The caller holds the lock.
func (k *known) header(n *node) model.NodeState {
	state := model.NodeStates(nil, k.substrate)[n.Name]
	state.Node, state.Revision, state.Store, state.Gone = n.Name, n.revision, k.identity, k.goneNetworks(n)
	for name, network := range k.networks {
		if network.damaged != nil {
			state.Hold = append(state.Hold, name)
		}
	}
	slices.Sort(state.Hold)
	return state
}

// whole is a model.Update with the node's whole state. Agents of earlier versions ask for it.
func (k *known) whole(n *node) []byte {
	var lines [][]byte
	for _, name := range slices.Sorted(maps.Keys(k.networks)) {
		if p, ok := k.networks[name].parts[n.Name]; ok {
			lines = append(lines, p.line)
		}
	}
	return encodeState(k.header(n), lines)
}

// sent is what a stream was told last.
type sent struct {
	revision int64
	networks map[string]int64 // the revisions of their parts
}

// changes are the model.Updates that lead from what a stream was sent last (nil at its beginning) to what the node is
// to have now: each network whose part has changed, and then the rest. The caller holds the lock.
func (k *known) changes(n *node, before *sent) ([][]byte, *sent) {
	now := &sent{n.revision, map[string]int64{}}
	change := model.StateChange{Whole: before == nil}
	if before == nil {
		before = &sent{}
	} else {
		change.Since = before.revision
	}
	var lines [][]byte
	for name, network := range k.networks {
		p, ok := network.parts[n.Name]
		if !ok {
			continue
		}
		now.networks[name] = p.revision
		if was, had := before.networks[name]; !had || was != p.revision {
			lines = append(lines, p.line)
		}
	}
	for name := range before.networks {
		if _, has := now.networks[name]; !has {
			change.Dropped = append(change.Dropped, name)
		}
	}
	slices.Sort(change.Dropped)
	change.Networks = len(now.networks)
	state := k.header(n)
	return append(lines, encodeLine(model.Update{State: &state, Change: &change})), now
}

// encodeState encodes a model.Update with a state whose networks are encoded already, each in a line of its own.
func encodeState(state model.NodeState, lines [][]byte) []byte {
	var whole struct {
		State struct {
			model.NodeState
			Networks []json.RawMessage `json:"networks,omitempty"`
		} `json:"state"`
	}
	whole.State.NodeState = state
	whole.State.Networks = make([]json.RawMessage, len(lines))
	for i, line := range lines {
		if err := json.Unmarshal(line, &struct{ Network *json.RawMessage }{&whole.State.Networks[i]}); err != nil {
			panic(fmt.Sprintf("decode what node %s is told: %v", state.Node, err)) // it was encoded here
		}
	}
	return encodeLine(whole)
}

// encodeLine encodes a line of a node's stream that has nothing but names and numbers.
func encodeLine(update any) []byte {
	b, err := json.Marshal(update)
	if err != nil {
		panic(fmt.Sprintf("encode what a node is told: %v", err))
	}
	return append(b, '\n')
}
