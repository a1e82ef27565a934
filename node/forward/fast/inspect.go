package fast

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/fabric/pipeline"
	"github.com/polyplane/polyplane/node/fib"
	"github.com/polyplane/polyplane/node/forward"
)

var _ forward.Inspector = (*Plane)(nil)

const usualLimit = 1000 // entries

// FIB is forward.Inspector's.
func (p *Plane) FIB(id model.ID, request model.FIBRequest) (model.FIB, error) {
	pool, r, err := p.inspected(id)
	if err != nil {
		return model.FIB{}, err
	}
	var all model.FIB
	var found []entry
	status := r.feed.Status()
	for f, t := range r.tables {
		family := familyOf(fib.Family(f))
		u := t.Usage()
		all.Tables = append(all.Tables, model.FIBTable{Family: family, Shape: string(u.Shape), Routes: u.Routes,
			Bytes: u.Bytes, Copy: u.Copy})
		if why := status.Punted[f]; why != "" {
			if all.Punted == nil {
				all.Punted = map[model.Family]string{}
			}
			all.Punted[family] = why
		}
		if request.Family != model.AnyFamily && request.Family != family {
			continue
		}
		if u.Shape == fib.ShapePunt { // the data path reads none of the routes
			found = append(found, entry{defaults[f], fib.PuntID})
			continue
		}
		for prefix, hop := range t.Routes() {
			if w := request.Prefix; !w.IsValid() || w.Bits() <= prefix.Bits() && w.Contains(prefix.Addr()) {
				found = append(found, entry{prefix, hop})
			}
		}
	}
	slices.SortFunc(found, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.prefix.Addr().BitLen(), b.prefix.Addr().BitLen()),
			a.prefix.Addr().Compare(b.prefix.Addr()), cmp.Compare(a.prefix.Bits(), b.prefix.Bits()))
	})
	all.Matching = len(found)
	for _, e := range found[:min(len(found), cmp.Or(max(request.Limit, 0), usualLimit))] {
		var ways []model.FIBWay
		for _, s := range pool.Shares(e.hop) {
			w := r.way(s.Hop)
			if s.Part < 1 {
				w.Share = s.Part
			}
			ways = append(ways, w)
		}
		all.Entries = append(all.Entries, model.FIBEntry{Prefix: e.prefix, Ways: ways})
	}
	return all, nil
}

// defaults are the prefixes that everything lies in.
var defaults = [...]netip.Prefix{fib.IPv4: netip.PrefixFrom(netip.IPv4Unspecified(), 0),
	fib.IPv6: netip.PrefixFrom(netip.IPv6Unspecified(), 0)}

// entry is a route as the tables have it.
type entry struct {
	prefix netip.Prefix
	hop    fib.ID
}

// inspected finds a router whose packets are forwarded here.
func (p *Plane) inspected(id model.ID) (*fib.Pool, *router, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.routers[id]
	if r == nil {
		return nil, nil, forward.ErrNotForwarded
	}
	return p.pool, r, nil
}

// way describes a next hop in words.
func (r *router) way(h fib.Hop) model.FIBWay {
	w := model.FIBWay{Kind: h.Kind.String()}
	if h.Kind != fib.KindForward {
		return w
	}
	w.Interface, w.MTU = r.interfaceOf(h.Port), int(h.MTU)
	w.MAC, w.Source = net.HardwareAddr(h.Destination[:]).String(), net.HardwareAddr(h.Source[:]).String()
	return w
}

func (r *router) interfaceOf(number uint32) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.ports {
		if p.number == number {
			return p.name
		}
	}
	return ""
}

// Trace is forward.Inspector's. It asks the same questions in the same order as the data path (pipeline/c/route.h,
// route_at), and reads the same memory.
func (p *Plane) Trace(id model.ID, now forward.Steering, q model.TraceRequest) (model.Trace, error) {
	pool, r, err := p.inspected(id)
	if err != nil {
		return model.Trace{}, err
	}
	if !q.Destination.IsValid() {
		return model.Trace{}, fmt.Errorf("a packet needs a destination's address")
	}
	q.Destination = q.Destination.Unmap()
	family := fib.IPv4
	if q.Destination.Is6() {
		family = fib.IPv6
	}
	switch {
	case !q.Source.IsValid() && family == fib.IPv4:
		q.Source = netip.IPv4Unspecified()
	case !q.Source.IsValid():
		q.Source = netip.IPv6Unspecified()
	case q.Source.Unmap().Is4() != q.Destination.Is4():
		return model.Trace{}, fmt.Errorf("a packet cannot be from %s to %s: they are of two families",
			q.Source, q.Destination)
	}
	guest := func(reason int) (model.Trace, error) {
		return model.Trace{Verdict: model.ToGuest, Reason: pipeline.Punts[reason]}, nil
	}
	r.mu.Lock()
	offs, known := r.off(), r.published
	r.mu.Unlock()
	if now.Tables == 0 || !known {
		return model.Trace{Verdict: model.ToGuest, Reason: "its tables are not in sync yet"}, nil
	}
	if q.In != "" {
		if off, said := offs[q.In]; said && (off.IPv4 && family == fib.IPv4 || off.IPv6 && family == fib.IPv6) {
			return guest(pipeline.PuntOff)
		}
	}
	if special(q.Destination) || q.Source.IsValid() && !q.Source.IsUnspecified() && special(q.Source) {
		return guest(pipeline.PuntAddress)
	}
	table := pipeline.Table(r.number, family == fib.IPv6)
	number, length, err := pool.Lookup(table, family, q.Destination)
	if err != nil {
		return model.Trace{}, err
	}
	var t model.Trace
	if number != 0 {
		t.Prefix, _ = q.Destination.Prefix(length)
		t.Ways = len(pool.Shares(number))
	}
	hop := pool.Resolve(number, fib.FlowHash(pipeline.FlowSeed(id.String()), q.Source, q.Destination,
		uint16(q.SourcePort), uint16(q.Port), uint8(q.Protocol)))
	if number != 0 {
		w := r.way(hop)
		t.Way = &w
	}
	because := func(reason int) (model.Trace, error) {
		t.Verdict, t.Reason = model.ToGuest, pipeline.Punts[reason]
		return t, nil
	}
	switch {
	case hop.Kind != fib.KindForward && number <= fib.ProhibitID:
	case q.TTL == 1:
		return because(pipeline.PuntTTL)
	}
	switch hop.Kind {
	case fib.KindForward:
	case fib.KindNone:
		return because(pipeline.PuntNoRoute)
	case fib.KindLocal:
		return because(pipeline.PuntLocal)
	case fib.KindConnected, fib.KindUnresolved:
		return because(pipeline.PuntUnresolved)
	case fib.KindBlackhole:
		t.Verdict, t.Reason = model.Blackhole, "its route says so (blackhole)"
		return t, nil
	case fib.KindUnreachable, fib.KindProhibit:
		return because(pipeline.PuntUnreachable)
	default:
		t, err := because(pipeline.PuntTable)
		if why := r.feed.Status().Punted[family]; why != "" {
			t.Reason += ": " + why
		}
		return t, err
	}
	out := t.Way.Interface
	switch off := offs[out]; {
	case hop.MTU != 0 && q.Bytes > int(hop.MTU):
		return because(pipeline.PuntMTU)
	case out != "" && out == q.In:
		return because(pipeline.PuntBack)
	case out == "" || off.IPv4 && off.IPv6:
		return because(pipeline.PuntOff)
	}
	t.Verdict = model.Forwarded
	t.By, t.Kernel = p.forwarder(r, now, q.Destination, t.Ways)
	return t, nil
}

// forwarder tells who forwards for a router, and by which interface the kernel of its companion says that it does.
func (p *Plane) forwarder(r *router, is forward.Steering, to netip.Addr,
	ways int) (by model.Forwarding, kernel string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if is.Devices == nil {
		return model.ForwardXDP, ""
	}
	c := r.companions[is.Owner]
	if ways > 1 || c == nil {
		return is.Owner, ""
	}
	kernel, err := c.Lookup(to)
	if err != nil {
		kernel = err.Error()
	}
	return is.Owner, kernel
}

// special tells what the data path's special4 and special6 tell: whether an address is one that routers do not forward
// to.
func special(a netip.Addr) bool {
	if a.Is4() {
		b := a.As4()
		return b[0] == 0 || b[0] == 127 || b[0] >= 224
	}
	b := a.As16()
	return netip.PrefixFrom(netip.IPv6Unspecified(), 64).Contains(a) || b[0] == 0xfe &&
		b[1]&0xc0 == 0x80 || b[0] == 0xff
}
