/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The tables that all hooks share. They outlive the agent: a change of a name, a size or a meaning here is a new layout
 * (LAYOUT in pipeline.go).
 */
#ifndef TABLES_H
#define TABLES_H

#include "fib.h"

enum {
	SLOT_BITS = 14,
	MAX_PORTS = 1 << SLOT_BITS, /* slot 0 is no port: it counts what belongs to none */
	MAX_PEERS = 4096,  /* number 0 is this node itself */
	RING_BYTES = 4 << 20,
};

/*
 * Where a port's link ends, in one word, so that changing it is one atomic store:
 * kind (bits 56…63), VNI or VLAN (32…55), slot, peer number or interface index (0…31).
 */
enum {
	LINK_NOWHERE = 0,
	LINK_LOCAL = 1,  /* slot of the far port */
	LINK_TUNNEL = 2, /* VNI, number of the peer */
	LINK_EDGE = 3,   /* VLAN (0: untagged), interface index */
};

INLINE __u32 link_kind(__u64 link) { return link >> 56; }
INLINE __u32 link_label(__u64 link) { return link >> 32 & 0xffffff; }
INLINE __u32 link_target(__u64 link) { return link; }

enum {
	PORT_DOWN = 1 << 0,  /* takes nothing: the far end is stopped */
	PORT_QUEUE = 1 << 1, /* output by its device's own queue: the peer is in this namespace, or no veth */
	PORT_ROUTED = 1 << 2, /* of the router whose number the upper half is */
	PORT_OFF4 = 1 << 3,   /* what comes to it by IPv4, or */
	PORT_OFF6 = 1 << 4,   /* by IPv6, is not forwarded here */
	PORT_XDP = 1 << 5,    /* frames from and to it may take the driver's hook */
	PORT_METERED = 1 << 6, /* what comes in by it counts against its network's packets a second */
	PORT_TC = 1 << 7,      /* its router forwards on the tc hook only */
	PORT_RATED = 1 << 8,   /* what is delivered to it passes a device with its link's queue, then from_queue */
	PORT_CUT = 1 << 9,     /* its element is in quarantine: nothing comes to it or from it */
	PORT_TRUNK = 1 << 10,  /* its edge carries frames with tags of their own */
	PORT_COPIES = 1 << 11, /* it gets copies of what passes a link, and gives nothing */
	PORT_PACED = 1 << 12,  /* what comes to its element and from it is bounded: its packets cost too much */
	PORT_VIRTUAL = 1 << 13, /* its router takes part in virtual routers (VRRP), and takes frames to them as well */
	PORT_UNTAGGED = 1 << 14, /* its link is a switch's access port's: it gives no frames with VLAN tags */
	PORT_ROUTER = 16,     /* bits to shift */
};

enum {
	SNAP_BYTES = (1U << 31) - 1,
	PORT_COPIED = 1U << 31, /* in snap: what passes the port's link is copied (mirrors) */
};

/* A port, by slot. Each field is written by an atomic store of its own. */
struct port {
	__u64 link;
	__u32 ifindex; /* 0: the slot is free, or its device is gone */
	__u32 flags;
	__u64 mac;  /* the element's, as the first six bytes of a frame read as a number; 0: it takes frames to any */
	__u32 snap; /* bytes of each frame to copy to the captures, and PORT_COPIED; 0: nothing but to forward */
	__u32 loss; /* of 2³² frames to the element so many, plus one, are lost; 0: none are */
};

/* Another node's (number 0: our own) address in the underlay. */
struct peer {
	__u32 family; /* 4 or 6; 0: unused */
	__u32 spare[3];
	__u32 address[4]; /* IPv4: address[0], in the host's order; IPv6: as on the wire */
};

struct edge_key {
	__u32 ifindex;
	__u32 vlan; /* 0: untagged */
};

INLINE __u64 edge_link(const struct edge_key *key)
{
	return (__u64)LINK_EDGE << 56 | (__u64)key->vlan << 32 | key->ifindex;
}

/*
 * A port's name, as the first 16 bytes of its SHA-256. By it the next agent finds the port's slot, and so its counters,
 * again.
 */
struct identity_key {
	__u8 hash[16];
};

struct identity {
	__u32 slot;
	__u32 length;
	__u8 name[192];
};

/* rx is what came from the element, tx what went to it. Bytes are those of Ethernet frames (load_of in ports.h). */
struct traffic_count {
	__u64 rx_packets;
	__u64 rx_bytes;
	__u64 tx_packets;
	__u64 tx_bytes;
};

/* What becomes of a router's transit packets. */
enum {
	STEER_GUEST = 0,     /* its own stack gets all */
	STEER_PIPELINE = 1,  /* they are forwarded here */
	STEER_COMPANION = 2, /* the node's kernel forwards them, in the router's companion namespace */
	STEER_DEVICES = 3,   /* whatever comes is handed to devices, whose namespace does with it what it likes */
};

/* A router for which somebody else forwards at least some packets. By its number, 1…MAX_ROUTERS-1. */
struct router {
	__u32 on;      /* STEER_*: one store of it steers all of the router's ports */
	__u32 seed;    /* of the hash that chooses among a group's next hops */
	/* The first bytes of its name's SHA-256, by which the next agent finds its number again; zeros: free */
	__u8 name[16];
	__u32 meter;   /* number of its network's meter of punts; 0: they are not metered */
	__u32 spare;
};

/*
 * Why the guest got a packet (a punt) although its router is forwarded for here. RFC 1812 and RFC 8200 say what the
 * guest does then.
 */
enum {
	PUNT_NONE = 0,
	PUNT_FRAME = 1,       /* not addressed to the router, or neither IPv4 nor IPv6: ARP, broadcast, multicast */
	PUNT_HEADER = 2,      /* an IP header that is wrong or cut */
	PUNT_OPTIONS = 3,     /* IPv4 options, IPv6 hop-by-hop options */
	PUNT_ADDRESS = 4,     /* from or to an address that routers do not forward like others */
	PUNT_TTL = 5,         /* TTL or hop limit at its end */
	PUNT_LOCAL = 6,       /* to the router itself */
	PUNT_NO_ROUTE = 7,
	PUNT_UNREACHABLE = 8, /* the route says unreachable or prohibit */
	PUNT_UNRESOLVED = 9,  /* the next hop's MAC address is not known */
	PUNT_TABLE = 10,      /* the tables leave it to the guest */
	PUNT_MTU = 11,        /* larger than the way on takes */
	PUNT_BACK = 12,       /* leaves by the port that it came from: the guest may send a redirect */
	PUNT_HOPS = 13,       /* too many routers in one run */
	PUNT_QUEUE = 14,      /* into an interface whose link has a bandwidth or delay: its queue must see the packet */
	PUNT_OFF = 15,        /* the interface, or the next hop's port, does not forward */
	PUNTS = 16,
};

/* What the programs did for a router; one for each processor, which user space adds up. */
struct router_count {
	__u64 packets; /* forwarded here, or given to the companion or the devices */
	__u64 bytes;
	__u64 blackholed; /* packets dropped because their route says blackhole */
	__u64 driver;     /* of those forwarded here, packets that took the driver's hook */
	__u64 companion;  /* of packets: those that the companion or the devices got */
	__u64 refused;    /* packets dropped instead of punted: beyond the network's punts a second */
	__u64 punts[PUNTS];
};

/* Why a frame was dropped. They count at the port that the frame came from, or at slot 0 where that is said. */
enum {
	DROP_NOWHERE = 0, /* the link ends nowhere */
	DROP_DOWN = 1,    /* the port that it should have gone to is down */
	DROP_GONE = 2,    /* the far port has no device */
	DROP_OUTPUT = 3,  /* the tunnel or VLAN header could not be written */
	DROP_UNKNOWN = 4, /* slot 0: from a device that is no port, or with a VNI of no port */
	DROP_SOURCE = 5,  /* from an address that is not the tunnel's other end */
	UNCAPTURED = 6,   /* not a drop: copies for a capture that found the ring full */
	DROP_LOSS = 7,    /* the link's loss */
	DROP_METER = 8,   /* the network sends more packets a second than it may */
	DROP_PUNTS = 9,   /* its routers would get more exceptional packets a second than they may */
	DROP_CUT = 10,    /* from or to an element in quarantine */
	DROP_STALE = 11,  /* slot 0: waited in a queue while its port went; the slot is another port's by now */
	DROP_TAG = 12,    /* a VLAN tag, or what is for the next bridge alone, at an edge or a port that is no trunk */
	DROP_COPIES = 13, /* sent by an interface that gets copies only */
	DROP_NODE = 14,   /* to a node's tunnels, out of an edge */
	DROP_PACE = 15,   /* its element's packets cost the node more than they may */
	REASONS = 16,
};

struct drop_count {
	__u64 packets[REASONS];
};

/* What a capture gets: this, then the frame's first bytes. */
struct copy {
	__u64 nanoseconds; /* monotonic clock */
	__u32 slot;
	__u32 length; /* of the whole frame */
	__u16 vlan_tci;
	__u16 vlan_proto; /* 0: no tag was taken off the frame */
	__u8 to_element;
	__u8 spare[3];
};

enum {
	COPY_BYTES = 65536 - sizeof(struct copy),
};

/* Room to build a copy in: too large for the stack of a program, which has 512 bytes. */
struct scratch {
	struct copy head;
	__u8 data[COPY_BYTES];
};

/* slot → port. User space maps it into its memory and stores single fields, so a change needs no system call. */
FLAGGED_MAP(MMAPABLE, ARRAY, ports, __u32, struct port, MAX_PORTS);

/* number → another node. The numbers are those in the links of tunnels. */
FLAGGED_MAP(MMAPABLE, ARRAY, peers, __u32, struct peer, MAX_PEERS);

/*
 * slot → index of the device with the slice's queue, 0: none. What the port sends to other nodes and edges passes that
 * queue first.
 */
FLAGGED_MAP(MMAPABLE, ARRAY, shapers, __u32, __u64, MAX_PORTS);

/*
 * slot → index of the device whose queue keeps the link's bandwidth and delay, for what is delivered to the port. Used
 * only where the port has PORT_RATED.
 */
FLAGGED_MAP(MMAPABLE, ARRAY, queues, __u32, __u64, MAX_PORTS);

/*
 * slot → how many ports have had it. A packet that waits in a queue carries its port in its mark: the slot, and the
 * lower bits of this number. So when the port goes meanwhile, the packet is never taken for one of the next port, which
 * may be another network's.
 */
FLAGGED_MAP(MMAPABLE, ARRAY, generations, __u32, __u64, MAX_PORTS);

/*
 * slot → number of the meter of the port's network. Used only where the port has PORT_METERED. It has 64 bits since the
 * entries of an array are that far apart.
 */
FLAGGED_MAP(MMAPABLE, ARRAY, metered, __u32, __u64, MAX_PORTS);

/*
 * A token bucket. All ports of a network and all processors share it; the programs write last and tokens, user space
 * the rest. There is no lock: who sees that the clock has moved exchanges last, and then adds tokens for all.
 */
struct meter {
	__u64 rate;  /* packets a second */
	__u64 burst; /* packets */
	__u64 last;  /* nanoseconds, monotonic coarse clock: tokens are right as of then */
	__u64 tokens; /* packets, signed: processors that draw at once may overdraw it */
};

/* number → the meter of a network, for all its packets */
FLAGGED_MAP(MMAPABLE, ARRAY, meters, __u32, struct meter, MAX_PORTS);

/*
 * slot → the slot whose bucket the port draws from, and a bucket. All ports of one element share the bucket of one of
 * them. Used only where the port has PORT_PACED.
 */
struct pace {
	__u64 number; /* the slot whose bucket counts */
	struct meter meter;
};

FLAGGED_MAP(MMAPABLE, ARRAY, paces, __u32, struct pace, MAX_PORTS);

/*
 * slot → where the copies go of what passes the port's link. Used only where snap has PORT_COPIED. Copies first pass a
 * device with a queue of their own, and then from_mirror.
 */
struct mirror {
	__u64 link; /* the port that gets them, or the tunnel to it */
	__u64 device; /* index of the device with the queue */
	__u64 copied; /* packets that were copied; the programs write this and the next */
	__u64 missed; /* packets beyond the meter */
	struct meter meter; /* in bytes */
};

FLAGGED_MAP(MMAPABLE, ARRAY, mirrors, __u32, struct mirror, MAX_PORTS);

/* number of a router → meter of punts. All routers of a network use the one of their lowest number. */
FLAGGED_MAP(MMAPABLE, ARRAY, punt_meters, __u32, struct meter, MAX_ROUTERS);

/*
 * slot → packets that this processor has taken in advance out of the bucket of the port's network, and not yet used.
 * With an advance a packet needs no atomic operation and no look at the clock.
 */
MAP(PERCPU_ARRAY, advances, __u32, __u64, MAX_PORTS);

/* number → router */
FLAGGED_MAP(MMAPABLE, ARRAY, routers, __u32, struct router, MAX_ROUTERS);

/* number of a router → what was done for it */
MAP(PERCPU_ARRAY, router_counts, __u32, struct router_count, MAX_ROUTERS);

/* interface index → slot */
FLAGGED_MAP(NO_PREALLOC, HASH, devices, __u32, __u32, MAX_PORTS);

/*
 * What the programs remember of look-ups. For devices the place is the index's lower bits. For edges it is the lower
 * bits of index and VLAN, half the table further. An array costs less than a hash. What is found there counts only if
 * the port in that slot really has that index, or that edge, so nobody needs to keep the table right.
 */
enum {
	RECENT = 4096,
};

MAP(ARRAY, recent, __u32, __u32, RECENT);

/*
 * slot → index of the node's end of the device that stands for the port in the companion namespace, 0: there is none.
 * The upper half has the index of the device before it, from which packets may still come.
 */
FLAGGED_MAP(MMAPABLE, ARRAY, companions, __u32, __u64, MAX_PORTS);

/* index of such a device → slot. An entry counts only if companions says the same. */
FLAGGED_MAP(NO_PREALLOC, HASH, companion_devices, __u32, __u32, MAX_PORTS);

/*
 * VNI → the port whose link comes by that tunnel, and the node that sends there. Where the port's own link leads to is
 * another matter: while a link's path is changed, packets come by both paths.
 */
struct tunnel_end {
	__u32 slot;
	__u32 peer; /* its number */
};

FLAGGED_MAP(NO_PREALLOC, HASH, tunnels, __u32, struct tunnel_end, 2 * MAX_PORTS);

/*
 * VNI → what this node does with packets of a link whose path leads through it. What comes from one of the two nodes
 * beside it on the path goes on to the other one. An entry is replaced as a whole; the programs only count.
 */
struct relay_way {
	__u64 packets; /* passed on; of GSO packets, their segments */
	__u64 bytes;   /* of the frames in the tunnel */
	__u64 over;    /* packets dropped: more than the link's bandwidth */
	struct meter meter; /* in bytes; rate 0: there is no bound */
};

struct relay {
	__u32 nodes[2]; /* IPv4 addresses in the host's order */
	__u64 foreign;  /* packets dropped: from another address */
	__u64 lost;     /* packets dropped: no way on, or too many relays */
	struct relay_way ways[2]; /* from nodes[0] to nodes[1], and back */
};

FLAGGED_MAP(NO_PREALLOC, HASH, relays, __u32, struct relay, MAX_PORTS);

/*
 * The addresses of all nodes, this one included, in the form of struct peer. to_tunnels looks here whether a frame that
 * leaves by an edge goes to a node. The UDP port of tunnels is in slot 0's mac.
 */
struct node_key {
	__u32 address[4];
};

FLAGGED_MAP(NO_PREALLOC, HASH, nodes, struct node_key, __u32, MAX_PEERS + 1);

/* device and VLAN → slot of the port whose link ends there */
FLAGGED_MAP(NO_PREALLOC, HASH, edges, struct edge_key, __u32, MAX_PORTS);

/*
 * A device whose driver's hook has our program, by its index. From that hook frames go only to such devices, since one
 * that was not made ready may lose them without an error.
 */
struct driver {
	__u64 mac;      /* as struct port's; tunnels' frames are addressed to it */
	__u32 flags;
	__u32 port;     /* UDP port of tunnels, as on the wire */
	__u32 restore;  /* the agent's memory: offloads that it changed */
	__u32 spare;
};

enum {
	DRIVER_TUNNELS = 1 << 0, /* frames of tunnels come and go here */
	DRIVER_EDGES = 1 << 1,   /* edges' */
	MAX_DRIVERS = 2 * MAX_PORTS,
};

FLAGGED_MAP(NO_PREALLOC, HASH, drivers, __u32, struct driver, MAX_DRIVERS);

/* SHA-256 of a port's name → its slot and name. The programs do not read it; it is what the next agent finds. */
FLAGGED_MAP(NO_PREALLOC, HASH, identities, struct identity_key, struct identity, MAX_PORTS);

/* slot → packets and bytes, for each processor */
MAP(PERCPU_ARRAY, traffic, __u32, struct traffic_count, MAX_PORTS);

/* slot → dropped packets by reason, for each processor */
MAP(PERCPU_ARRAY, drops, __u32, struct drop_count, MAX_PORTS);

/* What captures read: struct copy and the frame's first bytes, in the order in which they came */
struct {
	NUMBER(type, MAP_RINGBUF);
	NUMBER(max_entries, RING_BYTES);
} copies SEC(".maps");

/* One for each processor (the loader sets max_entries). Not a per-CPU map, since values of these end at 32 KiB. */
MAP(ARRAY, scratches, __u32, struct scratch, 1);

#endif
