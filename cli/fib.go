package cli

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/each"
	"github.com/polyplane/polyplane/model"
)

func (c *CLI) fibCommand() *cobra.Command {
	var o output
	var only4, only6 bool
	var most int
	cmd := &cobra.Command{
		Use:   "fib NET/ROUTER [PREFIX]",
		Short: "Show the fast path's own forwarding table of a router (forwarding: xdp, router or bridge)",
		Long: `Show by what the node's data path forwards a router's packets: every prefix, and where its packets go.
This is the router's routing table as the data path has it, read from the data path's own memory. The
data path (xdp), or the node's kernel (router, bridge), forwards what is in it. The router's own stack
gets the rest. With PREFIX, show only what lies in that prefix.`,
		Example: "  polyplane get fib lab/r1\n  polyplane get fib lab/r1 10.0.0.0/8\n  polyplane get fib -6 lab/r1 " +
			"-o json",
		Args: args(1, 2, "NET/ROUTER, and a prefix like 10.0.0.0/8"),
		RunE: func(cmd *cobra.Command, given []string) error {
			id, err := c.refs(cmd.Context()).element(given[0])
			if err != nil {
				return err
			}
			request := model.FIBRequest{Limit: most}
			switch {
			case only4 && only6:
				return usageError(cmd, "-4 and -6 exclude each other")
			case most < 1:
				return usageError(cmd, "--limit %d: a number of entries is expected", most)
			case only4:
				request.Family = model.IPv4
			case only6:
				request.Family = model.IPv6
			}
			if len(given) > 1 {
				if request.Prefix, err = netip.ParsePrefix(given[1]); err != nil {
					if _, err := netip.ParseAddr(given[1]); err == nil {
						return usageError(cmd, "%q is an address, and a prefix like 10.0.0.0/8 is expected; "+
							"`polyplane trace %s %s` tells which entry an address matches", given[1], id, given[1])
					}
					return usageError(cmd, "%q is no prefix: write one like 10.0.0.0/8 or 2001:db8::/32", given[1])
				}
				request.Prefix = request.Prefix.Masked()
			}
			cl, err := c.connect()
			if err != nil {
				return err
			}
			found, err := cl.FIB(cmd.Context(), id, request)
			if err != nil {
				return wrap(cmd.Context(), cl, err, ref{network: id.Network, element: id.Element})
			}
			if o.format != "" {
				return writeValue(c.Out, o.format, found)
			}
			return c.printFIB(found)
		},
		ValidArgsFunction: c.completeFirst(c.completeElements),
	}
	o.addFlag(cmd, formatJSON, formatYAML)
	cmd.Flags().BoolVarP(&only4, "ipv4", "4", false, "only IPv4")
	cmd.Flags().BoolVarP(&only6, "ipv6", "6", false, "only IPv6")
	cmd.Flags().IntVar(&most, "limit", 1000, "show at most this many `entries`")
	return cmd
}

func (c *CLI) printFIB(f model.FIB) error {
	t := table{head: []string{"PREFIX", "ACTION", "INTERFACE", "NEXT HOP", ">MTU", ">SHARE"}}
	for _, e := range f.Entries {
		for i, w := range e.Ways {
			prefix := e.Prefix.String()
			if i > 0 {
				prefix = ""
			}
			share := ""
			if w.Share > 0 {
				share = strconv.FormatFloat(100*w.Share, 'f', 0, 64) + " %"
			}
			t.add(text(prefix), text(action(w.Kind)), text(w.Interface), text(w.MAC), text(mtuText(w.MTU)), text(share))
		}
	}
	if err := t.write(c.Out, c.colour(), true, ""); err != nil {
		return err
	}
	tables := each.Of(f.Tables, func(t model.FIBTable) string { return tableText(t, f.Punted[t.Family]) })
	fmt.Fprintln(c.Out, strings.Join(tables, "; "))
	if n := f.Matching - len(f.Entries); n > 0 {
		fmt.Fprintf(c.Err, "%d more are not shown: give a PREFIX, or a larger --limit\n", n)
	}
	return nil
}

// tableText describes one family's table and, if the router itself forwards all of it, why.
func tableText(t model.FIBTable, why string) string {
	words := fmt.Sprintf("%s: %d routes in %s (%s)", familyName(t.Family), t.Routes,
		byteCount(uint64(t.Bytes)), t.Shape)
	if why != "" {
		words += ", the router itself forwards: " + why
	}
	return words
}

func familyName(f model.Family) string {
	if f == model.IPv6 {
		return "IPv6"
	}
	return "IPv4"
}

// action says what the data path does, in words.
func action(kind string) string {
	switch kind {
	case "forward", "blackhole":
		return kind
	}
	return "guest: " + kind
}

// mostRouters bounds a trace, since routes may form a loop.
const mostRouters = 64

func (c *CLI) traceCommand() *cobra.Command {
	var o output
	var in, source, protocol string
	var sport, dport, ttl, size int
	cmd := &cobra.Command{
		Use:     "trace NET/ROUTER DESTINATION",
		Short:   "Tell what the fast path would do with a packet, router by router, and why",
		GroupID: groupElements,
		Long: `Tell what the node's data path would do with a packet at a router with forwarding: xdp, router or
bridge. It tells which entry of the router's table matches and which next hop this flow has, or why the
router's own stack gets the packet. It goes on at the next router, until the packet leaves the fast path.
Where the node's kernel forwards the packet (router, bridge), that kernel is asked too, and a different
answer is shown. No packet is sent.

The exit status is 1 when the packet would be dropped.`,
		Example: "  polyplane trace lab/r1 10.0.0.6\n  polyplane trace lab/r1 10.0.0.6 --source 10.1.0.2 --protocol " +
			"tcp --port 80\n  polyplane trace lab/r1 2001:db8::1 --ttl 1",
		Args: args(2, 2, "NET/ROUTER and an address"),
		RunE: func(cmd *cobra.Command, given []string) error {
			id, err := c.refs(cmd.Context()).element(given[0])
			if err != nil {
				return err
			}
			q := model.TraceRequest{In: in, SourcePort: sport, Port: dport, TTL: ttl, Bytes: size}
			if q.Destination, err = netip.ParseAddr(given[1]); err != nil {
				return usageError(cmd, "%q is no address", given[1])
			}
			if source != "" {
				if q.Source, err = netip.ParseAddr(source); err != nil {
					return usageError(cmd, "--source %q is no address", source)
				}
				if q.Source.Is4() != q.Destination.Is4() {
					return usageError(cmd, "--source %s and %s are of two families", source, given[1])
				}
			}
			known := map[string]int{"": 0, "icmp": 1, "tcp": 6, "udp": 17, "sctp": 132}
			number, ok := known[protocol]
			if q.Protocol = number; !ok {
				if q.Protocol, err = strconv.Atoi(protocol); err != nil || q.Protocol < 0 || q.Protocol > 255 {
					return usageError(cmd, "--protocol %q: tcp, udp, icmp, sctp or a number from 0 to 255 is expected",
						protocol)
				}
			}
			switch {
			case sport < 0 || sport > 65535 || dport < 0 || dport > 65535:
				return usageError(cmd, "ports are numbers from 0 to 65535")
			case ttl < 1 || ttl > 255:
				return usageError(cmd, "--ttl %d: 1 to 255 are expected", ttl)
			case size < 0 || size > 65535:
				return usageError(cmd, "--size %d: 0 to 65535 bytes are expected", size)
			}
			cl, err := c.connect()
			if err != nil {
				return err
			}
			return wrap(cmd.Context(), cl, c.trace(cmd, cl, o, id, q), ref{network: id.Network, element: id.Element})
		},
		ValidArgsFunction: c.completeFirst(c.completeElements),
	}
	o.addFlag(cmd, formatJSON, formatYAML)
	cmd.Flags().StringVar(&in, "in", "", "the `interface` that it comes in by")
	cmd.Flags().StringVar(&source, "source", "", "its source `address`")
	cmd.Flags().StringVar(&protocol, "protocol", "", "tcp, udp, icmp, sctp or a `number`")
	cmd.Flags().IntVar(&sport, "sport", 0, "its source `port`")
	cmd.Flags().IntVar(&dport, "port", 0, "its destination `port`")
	cmd.Flags().IntVar(&ttl, "ttl", 64, "its time to live, in `hops`")
	cmd.Flags().IntVar(&size, "size", 0, "its length in `bytes`, with the IP header; small when 0")
	return cmd
}

// tracedStep is one router of a trace.
type tracedStep struct {
	Router model.ID `json:"router"`
	In     string   `json:"in,omitempty"`
	model.Trace
	// Next is where it goes, in words.
	Next string `json:"next,omitempty"`
}

// trace follows a packet from router to router, by the nodes' answers. At each it knows the interface that the packet
// comes in by. It ends where the packet leaves the fast path, is dropped, or has met mostRouters.
func (c *CLI) trace(cmd *cobra.Command, cl Client, o output, id model.ID, q model.TraceRequest) error {
	ctx := cmd.Context()
	elements, err := cl.Elements(ctx, id.Network)
	if err != nil {
		return err
	}
	if q.In != "" {
		if e := elementOf(elements, id.Element); e != nil {
			if _, err := findInterface(e, q.In); err != nil {
				return err
			}
		}
	}
	links, err := cl.Links(ctx, id.Network)
	if err != nil {
		return err
	}
	var steps []tracedStep
	for range mostRouters {
		t, err := cl.Trace(ctx, id, q)
		if err != nil {
			return err
		}
		s := tracedStep{Router: id, In: q.In, Trace: t}
		var far *model.ResolvedInterface
		if t.Verdict == model.Forwarded {
			if t.Way == nil {
				return fmt.Errorf("%s: the agent of its node says that the packet is forwarded, and not by which way",
					id)
			}
			far = interfaceNamed(elementOf(elements, id.Element), t.Way.Interface)
			if s.Next = "out of the network, by an edge"; far != nil && far.Far != nil {
				s.Next = farEnd(far) + relayedOver(links, far.Link)
			}
		}
		steps = append(steps, s)
		if o.format == "" {
			c.printStep(&s)
		}
		if far == nil || far.Far == nil {
			break
		}
		next := elementOf(elements, far.Far.Element)
		if next == nil || next.Element.Kind != model.Router {
			break
		}
		if next.Element.Forwarding == model.ForwardGuest {
			if o.format == "" {
				fmt.Fprintf(c.Out, "%s, in by %s\n  its own stack forwards (forwarding: guest): `ip route get` in it "+
					"tells how\n", next.ID, far.Far.Interface)
			}
			break
		}
		id.Element, q.In = far.Far.Element, far.Far.Interface
		q.TTL--
	}
	if o.format != "" {
		if err := writeValue(c.Out, o.format, steps); err != nil {
			return err
		}
	}
	if last := steps[len(steps)-1]; last.Verdict == model.Blackhole {
		return &commandExit{ExitFailed}
	}
	return nil
}

// relayedOver tells over which nodes a link's packets go, if some relay them.
func relayedOver(links []model.LinkStatus, name string) string {
	for _, l := range links {
		if l.Link.Name == name && len(l.Relays) > 0 {
			return ", by the path " + paths(l.Paths)
		}
	}
	return ""
}

func elementOf(all []model.ElementView, name string) *model.ElementView {
	for i := range all {
		if all[i].Element.Name == name {
			return &all[i]
		}
	}
	return nil
}

func interfaceNamed(e *model.ElementView, name string) *model.ResolvedInterface {
	if e != nil {
		for i := range e.Element.Interfaces {
			if e.Element.Interfaces[i].Name == name {
				return &e.Element.Interfaces[i]
			}
		}
	}
	return nil
}

// printStep says what becomes of a packet at one router, as a sentence or two.
func (c *CLI) printStep(s *tracedStep) {
	where := s.Router.String()
	if s.In != "" {
		where += ", in by " + s.In
	}
	matched := "no entry matches"
	if s.Prefix.IsValid() {
		matched = s.Prefix.String() + " matches"
	}
	if s.Ways > 1 {
		matched += fmt.Sprintf(", one of %d ways for this flow", s.Ways)
	}
	say(c.Out, "%s\n", where)
	switch s.Verdict {
	case model.Forwarded:
		mtu := ""
		if s.Way.MTU > 0 {
			mtu = fmt.Sprintf(", at most %d bytes", s.Way.MTU)
		}
		by := "the fast path"
		switch s.By {
		case model.ForwardRouter:
			by = "the node's kernel, in its companion"
		case model.ForwardBridge:
			by = "the node's kernel between bridges, in its companion"
		}
		say(c.Out, "  %s: forwarded by %s, out by %s to %s%s\n", matched, by, s.Way.Interface, s.Way.MAC, mtu)
		if s.Kernel != "" && s.Kernel != s.Way.Interface {
			say(c.Out, "  but that kernel says: %s\n", s.Kernel)
		}
		say(c.Out, "  then %s\n", s.Next)
	case model.Blackhole:
		say(c.Out, "  %s: dropped: %s\n", matched, s.Reason)
	default:
		say(c.Out, "  %s: its own stack gets it: %s\n", matched, s.Reason)
	}
}
