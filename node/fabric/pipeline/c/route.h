/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a router does with a packet, on either hook: parse reads what counts in the headers, route says where the packet
 * goes, advance changes the packet as the router must. What cannot be forwarded for certain is punted: the router's own
 * stack does what is right (RFC 1812, RFC 8200).
 */
#ifndef ROUTE_H
#define ROUTE_H

#include "tables.h"

enum {
	ETHERNET_BYTES = 14,
	IPV4_BYTES = 20, /* without options */
	IPV6_BYTES = 40,
	PORTS_BYTES = 4,
	MAX_HOPS = 16, /* routers in one run */
};

struct ethernet_header {
	__u16 destination[3];
	__u16 source[3];
	__u16 protocol;
};

struct ipv4_header {
	__u8 version_length;
	__u8 tos;
	__u16 length;
	__u16 id;
	__u16 fragment;
	__u8 ttl;
	__u8 protocol;
	__u16 checksum;
	__u32 source;
	__u32 destination;
};

struct ipv6_header {
	__u32 first;
	__u16 length;
	__u8 next;
	__u8 hop_limit;
	__u32 source[4];
	__u32 destination[4];
};

/* A packet on its way through routers. */
struct packet {
	__u64 hi, lo;              /* the destination's address as a number, IPv4 in the upper half of hi */
	/* MAC addresses, as struct port's mac has them; the source only once a router has changed it */
	__u64 destination, source;
	__u32 flow[8];             /* source and destination as numbers */
	__u32 ports;
	__u32 protocol;
	__u32 segment;  /* bytes of the largest IP packet that it is or will be segmented to */
	__u32 ipv6;     /* 1, or 0 for IPv4 */
	__u32 ttl;
	__u32 checksum; /* IPv4's, as a number */
	__u32 reason;   /* why no router forwards it; PUNT_NONE if one may */
	__u32 head[3];  /* IPv4: the first words of the header, as they stand; IPv6: the second */
	struct hop hop; /* route's answer */
	/*
	 * The tc hook's: where it is to be delivered, the slot that a drop is counted at, and whether it is another by now.
	 */
	__u32 slot, owner;
	__u32 packets, bytes;
	__u32 changed;
	__u32 queued; /* it has passed the queue of the port at slot, and was counted there */
	/* The driver's hook's: at how many routers it was. */
	__u32 hops;
	struct {
		__u32 router;
		__u32 in, out; /* slots */
		__u32 spare;
	} trail[MAX_HOPS];
};

/*
 * The packet that a run has at hand. It is too large for the stack. Runs do not interrupt each other: all are softirqs.
 */
MAP(PERCPU_ARRAY, packets, __u32, struct packet, 1);

INLINE struct port *port_at(__u32 slot)
{
	return bpf_map_lookup_elem(&ports, &slot);
}

INLINE __u64 mac_of(const __u16 *half)
{
	return *(const __u32 *)half | (__u64)half[2] << 32;
}

INLINE void put_mac(__u16 *half, __u64 mac)
{
	*(__u32 *)half = mac;
	half[2] = mac >> 32;
}

/* frame_mac turns a next hop's MAC address into the form of struct port's. */
INLINE __u64 frame_mac(__u64 mac)
{
	return be64(mac << 16);
}

INLINE int has_ports(__u32 protocol)
{
	return protocol == TRANSPORT_TCP || protocol == TRANSPORT_UDP || protocol == TRANSPORT_SCTP;
}

/* Hosts use these addresses among themselves or not at all: 0/8, 127/8, and all from 224.0.0.0 on. */
INLINE int special4(__u32 a)
{
	return a >> 24 == 0 || a >> 24 == 127 || a >> 29 == 7;
}

/* ::/64 with the unspecified and the loopback address, link-local ones, multicast. */
INLINE int special6(__u64 hi)
{
	return hi == 0 || hi >> 54 == 0xfe80 >> 6 || hi >> 56 == 0xff;
}

INLINE __u32 parse4(struct packet *p, const void *at, const void *end, __u32 bytes)
{
	const struct ipv4_header *h = at;
	const __u32 *word = at;
	const __u32 *ports = at + IPV4_BYTES;
	__u64 sum = 0;
	__u32 length;

	if ((void *)(h + 1) > end || h->version_length >> 4 != 4)
		return PUNT_HEADER;
	if (h->version_length != 0x45)
		return (h->version_length & 15) < 5 ? PUNT_HEADER : PUNT_OPTIONS;
	length = be16(h->length);
	if (length < IPV4_BYTES || length > bytes)
		return PUNT_HEADER;
	for (int i = 0; i < IPV4_BYTES / 4; i++)
		sum += word[i];
	sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	if (sum != 0xffff) /* RFC 1071 */
		return PUNT_HEADER;
	p->flow[0] = be32(h->source);
	p->flow[1] = be32(h->destination);
	p->hi = (__u64)p->flow[1] << 32;
	p->protocol = h->protocol;
	if (has_ports(h->protocol) && !(h->fragment & be16(0x3fff)) && (void *)(ports + 1) <= end &&
	    length >= IPV4_BYTES + PORTS_BYTES)
		p->ports = be32(*ports);
	p->segment = length;
	p->ttl = h->ttl;
	p->checksum = be16(h->checksum);
	p->head[0] = word[0];
	p->head[1] = word[1];
	p->head[2] = word[2];
	if (special4(p->flow[0]) || special4(p->flow[1]))
		return PUNT_ADDRESS;
	return PUNT_NONE;
}

INLINE __u32 parse6(struct packet *p, const void *at, const void *end, __u32 bytes)
{
	const struct ipv6_header *h = at;
	const __u32 *ports = at + IPV6_BYTES;
	__u32 length;

	if ((void *)(h + 1) > end || (h->first & 0xf0) != 0x60)
		return PUNT_HEADER;
	if (h->next == TRANSPORT_HOP_BY_HOP)
		return PUNT_OPTIONS;
	length = IPV6_BYTES + be16(h->length);
	if (length > bytes)
		return PUNT_HEADER;
	for (int i = 0; i < 4; i++) {
		p->flow[i] = be32(h->source[i]);
		p->flow[4 + i] = be32(h->destination[i]);
	}
	p->hi = (__u64)p->flow[4] << 32 | p->flow[5];
	p->lo = (__u64)p->flow[6] << 32 | p->flow[7];
	p->protocol = h->next;
	if (has_ports(h->next) && (void *)(ports + 1) <= end && length >= IPV6_BYTES + PORTS_BYTES)
		p->ports = be32(*ports);
	p->segment = length;
	p->ipv6 = 1;
	p->ttl = h->hop_limit;
	p->head[0] = *(__u32 *)(at + 4);
	if (special6((__u64)p->flow[0] << 32 | p->flow[1]) || special6(p->hi))
		return PUNT_ADDRESS;
	return PUNT_NONE;
}

/* parse reads a frame whose headers are in front of end; bytes are its whole length. */
INLINE void parse(struct packet *p, const void *frame, const void *end, __u32 bytes)
{
	const struct ethernet_header *e = frame;

	p->ports = 0;
	p->ipv6 = 0;
	p->lo = 0;
	p->destination = 0;
	p->reason = PUNT_FRAME;
	if ((void *)(e + 1) > end)
		return;
	p->destination = mac_of(e->destination);
	if (e->protocol == be16(PROTOCOL_IPV4))
		p->reason = parse4(p, e + 1, end, bytes - ETHERNET_BYTES);
	else if (e->protocol == be16(PROTOCOL_IPV6))
		p->reason = parse6(p, e + 1, end, bytes - ETHERNET_BYTES);
}

/* flow_hash is FlowHash of package fib. */
INLINE __u32 flow_hash(const struct packet *p, __u32 seed)
{
	__u32 hash = seed;

	for (int i = 0; i < 8; i++) {
		if (i < 2 || p->ipv6)
			hash = fib_mix(hash, p->flow[i]);
	}
	return fib_mix(fib_mix(hash, p->ports), p->protocol);
}

/* What route answers, when it is not the slot of the port that the packet leaves by. */
enum {
	ROUTE_GUEST = 1 << 16, /* the router does not forward here */
	ROUTE_DROP = 1 << 17,
	ROUTE_PUNT = 1 << 18,  /* and the reason */
	ROUTE_COMPANION = 1 << 19, /* and the slot: the companion takes it there */
	ROUTE_ALL = 1 << 20, /* with ROUTE_COMPANION: nobody looked at what it is */
};

INLINE __u32 without_forwarding(__u32 kind)
{
	switch (kind) {
	case HOP_NONE:
		return ROUTE_PUNT | PUNT_NO_ROUTE;
	case HOP_LOCAL:
		return ROUTE_PUNT | PUNT_LOCAL;
	case HOP_CONNECTED:
	case HOP_UNRESOLVED:
		return ROUTE_PUNT | PUNT_UNRESOLVED;
	case HOP_BLACKHOLE:
		return ROUTE_DROP;
	case HOP_UNREACHABLE:
	case HOP_PROHIBIT:
		return ROUTE_PUNT | PUNT_UNREACHABLE;
	}
	return ROUTE_PUNT | PUNT_TABLE;
}

/*
 * route_at says what the router that a port belongs to does with a packet that comes in there, and by which port it
 * leaves; called is whether tables are searched by calls.
 */
INLINE __u32 route_at(struct packet *p, __u32 slot, const struct port *in, struct port **by, int called)
{
	__u32 number, table, id, on;
	struct fib_hop *hop;
	struct router *r;
	struct port *out;
	__u64 first;

	number = in->flags >> PORT_ROUTER;
	r = bpf_map_lookup_elem(&routers, &number);
	if (!r)
		return ROUTE_GUEST;
	on = *(volatile __u32 *)&r->on;
	if (on == STEER_GUEST)
		return ROUTE_GUEST;
	if (on == STEER_DEVICES)
		return ROUTE_ALL | ROUTE_COMPANION | slot;
	if (in->flags & PORT_QUEUE)
		return ROUTE_PUNT | PUNT_QUEUE;
	if (p->destination != in->mac)
		return ROUTE_PUNT | PUNT_FRAME;
	if (p->reason != PUNT_NONE)
		return ROUTE_PUNT | p->reason;
	if (in->flags & (p->ipv6 ? PORT_OFF6 : PORT_OFF4))
		return ROUTE_PUNT | PUNT_OFF;
	table = number << 1;
	if (called)
		id = p->ipv6 ? fib_find6(table + 1, p->hi, p->lo) : fib_find4(table, p->hi >> 32);
	else
		id = p->ipv6 ? fib_look6(table + 1, p->hi, p->lo) : fib_look4(table, p->hi >> 32);
	if (id <= HOP_PROHIBIT)
		return without_forwarding(id);
	if (p->ttl <= 1)
		return ROUTE_PUNT | PUNT_TTL;
	hop = fib_hop_at(id);
	first = fib_first(hop);
	if (fib_kind(first) == HOP_GROUP)
		hop = fib_hop_at(fib_member(first, flow_hash(p, r->seed)));
	fib_read(hop, &p->hop);
	if (p->hop.kind != HOP_FORWARD)
		return without_forwarding(p->hop.kind);
	if (p->hop.mtu && p->segment > p->hop.mtu)
		return ROUTE_PUNT | PUNT_MTU;
	if (p->hop.port == slot)
		return ROUTE_PUNT | PUNT_BACK;
	*by = out = port_at(p->hop.port);
	if (!out || (out->flags & (PORT_ROUTED | PORT_DOWN | PORT_CUT)) != PORT_ROUTED ||
	    out->flags >> PORT_ROUTER != number)
		return ROUTE_PUNT | PUNT_OFF;
	return on == STEER_COMPANION ? ROUTE_COMPANION | p->hop.port : p->hop.port;
}

/* route is route_at for the port at slot, as a function. */
__attribute__((noinline)) __u32 route(struct packet *p, __u32 slot)
{
	struct port *in = port_at(slot), *by;

	return p && in ? route_at(p, slot, in, &by, 1) : ROUTE_GUEST;
}

/* is_virtual tells whether a MAC address is a virtual router's: 00:00:5e:00:01:XX (RFC 5798, section 7.3). */
INLINE int is_virtual(__u64 mac)
{
	return (mac & 0xffffffffffULL) == 0x01005e0000ULL;
}

/*
 * exceptional tells whether a punt is of a packet that the router answers or drops rather than forwards, or that it has
 * to handle as no router should do often. These are metered (RFC 6192 calls them exceptions). Never metered are packets
 * for the router itself (its own addresses, multicast, ARP), and those that it forwards because the tables do not.
 */
INLINE int exceptional(const struct packet *p, const struct port *at, __u32 reason)
{
	switch (reason) {
	case PUNT_HEADER:
	case PUNT_OPTIONS:
	case PUNT_TTL:
	case PUNT_NO_ROUTE:
	case PUNT_UNREACHABLE:
	case PUNT_UNRESOLVED:
		return 1;
	case PUNT_MTU: /* others it cuts into fragments */
		return p->ipv6 || p->head[1] >> 16 & be16(0x4000);
	case PUNT_FRAME: /* to one address that is another's */
		return !(p->destination & 1) && p->destination != at->mac &&
		       !(at->flags & PORT_VIRTUAL && is_virtual(p->destination));
	}
	return 0;
}

/* advance makes the packet what it is behind the router. */
INLINE void advance(struct packet *p)
{
	p->ttl--;
	if (!p->ipv6) {
		p->checksum += 0x100; /* RFC 1624: the word with the TTL is one less in its upper byte */
		p->checksum = (p->checksum + (p->checksum >= 0xffff)) & 0xffff;
	}
	p->destination = frame_mac(p->hop.destination);
	p->source = frame_mac(p->hop.source);
}

INLINE struct router_count *count_of(const struct port *at)
{
	__u32 number = at->flags >> PORT_ROUTER;

	return bpf_map_lookup_elem(&router_counts, &number);
}

#endif
