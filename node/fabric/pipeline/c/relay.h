/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Relaying: packets of links whose path leads through this node go on to the next node on that path, without leaving
 * their tunnel. Only the outer addresses change, so the flow keeps its source port, and packets that are segmented
 * later (GSO) stay whole.
 */
#ifndef RELAY_H
#define RELAY_H

#include "wire.h"

/*
 * relayed_load tells what the frame in a tunnel is on a wire. The buffer has the tunnel's headers in front of it, and
 * so has each of its segments.
 */
INLINE struct load relayed_load(struct __sk_buff *skb)
{
	struct load l = { .packets = 1, .bytes = skb->len - OUTER_BYTES };
	__u16 protocol = 0;

	if (skb->gso_segs > 1) {
		l.packets = skb->gso_segs;
		if (!bpf_skb_load_bytes(skb, OUTER_BYTES + ETHERNET_BYTES - 2, &protocol, sizeof(protocol)))
			l.bytes += (l.packets - 1) * loaded_header_bytes(skb, OUTER_BYTES, protocol);
	}
	return l;
}

/*
 * relay_to sends the packet to another node, as this one's. The kernel is asked for the way, packet by packet, since
 * words that the agent keeps would be wrong while it is away; it is asked as in tunnel_way. Neighbours' MAC addresses
 * are the kernel's business.
 */
static NOINLINE int relay_to(struct __sk_buff *skb, struct ipv4_header *ip, __u32 to)
{
	struct fib_lookup way = { .family = FAMILY_INET, .protocol = TRANSPORT_UDP };
	struct next_hop hop = { .family = FAMILY_INET };
	__u32 own = 0;
	struct port *node = port_at(own); /* slot 0's device is the tunnel device */
	long answer;

	if (!node)
		return ACT_SHOT;
	ip->destination = be32(to);
	ip->ttl--;
	ip->checksum = 0;
	ip->checksum = ~sum4(ip);
	way.ifindex = node->ifindex;
	way.source[0] = ip->source;
	way.destination[0] = ip->destination;
	answer = bpf_fib_lookup(skb, &way, sizeof(way), 0); /* without a length: it looks at what the buffer will be */
	if (answer != FIB_SUCCESS && answer != FIB_NO_NEIGHBOUR)
		return ACT_SHOT;
	if (bpf_skb_store_bytes(skb, ETHERNET_BYTES, ip, sizeof(*ip), 0)) /* its sum stays what it is */
		return ACT_SHOT;
	hop.address[0] = way.destination[0];
	return bpf_redirect_neigh(way.ifindex, &hop, sizeof(hop), 0);
}

/* pass_on does with a packet what the relay says of the node that it comes from. */
static NOINLINE int pass_on(struct __sk_buff *skb, struct ipv4_header *ip, struct relay *r, __u32 near)
{
	struct load l = relayed_load(skb);
	__u32 from = be32(ip->source), to;
	struct relay_way *way;
	int verdict;

	if (from == r->nodes[0]) {
		way = &r->ways[0];
		to = r->nodes[1];
	} else if (from == r->nodes[1]) {
		way = &r->ways[1];
		to = r->nodes[0];
	} else {
		__sync_fetch_and_add(&r->foreign, l.packets);
		return ACT_SHOT;
	}
	if (way->meter.rate && over(&way->meter, l.bytes, 0)) {
		__sync_fetch_and_add(&way->over, l.packets);
		return ACT_SHOT;
	}
	ip->source = be32(near);
	verdict = ip->ttl > 1 ? relay_to(skb, ip, to) : ACT_SHOT;
	if (verdict == ACT_SHOT) {
		__sync_fetch_and_add(&r->lost, l.packets);
		return verdict;
	}
	__sync_fetch_and_add(&way->packets, l.packets);
	__sync_fetch_and_add(&way->bytes, l.bytes);
	return verdict;
}

/*
 * from_underlay takes what comes from other nodes for others, at the underlay's devices, while this node relays
 * anything. All else is the host's: the tunnel device gets what is for this node's ports, and drops what is nobody's.
 */
SEC("tc")
int from_underlay(struct __sk_buff *skb)
{
	struct ethernet_header *e;
	struct ipv4_header *ip, copy;
	struct udp_header *udp;
	struct vxlan_header *v;
	__u32 own = 0, vni;
	struct relay *r;
	struct peer *near;

	if (skb->protocol != be16(PROTOCOL_IPV4) || skb->vlan_present || skb->pkt_type != PACKET_HOST ||
	    skb->len < OUTER_BYTES)
		return ACT_UNSPEC;
	if ((void *)(long)skb->data + OUTER_BYTES > (void *)(long)skb->data_end &&
	    bpf_skb_pull_data(skb, OUTER_BYTES))
		return ACT_UNSPEC;
	e = (void *)(long)skb->data;
	ip = (void *)(e + 1);
	udp = (void *)(ip + 1);
	v = (void *)(udp + 1);
	if ((void *)(v + 1) > (void *)(long)skb->data_end)
		return ACT_UNSPEC;
	/* What a node's tunnels never send, such as fragments, is left to the kernel */
	if (ip->version_length != 0x45 || ip->protocol != TRANSPORT_UDP || ip->fragment & be16(0x3fff) ||
	    be16(udp->destination) != tunnel_port() || udp->checksum || v->flags != be32(VXLAN_VNI) ||
	    be32(v->vni) & 0xff)
		return ACT_UNSPEC;
	near = bpf_map_lookup_elem(&peers, &own);
	if (!near || near->family != 4 || be32(ip->destination) != near->address[0])
		return ACT_UNSPEC;
	vni = be32(v->vni) >> 8;
	r = bpf_map_lookup_elem(&relays, &vni);
	if (!r || sum4(ip) != 0xffff)
		return ACT_UNSPEC;
	copy = *ip;
	return pass_on(skb, &copy, r, near->address[0]);
}

#endif
