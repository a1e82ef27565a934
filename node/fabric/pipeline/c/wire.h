/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How frames look on the wires of the underlay and of edges, for the driver's hook: it reads and writes VXLAN (RFC
 * 7348) over IPv4, and VLAN tags. The tunnel device gets what is not certain: another family, options, fragments,
 * checksums of UDP, marks of congestion (ECN), a next hop whose MAC address is not known, packets that are too long.
 */
#ifndef WIRE_H
#define WIRE_H

#include "stages.h"

enum {
	OUTER_BYTES = ETHERNET_BYTES + IPV4_BYTES + 8 + 8, /* in front of a frame in a tunnel */
	OUTER_TTL = 64, /* as send_tunnel's */
	VXLAN_VNI = 0x08000000, /* the header's flags: it has a VNI; the rest is reserved */
	WAY_OUT = MAX_PORTS, /* in the place of a slot: off this node, by the port that owns the packet */
};

struct udp_header {
	__u16 source;
	__u16 destination;
	__u16 length;
	__u16 checksum;
};

struct vxlan_header {
	__u32 flags;
	__u32 vni; /* and eight reserved bits */
};

INLINE int xdp_drop(struct load l, __u32 slot, __u32 reason)
{
	count_drop(l, slot, reason);
	return XDP_DROP;
}

/*
 * sum4 is the checksum of an IPv4 header without options, over all of it: 0xffff if the header has the right one (RFC
 * 1071).
 */
INLINE __u32 sum4(const struct ipv4_header *h)
{
	const __u32 *word = (void *)h;
	__u64 sum = 0;

	for (int i = 0; i < IPV4_BYTES / 4; i++)
		sum += word[i];
	sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/* tunnel_slot returns the port of a frame that comes by a tunnel of ours, with the checks of from_tunnel; else 0. */
INLINE __u32 tunnel_slot(struct xdp_md *x, const struct driver *d, struct load *l)
{
	struct ethernet_header *e = (void *)(long)x->data;
	struct ipv4_header *ip = (void *)(e + 1);
	struct udp_header *udp = (void *)(ip + 1);
	struct vxlan_header *v = (void *)(udp + 1);
	__u32 own = 0, vni, number, slot, length;
	struct tunnel_end *end;
	struct peer *near, *far;
	struct port *to;

	if ((void *)(v + 1) > (void *)(long)x->data_end || e->protocol != be16(PROTOCOL_IPV4) ||
	    ip->protocol != TRANSPORT_UDP ||
	    udp->destination != d->port || mac_of(e->destination) != d->mac)
		return 0;
	if (ip->version_length != 0x45 || ip->fragment & be16(0x3fff) || ip->tos & 3 || udp->checksum ||
	    v->flags != be32(VXLAN_VNI) || be32(v->vni) & 0xff)
		return 0;
	length = be16(ip->length);
	if (be16(udp->length) != length - IPV4_BYTES || length <= OUTER_BYTES - ETHERNET_BYTES)
		return 0;
	if (length != l->bytes - ETHERNET_BYTES && length != bpf_xdp_get_buff_len(x) - ETHERNET_BYTES)
		return 0;
	vni = be32(v->vni) >> 8;
	end = bpf_map_lookup_elem(&tunnels, &vni);
	if (!end)
		return 0;
	slot = end->slot;
	number = end->peer;
	to = port_at(slot);
	if (!to || !(to->flags & PORT_ROUTED) || link_kind(*(volatile __u64 *)&to->link) != LINK_TUNNEL)
		return 0;
	far = bpf_map_lookup_elem(&peers, &number);
	near = bpf_map_lookup_elem(&peers, &own);
	if (!far || !near || far->family != 4 || near->family != 4 || be32(ip->source) != far->address[0] ||
	    be32(ip->destination) != near->address[0] || sum4(ip) != 0xffff)
		return 0;
	l->bytes = length - (OUTER_BYTES - ETHERNET_BYTES);
	return slot;
}

/* is_edge tells whether the link of the port at slot ends at an edge. */
INLINE int is_edge(__u32 slot, const struct edge_key *key)
{
	struct port *p = port_at(slot);

	return p && *(volatile __u64 *)&p->link == edge_link(key);
}

/*
 * edge_slot returns the port of the edge that a frame comes in by, with the checks of from_edge; else 0. A node may
 * have thousands of edges. So what was found is remembered (recent), which costs a fraction of a look-up in the hash
 * table.
 */
INLINE __u32 edge_slot(struct xdp_md *x, __u32 ifindex, struct load *l, __u32 *offset)
{
	struct ethernet_header *e = (void *)(long)x->data;
	struct edge_key key = { .ifindex = ifindex };
	__u16 *tci = (void *)(e + 1);
	__u32 *slot, *known, place;

	if ((void *)(tci + 1) > (void *)(long)x->data_end)
		return 0;
	if (e->protocol == be16(PROTOCOL_VLAN)) {
		key.vlan = be16(*tci) & 0xfff;
		if (!key.vlan)
			return 0; /* rare */
		*offset = VLAN_BYTES;
		l->bytes -= VLAN_BYTES;
	}
	place = (ifindex + key.vlan + RECENT / 2) & (RECENT - 1); /* where edges stand in the table: far from devices */
	known = bpf_map_lookup_elem(&recent, &place);
	if (known && is_edge(*known, &key))
		return *known;
	slot = bpf_map_lookup_elem(&edges, &key);
	if (!slot || !is_edge(*slot, &key))
		return 0;
	if (known)
		*known = *slot;
	return *slot;
}

/* read_addresses reads the MAC address that a frame with a tag is for. */
INLINE void read_addresses(struct xdp_md *x, struct packet *p)
{
	struct ethernet_header *e = (void *)(long)x->data;

	if ((void *)(e + 1) > (void *)(long)x->data_end)
		return;
	p->destination = mac_of(e->destination);
}

/* Where a packet leaves this hook. */
struct outlet {
	__u32 ifindex;
	__u32 room;  /* bytes in front of the frame's own Ethernet header */
	__u32 label; /* VNI or VLAN */
	struct fib_lookup way; /* of a tunnel */
};

INLINE int has_driver(__u32 ifindex, __u32 flag)
{
	struct driver *d = bpf_map_lookup_elem(&drivers, &ifindex);

	return d && d->flags & flag;
}

/*
 * tunnel_way asks the node's routes for the way to the peer. It asks as if the packet came from the tunnel device,
 * since the kernel names no way for a device that forwards nothing.
 */
INLINE int tunnel_way(struct xdp_md *x, const struct packet *p, __u32 bytes, __u64 link, struct outlet *o)
{
	__u32 number = link_target(link), own = 0;
	struct peer *far = bpf_map_lookup_elem(&peers, &number);
	struct peer *near = bpf_map_lookup_elem(&peers, &own);
	struct port *node = port_at(own); /* slot 0's device is the tunnel device */
	__u32 length = bytes + OUTER_BYTES - ETHERNET_BYTES;

	if (!far || !near || !node || far->family != 4 || near->family != 4 || length > 0xffff)
		return 0;
	o->way.family = FAMILY_INET;
	o->way.protocol = TRANSPORT_UDP;
	/* RFC 7348, section 5: so that flows may take several ways */
	o->way.source_port = be16(0xc000 | (flow_hash(p, 0) & 0x3fff));
	o->way.length = length;
	o->way.ifindex = node->ifindex;
	o->way.source[0] = be32(near->address[0]);
	o->way.destination[0] = be32(far->address[0]);
	if (bpf_fib_lookup(x, &o->way, sizeof(o->way), 0))
		return 0;
	o->way.destination[0] = be32(far->address[0]); /* the kernel has put the next router in its place */
	o->ifindex = o->way.ifindex;
	o->room = OUTER_BYTES;
	return has_driver(o->ifindex, DRIVER_TUNNELS);
}

/* outlet tells where a packet leaves this node. It returns 0 if this hook cannot send it there. */
INLINE int outlet(struct xdp_md *x, const struct packet *p, struct load l, struct outlet *o)
{
	__u32 owner = p->owner, mtu = l.bytes - ETHERNET_BYTES;
	struct port *at = port_at(owner);
	__u64 *shaper, link;

	shaper = bpf_map_lookup_elem(&shapers, &owner);
	if (!at || !shaper || *shaper)
		return 0;
	link = *(volatile __u64 *)&at->link;
	o->label = link_label(link);
	if (link_kind(link) == LINK_TUNNEL)
		return tunnel_way(x, p, l.bytes, link, o);
	if (p->protocol == TRANSPORT_UDP ? !p->ports || (p->ports & 0xffff) == tunnel_port() :
	    p->ipv6 && p->protocol != TRANSPORT_TCP && p->protocol != TRANSPORT_ICMPV6)
		return 0; /* the tc hook checks that it is not for a node's tunnels */
	o->ifindex = link_target(link);
	o->room = o->label ? VLAN_BYTES : 0;
	return link_kind(link) == LINK_EDGE && has_driver(o->ifindex, DRIVER_EDGES) &&
	       !bpf_check_mtu(x, o->ifindex, &mtu, 0, 0);
}

/* write_tunnel writes what a tunnel puts in front of a frame, as the kernel's device does for the tc hook. */
INLINE void write_tunnel(const struct outlet *o, struct ethernet_header *e, __u32 bytes, __u32 port)
{
	struct ipv4_header *ip = (void *)(e + 1);
	struct udp_header *udp = (void *)(ip + 1);
	struct vxlan_header *v = (void *)(udp + 1);

	for (int i = 0; i < 3; i++) {
		e->destination[i] = o->way.destination_mac[i];
		e->source[i] = o->way.source_mac[i];
	}
	e->protocol = be16(PROTOCOL_IPV4);
	ip->version_length = 0x45;
	ip->tos = 0;
	ip->length = be16(bytes + OUTER_BYTES - ETHERNET_BYTES);
	ip->id = bpf_get_prandom_u32(); /* it may be fragmented on its way */
	ip->fragment = 0;
	ip->ttl = OUTER_TTL;
	ip->protocol = TRANSPORT_UDP;
	ip->checksum = 0;
	ip->source = o->way.source[0];
	ip->destination = o->way.destination[0];
	ip->checksum = ~sum4(ip);
	udp->source = o->way.source_port;
	udp->destination = port;
	udp->length = be16(bytes + OUTER_BYTES - ETHERNET_BYTES - IPV4_BYTES);
	udp->checksum = 0; /* section 5: SHOULD be zero over IPv4 */
	v->flags = be32(VXLAN_VNI);
	v->vni = be32(o->label << 8);
}

/*
 * rewrite turns the buffer, in which offset bytes are in front of the frame, into what leaves by the outlet, with this
 * much room in front. Without room the outlet does not matter. It returns less than 0 if the buffer is unchanged, and
 * more than 0 if it is spoilt.
 */
INLINE int rewrite(struct xdp_md *x, const struct packet *p, struct load l, const struct outlet *o, __u32 room,
		   __u32 offset)
{
	struct ethernet_header *first, *e;
	struct ipv4_header *four;
	struct ipv6_header *six;
	struct driver *d;
	__u16 *tag;
	void *end;

	if (offset != room && bpf_xdp_adjust_head(x, (int)offset - (int)room))
		return -1;
	first = (void *)(long)x->data;
	end = (void *)(long)x->data_end;
	if (room > OUTER_BYTES)
		return 1;
	e = (void *)first + room;
	four = (void *)(e + 1);
	six = (void *)(e + 1);
	if ((void *)(four + 1) > end)
		return 1;
	if (p->ipv6) {
		if ((void *)(six + 1) > end)
			return 1;
		six->hop_limit = p->ttl;
	} else {
		four->ttl = p->ttl;
		four->checksum = be16(p->checksum);
	}
	if (offset != room)
		e->protocol = p->ipv6 ? be16(PROTOCOL_IPV6) : be16(PROTOCOL_IPV4);
	if (room == OUTER_BYTES) {
		__u32 ifindex = o->ifindex;

		d = bpf_map_lookup_elem(&drivers, &ifindex);
		if (!d || (void *)first + OUTER_BYTES > end)
			return 1;
		write_tunnel(o, first, l.bytes, d->port);
	} else if (room == VLAN_BYTES) {
		tag = (void *)(first + 1);
		if ((void *)(tag + 1) > end)
			return 1;
		first->protocol = be16(PROTOCOL_VLAN);
		*tag = be16(o->label);
		e = first;
	}
	put_mac(e->destination, p->destination);
	put_mac(e->source, p->source);
	return 0;
}

#endif
