/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The way between the outlet and the machine's uplink. The outlet is the network namespace in which packets of internet
 * edges get the machine's address. At the tc hook, what leaves goes to the uplink's device, and what comes for the
 * outlet is taken from it. So the machine's own stack, its forwarding and its firewall have no part in it, and need no
 * change.
 */
#include "../../../linux/bpf/kernel.h"

enum {
	MAP_LRU_HASH = 9,
	TRANSPORT_ICMP = 1,
	TRANSPORT_FRAGMENT = 44,
	TRANSPORT_ICMP6 = 58,
	ETHERNET = 14,
	IP4 = 20,
	IP6 = 40,
};

struct way {
	__u32 device;      /* the machine's end of the pair that leads to the outlet */
	__u32 uplink4;     /* the uplinks' devices, 0 for none: */
	__u32 uplink6;
	__u32 address4;    /* the addresses that the outlet speaks with there, as on the wire */
	__u32 address6[4];
	__u32 low, high;   /* the ports (and identifiers of echo requests) that it speaks from */
};

struct service { /* a port of the machine that is forwarded into a network */
	__u16 port; /* as a number */
	__u8 protocol;
	__u8 pad;
};

/* An echo request that waits for its reply: whom it asks, with which identifier. */
struct echo {
	__u32 address[4];
	__u32 id;
};

/* A datagram in fragments. Only the first of them says for which port it is. */
struct datagram {
	__u32 from[4];
	__u32 id;
	__u32 protocol;
};

/* where packets go */
MAP(ARRAY, current, __u32, struct way, 1);

/* forwarded port → number of the gateway that it leads to, by which agents tell theirs */
FLAGGED_MAP(NO_PREALLOC, HASH, services, struct service, __u32, 65536);

/* echo requests of the outlet's: a reply to any other is the machine's own */
MAP(LRU_HASH, echoes, struct echo, __u32, 8192);

/* datagrams for the outlet, known by their first fragment, whose later fragments follow it */
MAP(LRU_HASH, datagrams, struct datagram, __u32, 4096);

struct ip4 {
	__u8 version, tos;
	__u16 length, id, fragment;
	__u8 ttl, protocol;
	__u16 sum;
	__u32 from, to;
};

struct ip6 {
	__u32 flow;
	__u16 length;
	__u8 next, hops;
	__u32 from[4], to[4];
};

struct ports {
	__u16 from, to;
};

struct icmp {
	__u8 type, code;
	__u16 sum, id, sequence;
};

struct fragment6 {
	__u8 next, zero;
	__u16 offset;
	__u32 id;
};

INLINE struct way *the_way(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&current, &zero);
}

INLINE int same6(const __u32 *a, const __u32 *b)
{
	return a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3];
}

INLINE int ours(const struct way *w, __u8 protocol, __u16 port_be)
{
	struct service s = { .port = be16(port_be), .protocol = protocol };

	if (s.port >= w->low && s.port <= w->high)
		return 1;
	return bpf_map_lookup_elem(&services, &s) != 0;
}

/*
 * from_outlet takes what the outlet sends into the world, at the machine's end of the pair. What has another source is
 * dropped.
 */
SEC("tc")
int from_outlet(struct __sk_buff *skb)
{
	struct way *w = the_way();
	struct echo e = {};
	struct icmp icmp;
	__u32 one = 1, uplink;

	if (!w)
		return ACT_SHOT;
	if (skb->protocol == be16(PROTOCOL_IPV4)) {
		struct ip4 ip;

		if (bpf_skb_load_bytes(skb, ETHERNET, &ip, sizeof(ip)) || ip.from != w->address4 || !ip.from ||
		    ip.to == w->address4)
			return ACT_SHOT;
		uplink = w->uplink4;
		if (ip.protocol == TRANSPORT_ICMP && !(ip.fragment & be16(0x1fff)) &&
		    !bpf_skb_load_bytes(skb, ETHERNET + (ip.version & 15) * 4, &icmp, sizeof(icmp)) && icmp.type == 8) {
			e.address[0] = ip.to;
			e.id = icmp.id;
			bpf_map_update_elem(&echoes, &e, &one, 0);
		}
	} else if (skb->protocol == be16(PROTOCOL_IPV6)) {
		__u32 at = ETHERNET + IP6;
		struct fragment6 f;
		struct ip6 ip;

		if (bpf_skb_load_bytes(skb, ETHERNET, &ip, sizeof(ip)) || !same6(ip.from, w->address6) || !w->uplink6 ||
		    same6(ip.to, w->address6))
			return ACT_SHOT;
		uplink = w->uplink6;
		if (ip.next == TRANSPORT_FRAGMENT && !bpf_skb_load_bytes(skb, at, &f, sizeof(f)) &&
		    !(f.offset & be16(0xfff8))) {
			ip.next = f.next;
			at += sizeof(f);
		}
		if (ip.next == TRANSPORT_ICMP6 && !bpf_skb_load_bytes(skb, at, &icmp, sizeof(icmp)) && icmp.type == 128) {
			__builtin_memcpy(e.address, ip.to, sizeof(e.address));
			e.id = icmp.id;
			bpf_map_update_elem(&echoes, &e, &one, 0);
		}
	} else {
		return ACT_SHOT;
	}
	if (!uplink)
		return ACT_SHOT;
	return bpf_redirect_neigh(uplink, 0, 0, 0);
}

/* for_ports tells whether a TCP or UDP packet is for the outlet. */
INLINE int for_ports(struct __sk_buff *skb, const struct way *w, __u8 protocol, __u32 at)
{
	struct ports p;

	if (bpf_skb_load_bytes(skb, at, &p, sizeof(p)))
		return 0;
	return ours(w, protocol, p.to);
}

/*
 * said4 tells whether the ICMP error at the offset is about a packet that the outlet sent (it quotes its beginning, RFC
 * 792).
 */
INLINE int said4(struct __sk_buff *skb, const struct way *w, __u32 at)
{
	struct echo e = {};
	struct icmp icmp;
	struct ports p;
	struct ip4 ip;

	if (bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)) || ip.from != w->address4)
		return 0;
	at += (ip.version & 15) * 4;
	if (ip.protocol == TRANSPORT_ICMP) {
		if (bpf_skb_load_bytes(skb, at, &icmp, sizeof(icmp)) || icmp.type != 8)
			return 0;
		e.address[0] = ip.to;
		e.id = icmp.id;
		return bpf_map_lookup_elem(&echoes, &e) != 0;
	}
	return !bpf_skb_load_bytes(skb, at, &p, sizeof(p)) && ours(w, ip.protocol, p.from);
}

INLINE int said6(struct __sk_buff *skb, const struct way *w, __u32 at)
{
	struct echo e = {};
	struct icmp icmp;
	struct ports p;
	struct ip6 ip;

	if (bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)) || !same6(ip.from, w->address6))
		return 0;
	at += IP6;
	if (ip.next == TRANSPORT_ICMP6) {
		if (bpf_skb_load_bytes(skb, at, &icmp, sizeof(icmp)) || icmp.type != 128)
			return 0;
		__builtin_memcpy(e.address, ip.to, sizeof(e.address));
		e.id = icmp.id;
		return bpf_map_lookup_elem(&echoes, &e) != 0;
	}
	return !bpf_skb_load_bytes(skb, at, &p, sizeof(p)) && ours(w, ip.next, p.from);
}

/*
 * remember notes that a datagram is for the outlet because its first fragment was. The other fragments do not name a
 * port.
 */
INLINE void remember(struct datagram *d)
{
	__u32 one = 1;

	bpf_map_update_elem(&datagrams, d, &one, 0);
}

INLINE int for_us4(struct __sk_buff *skb, const struct way *w)
{
	struct datagram d = {};
	struct echo e = {};
	struct icmp icmp;
	struct ip4 ip;
	int yes = 0;
	__u32 at;

	if (bpf_skb_load_bytes(skb, ETHERNET, &ip, sizeof(ip)) || ip.to != w->address4)
		return 0;
	at = ETHERNET + (ip.version & 15) * 4;
	d.from[0] = ip.from;
	d.id = ip.id;
	d.protocol = ip.protocol;
	if (ip.fragment & be16(0x1fff))
		return bpf_map_lookup_elem(&datagrams, &d) != 0;
	if (ip.protocol == TRANSPORT_TCP || ip.protocol == TRANSPORT_UDP) {
		yes = for_ports(skb, w, ip.protocol, at);
	} else if (ip.protocol == TRANSPORT_ICMP && !bpf_skb_load_bytes(skb, at, &icmp, sizeof(icmp))) {
		if (icmp.type == 0) {
			e.address[0] = ip.from;
			e.id = icmp.id;
			yes = bpf_map_lookup_elem(&echoes, &e) != 0;
		} else if (icmp.type == 3 || icmp.type == 11 || icmp.type == 12) {
			yes = said4(skb, w, at + sizeof(icmp));
		}
	}
	if (yes && (ip.fragment & be16(0x2000)))
		remember(&d);
	return yes;
}

INLINE int for_us6(struct __sk_buff *skb, const struct way *w)
{
	struct fragment6 f = {};
	struct datagram d = {};
	struct echo e = {};
	struct icmp icmp;
	struct ip6 ip;
	__u32 at = ETHERNET + IP6, more = 0;
	int yes = 0;
	__u8 next;

	if (bpf_skb_load_bytes(skb, ETHERNET, &ip, sizeof(ip)) || !w->uplink6 || !same6(ip.to, w->address6))
		return 0;
	next = ip.next;
	if (next == TRANSPORT_FRAGMENT) {
		if (bpf_skb_load_bytes(skb, at, &f, sizeof(f)))
			return 0;
		at += sizeof(f);
		next = f.next;
		more = f.offset & be16(1);
		__builtin_memcpy(d.from, ip.from, sizeof(d.from));
		d.id = f.id;
		d.protocol = 0x600 + next;
		if (f.offset & be16(0xfff8))
			return bpf_map_lookup_elem(&datagrams, &d) != 0;
	}
	if (next == TRANSPORT_TCP || next == TRANSPORT_UDP) {
		yes = for_ports(skb, w, next, at);
	} else if (next == TRANSPORT_ICMP6 && !bpf_skb_load_bytes(skb, at, &icmp, sizeof(icmp))) {
		if (icmp.type == 129) {
			__builtin_memcpy(e.address, ip.from, sizeof(e.address));
			e.id = icmp.id;
			yes = bpf_map_lookup_elem(&echoes, &e) != 0;
		} else if (icmp.type >= 1 && icmp.type <= 4) {
			yes = said6(skb, w, at + sizeof(icmp));
		}
	}
	if (yes && more)
		remember(&d);
	return yes;
}

/* from_uplink takes what comes from the world for the outlet; the machine's own stack gets the rest. */
SEC("tc")
int from_uplink(struct __sk_buff *skb)
{
	struct way *w = the_way();

	if (!w || skb->vlan_present || skb->pkt_type != PACKET_HOST)
		return ACT_UNSPEC;
	if (skb->protocol == be16(PROTOCOL_IPV4) && w->address4 && skb->ifindex == w->uplink4 && for_us4(skb, w))
		return bpf_redirect_peer(w->device, 0);
	if (skb->protocol == be16(PROTOCOL_IPV6) && skb->ifindex == w->uplink6 && for_us6(skb, w))
		return bpf_redirect_peer(w->device, 0);
	return ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
