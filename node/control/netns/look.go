package netns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/polyplane/polyplane/linux"
	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
	"github.com/polyplane/polyplane/software"
)

var _ control.Looker = (*Driver)(nil)

const (
	// lookers is how many elements are looked into at once for one caller: each runs a command.
	lookers = 4
	// mostLooked bounds what a command may print: a router with 5,000 neighbours says less.
	mostLooked = 4 << 20
)

// Look is control.Looker's. Routing software is asked by its own commands inside the element, the kernel's table is
// read from outside. Whoever is asked twice for the same in one call answers once.
func (d *Driver) Look(ctx context.Context, looks []model.Look) []model.LookAnswer {
	answers := make([]model.LookAnswer, len(looks))
	of := map[model.ID][]int{}
	var order []model.ID
	for i := range looks {
		id := looks[i].Element
		if of[id] == nil {
			order = append(order, id)
		}
		of[id] = append(of[id], i)
	}
	next := make(chan model.ID)
	var wg sync.WaitGroup
	for range min(lookers, len(order)) {
		wg.Go(func() {
			for id := range next {
				d.lookInto(ctx, id, of[id], looks, answers)
			}
		})
	}
	for _, id := range order {
		next <- id
	}
	close(next)
	wg.Wait()
	return answers
}

// lookInto answers what is asked of one element. If it does not answer one question in time, it is not asked another
// one.
func (d *Driver) lookInto(ctx context.Context, id model.ID, which []int, looks []model.Look,
	answers []model.LookAnswer) {
	said := map[string]software.Output{}
	var hung error
	var kernel []int
	sw := d.elementOf(id).Software
	for _, i := range which {
		look := &looks[i]
		if look.What == model.KnownRoute && look.Protocol == "" {
			kernel = append(kernel, i)
			continue
		}
		commands, err := software.Asking(sw, look)
		var out []software.Output
		for _, c := range commands {
			key := strings.Join(c, "\x00")
			one, asked := said[key]
			if !asked && err == nil && hung == nil {
				if one, err = d.ask(ctx, id, c); errors.Is(err, errSilent) {
					hung = err
				} else if err == nil {
					said[key] = one
				}
			}
			out = append(out, one)
		}
		if err == nil {
			err = hung
		}
		if err != nil {
			answers[i].Error = err.Error()
			continue
		}
		answers[i] = software.Answer(sw, look, out)
	}
	if len(kernel) > 0 {
		d.lookAtKernel(ctx, id, kernel, looks, answers)
	}
}

// errSilent is that of a command that did not end in time.
var errSilent = errors.New("its routing software did not answer")

// ask runs a command of the element's own routing software.
func (d *Driver) ask(ctx context.Context, id model.ID, args []string) (software.Output, error) {
	ctx, cancel := context.WithTimeout(ctx, d.asked)
	defer cancel()
	var out, words bounded
	out.most, words.most = mostLooked, 4096
	status, err := d.Exec(ctx, id, control.Command{Args: args}, control.Stdio{Out: &out, Err: &words})
	switch {
	case ctx.Err() != nil:
		return software.Output{}, fmt.Errorf("%w within %v", errSilent, d.asked)
	case err != nil:
		return software.Output{}, err
	case out.full:
		return software.Output{}, fmt.Errorf("its routing software answers more than %v", model.Bytes(mostLooked))
	}
	text := out.text.String()
	if status != 0 {
		text += words.text.String()
	}
	return software.Output{Text: text, Status: status}, nil
}

// lookAtKernel reads the main tables of the element's kernel once for all routes that are asked for. It keeps none but
// those.
func (d *Driver) lookAtKernel(ctx context.Context, id model.ID, which []int, looks []model.Look,
	answers []model.LookAnswer) {
	ctx, cancel := context.WithTimeout(ctx, d.asked)
	defer cancel()
	wanted := map[tableRoute][]software.Route{}
	for _, i := range which {
		wanted[tableRoute{looks[i].VRF, looks[i].Prefix}] = nil
	}
	err := d.kernelRoutes(ctx, id, wanted)
	for errors.Is(err, netlink.ErrDumpInterrupted) && ctx.Err() == nil { // routes changed meanwhile
		for to := range wanted {
			wanted[to] = nil
		}
		err = d.kernelRoutes(ctx, id, wanted)
	}
	if err != nil {
		for _, i := range which {
			answers[i].Error = fmt.Sprintf("its kernel's routes cannot be read: %v", err)
		}
		return
	}
	for _, i := range which {
		answers[i] = software.JudgeRoutes(&looks[i], wanted[tableRoute{looks[i].VRF, looks[i].Prefix}])
	}
}

// tableRoute is where routes lead, in the table of a VRF, or with "" in the main one.
type tableRoute struct {
	vrf string
	to  netip.Prefix
}

// kernelRoutes fills in the routes to those prefixes that are keys of the map.
func (d *Driver) kernelRoutes(ctx context.Context, id model.ID, wanted map[tableRoute][]software.Route) error {
	var h *netlink.Handle
	err := d.Enter(id, func() (err error) {
		h, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		return err
	}
	defer h.Close()
	devices, err := linux.Whole(h.LinkList)
	if err != nil {
		return fmt.Errorf("list interfaces: %w", err)
	}
	names := map[int]string{}
	tables := map[string]int{"": unix.RT_TABLE_MAIN}
	for _, l := range devices {
		names[l.Attrs().Index] = l.Attrs().Name
		if v, is := l.(*netlink.Vrf); is {
			tables[v.Name] = int(v.Table)
		}
	}
	vrfs := map[string]bool{}
	for w := range wanted {
		if vrfs[w.vrf] = true; tables[w.vrf] == 0 {
			return fmt.Errorf("it has no VRF %s", w.vrf)
		}
	}
	for vrf := range vrfs {
		if err := d.kernelRoutesIn(ctx, h, vrf, tables[vrf], names, wanted); err != nil {
			return err
		}
	}
	return nil
}

// kernelRoutesIn does it for one table.
func (d *Driver) kernelRoutesIn(ctx context.Context, h *netlink.Handle, vrf string, table int, names map[int]string,
	wanted map[tableRoute][]software.Route) error {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		none := netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		if family == unix.AF_INET {
			none = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		}
		err := h.RouteListFilteredIter(family, &netlink.Route{Table: table}, netlink.RT_FILTER_TABLE,
			func(r netlink.Route) bool {
				to := none
				if r.Dst != nil {
					a, _ := netip.AddrFromSlice(r.Dst.IP)
					bits, _ := r.Dst.Mask.Size()
					if to = netip.PrefixFrom(a, bits); family == unix.AF_INET {
						to = netip.PrefixFrom(a.Unmap(), bits)
					}
				}
				at := tableRoute{vrf, to}
				if _, is := wanted[at]; is && !(vrf != "" && r.Priority == lastMetric) {
					wanted[at] = append(wanted[at], routeOf(&r, names))
				}
				return ctx.Err() == nil
			})
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("they are so many that they could not be read within %v", d.asked)
		}
	}
	return nil
}

// routeOf is a route of the kernel's with its next hops.
func routeOf(r *netlink.Route, names map[int]string) (out software.Route) {
	hop := func(gw net.IP, via netlink.Destination, index int) {
		var h software.Hop
		h.Device = names[index]
		if v, ok := via.(*netlink.Via); ok && v != nil { // a next hop of the other address family
			gw = v.Addr
		}
		if a, ok := netip.AddrFromSlice(gw); ok {
			h.Address = a.Unmap().String()
		}
		if h != (software.Hop{}) && !slices.Contains(out.Hops, h) {
			out.Hops = append(out.Hops, h)
		}
	}
	if r.Type != unix.RTN_UNICAST {
		return out // a blackhole and its like lead nowhere, whatever interface they name
	}
	for _, n := range r.MultiPath {
		hop(n.Gw, n.Via, n.LinkIndex)
	}
	if len(r.MultiPath) == 0 {
		hop(r.Gw, r.Via, r.LinkIndex)
	}
	return out
}
