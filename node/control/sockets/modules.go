package sockets

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// modulesHook sees what modules the kernel is about to load because somebody asked for what is in them.
var modulesHook = hook{load: loadModules, pin: "modules", asModule: modulesProgLoads, before: modulesProgLoadsBefore,
	limits: modulesMapLimits, seen: modulesMapCounts, prepare: allowModules, ask: askForModule}

// loadsModules tells whether this kernel loads modules when somebody asks for what is in them.
func loadsModules() bool {
	helper, err := os.ReadFile("/proc/sys/kernel/modprobe")
	return err == nil && len(bytes.TrimSpace(helper)) > 0
}

// askForModule has the kernel look for a protocol family that nothing has (AF_SECURITY).
func askForModule() error {
	fd, err := unix.Socket(14, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		return errors.Join(unix.Close(fd), errors.New("the kernel has a socket of a family that nobody has"))
	}
	if !errors.Is(err, unix.EAFNOSUPPORT) {
		return err
	}
	return nil
}

func allowModules(all *ebpf.Collection) error {
	for _, name := range allowedModules() {
		if err := all.Maps[modulesMapAllowed].Put(moduleName(name), uint8(1)); err != nil {
			return fmt.Errorf("note that elements may have the kernel load %s: %w", name, err)
		}
	}
	return nil
}

// moduleName is a name as the program knows it.
func moduleName(name string) (key [64]byte) {
	copy(key[:], name)
	return key
}

// RefusedModules are the names by which elements have asked for modules that they may not have the kernel load: the
// first 128 different ones since this guard was opened.
func (g *Guard) RefusedModules() (names []string, err error) {
	if g.modules == nil {
		return nil, nil
	}
	var n uint64
	if err := g.modules.Maps[modulesMapCounts].Lookup(uint32(1), &n); err != nil {
		return nil, fmt.Errorf("read how often modules were refused: %w", err)
	}
	if n == g.refusals {
		return nil, nil
	}
	g.refusals = n
	var name [64]byte
	var one uint8
	all := g.modules.Maps[modulesMapRefused].Iterate()
	for all.Next(&name, &one) {
		names = append(names, unix.ByteSliceToString(name[:]))
	}
	slices.Sort(names)
	if err := all.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) { // it was changed meanwhile
		return nil, fmt.Errorf("read which modules were refused: %w", err)
	}
	return names, nil
}

// allowedModules are what elements may have the kernel load, by the names that the kernel itself asks for (mostly
// aliases of modules; those of traffic control have had others since Linux 6.8). It is what networks are built of; what
// of it takes memory that is charged to nobody is counted (see node/kernelmemory). Not among them are: other protocols,
// for which there is nothing in an element; formats of programs, line disciplines, file systems, most ciphers; helpers
// of connections and their NAT, which read what users send; ipset, the log's groups, accounting objects, which the
// other program refuses; L2TP, whose sessions nothing bounds well; matches with tables that packets fill, of a length
// that is chosen by who makes the rule (hashlimit, recent, connlimit); what acts on the machine (LED, br_netfilter).
func allowedModules() (names []string) {
	add := func(formats, words string) {
		for format := range strings.FieldsSeq(formats) {
			for word := range strings.FieldsSeq(words) {
				names = append(names, strings.ReplaceAll(format, "*", word))
			}
		}
	}
	// IPv6; packet sockets; netfilter; and what `ss` asks for: sockets of Unix, IPv4, IPv6, netlink, packet
	add("net-pf-*", "10 17 16-proto-4 16-proto-12 16-proto-16-family-wireguard")
	add("net-pf-16-proto-4-type-*", "1 2 10 16 17 2-6 2-17 2-136 2-255")
	add("rtnl-link-*", `bond bridge dummy erspan geneve gre gretap ifb ip6erspan ip6gre ip6gretap ip6tnl ipip ipvlan
		macvlan sit veth vlan vrf vxlan wireguard`)
	add("rtnl-lwt-*", "MPLS") // others are part of the kernel
	// what signs TCP's packets (MD5, RFC 5925) and those of segment routing
	add("crypto-* crypto-*-all", "md5 hmac hmac(sha1) hmac(sha256) sha1 sha256 cmac cmac(aes) aes")
	add("sch_* net-sch-*", `cake clsact codel drr fq fq_codel fq_pie hfsc htb ingress netem pfifo_fast pie prio red sfq
		tbf`)
	add("cls_* net-cls-*", "basic bpf flow flower fw matchall route u32")
	add("act_* net-act-*", "bpf connmark csum gact mirred mpls nat pedit police skbedit tunnel_key vlan")

	add("nfnetlink-subsys-*", "1 2 3 10 11 12") // connections, expected ones, queues, nftables, iptables in them, hooks
	add("nf_conntrack-*", "2 7 10")
	add("nft-chain-1-* nft-chain-2-* nft-chain-3-* nft-chain-5-* nft-chain-7-* nft-chain-10-*", "filter nat route")
	add("nft-expr-* nft-expr-1-* nft-expr-2-* nft-expr-5-* nft-expr-7-* nft-expr-10-*",
		`ct dup exthdr fib fwd hash limit log masq match meta nat notrack numgen objref queue quota redir reject rt
		socket target tproxy tunnel`)
	add("nft-*", "set obj-1 obj-2 obj-4 obj-6") // counters, quotas, limits, tunnels
	add("nf-logger-*-0", "2 3 5 7 10")
	add("*", "nf_log_syslog") // which the kernel asks for by the module's own name
	add("*_tables", "ip ip6 arp")
	add("iptable_* ip6table_* ebtable_* arptable_*", "filter mangle nat raw broute")
	add("xt_* ipt_* ip6t_* ebt_* arpt_*", `CHECKSUM CLASSIFY CONNMARK DNAT DSCP HL LOG MARK MASQUERADE NETMAP NFQUEUE
		NOTRACK REDIRECT REJECT SNAT TCPMSS TCPOPTSTRIP TOS TPROXY TRACE TTL addrtype ah comment connbytes connmark
		conntrack cpu devgroup dscp dst ecn esp eui64 frag hbh hl icmp icmp6 iprange ipv6header length limit mac mark mh
		multiport owner pkttype quota realm rpfilter rt socket state statistic string tcp tcpmss time tos ttl u32 udp`)
	return names
}
