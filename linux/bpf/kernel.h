/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The part of the kernel's BPF interface that all of our programs use. It is written down here so that the compiled
 * objects do not depend on the headers of the machine that they are built on: these may be older than what the programs
 * use. Numbers and layouts: linux/bpf.h, linux/pkt_cls.h.
 */
#ifndef POLYPLANE_KERNEL_H
#define POLYPLANE_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef _Bool bool;

#define true 1
#define false 0
#define NULL ((void *)0)

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))

/*
 * OPAQUE hides from the compiler what it knows of a variable. What is masked or compared after it is masked or compared
 * in the one register that is used then. The verifier needs that. Linux 6.1's does not see that two registers are
 * copies, learns nothing from "is not 0", and forgets everything about the result of an "or" of two variables.
 */
#define OPAQUE(variable) asm volatile("" : "+r"(variable))

/* Map definitions are read from BTF: an integer is the length of an array type. */
#define NUMBER(name, value) int(*name)[value]
#define TYPE(name, type) typeof(type) *name
#define INNER(name, map) map *name[]

/* The usual map: its kind, its name, types of keys and values, how many entries it has at most. And one with a flag. */
#define MAP(kind, name, key_type, value_type, entries) \
	struct { \
		NUMBER(type, MAP_##kind); \
		NUMBER(max_entries, entries); \
		TYPE(key, key_type); \
		TYPE(value, value_type); \
	} name SEC(".maps")
#define FLAGGED_MAP(flag, kind, name, key_type, value_type, entries) \
	struct { \
		NUMBER(type, MAP_##kind); \
		NUMBER(map_flags, MAP_##flag); \
		NUMBER(max_entries, entries); \
		TYPE(key, key_type); \
		TYPE(value, value_type); \
	} name SEC(".maps")

enum {
	MAP_HASH = 1,
	MAP_ARRAY = 2,
	MAP_PERCPU_HASH = 5,
	MAP_PERCPU_ARRAY = 6,
	MAP_ARRAY_OF_MAPS = 12,
	MAP_DEVMAP = 14,
	MAP_RINGBUF = 27,
	MAP_NO_PREALLOC = 1 << 0,
	MAP_MMAPABLE = 1 << 10,
};

enum {
	ACT_UNSPEC = -1, /* the next filter, then the host */
	ACT_SHOT = 2,
};

enum {
	XDP_ABORTED = 0,
	XDP_DROP = 1,
	XDP_PASS = 2,
	XDP_TX = 3,
	XDP_REDIRECT = 4,
};

enum {
	PACKET_HOST = 0,
	PACKET_BROADCAST = 1,
	PACKET_MULTICAST = 2,
	PROTOCOL_IPV4 = 0x0800,
	PROTOCOL_IPV6 = 0x86dd,
	PROTOCOL_VLAN = 0x8100,
	PROTOCOL_SERVICE_VLAN = 0x88a8,
	PROTOCOL_OLD_VLAN = 0x9100, /* the service tag from before 802.1ad, which switches still know */
	TRANSPORT_HOP_BY_HOP = 0,
	TRANSPORT_TCP = 6,
	TRANSPORT_UDP = 17,
	TRANSPORT_ICMPV6 = 58,
	TRANSPORT_SCTP = 132,
};

struct __sk_buff {
	__u32 len;
	__u32 pkt_type;
	__u32 mark;
	__u32 queue_mapping;
	__u32 protocol;
	__u32 vlan_present;
	__u32 vlan_tci;
	__u32 vlan_proto;
	__u32 priority;
	__u32 ingress_ifindex;
	__u32 ifindex;
	__u32 tc_index;
	__u32 cb[5];
	__u32 hash;
	__u32 tc_classid;
	__u32 data;
	__u32 data_end;
	__u32 napi_id;
	__u32 addresses[10];
	__u32 ports[2];
	__u32 data_meta;
	__u64 flow_keys;
	__u64 tstamp;
	__u32 wire_len;
	__u32 gso_segs;
	__u64 sk;
	__u32 gso_size;
};

struct xdp_md {
	__u32 data;
	__u32 data_end;
	__u32 data_meta;
	__u32 ingress_ifindex;
	__u32 rx_queue_index;
	__u32 egress_ifindex;
};

struct bpf_tunnel_key {
	__u32 tunnel_id;
	__u32 remote[4]; /* an IPv4 address: the first word, in the host's order; IPv6: as on the wire */
	__u8 tunnel_tos;
	__u8 tunnel_ttl;
	__u16 tunnel_flags;
	__u32 tunnel_label;
	__u32 local[4];
};

/* struct bpf_fib_lookup */
struct fib_lookup {
	__u8 family; /* AF_INET */
	__u8 protocol;
	__u16 source_port;
	__u16 destination_port;
	__u16 length; /* of the IP packet, in the host's order */
	__u32 ifindex; /* asked: the device that the packet seems to come from; answered: the device that it goes to */
	__u32 tos;
	__u32 source[4];
	__u32 destination[4];
	__u32 vlan;
	__u16 source_mac[3];
	__u16 destination_mac[3];
};

/* struct bpf_redir_neigh */
struct next_hop {
	__u32 family;
	__u32 address[4];
};

enum {
	FAMILY_INET = 2,
	FIB_SUCCESS = 0,      /* bpf_fib_lookup's answers: all is known */
	FIB_NO_NEIGHBOUR = 7, /* all but the next hop's MAC address */
};

enum {
	TUNNEL_IPV6 = 1 << 0,        /* both ways: addresses are IPv6 */
	TUNNEL_ZERO_CHECKSUM = 1 << 1,
	TUNNEL_GET_FLAGS = 1 << 4,   /* tunnel_flags instead of tunnel_ext */
	STORE_CHECKSUM = 1 << 0,     /* bpf_skb_store_bytes: keep up the sum that a NIC made of the whole packet */
	MTU_SEGMENTS = 1 << 0,       /* bpf_check_mtu: look at what a GSO packet will be */
	REDIRECT_BROADCAST = 1 << 3, /* bpf_redirect_map: to all devices of the map */
	RINGBUF_AVAILABLE = 0,
	RINGBUF_SIZE = 1,
};

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const bpf_map_update_elem)(void *map, const void *key, const void *value, __u64 flags) = (void *)2;
static __u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
static __u32 (*const bpf_get_prandom_u32)(void) = (void *)7;
static __u32 (*const bpf_get_smp_processor_id)(void) = (void *)8;
static long (*const bpf_skb_store_bytes)(struct __sk_buff *skb, __u32 offset, const void *from, __u32 len,
					__u64 flags) = (void *)9;
static long (*const bpf_clone_redirect)(struct __sk_buff *skb, __u32 ifindex, __u64 flags) = (void *)13;
static long (*const bpf_skb_vlan_push)(struct __sk_buff *skb, __u16 proto_be, __u16 tci) = (void *)18;
static long (*const bpf_skb_vlan_pop)(struct __sk_buff *skb) = (void *)19;
static long (*const bpf_skb_get_tunnel_key)(struct __sk_buff *skb, struct bpf_tunnel_key *key, __u32 size,
					   __u64 flags) = (void *)20;
static long (*const bpf_skb_set_tunnel_key)(struct __sk_buff *skb, struct bpf_tunnel_key *key, __u32 size,
					   __u64 flags) = (void *)21;
static long (*const bpf_redirect)(__u32 ifindex, __u64 flags) = (void *)23;
static long (*const bpf_skb_load_bytes)(const struct __sk_buff *skb, __u32 offset, void *to, __u32 len) = (void *)26;
static __s64 (*const bpf_csum_diff)(void *from, __u32 from_size, void *to, __u32 to_size, __u32 seed) = (void *)28;
static long (*const bpf_skb_change_type)(struct __sk_buff *skb, __u32 type) = (void *)32;
static __u64 (*const bpf_get_current_task)(void) = (void *)35;
static long (*const bpf_skb_pull_data)(struct __sk_buff *skb, __u32 len) = (void *)39;
static long (*const bpf_xdp_adjust_head)(struct xdp_md *x, int delta) = (void *)44;
static long (*const bpf_redirect_map)(void *map, __u64 key, __u64 flags) = (void *)51;
static long (*const bpf_xdp_adjust_tail)(struct xdp_md *x, int delta) = (void *)65;
static long (*const bpf_fib_lookup)(void *context, struct fib_lookup *params, int size, __u32 flags) = (void *)69;
static long (*const bpf_probe_read_kernel)(void *to, __u32 size, const void *from) = (void *)113;
static long (*const bpf_probe_read_kernel_str)(void *to, __u32 size, const void *from) = (void *)115;
static long (*const bpf_ringbuf_output)(void *ringbuf, void *data, __u64 size, __u64 flags) = (void *)130;
static __u64 (*const bpf_ringbuf_query)(void *ringbuf, __u64 flags) = (void *)134;
static long (*const bpf_redirect_neigh)(__u32 ifindex, struct next_hop *to, int size, __u64 flags) = (void *)152;
static long (*const bpf_redirect_peer)(__u32 ifindex, __u64 flags) = (void *)155;
static struct task_struct *(*const bpf_get_current_task_btf)(void) = (void *)158;
static __u64 (*const bpf_ktime_get_coarse_ns)(void) = (void *)160;
static long (*const bpf_check_mtu)(void *context, __u32 ifindex, __u32 *mtu, int more, __u64 flags) = (void *)163;
static __u64 (*const bpf_xdp_get_buff_len)(struct xdp_md *x) = (void *)188;
static long (*const bpf_xdp_store_bytes)(struct xdp_md *x, __u32 offset, void *from, __u32 len) = (void *)190;
static long (*const bpf_loop)(__u32 times, void *callback, void *context, __u64 flags) = (void *)181;

INLINE __u16 be16(__u16 v)
{
	return __builtin_bswap16(v); /* the objects are little-endian */
}

INLINE __u32 be32(__u32 v)
{
	return __builtin_bswap32(v);
}

INLINE __u64 be64(__u64 v)
{
	return __builtin_bswap64(v);
}

#endif
