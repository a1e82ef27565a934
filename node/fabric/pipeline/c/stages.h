/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The stages of the pipeline on socket buffers: copy, output. Each program classifies frames by itself. */
#ifndef STAGES_H
#define STAGES_H

#include "ports.h"

/*
 * mirror_frame copies a frame that passes the link of the port at slot, and sends the copy to where the port's mirror
 * leads. A frame beyond the mirror's meter is not even copied, so that it costs the original next to nothing.
 */
static __attribute__((noinline)) int mirror_frame(struct __sk_buff *skb, __u32 slot)
{
	struct mirror *m = bpf_map_lookup_elem(&mirrors, &slot);
	struct load l = load_of(skb);
	__u32 mark = skb->mark;

	if (!m || !m->link || !m->device)
		return 0;
	if (over(&m->meter, l.bytes, 0)) {
		__sync_fetch_and_add(&m->missed, l.packets);
		return 0;
	}
	__sync_fetch_and_add(&m->copied, l.packets);
	skb->mark = mark_of(slot);
	bpf_clone_redirect(skb, m->device, 0);
	skb->mark = mark;
	return 0;
}

/*
 * copy_frame gives the frame's first bytes to a capture of the port. It is not inlined since it is rare, and called
 * from everywhere.
 */
static __attribute__((noinline)) int copy_frame(struct __sk_buff *skb, __u32 slot, __u32 snap, __u32 to_element)
{
	struct load one = { .packets = 1 };
	__u32 cpu = bpf_get_smp_processor_id();
	struct scratch *s = bpf_map_lookup_elem(&scratches, &cpu);
	__u64 bytes = skb->len;

	snap &= SNAP_BYTES;
	if (!s || !snap)
		return 0;
	if (bytes > snap)
		bytes = snap;
	if (bytes == 0)
		return 0;
	bytes--; /* so that the verifier sees that it is not 0 */
	OPAQUE(bytes);
	if (bytes > COPY_BYTES - 1)
		bytes = COPY_BYTES - 1;
	bytes++;
	/* If nobody empties the ring, it must not cost a copy of every frame. 8 bytes are the ring's own header. */
	if (bpf_ringbuf_query(&copies, RINGBUF_AVAILABLE) + sizeof(struct copy) + bytes + 8 > RING_BYTES) {
		count_drop(one, slot, UNCAPTURED);
		return 0;
	}
	s->head.nanoseconds = bpf_ktime_get_ns();
	s->head.slot = slot;
	s->head.length = skb->len;
	s->head.vlan_tci = skb->vlan_tci;
	s->head.vlan_proto = skb->vlan_present ? be16(skb->vlan_proto) : 0;
	s->head.to_element = to_element;
	if (bpf_skb_load_bytes(skb, 0, s->data, bytes))
		return 0;
	if (bpf_ringbuf_output(&copies, s, sizeof(struct copy) + bytes, 0))
		count_drop(one, slot, UNCAPTURED);
	return 0;
}

/*
 * show gives a frame to the captures and the mirror of a port: on its way to the element, or from it once it is certain
 * to go on.
 */
static __attribute__((noinline)) int show(struct __sk_buff *skb, __u32 slot, __u32 snap, __u32 to_element)
{
	copy_frame(skb, slot, snap, to_element);
	if (snap & PORT_COPIED)
		mirror_frame(skb, slot);
	return 0;
}

/* destination reads the frame's destination address as struct port's mac has it. */
INLINE __u64 destination(struct __sk_buff *skb)
{
	struct ethernet_header *h = (void *)(long)skb->data;

	if ((void *)(h + 1) > (void *)(long)skb->data_end)
		return 0;
	return mac_of(h->destination);
}

/* hand_to gives the frame to the peer of a device, in another namespace. */
INLINE int hand_to(struct __sk_buff *skb, __u32 ifindex)
{
	if (skb->pkt_type != PACKET_HOST)
		bpf_skb_change_type(skb, PACKET_HOST); /* kernels before 6.16 leave it as it is */
	return bpf_redirect_peer(ifindex, 0);
}

/*
 * hand_over gives the frame to the element behind a port.
 *
 * redirect_peer hands the frame to the element at once, but makes every frame one that is addressed to the element.
 * Frames to others (broadcast, multicast, or flooded by a switch) take the way through the device instead, where the
 * kernel sees for itself what they are: a router must not forward what was not sent to it.
 */
INLINE int hand_over(struct __sk_buff *skb, struct port *to)
{
	__u32 ifindex = to->ifindex;

	if (to->flags & PORT_QUEUE || (to->mac && to->mac != destination(skb)))
		return bpf_redirect(ifindex, 0);
	return hand_to(skb, ifindex);
}

int forward_frame(struct __sk_buff *skb, __u32 owner, __u32 slot, __u32 queued);

/* deliver outputs to the port at slot; owner is the slot that a drop is counted at. */
INLINE int deliver(struct __sk_buff *skb, struct load l, __u32 owner, __u32 slot)
{
	struct port *to = port_at(slot);

	if (!to || to->ifindex == 0)
		return drop(l, owner, DROP_GONE);
	if (to->flags & (PORT_DOWN | PORT_ROUTED | PORT_RATED | PORT_CUT | PORT_PACED)) {
		if (to->flags & (PORT_DOWN | PORT_CUT))
			return drop(l, owner, to->flags & PORT_CUT ? DROP_CUT : DROP_DOWN);
		return forward_frame(skb, owner, slot, 0);
	}
	if (to->loss && bpf_get_prandom_u32() <= to->loss)
		return drop(l, owner, DROP_LOSS);
	count_to(l, slot);
	if (to->snap)
		show(skb, slot, to->snap, 1);
	return hand_over(skb, to);
}

/*
 * tunnel_key names the tunnel that a frame leaves by. It is a function of its own, to keep its key off the stack of
 * callers that also look up routes: Linux 6.1 allows 512 bytes for a chain of calls together, each rounded up to 32.
 */
static __attribute__((noinline)) int tunnel_key(struct __sk_buff *skb, __u64 link)
{
	struct bpf_tunnel_key key = { .tunnel_id = link_label(link), .tunnel_ttl = 64 };
	__u32 number = link_target(link), own = 0;
	struct peer *far = bpf_map_lookup_elem(&peers, &number);
	struct peer *near = bpf_map_lookup_elem(&peers, &own);
	__u64 flags = TUNNEL_ZERO_CHECKSUM; /* RFC 7348 section 5: SHOULD be zero over IPv4 */

	if (!far || !near || far->family == 0)
		return -1;
	key.remote[0] = far->address[0];
	key.local[0] = near->address[0];
	if (far->family == 6) {
		flags = TUNNEL_IPV6; /* with checksums: RFC 8200 section 8.1 */
		key.remote[1] = far->address[1];
		key.remote[2] = far->address[2];
		key.remote[3] = far->address[3];
		key.local[1] = near->address[1];
		key.local[2] = near->address[2];
		key.local[3] = near->address[3];
	}
	return bpf_skb_set_tunnel_key(skb, &key, sizeof(key), flags);
}

INLINE int send_tunnel(struct __sk_buff *skb, struct load l, __u32 owner, __u64 link, __u32 device)
{
	if (device == 0 || tunnel_key(skb, link))
		return drop(l, owner, DROP_OUTPUT);
	return bpf_redirect(device, 0);
}

/* is_tag tells whether a frame's EtherType is that of a VLAN tag. */
INLINE int is_tag(__u32 protocol)
{
	return protocol == be16(PROTOCOL_VLAN) || protocol == be16(PROTOCOL_SERVICE_VLAN) ||
	       protocol == be16(PROTOCOL_OLD_VLAN);
}

INLINE int is_tagged(struct __sk_buff *skb)
{
	return skb->vlan_present || is_tag(skb->protocol);
}

/* priority_only tells whether a frame's outer tag names no VLAN (number 0), only the frame's priority (IEEE 802.1Q). */
INLINE int priority_only(struct __sk_buff *skb)
{
	__u16 tci = 0;

	if (skb->vlan_present)
		return skb->vlan_proto == be16(PROTOCOL_VLAN) && !(skb->vlan_tci & 0xfff);
	if (skb->protocol != be16(PROTOCOL_VLAN) || bpf_skb_load_bytes(skb, ETHERNET_BYTES, &tci, sizeof(tci)))
		return 0;
	return !(be16(tci) & 0xfff);
}

/*
 * untag sees to it that a frame has no tag, as it must be at an edge that is no trunk. There the edge adds its own tag,
 * and a switch may take that off: then the inner tag would count, in another tenant's VLAN. A priority tag is taken
 * off.
 */
INLINE int untag(struct __sk_buff *skb)
{
	if (is_tagged(skb) && (!priority_only(skb) || bpf_skb_vlan_pop(skb)))
		return -1;
	return is_tagged(skb) ? -1 : 0;
}

/*
 * for_bridges tells whether a frame is for the next bridge alone (IEEE 802.1Q, table 8-1): spanning trees, aggregation,
 * LLDP. What an element says there would be believed by the switches outside: it could become the root of their tree.
 */
INLINE int for_bridges(struct __sk_buff *skb)
{
	const __u16 *to = (void *)(long)skb->data;

	if ((void *)(to + 3) > (void *)(long)skb->data_end)
		return 0;
	return to[0] == be16(0x0180) && to[1] == be16(0xc200) && (to[2] & be16(0xfff0)) == 0;
}

INLINE __u32 tunnel_port(void)
{
	__u32 own = 0;
	struct port *node = port_at(own);

	return node ? node->mac : 0;
}

/*
 * to_tunnels tells whether a frame that leaves by an edge is for a node's tunnels. If an element could send there, it
 * could pretend to be a node and reach any network. Of fragments only the first is looked at: without it the others are
 * useless.
 */
static __attribute__((noinline)) int to_tunnels(struct __sk_buff *skb)
{
	struct node_key key = {};
	__u8 first = 0, next = 0;
	__u16 fragment = 0, port = 0;
	__u32 at = ETHERNET_BYTES;

	if (skb->protocol == be16(PROTOCOL_IPV4)) {
		if (bpf_skb_load_bytes(skb, at + 9, &next, 1) || next != TRANSPORT_UDP ||
		    bpf_skb_load_bytes(skb, at, &first, 1) ||
		    bpf_skb_load_bytes(skb, at + 6, &fragment, 2) || fragment & be16(0x1fff) ||
		    bpf_skb_load_bytes(skb, at + 16, &key, 4))
			return 0;
		key.address[0] = be32(key.address[0]);
		at += (first & 15) * 4;
	} else if (skb->protocol == be16(PROTOCOL_IPV6)) {
		if (bpf_skb_load_bytes(skb, at + 6, &next, 1) || next == TRANSPORT_TCP || next == TRANSPORT_ICMPV6 ||
		    bpf_skb_load_bytes(skb, at + 24, &key, 16))
			return 0;
		if (next != TRANSPORT_UDP) /* there may be UDP behind other headers */
			return bpf_map_lookup_elem(&nodes, &key) != 0;
		at += IPV6_BYTES;
	} else {
		return 0;
	}
	if (bpf_skb_load_bytes(skb, at + 2, &port, 2) || be16(port) != tunnel_port())
		return 0;
	return bpf_map_lookup_elem(&nodes, &key) != 0;
}

/*
 * surely_other spares most frames to_tunnels, without a call: it is true for IPv4 without options to another port, and
 * for TCP.
 */
INLINE int surely_other(struct __sk_buff *skb)
{
	const __u8 *frame = (void *)(long)skb->data;
	const struct ipv4_header *h = (void *)(frame + ETHERNET_BYTES);
	const __u16 *ports = (void *)(h + 1);

	if (skb->protocol != be16(PROTOCOL_IPV4) || (void *)(ports + 2) > (void *)(long)skb->data_end)
		return 0;
	return h->version_length == 0x45 && (h->protocol != TRANSPORT_UDP || be16(ports[1]) != tunnel_port());
}

INLINE int send_edge(struct __sk_buff *skb, struct load l, __u32 owner, __u64 link)
{
	__u32 vlan = link_label(link);
	struct port *from = port_at(owner);

	if (!(from && from->flags & PORT_TRUNK)) {
		if (is_tagged(skb) && untag(skb))
			return drop(l, owner, DROP_TAG);
		if (for_bridges(skb))
			return drop(l, owner, DROP_TAG);
	}
	if (!surely_other(skb) && to_tunnels(skb))
		return drop(l, owner, DROP_NODE);
	if (vlan && bpf_skb_vlan_push(skb, be16(PROTOCOL_VLAN), vlan))
		return drop(l, owner, DROP_OUTPUT);
	return bpf_redirect(link_target(link), 0);
}

/* send_out takes a frame off the node: into the underlay, or out of an edge. */
INLINE int send_out(struct __sk_buff *skb, struct load l, __u32 slot, __u64 link)
{
	__u32 own = 0;
	struct port *node;

	switch (link_kind(link)) {
	case LINK_TUNNEL:
		node = port_at(own); /* slot 0's device is the tunnel device */
		return send_tunnel(skb, l, slot, link, node ? node->ifindex : 0);
	case LINK_EDGE:
		return send_edge(skb, l, slot, link);
	}
	return drop(l, slot, DROP_NOWHERE);
}

/* leave is send_out, by way of the slice's queue if it has one. */
INLINE int leave(struct __sk_buff *skb, struct load l, __u32 slot, __u64 link)
{
	__u64 *shaper = bpf_map_lookup_elem(&shapers, &slot);

	if (!shaper || *shaper == 0)
		return send_out(skb, l, slot, link);
	skb->mark = mark_of(slot); /* it passes to the other end of the device, and there to from_shaper */
	return bpf_redirect(*shaper, 0);
}

/* read_packet reads the headers of a buffer. Packets that nobody knows how to segment get a segment of 0. */
INLINE void read_packet(struct __sk_buff *skb, struct packet *p)
{
	__u32 wanted = ETHERNET_BYTES + IPV6_BYTES + PORTS_BYTES, header;

	if (wanted > skb->len)
		wanted = skb->len;
	if ((void *)(long)skb->data + wanted > (void *)(long)skb->data_end)
		bpf_skb_pull_data(skb, wanted);
	parse(p, (void *)(long)skb->data, (void *)(long)skb->data_end, skb->len);
	if (skb->vlan_present)
		p->reason = PUNT_FRAME;
	if (skb->gso_size == 0 || p->reason != PUNT_NONE)
		return;
	header = header_bytes(skb);
	p->segment = p->protocol == TRANSPORT_TCP && header ? header - ETHERNET_BYTES + skb->gso_size : 0;
}

/*
 * store writes into the frame what routers changed. It uses a helper: if a program writes by pointers, the kernel makes
 * every cloned buffer writable before the program's first instruction, also those that no router forwards.
 */
INLINE int store(struct __sk_buff *skb, const struct packet *p)
{
	struct {
		struct ethernet_header ethernet;
		__u16 head[6];
	} to = {};
	__u32 word;

	to.ethernet.destination[0] = p->destination;
	to.ethernet.destination[1] = p->destination >> 16;
	to.ethernet.destination[2] = p->destination >> 32;
	to.ethernet.source[0] = p->source;
	to.ethernet.source[1] = p->source >> 16;
	to.ethernet.source[2] = p->source >> 32;
	if (p->ipv6) {
		word = (p->head[0] & 0xffffff) | p->ttl << 24;
		if (bpf_skb_store_bytes(skb, ETHERNET_BYTES + 4, &word, sizeof(word), STORE_CHECKSUM))
			return -1;
		return bpf_skb_store_bytes(skb, 0, &to, ETHERNET_BYTES - 2, 0);
	}
	to.ethernet.protocol = be16(PROTOCOL_IPV4);
	to.head[0] = p->head[0];
	to.head[1] = p->head[0] >> 16;
	to.head[2] = p->head[1];
	to.head[3] = p->head[1] >> 16;
	to.head[4] = (p->head[2] & 0xff00) | p->ttl;
	to.head[5] = be16(p->checksum);
	return bpf_skb_store_bytes(skb, 0, &to, sizeof(to), 0); /* the sum over all of it stays what it is */
}

/*
 * too_long tells whether a packet that only the kernel knows how to segment is too long for the port's device or route.
 */
INLINE int too_long(struct __sk_buff *skb, const struct packet *p, const struct port *out)
{
	__u32 mtu = 0;

	if (p->segment)
		return 0; /* route has seen to it */
	return bpf_check_mtu(skb, out->ifindex, &mtu, 0, MTU_SEGMENTS) || (p->hop.mtu && p->hop.mtu < mtu);
}

/* queue_up sends the packet into the queue of the port at slot. It goes on at from_queue. */
INLINE int queue_up(struct __sk_buff *skb, struct load l, const struct packet *p, __u32 slot, __u32 device)
{
	if (p->changed && store(skb, p))
		return drop(l, p->owner, DROP_OUTPUT);
	skb->mark = mark_of(slot);
	return bpf_redirect(device, 0);
}

enum {
	GO_ON = -2, /* no verdict yet */
};

/* pass takes the packet through one element. It returns a verdict, or GO_ON: then another port is at hand. */
__attribute__((noinline)) int pass(struct __sk_buff *skb, __u32 bound)
{
	__u32 next, only = 0, slot, owner, device = 0, companion, all;
	struct packet *p = bpf_map_lookup_elem(&packets, &only);
	struct router_count *count;
	struct port *to, *from;
	struct load l;
	__u64 link, *queue;

	if (!p)
		return ACT_SHOT;
	slot = p->slot;
	owner = p->owner;
	l.packets = p->packets;
	l.bytes = p->bytes;
	to = port_at(slot);
	if (!to || to->ifindex == 0)
		return drop(l, owner, DROP_GONE);
	if (to->flags & (PORT_DOWN | PORT_CUT))
		return drop(l, owner, to->flags & PORT_CUT ? DROP_CUT : DROP_DOWN);
	if (p->queued) {
		p->queued = 0;
		goto queued;
	}
	if (to->loss && bpf_get_prandom_u32() <= to->loss)
		return drop(l, owner, DROP_LOSS);
	count_to(l, slot);
	if (to->snap) {
		if (p->changed && store(skb, p))
			return drop(l, owner, DROP_OUTPUT);
		show(skb, slot, to->snap, 1);
	}
	if (to->flags & PORT_RATED) {
		queue = bpf_map_lookup_elem(&queues, &slot);
		if (queue && *queue)
			return queue_up(skb, l, p, slot, *queue);
	}
queued:
	count = count_of(to);
	if (!(to->flags & PORT_ROUTED) || !count)
		goto out;
	next = route(p, slot);
	all = next & ROUTE_ALL;
	if (bound && !all)
		next = ROUTE_PUNT | PUNT_HOPS;
	if (next == ROUTE_GUEST)
		goto out;
	if (next == ROUTE_DROP) {
		count->blackholed += l.packets;
		return ACT_SHOT;
	}
	companion = next & ROUTE_COMPANION;
	if (companion) {
		next &= ~(ROUTE_COMPANION | ROUTE_ALL);
		device = companions_of(slot);
		if (!device)
			next = ROUTE_PUNT | PUNT_OFF;
	}
	from = port_at(next & (MAX_PORTS - 1));
	if (!all && next < MAX_PORTS && from && too_long(skb, p, from))
		next = ROUTE_PUNT | PUNT_MTU;
	if (next >= MAX_PORTS || !from) {
		if (exceptional(p, to, next & (PUNTS - 1)) && over_punts(to->flags >> PORT_ROUTER, l.packets)) {
			count->refused += l.packets;
			return drop(l, owner, DROP_PUNTS);
		}
		count->punts[next & (PUNTS - 1)] += l.packets;
		goto out;
	}
	count->packets += l.packets;
	count->bytes += l.bytes;
	if (companion) { /* as it is: the companion's kernel does what a router does, and comes to from_companion with it */
		count->companion += l.packets;
		if (p->changed && store(skb, p))
			return drop(l, owner, DROP_OUTPUT);
		if (all && to->mac && to->mac != p->destination)
			return bpf_redirect(device, 0); /* as in hand_over */
		return hand_to(skb, device);
	}
	advance(p);
	p->changed = 1;
	count_from(l, next);
	link = *(volatile __u64 *)&from->link;
	if ((from->snap || link_kind(link) != LINK_LOCAL) && store(skb, p))
		return drop(l, next, DROP_OUTPUT);
	if (from->snap)
		show(skb, next, from->snap, 0);
	if (link_kind(link) != LINK_LOCAL)
		return leave(skb, l, next, link);
	p->owner = next;
	p->slot = link_target(link);
	return GO_ON;
out: /* from here on it is the element's kernel that works on it */
	if (to->flags & PORT_PACED && over_pace(slot))
		return drop(l, owner, DROP_PACE);
	if (p->changed && store(skb, p))
		return drop(l, owner, DROP_OUTPUT);
	return hand_over(skb, to);
}

/*
 * forward_frame is deliver for a port whose element's packets are forwarded here. It goes from router to router on this
 * node, until the packet leaves the node, meets an element that is no router, meets a router that must see it itself,
 * or meets a queue. queued says that it has passed the queue of the first port already.
 */
__attribute__((noinline)) int forward_frame(struct __sk_buff *skb, __u32 owner, __u32 slot, __u32 queued)
{
	struct load l = load_of(skb);
	__u32 only = 0;
	struct packet *p = bpf_map_lookup_elem(&packets, &only);
	int verdict = ACT_SHOT;

	if (!p)
		return drop(l, owner, DROP_OUTPUT);
	p->slot = slot;
	p->owner = owner;
	p->packets = l.packets;
	p->bytes = l.bytes;
	p->changed = 0;
	p->queued = queued;
	read_packet(skb, p);
	for (__u32 n = 0; n <= MAX_HOPS; n++) {
		verdict = pass(skb, n == MAX_HOPS);
		if (verdict != GO_ON)
			break;
	}
	return verdict;
}

#endif
