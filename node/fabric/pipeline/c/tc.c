/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The pipeline on the tc hook: programs for the ingress of ports, of queues' far ends, of the tunnel device and of
 * edges.
 */

#include "stages.h"
#include "relay.h"
#include "xdp.h" /* and on the driver's, in the same object */

/* sent handles a frame that the element behind the port at slot has sent. */
INLINE int sent(struct __sk_buff *skb, struct load l, __u32 slot, struct port *from)
{
	__u64 link;

	count_from(l, slot);
	if (from->snap)
		copy_frame(skb, slot, from->snap, 0);
	if (from->flags & (PORT_METERED | PORT_CUT | PORT_COPIES | PORT_PACED | PORT_UNTAGGED)) {
		if (from->flags & PORT_COPIES)
			return drop(l, slot, DROP_COPIES);
		if (from->flags & PORT_CUT)
			return drop(l, slot, DROP_CUT);
		if (from->flags & PORT_PACED && over_pace(slot))
			return drop(l, slot, DROP_PACE);
		if (from->flags & PORT_METERED && over_meter(slot, l.packets))
			return drop(l, slot, DROP_METER);
		if (from->flags & PORT_UNTAGGED && untag(skb))
			return drop(l, slot, DROP_TAG);
	}
	if (from->snap & PORT_COPIED)
		mirror_frame(skb, slot);
	link = *(volatile __u64 *)&from->link;
	if (link_kind(link) == LINK_LOCAL)
		return deliver(skb, l, slot, link_target(link));
	return leave(skb, l, slot, link);
}

/* from_port takes what an element sends, at the ingress of its port. None of it ever reaches the node's own stack. */
SEC("tc")
int from_port(struct __sk_buff *skb)
{
	struct load l = load_of(skb);
	struct port *from;
	__u32 slot;

	from = port_of(skb->ifindex, &slot);
	return from ? sent(skb, l, slot, from) : drop(l, 0, DROP_UNKNOWN);
}

/*
 * from_companion takes what a router's companion forwarded, at the node's end of its device. It goes on as if the
 * router had sent it. What the companion's kernel sends of its own accord, such as the groups that it joins, is
 * dropped. Devices that get all packets (STEER_DEVICES) may send anything.
 */
SEC("tc")
int from_companion(struct __sk_buff *skb)
{
	struct load l = load_of(skb);
	struct port *from;
	__u32 slot;

	from = port_of_companion(skb->ifindex, &slot);
	if ((skb->pkt_type == PACKET_BROADCAST || skb->pkt_type == PACKET_MULTICAST) && !(from && hands_all(from)))
		return ACT_SHOT;
	return from ? sent(skb, l, slot, from) : drop(l, 0, DROP_UNKNOWN);
}

/* from_shaper takes what has passed a slice's queue, at the far end of its device. */
SEC("tc")
int from_shaper(struct __sk_buff *skb)
{
	__u32 slot = marked(skb->mark);
	struct load l = load_of(skb);
	struct port *from = port_at(slot);

	if (!from || slot == 0)
		return drop(l, 0, skb->mark ? DROP_STALE : DROP_UNKNOWN);
	skb->mark = 0; /* the underlay's routing may heed it */
	if (from->flags & PORT_CUT)
		return drop(l, slot, DROP_CUT);
	return send_out(skb, l, slot, *(volatile __u64 *)&from->link);
}

/* from_queue takes what has passed the queue of a port, at the far end of that queue's device. */
SEC("tc")
int from_queue(struct __sk_buff *skb)
{
	__u32 slot = marked(skb->mark);

	if (slot == 0)
		return drop(load_of(skb), 0, skb->mark ? DROP_STALE : DROP_UNKNOWN);
	skb->mark = 0; /* the element's own rules may heed it */
	return forward_frame(skb, slot, slot, 1);
}

/* from_mirror takes copies that have passed their mirror's queue, at the far end of its device. */
SEC("tc")
int from_mirror(struct __sk_buff *skb)
{
	__u32 slot = marked(skb->mark), own = 0;
	struct mirror *m = bpf_map_lookup_elem(&mirrors, &slot);
	struct load l = load_of(skb);
	struct port *to;
	__u64 link;

	if (slot == 0 || !m)
		return drop(l, 0, skb->mark ? DROP_STALE : DROP_UNKNOWN);
	skb->mark = 0;
	link = *(volatile __u64 *)&m->link;
	if (link_kind(link) == LINK_TUNNEL) {
		to = port_at(own); /* slot 0's device is the tunnel device */
		return send_tunnel(skb, l, 0, link, to ? to->ifindex : 0);
	}
	to = port_at(link_target(link));
	if (link_kind(link) != LINK_LOCAL || !to || !(to->flags & PORT_COPIES))
		return ACT_SHOT;
	return deliver(skb, l, link_target(link), link_target(link));
}

INLINE int same_address(const struct peer *p, const __u32 *address, __u32 family)
{
	if (p->family != family || p->address[0] != address[0])
		return 0;
	return family == 4 || (p->address[1] == address[1] && p->address[2] == address[2] && p->address[3] == address[3]);
}

/*
 * from_tunnel takes what comes from other nodes. The table of tunnels says from which peer a VNI may come. The packet
 * must be addressed to this node's one address that peers know. The kernel alone would take it at any of the machine's
 * addresses, broadcast and multicast too, to which an element behind an edge could send.
 */
SEC("tc")
int from_tunnel(struct __sk_buff *skb)
{
	struct bpf_tunnel_key key = {};
	struct load l = load_of(skb);
	__u32 family = 4, slot, number, vni, own = 0;
	struct tunnel_end *end;
	struct peer *p, *near;
	struct port *to;

	if (bpf_skb_get_tunnel_key(skb, &key, sizeof(key), 0)) {
		family = 6;
		if (bpf_skb_get_tunnel_key(skb, &key, sizeof(key), TUNNEL_IPV6))
			return drop(l, 0, DROP_UNKNOWN);
	}
	vni = key.tunnel_id;
	end = bpf_map_lookup_elem(&tunnels, &vni);
	if (!end)
		return drop(l, 0, DROP_UNKNOWN);
	slot = end->slot;
	number = end->peer;
	to = port_at(slot);
	if (!to || link_kind(*(volatile __u64 *)&to->link) != LINK_TUNNEL)
		return drop(l, 0, DROP_UNKNOWN);
	p = bpf_map_lookup_elem(&peers, &number);
	near = bpf_map_lookup_elem(&peers, &own);
	if (!p || !near || !same_address(p, key.remote, family) || !same_address(near, key.local, family))
		return drop(l, slot, DROP_SOURCE);
	return deliver(skb, l, slot, slot);
}

/* edge_port finds the port of an edge, and its slot. */
INLINE struct port *edge_port(const struct edge_key *key, __u32 *slot)
{
	__u32 *found = bpf_map_lookup_elem(&edges, key);
	struct port *p;

	if (!found)
		return 0;
	*slot = *found;
	p = port_at(*slot);
	return p && *(volatile __u64 *)&p->link == edge_link(key) ? p : 0;
}

/* from_edge takes what comes in at a real device, if it belongs to one of our edges; the rest is the host's. */
SEC("tc")
int from_edge(struct __sk_buff *skb)
{
	__u32 taken = skb->vlan_proto, outer = skb->protocol, tagged, slot = 0;
	struct edge_key key = { .ifindex = skb->ifindex };
	struct port *to = 0;
	__u16 tci = skb->vlan_tci;

	OPAQUE(taken); /* else one load at one of two places in skb, which the verifier refuses */
	OPAQUE(outer);
	if (skb->vlan_present)
		outer = taken;
	tagged = outer == be16(PROTOCOL_VLAN);
	if (tagged) {
		if (skb->vlan_present)
			key.vlan = tci & 0xfff;
		/* Rare: the kernel takes tags off before this hook */
		else if (bpf_skb_load_bytes(skb, ETHERNET_BYTES, &tci, sizeof(tci)))
			return ACT_UNSPEC;
		else
			key.vlan = be16(tci) & 0xfff;
	}
	/* A service's VLAN is none of the edges', though it has the number of one */
	if (outer != be16(PROTOCOL_SERVICE_VLAN))
		to = edge_port(&key, &slot);
	if (!to && is_tagged(skb)) { /* of no edge's VLAN: all of a trunk's device is its own */
		key.vlan = 0;
		to = edge_port(&key, &slot);
		if (to && !(to->flags & PORT_TRUNK))
			to = 0;
	}
	if (!to)
		return ACT_UNSPEC;
	if (to->flags & PORT_METERED && over_meter(slot, load_of(skb).packets))
		return drop(load_of(skb), slot, DROP_METER);
	if (tagged && (key.vlan || !(to->flags & PORT_TRUNK)) && bpf_skb_vlan_pop(skb))
		return drop(load_of(skb), slot, DROP_OUTPUT);
	if ((is_tagged(skb) || for_bridges(skb)) && !(to->flags & PORT_TRUNK))
		return drop(load_of(skb), slot, DROP_TAG);
	return deliver(skb, load_of(skb), slot, slot);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
