package manager

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api"
	"github.com/polyplane/polyplane/trust"
	"github.com/polyplane/polyplane/wire/tunnel"
)

// Join makes a host a node. One write uses the token up and stores the member.
func (m *Manager) Join(ctx context.Context, token trust.Token,
	request model.JoinRequest) (result model.JoinResult, err error) {
	if m.outside == nil {
		return result, m.errInside()
	}
	is := model.Member{Machine: request.Machine, Membership: rand.Text(), Joined: time.Now().UTC()}
	is.Address = is.Address.Unmap()
	again := false
	err = m.changeAccess(ctx, func(a *model.Access) error {
		at := slices.IndexFunc(a.Tokens, func(t model.StoredToken) bool { return t.ID == token.ID })
		var k *key
		if at >= 0 {
			k = &key{StoredToken: a.Tokens[at]}
		}
		if err := checkHost(k, token); err != nil {
			return err
		}
		if k.Node != "" {
			is.Name = k.Node
		}
		if err := is.Machine.Validate(); err != nil {
			return api.Invalid("the host cannot join", err)
		}
		if err := m.checkJoin(k.Node != "", is.Machine); err != nil {
			return err
		}
		result.Certificate, err = m.outside.Authority.SignNode(request.Request,
			trust.Node{Name: is.Name, Membership: is.Membership})
		if err != nil {
			return api.Invalid("the host cannot join", err)
		}
		t := &a.Tokens[at]
		t.Used, t.UsedBy = is.Joined, is.Name
		before := len(a.Members)
		a.Members = slices.DeleteFunc(a.Members, func(other model.Member) bool { return other.Name == is.Name })
		again = len(a.Members) < before
		a.Members = append(a.Members, is)
		return nil
	})
	if err != nil {
		return model.JoinResult{}, err
	}
	what := "joined"
	if again {
		what = "joined again; its earlier certificate is no longer valid"
	}
	m.event(model.Info, is.Name, "NodeJoined", fmt.Sprintf("node %s %s, at %s", is.Name, what, is.Address), "")
	result.Instance, result.Node = m.dirs.Name, is.Name
	return result, nil
}

// checkJoin says why a machine cannot be a node. The caller holds changing.
func (m *Manager) checkJoin(named bool, machine model.Machine) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if err := m.checkGround(); err != nil {
		return err
	}
	if n := m.nodes[machine.Name]; n != nil && (!named || !n.Joined) {
		return api.Conflict("there is a node %s already; join under another name (--node NAME), or, if this host is "+
			"to take its place, "+
			"with a token for that: polyplane token create --node %s", machine.Name, machine.Name)
	}
	return m.nodes.checkAddress(machine)
}

// Renew signs a member's new key.
func (m *Manager) Renew(node trust.Node, request model.RenewRequest) (model.JoinResult, error) {
	if m.outside == nil {
		return model.JoinResult{}, m.errInside()
	}
	certificate, err := m.outside.Authority.SignNode(request.Request, node)
	if err != nil {
		return model.JoinResult{}, api.Invalid("the certificate of node "+node.Name+" is not renewed", err)
	}
	return model.JoinResult{Instance: m.dirs.Name, Node: node.Name, Certificate: certificate}, nil
}

// RemoveNode ends a node's membership. A node on which elements are placed stays, unless it is away. Then they are lost
// with it, and an apply places them anew.
func (m *Manager) RemoveNode(ctx context.Context, name string) error {
	err := m.changeAccess(ctx, func(a *model.Access) error {
		m.mu.RLock()
		defer m.mu.RUnlock()
		n, err := m.nodes.named(name)
		if err != nil {
			return err
		}
		if !n.Joined {
			return api.Conflict("node %s is on the manager's own machine: it did not join, and cannot be removed", name)
		}
		if on := m.networks.placed(name); len(on) > 0 && n.watches > 0 {
			return api.Conflict("node %s has elements of %s; delete these, or pin their elements to other nodes "+
				"(node:), before it is removed",
				name, shorten(on))
		}
		a.Members = slices.DeleteFunc(a.Members, func(is model.Member) bool { return is.Name == name })
		return nil
	})
	if err == nil {
		m.event(model.Info, name, "NodeRemoved", "node "+name+" is a member no longer", "")
	}
	return err
}

// takeMembers makes the stored members nodes of the substrate. The caller holds the locks, or nobody knows the manager
// yet.
func (m *Manager) takeMembers(members []model.Member, revision int64) error {
	slices.SortFunc(members, func(a, b model.Member) int { return strings.Compare(a.Name, b.Name) })
	for _, is := range members {
		if n := m.nodes[is.Name]; n != nil && !n.Joined {
			return fmt.Errorf("node %s joined, and the substrate has a node of that name itself; `up` with the "+
				"substrate that was there before", is.Name)
		}
	}
	if len(members) > 0 {
		if err := m.checkGround(); err != nil {
			return fmt.Errorf("nodes have joined (%s), but: %w", members[0].Name, err)
		}
	}
	ended, same := m.gate.takeMembers(members)
	for _, name := range ended {
		m.endTunnel(m.nodes[name])
		if _, again := m.gate.member(name); !again {
			delete(m.nodes, name)
		}
	}
	if same {
		return nil
	}
	m.substrate = model.Extend(m.base, members)
	for _, sn := range m.substrate.Nodes {
		if n := m.nodes[sn.Name]; n == nil {
			m.nodes[sn.Name] = m.newNode(sn, m.dirs.Node(sn.Name).AgentSocket())
		} else {
			n.SubstrateNode = sn
		}
	}
	return m.groundChanged(revision)
}

// groundChanged tells every node of the others, and tells nodes that came back what they are to have. The caller holds
// the locks.
func (m *Manager) groundChanged(revision int64) error {
	m.revision = max(revision, m.revision+1)
	for name, n := range m.networks {
		if n.damaged != nil || n.record.Deleting {
			continue
		}
		parts, err := m.makeParts(n.record, n.resolved, m.substrate)
		if err != nil {
			return fmt.Errorf("network %s: %w", name, err)
		}
		for node, p := range parts {
			if p.revision = m.revision; bytes.Equal(p.encoded, n.parts[node].encoded) {
				p = n.parts[node]
			}
			parts[node] = p
		}
		n.parts = parts
	}
	for n := range maps.Values(m.nodes) {
		m.tell(n)
	}
	m.touch()
	m.poke()
	return nil
}

// refresh takes over what a member says of its machine now.
func (m *Manager) refresh(machine model.Machine) error {
	if was, ok := m.gate.member(machine.Name); !ok || was.Machine == machine {
		return nil
	}
	if err := machine.Validate(); err != nil {
		return api.Invalid("the node is not as it can be", err)
	}
	m.mu.Lock()
	n, now := m.nodes[machine.Name], time.Now()
	soon := n != nil && now.Sub(n.trust.changed) < machineEvery
	if n != nil && !soon {
		n.trust.changed = now
	}
	m.mu.Unlock()
	if soon {
		return &api.Problem{Kind: api.KindTooMany,
			Detail: fmt.Sprintf("node %s has told of another machine within the last %v; all nodes are told of that, "+
				"so it is taken no more often",
				machine.Name, machineEvery)}
	}
	return m.changeAccess(context.Background(), func(a *model.Access) error {
		m.mu.RLock()
		defer m.mu.RUnlock()
		if err := m.nodes.checkAddress(machine); err != nil {
			return err
		}
		for i := range a.Members {
			if a.Members[i].Name == machine.Name {
				a.Members[i].Machine = machine
			}
		}
		return nil
	})
}

// Tunnel takes over a connection by which a member's agent is reached from now on. It replaces an earlier one.
func (m *Manager) Tunnel(node trust.Node, conn net.Conn) error {
	s, err := tunnel.Open(conn)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	is, ok := m.gate.member(node.Name)
	n := m.nodes[node.Name]
	if !ok || n == nil || is.Membership != node.Membership {
		m.closeTunnel(s)
		return fmt.Errorf("node %s is a member no longer", node.Name)
	}
	m.closeTunnel(n.tunnel)
	n.tunnel = s
	return nil
}

// endTunnel ends the node's tunnel, if it has one. The caller holds the lock.
func (m *Manager) endTunnel(n *node) {
	m.closeTunnel(n.tunnel)
	n.tunnel = nil
}

// closeTunnel closes a tunnel, or none, without anybody waiting for it: if a node no longer takes anything, closing
// takes seconds.
func (m *Manager) closeTunnel(s *tunnel.Session) {
	if s != nil {
		m.closing.Go(func() { s.Close() }) //nolint:errcheck // it ends in any case
	}
}

// dial says how the node's agent is reached. The caller holds the lock.
func (n *node) dial() api.Dial {
	if !n.Joined {
		return unixDial(n.socket)
	}
	s := n.tunnel
	return func(ctx context.Context) (net.Conn, error) {
		if s == nil {
			return nil, fmt.Errorf("the agent of node %s has not opened its tunnel yet", n.Name)
		}
		return s.Dial(ctx)
	}
}

// itself returns whether an event's object is the node, or a link between it and another one.
func (n *node) itself(object string) bool {
	return object == n.Name || strings.HasPrefix(object, n.Name+" -- ")
}
