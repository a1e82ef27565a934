/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The part of the kernel's BPF interface that the measuring programs use, written down here so that the compiled objects
 * depend on no header of the machine that they are built on. Numbers and layouts: linux/bpf.h.
 */
#ifndef POLYPLANE_MEASURE_KERNEL_H
#define POLYPLANE_MEASURE_KERNEL_H

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
#define __always_inline inline __attribute__((always_inline))
#define __noinline __attribute__((noinline))

/* Map definitions are read from BTF: an integer is the length of an array type. */
#define __uint(name, value) int(*name)[value]
#define __type(name, type) typeof(type) *name

enum { BPF_MAP_TYPE_ARRAY = 2, BPF_MAP_TYPE_DEVMAP = 14 };
enum { BPF_F_BROADCAST = 1 << 3 };
enum { XDP_ABORTED, XDP_DROP, XDP_PASS, XDP_TX, XDP_REDIRECT };

struct xdp_md {
	__u32 data;
	__u32 data_end;
	__u32 data_meta;
	__u32 ingress_ifindex;
	__u32 rx_queue_index;
	__u32 egress_ifindex;
};

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static __u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static __u32 (*bpf_get_smp_processor_id)(void) = (void *)8;
static __s64 (*bpf_csum_diff)(void *from, __u32 from_size, void *to, __u32 to_size, __u32 seed) = (void *)28;
static long (*bpf_redirect_map)(void *map, __u64 key, __u64 flags) = (void *)51;
static long (*bpf_xdp_adjust_tail)(struct xdp_md *ctx, int delta) = (void *)65;
static long (*bpf_loop)(__u32 turns, void *callback, void *argument, __u64 flags) = (void *)181;
static long (*bpf_xdp_store_bytes)(struct xdp_md *ctx, __u32 offset, void *from, __u32 len) = (void *)190;

/* The objects are little-endian. */
#define bpf_htons(v) ((__u16)__builtin_bswap16(v))
#define bpf_ntohs(v) ((__u16)__builtin_bswap16(v))
#define bpf_htonl(v) __builtin_bswap32(v)
#define bpf_ntohl(v) __builtin_bswap32(v)
#define bpf_cpu_to_be64(v) __builtin_bswap64(v)
#define bpf_be64_to_cpu(v) __builtin_bswap64(v)

#endif
