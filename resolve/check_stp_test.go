package resolve

import (
	"fmt"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// TestLoopsOfSwitches: where all switches of a segment run a spanning tree, they may be connected in loops.
func TestLoopsOfSwitches(t *testing.T) {
	ring := func(stp ...model.STP) (n model.Network) {
		n.Name = "lab"
		for i, s := range stp {
			name := fmt.Sprintf("s%d", i+1)
			n.Elements = append(n.Elements, model.Element{Name: name, Kind: model.Switch, STP: s})
			next := fmt.Sprintf("s%d", (i+1)%len(stp)+1)
			n.Links = append(n.Links, model.Link{Name: name + "--" + next,
				Ends: [2]model.End{{Element: name, Interface: next}, {Element: next, Interface: name}}})
		}
		return n
	}
	host := ring("true", "4096", "0")
	host.Elements[0].Kind, host.Links = model.Host, host.Links[1:2]
	flow := ring("true", "true", "true")
	flow.Elements[1].Forwarding = model.ForwardOpenFlow
	expecting := func(x model.Expectation) model.Network {
		n := ring("true", "4096", "0")
		n.Elements[1].STP = ""
		n.Links = n.Links[:2]
		n.Elements = append(n.Elements, model.Element{Name: "h1", Kind: model.Host})
		x.Protocol = model.ProtocolSTP
		n.Expect = []model.Expectation{x}
		return n
	}
	root := model.Known{What: model.KnownTreeRoot}
	port := func(name, state string) model.Known {
		return model.Known{What: model.KnownTreePort, Interface: name, State: state}
	}
	for _, c := range []struct {
		name string
		net  model.Network
		want string // in the first problem; empty: there is none
	}{
		{"all run it", ring("true", "4096", "0"), ""},
		{"none", ring("", "", ""), "link s3--s1: it closes a loop of switches, in which a broadcast would circle for ever; " +
			"leave the link out, or write `stp: true` at all switches of the segment: s1, s2, s3"},
		{"one does not", ring("true", "", "true"), "at all switches of the segment: s2"},
		{"a host", host, "a host runs no spanning tree"},
		{"no such priority", ring("true", "4097", "0"), "a multiple of 4096"},
		{"not as it is written", ring("true", "04096", "0"), "is written as"},
		{"an expected root", expecting(model.Expectation{From: "s1", To: "s3", Known: root}), ""},
		{"an expected port", expecting(model.Expectation{From: "s1", Known: port("s2", "blocking")}), ""},
		{"a root without a tree", expecting(model.Expectation{From: "s2", Known: root}), "s2 runs no spanning tree; give it stp"},
		{"the root is one without a tree", expecting(model.Expectation{From: "s1", To: "s2", Known: root}), "s2 runs no"},
		{"a host's tree", expecting(model.Expectation{From: "h1", Known: root}), "h1 is a host, which is in no spanning tree"},
		{"nobody's tree", expecting(model.Expectation{From: "s9", Known: root}), "there is no switch s9"},
		{"no such port", expecting(model.Expectation{From: "s1", Known: port("s3", "blocking")}),
			"s1 has no port s3; there is s2"},
		{"no such state", expecting(model.Expectation{From: "s1", Known: port("s2", "open")}), "there is forwarding, blocking"},
		{"not the kernel's bridge", flow, "it takes forwarding: bridge"},
	} {
		_, problems := Read(c.net)
		switch {
		case c.want == "" && len(problems) > 0:
			t.Errorf("%s: %v", c.name, problems)
		case c.want != "" && (len(problems) == 0 || !strings.Contains(problems[0].Error(), c.want)):
			t.Errorf("%s: %v", c.name, problems)
		}
	}
}
