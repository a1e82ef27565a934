package spec

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/spec/internal/form"
)

const expectHelp = "write h1 reaches h2, h1 reaches h2 over ipv6, or h1 does not reach h3; or what routing shall " +
	"know: r1 ospf neighbor r2, r1 bgp route 10.0.0.0/8 via r2, r1 no route 10.0.0.0/8, r1 vrrp master; or what a " +
	"spanning tree shall be: s1 stp root, s2 stp port s3 blocking"

// expect reads a sentence.
func (d *decoder) expect(n ast.Node, e *form.Expect, _ string) {
	e.Node = n
	text, ok := d.scalar(n, "an entry of expect")
	if !ok {
		return
	}
	value, err := parseExpect(text)
	switch {
	case errors.Is(err, errNoExpectation):
		d.fail(n, "%q is no expectation: %s", text, expectHelp)
	case err != nil:
		d.fail(n, "%q: %v", text, err)
	default:
		e.Value = value
	}
}

var errNoExpectation = errors.New("it is no expectation")

func parseExpect(text string) (e model.Expectation, err error) {
	words := strings.Fields(text)
	over := false
	// A neighbour may be called vrf.
	if k := len(words); k > 4 && words[k-2] == "vrf" && !strings.HasPrefix(words[k-3], "neighbo") {
		e.VRF, words = words[k-1], words[:k-2]
	}
	if k := len(words); k > 2 && words[k-2] == "over" {
		switch f := model.Family(strings.ToLower(words[k-1])); f {
		case model.IPv4, model.IPv6:
			e.Family = f
		default:
			return e, fmt.Errorf("over is followed by ipv4 or ipv6, not %q", words[k-1])
		}
		words, over = words[:k-2], true
	}
	if len(words) < 3 {
		return e, errNoExpectation
	}
	if e.VRF != "" && (over || slices.Contains(words, "reaches") || slices.Contains(words, "reach")) {
		return e, errors.New("vrf is for routes of a router, and for its neighbours of OSPF; leave it out")
	}
	switch e.From = words[0]; {
	case len(words) == 3 && words[1] == "reaches":
		e.To = words[2]
		return e, nil
	case len(words) == 5 && words[1] == "does" && words[2] == "not" && words[3] == "reach":
		e.To, e.Not = words[4], true
		return e, nil
	}
	words = words[1:]
	if e.Not = words[0] == "no"; e.Not {
		words = words[1:]
	}
	if words[0] == model.ProtocolSTP {
		if over {
			return e, errors.New("a spanning tree has no address family; leave over out")
		}
		return expectTree(e, words[1:])
	}
	if words[0] == string(model.KnownVirtual) {
		return parseVirtual(e, words[1:], over)
	}
	if words[0] != "neighbor" && words[0] != "neighbour" && words[0] != "route" {
		e.Protocol, words = words[0], words[1:]
	}
	if len(words) < 2 {
		return e, errNoExpectation
	}
	switch what, rest := words[0], words[2:]; {
	case what == "neighbor" || what == "neighbour":
		e.What, e.To = model.KnownNeighbour, words[1]
		switch states := model.NeighbourStates[e.Protocol]; {
		case e.Protocol == "":
			return e, fmt.Errorf("whose neighbour: write %s ospf neighbor %s, or bgp, isis or ospf6", e.From, e.To)
		case states == nil:
			return e, errors.New(e.Known.Problem())
		case len(rest) == 0:
			e.State = states[0]
		case len(rest) == 1:
			e.State = strings.ToLower(rest[0])
		default:
			return e, errNoExpectation
		}
		if over && e.Protocol != "bgp" {
			return e, fmt.Errorf("over is for what is reached, and for sessions of BGP; %s has one family",
				model.ProtocolName(e.Protocol))
		}
	case what == "route":
		if e.What = model.KnownRoute; over {
			return e, errors.New("a route's prefix says its address family; leave over out")
		}
		if e.Protocol != "" && !slices.Contains(model.RouteProtocols, e.Protocol) {
			return e, errNoExpectation
		}
		if e.Prefix, err = parsePrefix(words[1]); err != nil {
			return e, err
		}
		switch {
		case len(rest) == 0:
		case len(rest) == 2 && rest[0] == "via":
			if a, err := parseAddr(rest[1]); err == nil {
				e.Via = a
			} else {
				e.To = rest[1]
			}
		default:
			return e, errNoExpectation
		}
	default:
		return e, errNoExpectation
	}
	if problem := e.Known.Problem(); problem != "" {
		return e, errors.New(problem)
	}
	return e, nil
}

// expectTree reads what is said of a switch's spanning tree.
func expectTree(e model.Expectation, words []string) (model.Expectation, error) {
	e.Protocol = model.ProtocolSTP
	switch {
	case len(words) > 0 && len(words) <= 2 && words[0] == "root":
		if e.What = model.KnownTreeRoot; len(words) == 2 && words[1] != e.From {
			e.To = words[1]
		}
	case len(words) == 2 && words[0] == "port":
		return e, fmt.Errorf("what shall the port be: write %s stp port %s %s", e.From, words[1],
			model.Either(model.TreeStates))
	case len(words) == 3 && words[0] == "port":
		e.What, e.Interface, e.State = model.KnownTreePort, words[1], strings.ToLower(words[2])
	default:
		return e, errNoExpectation
	}
	if problem := e.Known.Problem(); problem != "" {
		return e, errors.New(problem)
	}
	return e, nil
}

// parseVirtual reads what follows "r1 vrrp": a state, and perhaps which virtual router's it is.
func parseVirtual(e model.Expectation, words []string, over bool) (model.Expectation, error) {
	e.What = model.KnownVirtual
	switch {
	case over:
		return e, errors.New("a virtual router has an address of IPv4; leave over out")
	case len(words) != 1 && (len(words) != 3 || words[1] != "of"):
		return e, fmt.Errorf("write %s vrrp master, or %s vrrp backup of 10.0.0.254", e.From, e.From)
	case len(words) == 3:
		a, err := parseAddr(words[2])
		if err != nil {
			return e, err
		}
		e.Via = a
	}
	e.State = strings.ToLower(words[0])
	if problem := e.Known.Problem(); problem != "" {
		return e, errors.New(problem)
	}
	return e, nil
}
