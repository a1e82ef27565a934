/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The port that a frame belongs to: how it is found, what counts its frames, the meters that bound them, and the marks
 * that name it while they wait.
 */
#ifndef PORTS_H
#define PORTS_H

#include "route.h"

enum {
	VLAN_BYTES = 4,
};

/*
 * loaded_header_bytes is header_bytes for headers that are not in the buffer's linear part, or of a frame that begins
 * further on in the buffer.
 */
static __attribute__((noinline)) __u32 loaded_header_bytes(struct __sk_buff *skb, __u32 begin, __u32 protocol)
{
	__u8 byte = 0, transport = 0;
	__u32 at = begin + ETHERNET_BYTES;

	if (protocol == be16(PROTOCOL_IPV4)) {
		if (bpf_skb_load_bytes(skb, at, &byte, 1) || bpf_skb_load_bytes(skb, at + 9, &transport, 1))
			return 0;
		at += (byte & 15) * 4;
	} else {
		if (bpf_skb_load_bytes(skb, at + 6, &transport, 1))
			return 0;
		at += 40;
	}
	if (transport == TRANSPORT_UDP)
		return at - begin + 8;
	if (transport != TRANSPORT_TCP || bpf_skb_load_bytes(skb, at + 12, &byte, 1))
		return 0;
	return at - begin + (byte >> 4) * 4;
}

/*
 * header_bytes is the length of the Ethernet, IP and transport headers that every segment of this GSO packet will
 * have; 0 for packets that the kernel is not known to segment. As a rule the headers lie in the buffer's linear part:
 * then loads do, without calls.
 */
INLINE __u32 header_bytes(struct __sk_buff *skb)
{
	const __u8 *frame = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	__u32 at = ETHERNET_BYTES + 40, transport, protocol = skb->protocol;

	if (protocol != be16(PROTOCOL_IPV4) && protocol != be16(PROTOCOL_IPV6))
		return 0;
	if (frame + ETHERNET_BYTES + 20 > end)
		return loaded_header_bytes(skb, 0, protocol);
	transport = frame[ETHERNET_BYTES + 6];
	if (protocol == be16(PROTOCOL_IPV4)) {
		transport = frame[ETHERNET_BYTES + 9];
		at = ETHERNET_BYTES + (frame[ETHERNET_BYTES] & 15) * 4;
	}
	if (transport == TRANSPORT_UDP)
		return at + 8;
	if (transport != TRANSPORT_TCP)
		return 0;
	frame += at + 12; /* TCP's data offset */
	if (frame + 1 > end)
		return loaded_header_bytes(skb, 0, protocol);
	return at + (*frame >> 4) * 4;
}

/* port_of finds the port whose device has this index, and its slot. */
INLINE struct port *port_of(__u32 ifindex, __u32 *slot)
{
	__u32 place = ifindex & (RECENT - 1), *known = bpf_map_lookup_elem(&recent, &place), *found;
	struct port *p;

	if (known) {
		*slot = *known;
		p = port_at(*slot);
		if (*slot && p && p->ifindex == ifindex)
			return p;
	}
	found = bpf_map_lookup_elem(&devices, &ifindex);
	if (!found)
		return 0;
	*slot = *found;
	if (known)
		*known = *slot;
	return port_at(*slot);
}

INLINE __u64 companions_of(__u32 slot)
{
	__u64 *word = bpf_map_lookup_elem(&companions, &slot);

	return word ? *(volatile __u64 *)word : 0;
}

/* stands_for tells whether a companion's device stands, or stood until lately, for the port at slot. */
INLINE int stands_for(__u32 ifindex, __u32 slot)
{
	__u64 word = companions_of(slot);

	return (__u32)word == ifindex || word >> 32 == ifindex;
}

/* port_of_companion finds the port that a companion's device stands for, and its slot. */
INLINE struct port *port_of_companion(__u32 ifindex, __u32 *slot)
{
	__u32 place = ifindex & (RECENT - 1), *known = bpf_map_lookup_elem(&recent, &place), *found;

	if (known) {
		*slot = *known;
		if (stands_for(ifindex, *slot))
			return port_at(*slot);
	}
	found = bpf_map_lookup_elem(&companion_devices, &ifindex);
	if (!found)
		return 0;
	*slot = *found;
	if (!stands_for(ifindex, *slot))
		return 0;
	if (known)
		*known = *slot;
	return port_at(*slot);
}

/* hands_all tells whether all packets for a port's element are handed to devices. */
INLINE int hands_all(const struct port *p)
{
	__u32 number = p->flags >> PORT_ROUTER;
	struct router *r = bpf_map_lookup_elem(&routers, &number);

	return p->flags & PORT_ROUTED && r && *(volatile __u32 *)&r->on == STEER_DEVICES;
}

struct load {
	__u32 packets;
	__u32 bytes;
};

/*
 * load_of tells what the frame would be on a wire. A GSO packet counts as its segments, each with its headers. Bytes
 * are those of Ethernet frames with their VLAN tag, without preamble and check sequence.
 */
INLINE struct load load_of(struct __sk_buff *skb)
{
	struct load l = { .packets = 1, .bytes = skb->len };

	if (skb->gso_segs > 1) {
		l.packets = skb->gso_segs;
		l.bytes += (skb->gso_segs - 1) * header_bytes(skb);
	}
	if (skb->vlan_present)
		l.bytes += l.packets * VLAN_BYTES;
	return l;
}

INLINE void count_from(struct load l, __u32 slot)
{
	struct traffic_count *t = bpf_map_lookup_elem(&traffic, &slot);

	if (t) {
		t->rx_packets += l.packets;
		t->rx_bytes += l.bytes;
	}
}

INLINE void count_to(struct load l, __u32 slot)
{
	struct traffic_count *t = bpf_map_lookup_elem(&traffic, &slot);

	if (t) {
		t->tx_packets += l.packets;
		t->tx_bytes += l.bytes;
	}
}

INLINE void count_drop(struct load l, __u32 slot, __u32 reason)
{
	struct drop_count *d = bpf_map_lookup_elem(&drops, &slot);

	if (d)
		d->packets[reason & (REASONS - 1)] += l.packets;
}

INLINE int drop(struct load l, __u32 slot, __u32 reason)
{
	count_drop(l, slot, reason);
	return ACT_SHOT;
}

enum {
	SECOND = 1000000000,
	BURST_ADVANCES = 64, /* in advance a processor takes for a port at most this part of a burst (1/64), */
	MAX_ADVANCE = 64,    /* and at most this many packets */
};

/*
 * over tells whether a meter is used up. If not, it takes the packets off. Where there is an advance, it takes a few
 * more for it: for these this processor need not ask again. The clock moves in the kernel's ticks (1 to 10 ms) and
 * costs next to nothing. The first who sees that it has moved fills the bucket for all.
 */
INLINE int over(struct meter *m, __u32 packets, __u64 *advance)
{
	__u64 now, last, gained, rate, burst, more = 0;
	long long room;

	rate = *(volatile __u64 *)&m->rate;
	burst = *(volatile __u64 *)&m->burst;
	now = bpf_ktime_get_coarse_ns();
	last = *(volatile __u64 *)&m->last;
	if (rate && now > last) {
		/* A pause of a second fills any bucket. Time that made no whole packet is kept for the next. */
		gained = now - last > SECOND ? rate : (now - last) * rate / SECOND;
		if (gained &&
		    __sync_val_compare_and_swap(&m->last, last, now - last > SECOND ? now :
						 last + gained * SECOND / rate) == last) {
			room = burst - *(volatile __u64 *)&m->tokens;
			if ((long long)gained > room)
				gained = room;
			__sync_fetch_and_add(&m->tokens, gained);
		}
	}
	room = *(volatile long long *)&m->tokens;
	if (room <= 0)
		return 1; /* else it may get into debt: a packet that is many is let through or not as a whole */
	if (advance) {
		more = burst / BURST_ADVANCES;
		if (more > MAX_ADVANCE)
			more = MAX_ADVANCE;
		if ((long long)(packets + more) > room)
			more = 0;
		*advance += more;
	}
	__sync_fetch_and_add(&m->tokens, -(packets + more));
	return 0;
}

/* draw is over for the meter of a port's network, with an advance for the port. */
static __attribute__((noinline)) int draw(__u32 slot, __u32 packets)
{
	__u64 *number = bpf_map_lookup_elem(&metered, &slot), *advance = bpf_map_lookup_elem(&advances, &slot);
	struct meter *m;
	__u32 key;

	if (!number || !advance)
		return 0;
	key = *number;
	m = bpf_map_lookup_elem(&meters, &key);
	return m && over(m, packets, advance);
}

/*
 * over_meter tells whether a network sends more packets than it may. Most packets cost neither an atomic operation nor
 * a look at the clock.
 */
INLINE int over_meter(__u32 slot, __u32 packets)
{
	__u64 *advance = bpf_map_lookup_elem(&advances, &slot);

	if (advance && *advance >= packets) {
		*advance -= packets;
		return 0;
	}
	return draw(slot, packets);
}

/* over_punts tells whether a network's routers get more exceptional packets than they may. */
static __attribute__((noinline)) int over_punts(__u32 number, __u32 packets)
{
	struct router *r = bpf_map_lookup_elem(&routers, &number);
	struct meter *m;
	__u32 key;

	if (!r)
		return 0;
	key = *(volatile __u32 *)&r->meter;
	m = key ? bpf_map_lookup_elem(&punt_meters, &key) : 0;
	return m && over(m, packets, 0);
}

/*
 * over_pace tells whether an element with costly packets has had as many as it may. A GSO packet counts once: the
 * kernel works on it once.
 */
static __attribute__((noinline)) int over_pace(__u32 slot)
{
	struct pace *own = bpf_map_lookup_elem(&paces, &slot), *shared;
	__u32 key;

	if (!own)
		return 0;
	key = *(volatile __u64 *)&own->number;
	shared = key ? bpf_map_lookup_elem(&paces, &key) : 0;
	return shared && over(&shared->meter, 1, 0);
}

/* mark_of makes the mark of a packet that will wait in a queue: it names the port. */
INLINE __u32 mark_of(__u32 slot)
{
	__u64 *generation = bpf_map_lookup_elem(&generations, &slot);

	return generation ? slot | (__u32)*(volatile __u64 *)generation << SLOT_BITS : 0;
}

/*
 * marked returns the slot of the port that a mark names; 0 if it names none, or if the slot is another port's by now.
 */
INLINE __u32 marked(__u32 mark)
{
	__u32 slot = mark & (MAX_PORTS - 1);

	return mark_of(slot) == mark ? slot : 0;
}

#endif
