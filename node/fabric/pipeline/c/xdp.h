/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The pipeline on the driver's hook. It does one thing: it forwards packets through routers whose packets are forwarded
 * here, between devices that both have this hook. All else goes on to the same device's tc hook, unchanged and
 * uncounted.
 */
#ifndef XDP_H
#define XDP_H

#include "wire.h"

/* plain tells whether a port needs nothing here but output. Captures and loss are left to the tc hook. */
INLINE int plain(const struct port *p)
{
	return p->ifindex && !(p->flags & (PORT_DOWN | PORT_QUEUE | PORT_TC | PORT_RATED | PORT_CUT | PORT_PACED)) &&
	       !p->snap && !p->loss;
}

/*
 * hop_at takes a packet through the nth router on its way, which it enters at slot. It returns the slot where the next
 * link ends, WAY_OUT if that is off this node, or 0 if this hook cannot do it. The trail says where the packet was; its
 * owner is the port that it left by last.
 */
INLINE __u32 hop_at(struct packet *p, __u32 slot, const struct port *to, __u32 n, int called)
{
	struct port *out = 0;
	__u32 next = route_at(p, slot, to, &out, called);
	__u64 link;

	if (next >= MAX_PORTS || n >= MAX_HOPS || !out || out->snap)
		return 0;
	link = *(volatile __u64 *)&out->link;
	if (link_kind(link) == LINK_NOWHERE)
		return 0;
	OPAQUE(n);
	n &= MAX_HOPS - 1;
	p->trail[n].router = to->flags >> PORT_ROUTER;
	p->trail[n].in = slot;
	p->trail[n].out = next;
	p->owner = next;
	advance(p);
	return link_kind(link) == LINK_LOCAL ? link_target(link) & (MAX_PORTS - 1) : WAY_OUT;
}

__attribute__((noinline)) __u32 hop(struct packet *p, __u32 slot, __u32 n)
{
	struct port *to = port_at(slot);

	return p && to ? hop_at(p, slot, to, n, 1) : 0;
}

/*
 * way follows a packet to the port where it is handed over, and puts that port's slot, or WAY_OUT if it leaves this
 * node, at end. It returns 0 if this hook cannot do it. Most packets meet one router; that takes no call.
 */
INLINE __u32 way(struct packet *p, __u32 slot, const struct port *to, const struct port **end)
{
	if (!plain(to))
		return 0;
	slot = hop_at(p, slot, to, 0, 0);
	for (__u32 n = 1; n <= MAX_HOPS; n++) {
		p->hops = n;
		if (slot == WAY_OUT)
			return WAY_OUT;
		to = port_at(slot);
		if (!slot || !to || !plain(to))
			return 0;
		*end = to;
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
		struct router_count *c = bpf_map_lookup_elem(&router_counts, &p->trail[n].router);

		count_to(l, p->trail[n].in);
		count_from(l, p->trail[n].out);
		if (c) {
			c->packets += l.packets;
			c->bytes += l.bytes;
			c->driver += l.packets;
		}
	}
}

/*
 * finish sends a packet that has found its way. payer is the slot whose network's meter it counts against, 0 if there
 * is none. Only here is it metered, since what goes on to the tc hook is metered there.
 */
INLINE int finish(struct xdp_md *x, struct packet *p, struct load l, const struct outlet *o, __u32 room,
		  __u32 offset, __u32 payer)
{
	int done;

	if (payer && over_meter(payer, l.packets))
		return xdp_drop(l, payer, DROP_METER);
	done = rewrite(x, p, l, o, room, offset);
	if (done < 0)
		return XDP_PASS;
	if (done)
		return xdp_drop(l, p->owner, DROP_OUTPUT);
	count_way(p, l);
	return XDP_REDIRECT;
}

/*
 * go_out is finish for a packet that leaves this node. It is a function of its own, to keep the stack that tunnels and
 * tags need out of all other runs.
 */
__attribute__((noinline)) int go_out(struct xdp_md *x, __u32 bytes, __u32 offset, __u32 payer)
{
	struct load l = { .packets = 1, .bytes = bytes };
	struct outlet o = {};
	__u32 only = 0;
	struct packet *p = bpf_map_lookup_elem(&packets, &only);
	int verdict;

	if (!p || !outlet(x, p, l, &o))
		return XDP_PASS;
	verdict = finish(x, p, l, &o, o.room, offset, payer);
	return verdict == XDP_REDIRECT ? bpf_redirect(o.ifindex, 0) : verdict;
}

/*
 * forward takes a packet that is parsed already through the router that it enters at slot, and through those behind it.
 * In front of its Ethernet header are offset bytes.
 */
INLINE int forward(struct xdp_md *x, struct packet *p, struct load l, __u32 slot, const struct port *to,
		   __u32 offset, __u32 payer)
{
	const struct port *end = 0;
	__u32 last, ifindex;
	int verdict;

	if (p->reason != PUNT_NONE)
		return XDP_PASS;
	last = way(p, slot, to, &end);
	if (last == WAY_OUT)
		return go_out(x, l.bytes, offset, payer);
	if (!last || !end)
		return XDP_PASS;
	ifindex = end->ifindex;
	verdict = finish(x, p, l, 0, 0, offset, payer);
	if (verdict != XDP_REDIRECT)
		return verdict;
	count_to(l, last);
	return bpf_redirect(ifindex, 0);
}

/* read_frame parses the frame that begins offset bytes into the buffer. */
INLINE struct packet *read_frame(struct xdp_md *x, struct load *l, __u32 offset)
{
	__u32 only = 0;
	struct packet *p = bpf_map_lookup_elem(&packets, &only);
	void *frame = (void *)(long)x->data + offset, *end = (void *)(long)x->data_end;

	if (!p)
		return 0;
	parse(p, frame, end, l->bytes);
	if (p->reason == PUNT_HEADER) { /* perhaps because not all of it is in one piece */
		l->bytes = bpf_xdp_get_buff_len(x) - offset;
		parse(p, frame, end, l->bytes);
	}
	return p;
}

/* from_port_xdp takes what an element sends, at the driver of its port. */
SEC("xdp.frags")
int from_port_xdp(struct xdp_md *x)
{
	struct load l = { .packets = 1, .bytes = x->data_end - x->data };
	struct port *from, *to;
	struct packet *p;
	int verdict;
	__u32 slot;
	__u64 link;

	from = port_of(x->ingress_ifindex, &slot);
	if (!from || from->snap || from->flags & (PORT_CUT | PORT_PACED))
		return XDP_PASS;
	link = *(volatile __u64 *)&from->link;
	if (link_kind(link) != LINK_LOCAL)
		return XDP_PASS;
	to = port_at(link_target(link));
	if (!to || !(to->flags & PORT_ROUTED))
		return XDP_PASS;
	p = read_frame(x, &l, 0);
	if (!p)
		return XDP_PASS;
	verdict = forward(x, p, l, link_target(link), to, 0, from->flags & PORT_METERED ? slot : 0);
	if (verdict != XDP_PASS)
		count_from(l, slot);
	return verdict;
}

/* from_wire_xdp takes what comes in at a real device or the underlay: tunnels' frames, and those of edges. */
SEC("xdp.frags")
int from_wire_xdp(struct xdp_md *x)
{
	__u32 ifindex = x->ingress_ifindex, slot, offset = 0;
	struct driver *d = bpf_map_lookup_elem(&drivers, &ifindex);
	struct load l = { .packets = 1, .bytes = x->data_end - x->data };
	struct packet *p;
	struct port *to;

	if (!d)
		return XDP_PASS;
	slot = d->flags & DRIVER_TUNNELS ? tunnel_slot(x, d, &l) : 0;
	if (slot)
		offset = OUTER_BYTES;
	else if (d->flags & DRIVER_EDGES)
		slot = edge_slot(x, ifindex, &l, &offset);
	to = port_at(slot);
	if (!slot || !to || !(to->flags & PORT_ROUTED))
		return XDP_PASS;
	p = read_frame(x, &l, offset);
	if (!p)
		return XDP_PASS;
	if (offset == VLAN_BYTES)
		read_addresses(x, p);
	return forward(x, p, l, slot, to, offset, offset != OUTER_BYTES && to->flags & PORT_METERED ? slot : 0);
}

#endif
