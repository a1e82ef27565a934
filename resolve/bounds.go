package resolve

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/polyplane/polyplane/model"
)

// all collects problems, and counts those beyond the ones that are told.
func (ps *problems) all() []model.Problem {
	if ps.more == 0 {
		return ps.list
	}
	return append(ps.list, model.Problem{About: model.AboutNetwork,
		Name:    model.Shorten(ps.net.Name, model.MaxMessage/4),
		Message: "… and " + thousands(ps.more) + " more problems"})
}

// thousands writes a number as people read it: 3,412.
func thousands(n int) string {
	s := fmt.Sprint(n)
	for at := len(s) - 3; at > 0; at -= 3 {
		s = s[:at] + "," + s[at:]
	}
	return s
}

// Bounds says what in the network is larger than any network may be. Its time is proportional to the network's size.
// Call it before anything else looks at the network: much else takes longer.
func Bounds(n *model.Network) []model.Problem {
	ps := &problems{net: n}
	what := func(report func(field, format string, args ...any), field, words string, is, most int) {
		if is > most {
			report(field, "%s", fmt.Sprintf("it has %s %s; %s are allowed", thousands(is), words, thousands(most)))
		}
	}
	if len(n.Name) > model.MaxName {
		ps.network("network", "its name has %s characters; %d are allowed", thousands(len(n.Name)), model.MaxName)
	}
	whole := func(field, words string, is, most int) { what(ps.network, field, words, is, most) }
	whole("elements", "elements", len(n.Elements), model.MaxElements)
	whole("links", "links", len(n.Links), model.MaxLinks)
	whole("edges", "edges", len(n.Edges), model.MaxEdges)
	whole("expect", "expectations", len(n.Expect), model.MaxExpectations)
	whole("pools", "pools", len(n.Pools), model.MaxPools)
	if len(ps.list) > 0 { // what follows looks at each of them
		return ps.all()
	}
	interfaces, vrfs, addresses, routes, forwards, config := 0, 0, 0, 0, 0, 0
	for i := range n.Elements {
		e := &n.Elements[i]
		of := func(field, words string, is, most int) {
			what(func(field, format string, args ...any) { ps.element(i, field, format, args...) },
				field, words, is, most)
		}
		of("interfaces", "interfaces", len(e.Interfaces), model.MaxInterfaces)
		for k := range e.Interfaces {
			of("interfaces/"+model.Shorten(e.Interfaces[k].Name, model.MaxName), "addresses on one interface",
				len(e.Interfaces[k].Addresses), model.MaxAddresses)
			addresses += len(e.Interfaces[k].Addresses)
		}
		of("loopback", "addresses on its loopback", len(e.Loopback), model.MaxAddresses)
		of("gateways", "gateways", len(e.Gateways), model.MaxAddresses)
		of("prefixes", "prefixes", len(e.Prefixes), model.MaxAddresses)
		of("routes", "routes", len(e.Routes), model.MaxRoutes)
		for k := range e.Routes {
			of("routes", "next hops in one route", len(e.Routes[k].Via), model.MaxNextHops)
		}
		of("mpls", "label-switched paths", len(e.MPLS), model.MostLSPs)
		for k := range e.MPLS {
			of("mpls", "labels in one label-switched path", len(e.MPLS[k].Out), model.MostLabels)
		}
		for _, o := range []*model.OSPF{e.Routing.OSPF, e.Routing.OSPF6} {
			if o != nil {
				of("routing", "words under redistribute", len(o.Redistribute), model.MaxWords)
			}
		}
		if g := e.Routing.BGP; g != nil {
			of("routing/bgp", "networks to announce", len(g.Networks), model.MaxRoutes)
			of("routing/bgp", "BGP neighbors", len(g.Neighbors), model.MaxNeighborsBGP)
			routes += len(g.Networks)
			of("routing/bgp", "BGP neighbors named", len(g.Toward), model.MaxNeighborsBGP)
			of("routing/bgp/prefix-lists", "prefix lists", len(g.PrefixLists), model.MaxPolicies)
			of("routing/bgp/policies", "policies", len(g.Policies), model.MaxPolicies)
			rules, ranges := 0, 0
			for _, all := range g.Policies {
				rules += len(all)
				for k := range all {
					m, s := &all[k].Match, &all[k].Set
					of("routing/bgp/policies", "communities in one rule", len(m.Community)+len(s.Community)+
						len(s.AddCommunity)+len(s.DeleteCommunity), model.MaxWords)
				}
			}
			for _, all := range g.PrefixLists {
				ranges += len(all)
			}
			of("routing/bgp/policies", "rules in its policies", rules, model.MaxRules)
			of("routing/bgp/prefix-lists", "prefixes in its lists", ranges, model.MaxRoutes)
			routes += ranges
		}
		if r := e.Routing.RIP; r != nil {
			of("routing/rip", "words under redistribute", len(r.Redistribute), model.MaxWords)
		}
		of("vrfs", "VRFs", len(e.VRFs), model.MaxVRFs)
		vrfs += len(e.VRFs)
		for name, v := range e.VRFs {
			field := "vrfs/" + model.Shorten(name, model.MaxName)
			of(field, "interfaces in one VRF", len(v.Interfaces), 2*model.MaxLinks+model.MaxEdges)
			of(field, "gateways", len(v.Gateways), model.MaxAddresses)
			of(field, "routes", len(v.Routes), model.MaxRoutes)
			for k := range v.Routes {
				of(field, "next hops in one route", len(v.Routes[k].Via), model.MaxNextHops)
			}
			for _, o := range []*model.OSPF{v.OSPF, v.OSPF6} {
				if o != nil {
					of(field, "words under redistribute", len(o.Redistribute), model.MaxWords)
				}
			}
			interfaces += len(v.Interfaces) // names, as many as there are interfaces, or wrong
			routes += len(v.Routes)
		}
		of("config", "configuration files", len(e.Config), model.MaxConfigFiles)
		for name, text := range e.Config {
			of("config", "bytes in the configuration file "+model.Shorten(name, model.MaxName), len(text),
				model.MaxConfigSize)
			config += len(text)
		}
		boundService(&e.Service, of)
		config += e.Service.Size()
		interfaces += len(e.Interfaces)
		addresses += len(e.Loopback)
		routes += len(e.Routes) + len(e.MPLS)
	}
	for i := range n.Links {
		what(func(field, format string, args ...any) { ps.link(i, field, format, args...) }, "prefixes", "prefixes",
			len(n.Links[i].Prefixes), model.MaxAddresses)
	}
	for i := range n.Edges {
		if internet := n.Edges[i].Internet; internet != nil {
			what(func(field, format string, args ...any) { ps.edge(i, field, format, args...) }, "internet", "forwards",
				len(internet.Forwards), model.MaxForwards)
			forwards += len(internet.Forwards)
		}
	}
	ps.boundVLANs()
	devices := "interfaces"
	if vrfs > 0 {
		devices = "interfaces and VRFs" // an agent makes a device for each of either
	}
	whole("elements", devices, interfaces+vrfs, 2*model.MaxLinks+model.MaxEdges)
	whole("elements", "addresses", addresses, model.MaxAllAddresses)
	whole("edges", "forwards", forwards, model.MaxAllForwards)
	whole("elements", "static and announced routes and label-switched paths", routes, model.MaxAllRoutes)
	whole("elements", "bytes of configuration, of commands and of files that are put into elements", config,
		model.MaxConfigBytes)
	return ps.all()
}

// boundService says what of an element's commands is too large.
func boundService(s *model.Service, of func(field, words string, is, most int)) {
	of("start", "commands under start", len(s.Start), model.MaxCommands)
	of("stop", "commands under stop", len(s.Stop), model.MaxCommands)
	for field, list := range map[string][]string{"start": s.Start, "stop": s.Stop, "run": {s.Run}} {
		for _, command := range list {
			of(field, "bytes in a command", len(command), model.MaxCommandSize)
		}
	}
	if s.Ready != nil {
		of("ready", "bytes in a command", len(s.Ready.Command), model.MaxCommandSize)
	}
	of("env", "variables", len(s.Env), model.MaxVariables)
	for name, value := range s.Env {
		of("env", "bytes in a variable", len(name)+len(value), model.MaxCommandSize)
	}
	of("tmpfs", "file systems in memory", len(s.Tmpfs), model.MaxTmpfs)
	of("files", "files that are put into it", len(s.Contents), model.MaxContents)
	for path, f := range s.Contents {
		of("files", "bytes in the path "+model.Shorten(path, model.MaxName), len(path), model.MaxFilePath)
		of("files", "bytes in "+model.Shorten(path, model.MaxName), len(f.Text)+len(f.Base64), model.MaxContentSize)
	}
}

// maxResolved bounds how large a network may become, in bytes, once everything that follows from its document is worked
// out.
const maxResolved = 2 * model.MaxNodeBytes

// checkSize finds what follows from the document in so many places that the result would be too large.
func checkSize(n *model.Resolved) *model.Problem {
	if n.Size() <= maxResolved {
		return nil
	}
	p := model.ProblemOf(model.AboutNetwork, n.Name, "elements",
		"what its nodes would have to know of each interface's neighbours is more than the %s that "+
			"one network may take; make its segments smaller, or give their interfaces fewer addresses",
		model.Bytes(maxResolved))
	return &p
}

// prefixSet is a set of subnets that quickly finds whether one of them contains an address.
type prefixSet struct {
	known map[netip.Prefix]struct{}
	bits  []int          // the lengths that there are
	list  []netip.Prefix // in their order
}

func (s *prefixSet) add(p netip.Prefix) {
	p = p.Masked()
	if _, there := s.known[p]; there || !p.IsValid() {
		return
	}
	if s.known == nil {
		s.known = map[netip.Prefix]struct{}{}
	}
	s.known[p] = struct{}{}
	s.list = append(s.list, p)
	if !slices.Contains(s.bits, p.Bits()) {
		s.bits = append(s.bits, p.Bits())
	}
}

func (s *prefixSet) contains(a netip.Addr) bool {
	for _, bits := range s.bits {
		if p, err := a.Prefix(bits); err == nil {
			if _, there := s.known[p]; there {
				return true
			}
		}
	}
	return false
}

// words names the subnets; if there are many, only some of them.
func (s *prefixSet) words() string {
	words := make([]string, 0, model.MostNamed)
	for _, p := range s.list {
		if len(words) == model.MostNamed {
			return strings.Join(words, ", ") + " and others"
		}
		words = append(words, p.String())
	}
	if len(words) == 0 {
		return "it has none"
	}
	return strings.Join(words, ", ")
}
