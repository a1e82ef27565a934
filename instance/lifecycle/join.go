package lifecycle

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/polyplane/polyplane/instance"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/substrate"
	"github.com/polyplane/polyplane/trust"
)

// Join is what `polyplane join` was told.
type Join struct {
	Server string // HOST:PORT
	Token  trust.Token
	Node   string // the name that is asked for; this machine's when empty
	// Underlay is this machine's address for other nodes; the one that it reaches the manager from when not valid.
	Underlay  netip.Addr
	Bandwidth model.Bandwidth
	Location  string
}

// Reach makes what a machine needs to speak to a manager elsewhere, when it joins or has joined.
type Reach interface {
	// Join asks the manager at server, which has that fingerprint, to be taken in.
	Join(ctx context.Context, server string, pin trust.Pin, request model.JoinRequest) (model.JoinResult, error)
	// Node asks the manager how it sees the node that this machine is.
	Node(ctx context.Context, server string, identity *trust.Identity) (model.NodeStatus, error)
}

// Joined is what a machine remembers when it is a node of an instance whose manager is elsewhere.
type Joined struct {
	Server   string        `json:"server"`
	Instance string        `json:"instance"` // the manager's name for it
	Machine  model.Machine `json:"machine"`
	// Underlay says that a user gave the machine's address; otherwise it was found out.
	Underlay bool `json:"underlay,omitempty"`
}

// IdentityDir is where a node that joined keeps its key and certificate.
func IdentityDir(d instance.Dirs) string { return filepath.Join(d.Data, "identity") }

// join makes this machine a node of an instance elsewhere. When it returns without an error, the token is used up.
func (u *Up) join(ctx context.Context, old settings, remembered bool, m substrate.Machine) (settings, error) {
	j := u.Join
	if remembered && old.Joined == nil {
		return old, &RefusedError{fmt.Sprintf("polyplane '%s' is an instance of this machine's own; join under "+
			"another name (--name), or end it first: %s", u.Dirs.Name, instance.Command(u.Dirs.Name, "down --purge"))}
	}
	machine, err := j.machine(ctx, m)
	if err != nil {
		return old, &OptionError{err}
	}
	if old.Joined != nil && j.Node == "" {
		machine.Name = old.Joined.Machine.Name
	}
	key, err := trust.NewKey()
	if err != nil {
		return old, err
	}
	request, err := key.Request(machine.Name)
	if err != nil {
		return old, err
	}
	result, err := u.Reach.Join(ctx, j.Server, j.Token.Pin, model.JoinRequest{Token: j.Token.String(),
		Request: request, Machine: machine})
	if err != nil {
		return old, &RefusedError{err.Error()}
	}
	machine.Name = result.Node
	if err := os.MkdirAll(u.Dirs.Data, 0o700); err != nil {
		return old, err
	}
	if _, err := trust.SaveIdentity(IdentityDir(u.Dirs), key, result.Certificate); err != nil {
		return old, fmt.Errorf("this machine is node %s now, but cannot keep its certificate: %w; when that is "+
			"mended, join again with a token "+
			"for it (`polyplane token create --node %s`)", machine.Name, err, machine.Name)
	}
	s := settings{Nodes: HostOnly, Substrate: model.Substrate{Nodes: []model.SubstrateNode{machine.Node()}},
		Joined: &Joined{Server: j.Server, Instance: result.Instance, Machine: machine, Underlay: j.Underlay.IsValid()},
		Silent: u.Options.silent(old)}
	// This is written before anything else can fail, so that `up` goes on from here.
	return s, s.write(u.Dirs)
}

// JoinOnly makes this machine a node, and starts nothing.
func (u *Up) JoinOnly(ctx context.Context) error {
	if err := CheckName(u.Dirs.Name); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("polyplane makes namespaces and devices: run it as root")
	}
	l, err := acquire(u.Dirs, "up")
	if err != nil {
		return err
	}
	defer l.release()
	m, err := substrate.ThisMachine()
	if err != nil {
		return err
	}
	old, remembered, err := readSettings(u.Dirs)
	if err != nil {
		return err
	}
	s, err := u.join(ctx, old, remembered, m)
	if err == nil {
		u.say("polyplane '%s' is %s", u.Dirs.Name, s.describe())
	}
	return err
}

// machine describes this machine as the node that it wants to be.
func (j *Join) machine(ctx context.Context, m substrate.Machine) (model.Machine, error) {
	address := j.Underlay
	if !address.IsValid() {
		// No packet is sent: the kernel only says from which address it would be.
		c, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "udp4", j.Server)
		if err != nil {
			return model.Machine{}, fmt.Errorf("find out by which IPv4 address this machine reaches %s, and by which "+
				"other nodes reach this machine: %w (--underlay gives it)", j.Server, err)
		}
		address = c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
		c.Close()
		if address.IsLoopback() { // the manager is on this machine, in another network namespace or instance
			address = m.Address
		}
	}
	m, err := m.At(address)
	if err != nil {
		return model.Machine{}, fmt.Errorf("%w (--underlay)", err)
	}
	machine := model.Machine{Name: cmp.Or(j.Node, m.Name), CPU: m.CPU, Memory: m.Memory, Address: m.Address, MTU: m.MTU,
		Bandwidth: j.Bandwidth, Location: j.Location}
	return machine, machine.Validate()
}

// stillJoined describes a machine that joined earlier as it is now.
func (u *Up) stillJoined(old settings, m substrate.Machine) (settings, error) {
	o := u.Options
	if o.given() || o.Etcd != (Etcd{}) || o.Listen != nil || o.Advertise != nil {
		return old, &RefusedError{fmt.Sprintf("polyplane '%s' is %s: `%s` without more starts it; to make it an "+
			"instance of its own: `%s` first", u.Dirs.Name, old.describe(), instance.Command(u.Dirs.Name, "up"),
			instance.Command(u.Dirs.Name, "down --purge"))}
	}
	if !trust.HasIdentity(IdentityDir(u.Dirs)) {
		return old, &RefusedError{fmt.Sprintf("polyplane '%s' is %s, but its certificate in %s is gone: join again "+
			"with a token for it (`polyplane token create --node %s` there)",
			u.Dirs.Name, old.describe(), IdentityDir(u.Dirs), old.Joined.Machine.Name)}
	}
	s, is := old, *old.Joined
	s.Joined = &is
	s.Silent = o.silent(old)
	is.Machine.CPU, is.Machine.Memory = m.CPU, m.Memory
	address := is.Machine.Address
	if o.Underlay.IsValid() {
		address, is.Underlay = o.Underlay, true
	}
	now, err := m.At(address)
	if err != nil && !is.Underlay && m.Address.IsValid() { // it has another one since
		now, err = m.At(m.Address)
	}
	if err != nil {
		return old, &OptionError{fmt.Errorf("%w (--underlay)", err)}
	}
	is.Machine.Address, is.Machine.MTU = now.Address, now.MTU
	s.Substrate = model.Substrate{Nodes: []model.SubstrateNode{is.Machine.Node()}}
	return s, nil
}

// Outpost is what the agent of a joined machine is told.
type Outpost struct {
	Server  string        `json:"server"`
	Machine model.Machine `json:"machine"`
}

// writeOutpost writes what the agent reads, and returns its arguments.
func (u *Up) writeOutpost(j *Joined) ([]string, error) {
	path := filepath.Join(u.Dirs.Run, "outpost.json")
	b, err := json.Marshal(Outpost{j.Server, j.Machine})
	if err != nil {
		return nil, err
	}
	return []string{"--outpost", path}, os.WriteFile(path, b, 0o600)
}

// ReadOutpost reads what writeOutpost wrote.
func ReadOutpost(path string) (Outpost, error) {
	var o Outpost
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &o)
	}
	if err != nil {
		return o, fmt.Errorf("read whose node this is: %w", err)
	}
	return o, nil
}

// managerWithin is how long `up` waits for a manager elsewhere to see the node. A machine that starts must not depend
// on it: the agent makes the state that it last knew to be wanted.
const managerWithin = 3 * time.Second

// awaitAgent returns once the agent of a machine that joined answers, with what the manager says of the node if it says
// it in time.
func (u *Up) awaitAgent(ctx context.Context, sup *supervisor, s settings) ([]model.NodeStatus, error) {
	node := s.Joined.Machine.Name
	name := "agent-" + node
	patience, limited, cancel := u.patience(ctx)
	defer cancel()
	for {
		c, err := (&net.Dialer{}).DialContext(limited, "unix", u.Dirs.Node(node).AgentSocket())
		if err == nil {
			c.Close()
			break
		}
		const hopeless = 4
		if sup.died(name) >= hopeless {
			return nil, u.explain(name, fmt.Sprintf("has ended %d times", sup.died(name)))
		}
		patience.goesOn(name)
		select {
		case <-limited.Done():
			return nil, patience.over(limited, name)
		case <-time.After(20 * time.Millisecond):
		}
	}
	identity, err := trust.OpenIdentity(IdentityDir(u.Dirs))
	if err != nil {
		return nil, err
	}
	asking, stop := context.WithTimeout(ctx, managerWithin)
	defer stop()
	status := model.NodeStatus{SubstrateNode: s.Joined.Machine.Node()}
	for {
		seen, err := u.Reach.Node(asking, s.Joined.Server, identity)
		if err == nil && seen.Ready {
			return []model.NodeStatus{seen}, nil
		}
		var no interface{ Denied() bool }
		if errors.As(err, &no) && no.Denied() {
			status.Problem = err.Error()
			return []model.NodeStatus{status}, nil
		}
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			status.Problem = err.Error()
		} else if err == nil {
			status.Problem = seen.Problem
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-asking.Done():
			status.Problem = cmp.Or(status.Problem, "the manager has not heard of it yet")
			return []model.NodeStatus{status}, nil
		case <-time.After(50 * time.Millisecond):
		}
	}
}
