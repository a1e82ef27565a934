/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The pipeline in the driver's hook. It does one thing: forward packets by way of routers whose packets are forwarded here,
 * from ports that have this hook to such ports. All else goes on to the same device's tc hook, unchanged and uncounted.
 */
#ifndef XDP_H
#define XDP_H

#include "stages.h"

/* rewrite is store, by pointers. */
INLINE int rewrite(struct xdp_md *x, const struct packet *p)
{
	struct ethernet_header *e = (void *)(long)x->data;
	void *end = (void *)(long)x->data_end;
	struct ipv4_header *four = (void *)(e + 1);
	struct ipv6_header *six = (void *)(e + 1);

	if ((void *)(four + 1) > end)
		return -1;
	if (p->ipv6) {
		if ((void *)(six + 1) > end)
			return -1;
		six->hop_limit = p->ttl;
	} else {
		four->ttl = p->ttl;
		four->checksum = be16(p->checksum);
	}
	e->destination[0] = p->destination;
	e->destination[1] = p->destination >> 16;
	e->destination[2] = p->destination >> 32;
	e->source[0] = p->source;
	e->source[1] = p->source >> 16;
	e->source[2] = p->source >> 32;
	return 0;
}

/* plain tells whether nothing but output is to be done at a port; a capture and loss are the tc hook's. */
INLINE int plain(const struct port *p)
{
	return p->ifindex && !(p->flags & (PORT_DOWN | PORT_QUEUE)) && !p->snap && !p->loss;
}

/*
 * hop_at takes a packet through the nth router on its way, to which it comes at slot, and tells the slot where the next link
 * ends; 0 if that is nothing for this hook. The slots at which it comes and leaves are in its trail.
 */
INLINE __u32 hop_at(struct packet *p, __u32 slot, const struct port *to, __u32 n, int called)
{
	__u32 next = route_at(p, slot, to, called);
	struct port *out;
	__u64 link;

	if (next >= MAX_PORTS || n >= MAX_HOPS)
		return 0;
	out = port_at(next);
	if (!out || out->snap)
		return 0;
	link = *(volatile __u64 *)&out->link;
	if (link_kind(link) != LINK_LOCAL)
		return 0;
	OPAQUE(n);
	n &= MAX_HOPS - 1;
	p->trail[2 * n] = slot;
	p->trail[2 * n + 1] = next;
	advance(p);
	return link_target(link) & (MAX_PORTS - 1);
}

__attribute__((noinline)) __u32 hop(struct packet *p, __u32 slot, __u32 n)
{
	struct port *to = port_at(slot);

	return p && to ? hop_at(p, slot, to, n, 1) : 0;
}

/* way follows a packet to the port where it is handed over; 0 if not by this hook. Most meet one router: without a call. */
INLINE __u32 way(struct packet *p, __u32 slot, const struct port *to)
{
	if (!plain(to))
		return 0;
	slot = hop_at(p, slot, to, 0, 0);
	for (__u32 n = 1; n <= MAX_HOPS; n++) {
		to = port_at(slot);
		if (!slot || !to || !plain(to))
			return 0;
		p->hops = n;
		if (!(to->flags & PORT_ROUTED))
			return to->flags & PORT_XDP ? slot : 0;
		slot = hop(p, slot, n);
	}
	return 0;
}

/* count_way counts what forward_frame counts on the way. */
INLINE void count_way(const struct packet *p, struct load l)
{
	__u32 hops = p->hops;

	for (__u32 n = 0; n < MAX_HOPS && n < hops; n++) {
		struct port *to = port_at(p->trail[2 * n]);
		struct router_count *c = to ? count_of(to) : 0;

		count_to(l, p->trail[2 * n]);
		count_from(l, p->trail[2 * n + 1]);
		if (c) {
			c->packets += l.packets;
			c->bytes += l.bytes;
		}
	}
}

/* from_port_xdp takes what an element sends, at the driver of its port. */
SEC("xdp.frags")
int from_port_xdp(struct xdp_md *x)
{
	struct load l = { .packets = 1, .bytes = x->data_end - x->data };
	__u32 slot, only = 0, last;
	struct port *from, *to;
	struct packet *p;
	__u64 link;

	from = port_of(x->ingress_ifindex, &slot);
	if (!from || from->snap || from->flags & PORT_METERED)
		return XDP_PASS;
	link = *(volatile __u64 *)&from->link;
	if (link_kind(link) != LINK_LOCAL)
		return XDP_PASS;
	to = port_at(link_target(link));
	if (!to || !(to->flags & PORT_ROUTED))
		return XDP_PASS;
	p = bpf_map_lookup_elem(&packets, &only);
	if (!p)
		return XDP_PASS;
	parse(p, (void *)(long)x->data, (void *)(long)x->data_end, l.bytes);
	if (p->reason == PUNT_HEADER) { /* perhaps because not all of it is in one piece */
		l.bytes = bpf_xdp_get_buff_len(x);
		parse(p, (void *)(long)x->data, (void *)(long)x->data_end, l.bytes);
	}
	if (p->reason != PUNT_NONE)
		return XDP_PASS;
	last = way(p, link_target(link), to);
	to = port_at(last);
	if (!last || !to || rewrite(x, p))
		return XDP_PASS;
	count_from(l, slot);
	count_way(p, l);
	count_to(l, last);
	return bpf_redirect(to->ifindex, 0);
}

#endif
