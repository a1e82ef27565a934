package manager

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/server/api/client"
)

// perLook is how much longer than for other things an agent may take for each question: it runs a command.
const perLook = time.Second

// state is one expectation of what routing knows, with all that can be said before anybody is asked.
type state struct {
	model.StateResult
	expect model.Expectation
	look   model.Look
	node   string // where the element is
	known  bool   // nobody need be asked: Message says why
	// switches are the names of the network's, where a spanning tree is asked about.
	switches []string
}

// know asks what one statement of the document says of an element's routing.
func (q *questioner) know(e model.Expectation) {
	net := q.n.record.Network.Name
	x := &state{StateResult: model.StateResult{Expected: e.String()}, expect: e,
		node: q.n.record.Assigned.Placement.Elements[e.From],
		look: model.Look{Element: model.ID{Network: net, Element: e.From}, Known: e.Known, Not: e.Not,
			Family: e.Family}}
	q.states = append(q.states, x)
	from, to := q.element(e.From), q.element(e.To)
	x.look.To = map[bool]string{true: e.To}[e.OfSwitch()]
	if from == nil || e.To != "" && to == nil {
		x.known, x.Message = true, "one of them is no element of the network"
		return
	}
	if o := q.n.record.Overrides[e.From]; o.Stopped || o.Suspended {
		x.known, x.Message = true, e.From+" is "+map[bool]string{true: "stopped", false: "suspended"}[o.Stopped]
		return
	}
	if e.OfSwitch() {
		for i := range q.n.resolved.Elements {
			if s := &q.n.resolved.Elements[i]; s.Kind == model.Switch {
				x.switches = append(x.switches, s.Name)
			}
		}
		return
	}
	if to != nil {
		x.look.Peer = lookedFor(from, to)
	}
}

// lookedFor is an element as another one meets it.
func lookedFor(from, to *model.ResolvedElement) *model.LookedFor {
	p := &model.LookedFor{Name: to.Name, RouterID: to.RouterID, Addresses: addresses(to)}
	for i := range to.Interfaces {
		for _, a := range to.Interfaces[i].Addresses { // of VRFs, too
			if !slices.Contains(p.Addresses, a.Addr()) {
				p.Addresses = append(p.Addresses, a.Addr())
			}
		}
		if mac, err := net.ParseMAC(to.Interfaces[i].MAC); err == nil && len(mac) == 6 {
			if own := model.LinkLocal([6]byte(mac)); !slices.Contains(p.Addresses, own) {
				p.Addresses = append(p.Addresses, own)
			}
		}
	}
	for i := range from.Interfaces {
		if f := &from.Interfaces[i]; f.Far != nil && f.Far.Element == to.Name {
			p.Devices = append(p.Devices, f.LinuxName())
		}
	}
	return p
}

// look asks the agents of all nodes at once what the routing of their elements knows.
func (c *check) look(ctx context.Context) {
	by := map[string][]*state{}
	for _, s := range c.states {
		if !s.known {
			by[s.node] = append(by[s.node], s)
		}
	}
	atOnce(by, func(node string, list []*state) {
		request := model.LooksRequest{}
		request.Looks = append(request.Looks, each.Of(list, func(s *state) model.Look { return s.look })...)
		ctx, cancel := context.WithTimeout(ctx, agentPatience+time.Duration(len(list))*perLook)
		defer cancel()
		var answer model.LooksResult
		err := c.agent(node, func(agent *client.Client) (err error) {
			ctx, done := c.unlessMute(ctx, node)
			defer done()
			if answer, err = agent.Look(ctx, request); err == nil && len(answer.Answers) != len(list) {
				err = fmt.Errorf("it answered %d of %d questions", len(answer.Answers), len(list))
			}
			return err
		})
		for i, s := range list {
			if err != nil {
				s.Message = err.Error()
				continue
			}
			s.judge(answer.Answers[i])
		}
	})
}

// judge says what an answer means. One that could not be given never counts as proof that something is not there.
func (s *state) judge(seen model.LookAnswer) {
	x := &s.expect
	what := model.Shorten(seen.Seen, maxToldText)
	protocol := ""
	if x.Protocol != "" {
		protocol = model.ProtocolName(x.Protocol) + " "
	}
	s.OK = seen.So && seen.Error == ""
	switch {
	case seen.Error != "":
		s.Message = fmt.Sprintf("%s: %s", x.From, model.Shorten(seen.Error, maxToldText))
	case x.What == model.KnownTreeRoot:
		s.Message = ""
		if root := model.BridgeName(s.look.Element.Network, what, s.switches); !s.OK || x.To != "" {
			s.Message = fmt.Sprintf("%s: the root of its spanning tree is %s", x.From, cmp.Or(root, "a bridge "+what))
		}
	case x.What == model.KnownTreePort && s.OK:
		s.Message = what
	case x.What == model.KnownTreePort:
		s.Message = fmt.Sprintf("%s: its port %s is %s", x.From, x.Interface, what)
	case x.What == model.KnownVirtual && s.OK:
		if !x.Not {
			s.Message = x.State
		}
	case x.What == model.KnownVirtual:
		s.Message = fmt.Sprintf("%s is %s by VRRP, %s %s", x.From, what,
			map[bool]string{true: "and must not be", false: "not"}[x.Not], x.State)
	case x.What == model.KnownNeighbour && s.OK:
		if !x.Not {
			s.Message = model.StateName(x.State)
		}
	case x.What == model.KnownNeighbour && x.Not:
		s.Message = fmt.Sprintf("%s: %sneighbour %s is %s, and must not be", x.From, protocol, x.To, what)
	case x.What == model.KnownNeighbour && what == "":
		s.Message = fmt.Sprintf("%s has no %sneighbour %s", x.From, protocol, x.To)
	case x.What == model.KnownNeighbour:
		s.Message = fmt.Sprintf("%s: %sneighbour %s is %s, not %s", x.From, protocol, x.To, what,
			model.StateName(x.State))
	case s.OK:
		s.Message = what
	case x.Not:
		s.Message = fmt.Sprintf("%s: there is a %sroute to %s (%s), and must not be", x.From, protocol, x.Prefix, what)
	case what == "":
		s.Message = fmt.Sprintf("%s has no %sroute to %s", x.From, protocol, x.Prefix)
	default:
		by := x.To
		if x.Via.IsValid() {
			by = x.Via.String()
		}
		s.Message = fmt.Sprintf("%s: the %sroute to %s leads %s, not via %s", x.From, protocol, x.Prefix, what, by)
	}
}
