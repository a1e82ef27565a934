package companion

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// settings are a companion's sysctls, below /proc/sys/net (Documentation/networking/ip-sysctl.rst). The `default` ones
// reach every device made later. All are set, since a new namespace takes many of them from the machine.
var settings = []struct{ name, value string }{
	{"ipv4/ip_forward", "1"}, // first: it resets others
	{"ipv6/conf/all/disable_ipv6", "0"},
	{"ipv6/conf/default/disable_ipv6", "0"},
	{"ipv6/conf/all/forwarding", "1"},
	{"ipv4/conf/all/rp_filter", "0"},
	{"ipv4/conf/default/rp_filter", "0"},
	// Nobody has an address here, so no source is one's own.
	{"ipv4/conf/all/accept_local", "1"},
	{"ipv4/conf/all/send_redirects", "0"},
	{"ipv4/conf/default/send_redirects", "0"},
	{"ipv4/conf/all/accept_redirects", "0"},
	{"ipv4/conf/default/accept_redirects", "0"},
	{"ipv4/conf/all/log_martians", "0"},
	{"ipv4/conf/default/log_martians", "0"},
	{"ipv4/conf/default/arp_ignore", "8"}, // never answers
	{"ipv6/conf/default/accept_ra", "0"},
	{"ipv6/conf/default/autoconf", "0"},
	{"ipv6/conf/default/router_solicitations", "0"},
	{"ipv6/conf/default/accept_redirects", "0"},
	{"ipv6/conf/default/dad_transmits", "0"},
	{"ipv6/conf/default/addr_gen_mode", "1"}, // no link-local address
	// Nothing that comes in is for a socket.
	{"ipv4/ip_early_demux", "0"},
	{"ipv4/fib_multipath_hash_policy", "1"}, // by flow
	{"ipv6/fib_multipath_hash_policy", "1"},
	{"ipv4/nexthop_compat_mode", "0"},
	{"ipv6/route/max_size", "2147483647"},
	// The guest sends ICMP errors, so the companion must not: at most one in an hour, of which the first is never due.
	{"ipv4/icmp_ratemask", "2147483647"},
	{"ipv4/icmp_ratelimit", "3600000"},
	{"ipv6/icmp/ratemask", "0-127"},
	{"ipv6/icmp/ratelimit", "3600000"},
	// Where br_netfilter is loaded, bridged packets would pass the firewall's hooks.
	{"bridge/bridge-nf-call-iptables", "0"},
	{"bridge/bridge-nf-call-ip6tables", "0"},
	{"bridge/bridge-nf-call-arptables", "0"},
}

// settle sets them in the calling thread's namespace. What a kernel does not have needs no setting.
func settle() error {
	for _, s := range settings {
		err := os.WriteFile("/proc/sys/net/"+s.name, []byte(s.value), 0o644)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("set the sysctl net/%s to %s: %w", s.name, s.value, err)
		}
	}
	return nil
}
