package manager

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/resolve"
	"github.com/polyplane/polyplane/server/api"
)

// maxProbes bounds one check.
const maxProbes = 50_000

// question is one probe to be made, with all that can be said before it is made.
type question struct {
	model.ProbeResult
	from, to model.ID
	node     string // where from is
	first    bool   // must succeed at the first try
}

// addresses are an element's, the loopback's first: the address that stays whatever link fails. Those in VRFs are not
// among them: nobody answers there.
func addresses(e *model.ResolvedElement) []netip.Addr {
	out := each.Of(e.Loopback, func(p netip.Prefix) netip.Addr { return p.Addr() })
	for _, f := range e.Interfaces {
		for _, p := range f.Addresses {
			if f.VRF == "" {
				out = append(out, p.Addr())
			}
		}
	}
	return out
}

// first returns the first address of the family.
func first(list []netip.Addr, family model.Family) (netip.Addr, bool) {
	for _, a := range list {
		if !a.IsLinkLocalUnicast() && (family == model.IPv4) == a.Is4() {
			return a, true
		}
	}
	return netip.Addr{}, false
}

var families = []model.Family{model.IPv4, model.IPv6}

func familyName(f model.Family) string {
	if f == model.IPv6 {
		return "IPv6"
	}
	return "IPv4"
}

// questions are everything that a check of the network asks: probes, and what routing knows.
func questions(n *network, request model.CheckRequest) ([]*question, []*state, error) {
	q := questioner{n: n}
	for _, e := range n.record.Network.Expect {
		if e.What == "" {
			q.expect(e)
		} else {
			q.know(e)
		}
	}
	random := rand.New(rand.NewPCG(uint64(request.Seed), 0))
	if request.Mesh {
		q.mesh(request, random)
	}
	q.neighbours(request.Neighbours, random)
	if len(q.list) > maxProbes {
		return nil, nil, api.Invalid(fmt.Sprintf("a check of %d probes is too much at once; ask for a sample (at "+
			"most %d probes)", len(q.list), maxProbes))
	}
	return q.list, q.states, nil
}

type questioner struct {
	n      *network
	list   []*question
	states []*state
}

func (q *questioner) ask(from, to string, address netip.Addr, not, firstTry bool) *question {
	net := q.n.record.Network.Name
	x := &question{from: model.ID{Network: net, Element: from}, to: model.ID{Network: net, Element: to},
		node: q.n.record.Assigned.Placement.Elements[from], first: firstTry}
	x.ProbeResult = model.ProbeResult{From: x.from.String(), To: x.to.String(), Address: address, Not: not}
	q.list = append(q.list, x)
	return x
}

// expect asks what one statement of the document says: by default over every family that both ends have. Who must not
// be reached must not be reached at any address.
func (q *questioner) expect(e model.Expectation) {
	from, to := q.element(e.From), q.element(e.To)
	if from == nil || to == nil {
		x := q.ask(e.From, e.To, netip.Addr{}, e.Not, false)
		x.Message = "one of them is no element of the network"
		return
	}
	asked := 0
	for _, f := range families {
		if e.Family != model.AnyFamily && e.Family != f {
			continue
		}
		_, mine := first(addresses(from), f)
		if e.Not {
			for _, a := range addresses(to) {
				if mine && (f == model.IPv4) == a.Is4() && !a.IsLinkLocalUnicast() {
					q.ask(e.From, e.To, a, true, false)
					asked++
				}
			}
			continue
		}
		if a, theirs := first(addresses(to), f); mine && theirs {
			q.ask(e.From, e.To, a, false, false)
			asked++
		}
	}
	if asked > 0 {
		return
	}
	x := q.ask(e.From, e.To, netip.Addr{}, e.Not, false)
	family := "any address family"
	if e.Family != model.AnyFamily {
		family = familyName(e.Family)
	}
	if x.Message = "they do not both have an address of " + family; e.Not {
		x.OK, x.Message = true, x.Message+", so nothing can be reached"
	}
}

func (q *questioner) element(name string) *model.ResolvedElement {
	if i, ok := q.n.index[name]; ok {
		return &q.n.resolved.Elements[i]
	}
	return nil
}

// mesh asks for every ordered pair of hosts (and routers), or a sample of them. Those whom only VLANs or VRFs keep
// apart must not reach each other.
func (q *questioner) mesh(request model.CheckRequest, random *rand.Rand) {
	type end struct {
		name      string
		addresses []netip.Addr
	}
	var ends []end
	apart := resolve.Apart(&q.n.resolved)
	outside := slices.ContainsFunc(q.n.resolved.Edges, func(e model.ResolvedEdge) bool { return e.Device != "" })
	for i := range q.n.resolved.Elements {
		e := &q.n.resolved.Elements[i]
		if q.n.record.Overrides[e.Name].Stopped || e.Kind != model.Host &&
			(e.Kind != model.Router || !request.Routers) {
			continue
		}
		ends = append(ends, end{e.Name, addresses(e)})
	}
	// What the document says of a pair is asked already, and may be that it must not be reached.
	type probe struct {
		from, to string
		address  netip.Addr
	}
	asked := make(map[probe]struct{}, len(q.list))
	for _, x := range q.list {
		asked[probe{x.from.Element, x.to.Element, x.Address}] = struct{}{}
	}
	pair := func(a, b end) {
		for _, f := range families {
			_, mine := first(a.addresses, f)
			address, theirs := first(b.addresses, f)
			not := apart(a.name, b.name)
			if not && outside {
				continue // somebody out there may route between them
			}
			if _, before := asked[probe{a.name, b.name, address}]; mine && theirs && !before {
				q.ask(a.name, b.name, address, not, false)
			}
		}
	}
	all := len(ends) * (len(ends) - 1)
	if request.Sample > 0 && request.Sample < all {
		for _, k := range sample(all, request.Sample, random) {
			a, b := k/(len(ends)-1), k%(len(ends)-1)
			if b >= a {
				b++
			}
			pair(ends[a], ends[b])
		}
		return
	}
	for a := range ends {
		for b := range ends {
			if a != b && len(q.list) <= maxProbes {
				pair(ends[a], ends[b])
			}
		}
	}
}

// neighbours asks for elements that share a link or a switch, one at the other's address there, first try.
func (q *questioner) neighbours(count int, random *rand.Rand) {
	type hop struct {
		from, to string
		address  netip.Addr
	}
	if count <= 0 {
		return
	}
	var hops []hop
	join := func(from, to model.End) {
		if q.n.record.Overrides[from.Element].Stopped || q.n.record.Overrides[to.Element].Stopped {
			return
		}
		mine := q.interfaceAddresses(from)
		for _, address := range q.interfaceAddresses(to) {
			if shareSubnet(mine, address) {
				hops = append(hops, hop{from.Element, to.Element, address.Addr()})
			}
		}
	}
	attached := map[string][]model.End{} // by switch
	var switches []string                // in the links' order
	for _, l := range q.n.resolved.Links {
		if l.State == model.LinkDown {
			continue
		}
		for k, end := range l.Ends {
			far := l.Ends[1-k]
			if e := q.element(end.Element); e == nil || e.Kind != model.Switch {
				join(end, far)
				continue
			}
			if attached[end.Element] == nil {
				switches = append(switches, end.Element)
			}
			attached[end.Element] = append(attached[end.Element], far)
		}
	}
	for _, s := range switches { // each with the next: enough to see that the segment forwards
		ends := attached[s]
		for i := 1; i < len(ends); i++ {
			join(ends[i-1], ends[i])
			join(ends[i], ends[i-1])
		}
	}
	for _, k := range sample(len(hops), count, random) {
		q.ask(hops[k].from, hops[k].to, hops[k].address, false, true)
	}
}

func (q *questioner) interfaceAddresses(end model.End) []netip.Prefix {
	e := q.element(end.Element)
	if e == nil {
		return nil
	}
	for i := range e.Interfaces {
		if e.Interfaces[i].Name == end.Interface && e.Interfaces[i].VRF == "" {
			return e.Interfaces[i].Addresses
		}
	}
	return nil
}

func shareSubnet(mine []netip.Prefix, theirs netip.Prefix) bool {
	if theirs.Addr().IsLinkLocalUnicast() {
		return false
	}
	return slices.ContainsFunc(mine, func(p netip.Prefix) bool { return p.Contains(theirs.Addr()) })
}

// sample draws k different numbers below n, in the order drawn; all of them when k ≥ n.
func sample(n, k int, random *rand.Rand) []int {
	if k >= n {
		all := make([]int, n)
		for i := range all {
			all[i] = i
		}
		return all
	}
	seen := make(map[int]struct{}, k)
	out := make([]int, 0, k)
	for len(out) < k {
		x := random.IntN(n)
		if _, again := seen[x]; !again {
			seen[x] = struct{}{}
			out = append(out, x)
		}
	}
	return out
}
