package netns

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/polyplane/polyplane/model"
	"github.com/polyplane/polyplane/node/control"
)

// kernelRoutes is what an element's kernel made of itself and what the driver made, with everything that `ip` tells.
// The anycast entries of IPv6 are left out: the kernel makes them by itself and no request does.
func (n *testNode) kernelRoutes(t testing.TB, id model.ID) []string {
	t.Helper()
	out := n.in(t, id, "ip -4 -d route show table all; ip -6 -d route show table all | grep -v ^anycast")
	lines := strings.Split(out, "\n")
	slices.Sort(lines)
	return lines
}

// without is the lines of a that b has not.
func without(a, b []string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) }), "\n")
}

// settled waits until the kernel has given every device of the elements its link-local address, which it does some time
// after there is carrier.
func (n *testNode) settled(t testing.TB, jobs []control.Job) {
	t.Helper()
	for i := range jobs {
		for _, f := range jobs[i].Element.Interfaces {
			for n.in(t, jobs[i].ID, "ip -o -6 addr show dev "+f.Name+" scope link") == "" {
				if err := t.Context().Err(); err != nil {
					t.Fatal(err)
				}
			}
			for _, p := range f.Addresses { // the kernel adds these routes a while after the addresses
				for p.Addr().Is6() && n.in(t, jobs[i].ID, "ip -6 route show table local type local "+
					p.Addr().String()+" dev "+f.Name) == "" {
					if err := t.Context().Err(); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
}

// TestConnectedRoutes takes away what the kernel makes with an address. It comes back exactly as it was, and the
// devices stay.
func TestConnectedRoutes(t *testing.T) {
	n := newNode(t)
	jobs := lineOf("lab", 1, 5)
	r2 := job(jobs, "r2")
	id := r2.ID
	for i := range r2.Element.Interfaces {
		r2.Element.Interfaces[i].Far = nil // neighbours, which going down takes as well, have a test of their own
	}
	prefixes := func(list ...string) (all []netip.Prefix) {
		for _, p := range list {
			all = append(all, netip.MustParsePrefix(p))
		}
		return all
	}
	r2.Element.Loopback = prefixes("10.255.0.2/32", "10.254.0.1/24", "2001:db8:ff::2/128")
	r2.Element.Interfaces[0].Addresses = append(r2.Element.Interfaces[0].Addresses,
		prefixes("192.168.0.1/24", "192.168.0.2/24", "192.168.0.129/25", "2001:db8:1::1/64", "2001:db8:1::2/64")...)
	r2.Element.Interfaces[1].Addresses = append(r2.Element.Interfaces[1].Addresses,
		prefixes("192.168.0.9/24", "192.0.2.1/32", "2001:db8:1::9/64")...)
	r2.Element.Routes = []model.Route{{To: netip.MustParsePrefix("203.0.113.0/24"),
		Via: []netip.Addr{netip.MustParseAddr("10.0.2.0")}}}
	n.apply(t, jobs)
	n.settled(t, jobs)
	for _, test := range []struct{ name, do, want string }{
		{"one IPv4 route", "ip route del 10.0.2.0/31 dev r1", "connected route to 10.0.2.0/31 out of r1 added"},
		{"one of two IPv4 routes to the same", "ip route del 192.168.0.0/24 dev r3",
			"connected route to 192.168.0.0/24 out of r3 added"},
		{"the IPv4 main table", "ip route flush table main", "connected route to 192.168.0.128/25 out of r1 added"},
		{"one IPv6 route", "ip -6 route del 2001:db8:1::/64 dev r3",
			"connected route to 2001:db8:1::/64 out of r3 added"},
		{"another in an IPv6 route's place",
			"ip -6 route del 2001:db8:1::/64 dev r3 && ip -6 route append 2001:db8:1::/64 dev r3 metric 256",
			"connected route to 2001:db8:1::/64 out of r3 added"},
		{"the link-local route", "ip -6 route del fe80::/64 dev r1", "connected route to fe80::/64 out of r1 added"},
		{"the IPv6 main table", "ip -6 route flush table main",
			"connected route to 2001:db8:ff::2/128 out of lo added"},
		{"the IPv4 local table", "ip route flush table local", "local route to 192.168.0.2/32 out of r1 added"},
		{"the IPv6 local table", "ip -6 route flush table local", "address 2001:db8:1::2/64 added to r1 again"},
		{"all tables", "ip route flush table main; ip route flush table local; ip -6 route flush table main; ip -6 " +
			"route flush table local",
			"local route to ff00::/8 out of r3 added"},
	} {
		t.Run(test.name, func(t *testing.T) {
			n.here(t)
			ports, before := n.state(t), n.kernelRoutes(t, id)
			n.in(t, id, test.do)
			n.auditAll(t, id)
			if got := changes(n.apply(t, jobs)); !slices.Contains(got, "r2: "+test.want) {
				t.Errorf("apply said %q: want %q", got, test.want)
			}
			after := n.kernelRoutes(t, id)
			// Local routes of IPv6 come a while after their addresses.
			for end := time.Now().Add(3 * time.Minute); !slices.Equal(after, before) && time.Now().Before(end); {
				time.Sleep(20 * time.Millisecond)
				after = n.kernelRoutes(t, id)
			}
			if !slices.Equal(after, before) {
				t.Errorf("before, there were also\n%s\nand now there are also\n%s", without(before, after),
					without(after, before))
			}
			n.untouched(t, ports)
			n.auditAll(t)
			n.restart(t)
			if more := changes(n.apply(t, jobs)); len(more) != 0 {
				t.Errorf("the next apply still changed %v", more)
			}
		})
	}

	// What the kernel itself would not have is not missing.
	whole := n.kernelRoutes(t, id)
	for _, test := range []struct{ name, do string }{
		{"without carrier", "ip link set $PORT down"},
		{"down and up without carrier",
			"ip link set $PORT down && nsenter --net=$NS ip link set r3 down && nsenter --net=$NS ip link set r3 up"},
		{"carrier again", "ip link set $PORT up"},
		{"an address that somebody added",
			"nsenter --net=$NS sh -c 'ip addr add 172.16.0.1/24 dev r3 && ip route del 172.16.0.0/24 dev r3'"},
		{"a second address became the first", "nsenter --net=$NS ip addr add 192.168.5.1/24 dev r3"},
		{"a peer that is none", "nsenter --net=$NS sh -c 'ip addr del 192.0.2.1/32 dev r3 && ip addr add 192.0.2.1 " +
			"peer 0.0.0.0/32 dev r3'"},
		{"no connected route wanted", "nsenter --net=$NS ip addr change 2001:db8:1::9/64 dev r3 noprefixroute"},
		{"another metric", "nsenter --net=$NS ip addr change 2001:db8:1::9/64 dev r3 metric 77"},
	} {
		t.Run(test.name, func(t *testing.T) {
			n.here(t)
			port := n.dirs.PortDevice(model.PortID{ID: id, Interface: "r3"})
			sh(t, strings.NewReplacer("$PORT", port, "$NS", n.dirs.Namespace(id)).Replace(test.do))
			// the kernel takes its time
			for test.name == "carrier again" && !slices.Equal(n.kernelRoutes(t, id), whole) {
				if err := t.Context().Err(); err != nil {
					t.Fatal(err)
				}
			}
			n.untilAuditFinds(t) // a look amid the kernel's work on a carrier finds what is gone in the next one
			n.restart(t)
			if got := changes(n.apply(t, jobs)); len(got) != 0 {
				t.Errorf("apply changed %q", got)
			}
			n.auditAll(t)
		})
	}
}

// TestConnectedRoutesUnderSoftware has routing software run: the routes of addresses that are the platform's are put
// back, those of the software are its own.
func TestConnectedRoutesUnderSoftware(t *testing.T) {
	n := newNode(t)
	jobs := frrLine("lab", 9, 2)
	id := jobs[0].ID
	jobs[0].Element.Routes = []model.Route{{To: netip.MustParsePrefix("198.51.100.0/24"),
		Via: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}}
	n.apply(t, jobs)
	n.settled(t, jobs)
	n.untilRuns(t, id, "proto static", "ip", "route", "show", "198.51.100.0/24")
	before := n.kernelRoutes(t, id)
	n.in(t, id, "ip route flush proto kernel table main; ip -6 route flush proto kernel table main")
	n.auditAll(t, id)
	if got := changes(n.apply(t, jobs)); !slices.Contains(got, "r0: connected route to 10.0.0.0/31 out of r1 added") {
		t.Errorf("apply said %q", got)
	}
	if after := n.kernelRoutes(t, id); !slices.Equal(after, before) {
		t.Errorf("before, there were also\n%s\nand now there are also\n%s", without(before, after),
			without(after, before))
	}
	n.in(t, id, "ip route del 198.51.100.0/24")
	n.auditAll(t)
	n.run(t, id, "vtysh", "-c", "configure", "-c", "interface r1", "-c", "shutdown")
	for n.in(t, id, "ip -o link show dev r1 up") != "" && t.Context().Err() == nil {
	}
	n.auditAll(t)
}
