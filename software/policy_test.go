package software

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/resolve"
)

func number(n uint32) *uint32 { return &n }

// policed is r1 with policies that say everything there is to say.
func policed(r model.ResolvedElement) model.ResolvedElement {
	r.Routing = model.Routing{BGP: &model.BGP{AS: 65001,
		PrefixLists: map[string][]string{"both": {"10.1.0.0/16 le 24", "10.0.0.0/8 ge 16 le 24", "2001:db8:1::/48 ge 64"},
			"four": {"192.0.2.0/24"}, "unused": {"198.51.100.0/24"}},
		Policies: map[string][]model.BGPRule{
			"from-isp": {{Match: model.BGPMatch{Prefixes: "both"}, Deny: true},
				{Match: model.BGPMatch{Prefixes: "four", Community: []string{"65010:80", "no-export"}},
					Set: model.BGPSet{LocalPreference: number(80), Community: []string{"none"}}},
				{Match: model.BGPMatch{Community: []string{"65010:90"}}, Set: model.BGPSet{LocalPreference: number(0)}},
				{Set: model.BGPSet{AddCommunity: []string{"65001:10", "65001:11"}}}},
			"to-isp": {{Match: model.BGPMatch{Prefixes: "both"}, Set: model.BGPSet{MED: number(50), Prepend: 2,
				DeleteCommunity: []string{"65001:10", "no-advertise"}}},
				{Match: model.BGPMatch{Prefixes: "four"}, Set: model.BGPSet{Community: []string{"no-export", "65001:1"}}}},
			"unused": {{Deny: true}},
		},
		Neighbors: []model.BGPNeighbor{{Address: addr("10.0.1.2"), AS: 65002, Name: "r2", In: "from-isp", Out: "to-isp"},
			{Address: addr("2001:db8:1::2"), AS: 65002, Name: "r2", In: "from-isp", Out: "to-isp"},
			{Interface: "sw", Address: addr("fe80::2%sw"), AS: 65003, Out: "to-isp"},
			{Address: addr("10.0.2.9"), AS: 65001}}}}
	return r
}

// TestPoliciesChooseTheWay: of two ways to the same networks, by the autonomous systems' routers a and b, policies take
// one: by local preference, MED, communities, prepending, and by telling nothing. Each router runs FRR once and BIRD once.
func TestPoliciesChooseTheWay(t *testing.T) {
	at := func(list string, set model.BGPSet) model.BGPRule {
		return model.BGPRule{Match: model.BGPMatch{Prefixes: list}, Set: set}
	}
	has := func(set model.BGPSet, communities ...string) model.BGPRule {
		return model.BGPRule{Match: model.BGPMatch{Community: communities}, Set: set}
	}
	rest := model.BGPRule{}
	ways := map[string]string{"preferred": "a", "med": "b", "community": "b", "no-export": "b", "prepended": "a", "denied": "b",
		"deleted": "a", "replaced": "b"}
	lists := map[string][]string{}
	var networks []netip.Prefix
	names := []string{"preferred", "med", "community", "no-export", "prepended", "denied", "deleted", "replaced", "any"}
	for i, name := range names {
		v4, v6 := prefix(fmt.Sprintf("198.51.%d.0/24", 100+i)), prefix(fmt.Sprintf("2001:db8:%d::/48", 100+i))
		networks = append(networks, v4, v6)
		lists[name] = []string{v4.String(), prefix(fmt.Sprintf("2001:db8:%d::/47", 100+i)).Masked().String() + " ge 49",
			v6.String()}
	}
	routing := map[string]*model.BGP{
		"r": {AS: 65000, Toward: map[string]model.BGPToward{"a": {In: "from-a"}}, Policies: map[string][]model.BGPRule{
			"from-a": {at("preferred", model.BGPSet{LocalPreference: number(200)}), {Match: model.BGPMatch{Prefixes: "denied"}, Deny: true},
				has(model.BGPSet{LocalPreference: number(50)}, "65001:80"), has(model.BGPSet{LocalPreference: number(50)}, "65002:1"),
				has(model.BGPSet{LocalPreference: number(50)}, "65002:2", "65002:4"), // not both
				has(model.BGPSet{LocalPreference: number(150)}, "65002:2", "65002:3"), rest}}},
		"a": {AS: 65001, Toward: map[string]model.BGPToward{"r": {Out: "to-r"}, "o": {In: "from-o"}},
			Policies: map[string][]model.BGPRule{
				"to-r": {at("med", model.BGPSet{MED: number(10)}), at("community", model.BGPSet{AddCommunity: []string{"65001:80"}}),
					at("replaced", model.BGPSet{Community: []string{"65001:80"}}), rest},
				"from-o": {at("deleted", model.BGPSet{DeleteCommunity: []string{"65002:1", "65002:9"}}), rest}}},
		"b": {AS: 65001, Toward: map[string]model.BGPToward{"r": {Out: "to-r"}},
			Policies: map[string][]model.BGPRule{"to-r": {at("med", model.BGPSet{MED: number(5)}), rest}}},
		"o": {AS: 65002, Networks: networks, Toward: map[string]model.BGPToward{"a": {Out: "to-a"}, "b": {Out: "to-b"}},
			Policies: map[string][]model.BGPRule{
				"to-a": {at("no-export", model.BGPSet{Community: []string{"no-export"}}),
					at("deleted", model.BGPSet{AddCommunity: []string{"65002:1", "65002:2", "65002:3"}}), rest},
				"to-b": {at("prepended", model.BGPSet{Prepend: 3}), rest}}},
	}
	for _, softwares := range []string{"frr bird frr bird", "bird frr bird frr"} {
		t.Run(softwares, func(t *testing.T) {
			t.Parallel()
			net := model.Network{Name: "lab", Pools: []netip.Prefix{prefix("10.0.0.0/16"), prefix("2001:db8::/56")}}
			for i, name := range []string{"r", "a", "b", "o"} {
				b := *routing[name]
				b.PrefixLists = lists
				net.Elements = append(net.Elements, model.Element{Name: name, Kind: model.Router,
					Software: model.Software(strings.Fields(softwares)[i]), Routing: model.Routing{BGP: &b}})
			}
			for _, l := range []string{"r a", "r b", "a o", "b o"} {
				x, y, _ := strings.Cut(l, " ")
				net.Links = append(net.Links, model.Link{Name: x + "--" + y, Ends: [2]model.End{{Element: x, Interface: y},
					{Element: y, Interface: x}}})
			}
			document, problems := resolve.Read(net)
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			resolved, _, err := document.Resolve(model.Assigned{}, resolve.NewNumbers())
			if err != nil {
				t.Fatal(err)
			}
			all := connected(t, &resolved)
			for _, r := range all {
				r.configure(t)
			}
			peer := func(name string) *model.LookedFor {
				p := &model.LookedFor{Name: name, RouterID: all[name].el.RouterID, Devices: []string{name}}
				for _, f := range all[name].el.Interfaces {
					for _, a := range f.Addresses {
						p.Addresses = append(p.Addresses, a.Addr())
					}
				}
				return p
			}
			for k := range 2 * len(names) { // twice: what must not be may have come meanwhile
				i := k % len(names)
				name := names[i]
				for _, p := range networks[2*i : 2*i+2] {
					for _, by := range []string{"a", "b"} {
						all["r"].awaitKnownBy(t, model.Look{Peer: peer(by), Not: ways[name] != "" && ways[name] != by,
							Known: model.Known{What: model.KnownRoute, Protocol: "bgp", Prefix: p}})
					}
				}
			}
		})
	}
}

// TestPoliciesAreTaken: whatever policies a file may have, FRR and BIRD take the configuration that is made of them.
func TestPoliciesAreTaken(test *testing.T) {
	communities := []string{"0:0", "65535:65535", "65001:80", "no-export", "no-advertise"}
	some := func(t *rapid.T, what string) []string {
		n := rapid.IntRange(0, 3).Draw(t, what)
		return slices.Clone(rapid.Permutation(communities).Draw(t, what)[:n])
	}
	rapid.Check(test, func(t *rapid.T) {
		b := &model.BGP{AS: rapid.Uint32Min(1).Draw(t, "as"), PrefixLists: map[string][]string{},
			Policies: map[string][]model.BGPRule{}}
		names := []string{"a", "A.b_c-4", "bgp1", "x234567890123456789012345678901", "permit", "true"}
		for _, list := range names[:rapid.IntRange(1, len(names)).Draw(t, "lists")] {
			b.PrefixLists[list] = rapid.Permutation([]string{"0.0.0.0/0 le 32", "::/0", "10.0.0.0/8 ge 16 le 24", "2001:db8::/32 ge 48",
				"192.0.2.1/32", "2001:db8::1/128"}).Draw(t, "entries")[:rapid.IntRange(1, 6).Draw(t, "entries")]
		}
		for _, name := range names {
			for range rapid.IntRange(1, 3).Draw(t, "rules") {
				r := model.BGPRule{Deny: rapid.Bool().Draw(t, "deny")}
				if rapid.Bool().Draw(t, "prefixes") {
					r.Match.Prefixes = rapid.SampledFrom(names[:len(b.PrefixLists)]).Draw(t, "list")
				}
				r.Match.Community = some(t, "match")
				if !r.Deny {
					if rapid.Bool().Draw(t, "numbers") {
						n := rapid.Uint32().Draw(t, "number")
						r.Set.LocalPreference, r.Set.MED = &n, &n
					}
					r.Set.Prepend = rapid.IntRange(0, model.MostPrepended).Draw(t, "prepend")
					switch rapid.IntRange(0, 2).Draw(t, "communities") {
					case 0:
						r.Set.Community = some(t, "set")
					case 1:
						r.Set.Community = []string{model.NoCommunity}
					default:
						all := rapid.Permutation(communities).Draw(t, "changed")
						r.Set.AddCommunity, r.Set.DeleteCommunity = all[:2], all[2:4]
					}
				}
				b.Policies[name] = append(b.Policies[name], r)
			}
		}
		for i, name := range names {
			b.Neighbors = append(b.Neighbors, model.BGPNeighbor{Address: addr(fmt.Sprintf("10.0.1.%d", i+2)), AS: 65002, In: name,
				Out: names[len(names)-1-i]})
		}
		for _, s := range []model.Software{model.SoftwareFRR, model.SoftwareBIRD} {
			plan, err := Render("lab", router(s, model.Routing{BGP: b}))
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range plan.Files {
				if f.Path == plan.ConfigFiles[0] {
					if checkSyntax(test, s, f.Content); test.Failed() {
						t.Fatalf("of %+v", b.Policies)
					}
				}
			}
		}
	})
}
