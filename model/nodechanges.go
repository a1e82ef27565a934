package model

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
)

// Update is one line of the stream of a node's desired state. It is one of:
//   - nothing: a keep-alive, every KeepAlive;
//   - a State alone: all that the node shall have, for agents of versions that do not ask for changes;
//   - a Network: what the node shall have of it from the next State on;
//   - a State without networks, and the Change: this and the networks since the last one make it so.
type Update struct {
	State   *NodeState   `json:"state,omitempty"`
	Network *NodeNetwork `json:"network,omitempty"`
	Change  *StateChange `json:"change,omitempty"`
}

// StateChange tells what has changed since an earlier State, in a State that comes without its networks.
type StateChange struct {
	// Whole tells that all networks came before this line. Those that are known from before the stream no longer count.
	Whole bool  `json:"whole,omitempty"`
	Since int64 `json:"since"` // else the revision of the State before
	// Dropped are networks that the state no longer has. NodeState.Gone says whether the node shall remove them.
	Dropped  []string `json:"dropped,omitempty"`
	Networks int      `json:"networks"` // how many the state has, so that one that is missing is noticed
}

// Assembly puts a node's state together from the lines of a stream.
type Assembly struct {
	state *NodeState
	came  map[string]NodeNetwork // networks that came since the last state, by name
}

// Add takes a line, and returns the state when it is complete. Nobody may change that state, since later ones share
// with it what has not changed. An error tells that the lines do not fit together; then a new stream has to tell
// everything.
func (a *Assembly) Add(u Update) (*NodeState, error) {
	if u.Network != nil {
		if a.came == nil {
			a.came = map[string]NodeNetwork{}
		}
		a.came[u.Network.Name] = *u.Network
	}
	switch {
	case u.State == nil:
		return nil, nil
	case u.Change == nil:
		a.state, a.came = u.State, nil
		return a.state, nil
	}
	next, c := *u.State, u.Change
	networks := a.came
	a.came = nil
	switch {
	case c.Whole:
	case a.state == nil:
		return nil, fmt.Errorf("the state of node %s comes as a change of revision %d, and none was told before",
			next.Node, c.Since)
	case a.state.Revision != c.Since:
		return nil, fmt.Errorf("the state of node %s comes as a change of revision %d, and revision %d was told before",
			next.Node, c.Since,
			a.state.Revision)
	default:
		dropped := make(map[string]bool, len(c.Dropped))
		for _, name := range c.Dropped {
			dropped[name] = true
		}
		for i := range a.state.Networks {
			n := &a.state.Networks[i]
			if _, newer := networks[n.Name]; !newer && !dropped[n.Name] {
				next.Networks = append(next.Networks, *n)
			}
		}
	}
	for _, n := range networks {
		next.Networks = append(next.Networks, n)
	}
	if len(next.Networks) != c.Networks {
		return nil, fmt.Errorf("the state of node %s at revision %d has %d networks, and %d were told", next.Node,
			next.Revision, c.Networks,
			len(next.Networks))
	}
	slices.SortFunc(next.Networks, func(x, y NodeNetwork) int { return cmp.Compare(x.Name, y.Name) })
	a.state = &next
	return a.state, nil
}

// Is tells whether the two are one value, and not only alike. A state that follows from another shares with it what has
// not changed.
func (n *NodeNetwork) Is(o *NodeNetwork) bool {
	return len(n.Elements)+len(n.Relays) > 0 && one(n.Elements, o.Elements) && one(n.Names, o.Names) &&
		one(n.Edges, o.Edges) && one(n.Relays, o.Relays) && n.Outside == o.Outside &&
		n.Name == o.Name && n.Index == o.Index && n.Title == o.Title && n.Owner == o.Owner &&
		n.Seal == o.Seal && n.Slice == o.Slice
}

// one tells whether two slices are one, or both empty.
func one[T any](a, b []T) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

// Share has the state use the values of an earlier one wherever a network is the same in both. So what is told twice
// takes memory once, and is known not to have changed.
func (s *NodeState) Share(earlier *NodeState) {
	if earlier == nil || s == earlier {
		return
	}
	known := make(map[string]*NodeNetwork, len(earlier.Networks))
	for i := range earlier.Networks {
		known[earlier.Networks[i].Name] = &earlier.Networks[i]
	}
	for i := range s.Networks {
		n := &s.Networks[i]
		if was := known[n.Name]; was != nil && !n.Is(was) && reflect.DeepEqual(n, was) {
			*n = *was
		}
	}
}
