package cli

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
)

func (c *CLI) pingCommand() *cobra.Command {
	var packets, size int
	var interval float64
	var only4, only6 bool
	cmd := &cobra.Command{
		Use:     "ping NET/A [NET/]B | NET/A ADDRESS",
		Short:   "Ping from one element to another, or to an address",
		GroupID: groupElements,
		Long: `Ping from inside an element. B's address is one in a subnet that A is in as well, if there is one; else
B's loopback; else B's first address. IPv4 comes before IPv6. The exit status is that of ping: 0 when an
answer came, 1 when none did.`,
		Example: "  polyplane ping lab/h1 h2\n  polyplane ping lab/r1 10.0.0.6 -c 100 -i 0.01\n  polyplane ping -6 " +
			"lab/h1 lab/h2",
		Args: args(2, 2, "NET/A and NET/B or an address"),
		RunE: func(cmd *cobra.Command, given []string) error {
			from, err := c.refs(cmd.Context()).element(given[0])
			if err != nil {
				return err
			}
			switch {
			case only4 && only6:
				return usageError(cmd, "-4 and -6 exclude each other")
			case packets < 0:
				return usageError(cmd, "-c %d: a number of packets is expected, or 0 for no end", packets)
			case interval < 0.001 || interval > 3600:
				return usageError(cmd, "-i %g: seconds from 0.001 to 3600 are expected", interval)
			case size < 0 || size > 65507:
				return usageError(cmd, "-s %d: 0 to 65507 bytes are expected", size)
			}
			to, err := netip.ParseAddr(given[1])
			if err != nil {
				family := model.AnyFamily
				if only4 {
					family = model.IPv4
				} else if only6 {
					family = model.IPv6
				}
				if to, err = c.resolve(cmd, from, given[1], family); err != nil {
					return err
				}
			}
			argv := []string{"ping", "-n", "-i", strconv.FormatFloat(interval, 'f', -1, 64), "-s", strconv.Itoa(size)}
			if packets > 0 {
				argv = append(argv, "-c", strconv.Itoa(packets))
			}
			// On a terminal ^C must reach ping itself, which then prints its summary.
			command := control.Command{Args: append(argv, to.String()), TTY: c.interactive()}
			in := c.In
			if !command.TTY {
				in = nil
			}
			return c.run(cmd.Context(), from, command, in)
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 1 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return c.complete(cmd, typed, c.completeElements)
		},
	}
	cmd.Flags().IntVarP(&packets, "count", "c", 4, "send this many packets; 0: until ^C")
	cmd.Flags().Float64VarP(&interval, "interval", "i", 0.2, "`seconds` between packets")
	cmd.Flags().IntVarP(&size, "size", "s", 56, "`bytes` of payload in each packet")
	cmd.Flags().BoolVarP(&only4, "ipv4", "4", false, "use B's IPv4 address")
	cmd.Flags().BoolVarP(&only6, "ipv6", "6", false, "use B's IPv6 address")
	return cmd
}

// resolve finds the address of an element to which another element of the same network sends its pings.
func (c *CLI) resolve(cmd *cobra.Command, from model.ID, target string, family model.Family) (netip.Addr, error) {
	to := model.ID{Network: from.Network, Element: target}
	if strings.Contains(target, "/") {
		var err error
		if to, err = c.refs(cmd.Context()).element(target); err != nil {
			return netip.Addr{}, err
		}
	}
	if to.Network != from.Network {
		return netip.Addr{}, failed("%s and %s are separate networks: nothing leads from one to the other; "+
			"to see who has an address in %s, ping the address", from.Network, to.Network, from.Network)
	}
	ctx := cmd.Context()
	cl, err := c.connect()
	if err != nil {
		return netip.Addr{}, err
	}
	elements, err := cl.Elements(ctx, from.Network)
	if err != nil {
		return netip.Addr{}, wrap(ctx, cl, err, ref{network: from.Network})
	}
	if len(elements) == 0 {
		if err := lookUp(ctx, cl, ref{network: from.Network}); err != nil {
			return netip.Addr{}, err
		}
	}
	source, err := findElement(elements, from)
	if err != nil {
		return netip.Addr{}, err
	}
	destination, err := findElement(elements, to)
	if err != nil {
		return netip.Addr{}, err
	}
	return pickAddress(&source.Element, &destination.Element, to, family)
}

func pickAddress(from, to *model.ResolvedElement, id model.ID, family model.Family) (netip.Addr, error) {
	families := []model.Family{model.IPv4, model.IPv6}
	if family != model.AnyFamily {
		families = []model.Family{family}
	}
	for _, f := range families {
		near, loopback, other := netip.Addr{}, netip.Addr{}, netip.Addr{}
		for _, p := range to.Loopback {
			if !loopback.IsValid() && isFamily(p.Addr(), f) {
				loopback = p.Addr()
			}
		}
		for _, i := range to.Interfaces {
			for _, p := range i.Addresses {
				if !isFamily(p.Addr(), f) {
					continue
				}
				if !other.IsValid() {
					other = p.Addr()
				}
				if !near.IsValid() && hasAddressIn(from, p.Masked()) {
					near = p.Addr()
				}
			}
		}
		// An element without an address of the family has no source to ping from.
		if family == model.AnyFamily && !hasFamily(from, f) {
			continue
		}
		for _, a := range []netip.Addr{near, loopback, other} {
			if a.IsValid() {
				return a, nil
			}
		}
	}
	what := "address"
	if family != model.AnyFamily {
		what = fmt.Sprintf("%s address", strings.Replace(string(family), "ip", "IP", 1))
	}
	return netip.Addr{}, failed("%s has no %s that could be pinged from %s; `polyplane describe %s` shows what it has",
		id, what, from.Name, id)
}

func isFamily(a netip.Addr, f model.Family) bool { return a.Is4() == (f == model.IPv4) }

func hasAddressIn(e *model.ResolvedElement, subnet netip.Prefix) bool {
	return slices.ContainsFunc(interfaceAddresses(e), func(p netip.Prefix) bool { return subnet.Contains(p.Addr()) })
}

func hasFamily(e *model.ResolvedElement, f model.Family) bool {
	return slices.ContainsFunc(interfaceAddresses(e), func(p netip.Prefix) bool { return isFamily(p.Addr(), f) })
}
