package resolve

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/polyplane/polyplane/model"
)

// TestLabelsAreChecked: of each mistake the words that tell what is wrong; and what next hops are.
func TestLabelsAreChecked(t *testing.T) {
	to := netip.MustParsePrefix("10.9.0.0/16")
	for _, c := range []struct {
		lsps   []model.LSP
		change func(*model.Network)
		want   string
	}{
		{[]model.LSP{{To: to, Out: []int{100}, Via: "r1"}, {In: 20, Out: []int{16, 65535}, Via: "h1"}, {In: 21}}, nil, ""},
		{[]model.LSP{{In: 15}}, nil, "the label 15 is not between 16 and 65535"},
		{[]model.LSP{{In: 16, Out: []int{65536}, Via: "r1"}}, nil, "the label 65536 is not between"},
		{[]model.LSP{{In: 16}, {In: 16, Via: "r1"}}, nil, "it has the label 16 twice"},
		{[]model.LSP{{In: 16, Out: []int{17}}}, nil, "it needs via:"},
		{[]model.LSP{{In: 16, Out: []int{17, 18, 19, 20, 21}, Via: "r1"}}, nil, "it has 5 labels in one label-switched path; 4 are allowed"},
		{[]model.LSP{{}}, nil, "needs either the label in: or the prefix to:"},
		{[]model.LSP{{To: to, Via: "r1"}}, nil, "needs the label that packets to 10.9.0.0/16 get"},
		{[]model.LSP{{To: netip.MustParsePrefix("10.9.0.1/16"), Out: []int{16}, Via: "r1"}}, nil, "its prefix is 10.9.0.0/16"},
		{[]model.LSP{{To: to, Out: []int{16}, Via: "r1"}, {To: to, Out: []int{17}, Via: "r1"}}, nil, "keep one of them"},
		{[]model.LSP{{In: 16, Via: "r9"}}, nil, "there is no element r9"},
		{[]model.LSP{{In: 16, Via: "r3"}}, nil, "r3 is no neighbour of it"},
		{[]model.LSP{{In: 16, Via: "r1", NextHop: netip.MustParseAddr("192.0.2.1")}}, nil,
			"mpls 16 pop via r1: its next hop follows from via, and is not stated; leave out nextHop and interface"},
		{[]model.LSP{{In: 16, Interface: "s1"}}, nil, "mpls 16 pop: its next hop follows from via, and is not stated"},
		{[]model.LSP{{In: 16}}, func(n *model.Network) { n.Elements[1].Forwarding = model.ForwardXDP },
			"mpls takes forwarding: guest, and not xdp"},
		{nil, func(n *model.Network) { n.Elements[3].MPLS = []model.LSP{{In: 16}} }, "a host switches no labels"},
		{[]model.LSP{{In: 16, Via: "192.0.2.1"}}, nil, "192.0.2.1 is on none of its subnets"},
		{[]model.LSP{{To: netip.MustParsePrefix("2001:db8::/64"), Out: []int{16}, Via: "10.7.0.1"}},
			func(n *model.Network) { n.Elements[4].Prefixes = []netip.Prefix{netip.MustParsePrefix("10.7.0.0/24")} },
			"of another address family"},
	} {
		n := office()
		n.Elements[1].MPLS = c.lsps // r2, which has r1 and h1 on its segment
		if c.change != nil {
			c.change(&n)
		}
		d, problems := Read(n)
		var out model.Resolved
		if len(problems) == 0 {
			var err error
			if out, _, err = d.Resolve(model.Assigned{}, NewNumbers()); err != nil {
				t.Fatal(err)
			}
			problems = d.Check(&out)
		}
		switch {
		case c.want != "" && (len(problems) == 0 || !strings.Contains(problems[0].Error(), c.want)):
			t.Errorf("want %q: %v", c.want, problems)
		case c.want == "" && len(problems) > 0:
			t.Errorf("%v", problems)
		case c.want == "":
			h1 := out.Elements[3].Interfaces[0].Addresses[0].Addr()
			if p := out.Elements[1].MPLS[1]; p.NextHop != h1 || p.Interface != "s1" || n.Elements[1].MPLS[1].NextHop.IsValid() {
				t.Errorf("by h1 leads %+v; the document has %+v", p, n.Elements[1].MPLS[1])
			}
		}
	}
}
