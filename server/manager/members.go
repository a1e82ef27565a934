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
func (g *gate) Join(ctx context.Context, token trust.Token,
	request model.JoinRequest) (result model.JoinResult, err error) {
	if g.outside == nil {
		return result, g.errInside()
	}
	is := model.Member{Machine: request.Machine, Membership: rand.Text(), Joined: time.Now().UTC()}
	is.Address = is.Address.Unmap()
	again := false
	err = g.changeAccess(ctx, func(a *model.Access) error {
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
		if err := g.checkJoin(k.Node != "", is.Machine); err != nil {
			return err
		}
		result.Certificate, err = g.outside.Authority.SignNode(request.Request,
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
	g.event(model.Info, is.Name, "NodeJoined", fmt.Sprintf("node %s %s, at %s", is.Name, what, is.Address), "")
	result.Instance, result.Node = g.dirs.Name, is.Name
	return result, nil
}

// checkJoin says why a machine cannot be a node. The caller holds changing.
func (g *gate) checkJoin(named bool, machine model.Machine) error {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if err := g.checkGround(); err != nil {
		return err
	}
	if n := g.nodes[machine.Name]; n != nil && (!named || !n.Joined) {
		return api.Conflict("there is a node %s already; join under another name (--node NAME), or, if this host is "+
			"to take its place, with a token for that: polyplane token create --node %s", machine.Name, machine.Name)
	}
	return g.nodes.checkAddress(machine)
}

// Renew signs a member's new key.
func (g *gate) Renew(node trust.Node, request model.RenewRequest) (model.JoinResult, error) {
	if g.outside == nil {
		return model.JoinResult{}, g.errInside()
	}
	certificate, err := g.outside.Authority.SignNode(request.Request, node)
	if err != nil {
		return model.JoinResult{}, api.Invalid("the certificate of node "+node.Name+" is not renewed", err)
	}
	return model.JoinResult{Instance: g.dirs.Name, Node: node.Name, Certificate: certificate}, nil
}

// RemoveNode ends a node's membership. A node on which elements are placed stays, unless it is away. Then they are lost
// with it, and an apply places them anew.
func (g *gate) RemoveNode(ctx context.Context, name string) error {
	err := g.changeAccess(ctx, func(a *model.Access) error {
		g.mu.RLock()
		defer g.mu.RUnlock()
		n, err := g.nodes.named(name)
		if err != nil {
			return err
		}
		if !n.Joined {
			return api.Conflict("node %s is on the manager's own machine: it did not join, and cannot be removed", name)
		}
		if on := g.networks.placed(name); len(on) > 0 && n.watches > 0 {
			return api.Conflict("node %s has elements of %s; delete these, or pin their elements to other nodes "+
				"(node:), before it is removed", name, shorten(on))
		}
		a.Members = slices.DeleteFunc(a.Members, func(is model.Member) bool { return is.Name == name })
		return nil
	})
	if err == nil {
		g.event(model.Info, name, "NodeRemoved", "node "+name+" is a member no longer", "")
	}
	return err
}

// takeMembers makes the stored members nodes of the substrate. The caller holds the locks, or nobody knows the manager
// yet.
func (g *gate) takeMembers(members []model.Member, revision int64) error {
	slices.SortFunc(members, func(a, b model.Member) int { return strings.Compare(a.Name, b.Name) })
	for _, is := range members {
		if n := g.nodes[is.Name]; n != nil && !n.Joined {
			return fmt.Errorf("node %s joined, and the substrate has a node of that name itself; `up` with the "+
				"substrate that was there before", is.Name)
		}
	}
	if len(members) > 0 {
		if err := g.checkGround(); err != nil {
			return fmt.Errorf("nodes have joined (%s), but: %w", members[0].Name, err)
		}
	}
	ended, same := g.enter(members)
	for _, name := range ended {
		g.endTunnel(g.nodes[name])
		if _, again := g.member(name); !again {
			delete(g.nodes, name)
			g.forgetFound(name)
		}
	}
	if same {
		return nil
	}
	g.substrate = model.Extend(g.base, members)
	for _, sn := range g.substrate.Nodes {
		if n := g.nodes[sn.Name]; n == nil {
			g.nodes[sn.Name] = g.newNode(sn, g.dirs.Node(sn.Name).AgentSocket())
		} else {
			n.SubstrateNode = sn
		}
	}
	return g.groundChanged(revision)
}

// groundChanged tells every node of the others, and tells nodes that came back what they are to have. The caller holds
// the locks.
func (k *known) groundChanged(revision int64) error {
	k.revision = max(revision, k.revision+1)
	for name, n := range k.networks {
		if n.damaged != nil || n.record.Deleting {
			continue
		}
		parts, err := k.makeParts(n.record, n.resolved, k.substrate)
		if err != nil {
			return fmt.Errorf("network %s: %w", name, err)
		}
		for node, p := range parts {
			if p.revision = k.revision; bytes.Equal(p.line, n.parts[node].line) {
				p = n.parts[node]
			}
			parts[node] = p
		}
		n.parts = parts
	}
	for n := range maps.Values(k.nodes) {
		k.tell(n)
	}
	k.touch()
	k.poke()
	return nil
}

// refresh takes over what a member says of its machine now.
func (g *gate) refresh(machine model.Machine) error {
	if was, ok := g.member(machine.Name); !ok || was.Machine == machine {
		return nil
	}
	if err := machine.Validate(); err != nil {
		return api.Invalid("the node is not as it can be", err)
	}
	g.mu.Lock()
	n, now := g.nodes[machine.Name], time.Now()
	soon := n != nil && now.Sub(n.trust.changed) < machineEvery
	if n != nil && !soon {
		n.trust.changed = now
	}
	g.mu.Unlock()
	if soon {
		return &api.Problem{Kind: api.KindTooMany,
			Detail: fmt.Sprintf("node %s has told of another machine within the last %v; all nodes are told of that, "+
				"so it is taken no more often", machine.Name, machineEvery)}
	}
	return g.changeAccess(context.Background(), func(a *model.Access) error {
		g.mu.RLock()
		defer g.mu.RUnlock()
		if err := g.nodes.checkAddress(machine); err != nil {
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
func (k *known) endTunnel(n *node) {
	k.closeTunnel(n.tunnel)
	n.tunnel = nil
}

// closeTunnel closes a tunnel, or none, without anybody waiting for it: if a node no longer takes anything, closing
// takes seconds.
func (k *known) closeTunnel(s *tunnel.Session) {
	if s != nil {
		k.closing.Go(func() { s.Close() }) //nolint:errcheck // it ends in any case
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
