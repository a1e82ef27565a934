/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What an element may ask of netfilter by netlink. In some parts of netfilter each object is memory that the kernel
 * charges to nobody, that nothing bounds, and that does not need packets: 65,536 groups of the log take 256 KiB each
 * with one packet. A filter of system calls sees no netlink message. This program runs at each message that any process
 * sends (the security module's hook netlink_send, Documentation/bpf/prog_lsm.rst), on the kernel's own copy of it.
 * Where the kernel was started without the security module of eBPF programs, it runs before the function that asks all
 * security modules. An element is known as in sockets.c.
 */
#include "../../../../linux/bpf/kernel.h"

#define RELOCATED __attribute__((preserve_access_index))

/* The part of the kernel's types that is used. Where its members lie is looked up when the program is loaded (BTF). */
struct net {
	__u64 net_cookie;
} RELOCATED;

typedef struct {
	struct net *net;
} RELOCATED possible_net_t;

struct sock_common {
	possible_net_t skc_net;
} RELOCATED;

struct sock {
	struct sock_common __sk_common;
	__u16 sk_protocol;
} RELOCATED;

struct sk_buff {
	unsigned char *data;
	__u32 len;
} RELOCATED;

/* Of linux/netlink.h and linux/netfilter/nfnetlink.h. */
struct message {
	__u32 length;
	__u16 type; /* the part of netfilter in the upper half */
	__u16 flags;
	__u32 sequence;
	__u32 port;
};

enum {
	NETFILTER = 12,      /* NETLINK_NETFILTER */
	OWN = 0x10,          /* NLMSG_MIN_TYPE: types below are netlink's */
	/* NFNL_MSG_BATCH_BEGIN: what follows is all for one part that takes batches, which is nftables only */
	BATCH = 0x10,
	MOST = 64,           /* messages at once; nobody sends more without a batch */
	NOT_PERMITTED = 1,   /* EPERM */
	PART_LOG = 4,        /* NFNL_SUBSYS_ULOG */
	PART_OSF = 5,        /* fingerprints of operating systems, the machine's */
	PART_IPSET = 6,
	PART_ACCT = 7,
	PART_TIMEOUT = 8,    /* time limits of connections */
	PART_HELPER = 9,     /* NFNL_SUBSYS_CTHELPER */
};

struct allowance { /* as in sockets.c */
	__u64 rings;
	__u64 filters;
	__u64 rings_back;
	__u64 filters_back;
};

FLAGGED_MAP(NO_PREALLOC, HASH, limits, __u64, struct allowance, 1 << 17);

/* How many messages to netfilter the program has seen, whoever sent them. This shows whether the kernel runs it. */
MAP(ARRAY, messages, __u32, __u64, 1);

INLINE int refused(__u32 part)
{
	return part == PART_LOG || part == PART_OSF || part == PART_IPSET || part == PART_ACCT || part == PART_TIMEOUT ||
		part == PART_HELPER;
}

INLINE int look(__u64 *ctx)
{
	struct sock *sk = (void *)ctx[0];
	struct sk_buff *skb = (void *)ctx[1];
	__u32 zero = 0, at = 0, length;
	__u64 cookie, *seen;
	unsigned char *data;

	if (sk->sk_protocol != NETFILTER)
		return 0;
	seen = bpf_map_lookup_elem(&messages, &zero);
	if (seen)
		__sync_fetch_and_add(seen, 1);
	cookie = sk->__sk_common.skc_net.net->net_cookie;
	if (!bpf_map_lookup_elem(&limits, &cookie))
		return 0;
	data = skb->data;
	length = skb->len;
	for (int i = 0; i < MOST; i++) { /* as netlink_rcv_skb goes through them */
		struct message m = {};

		if (length < at || length - at < sizeof(m))
			return 0;
		if (bpf_probe_read_kernel(&m, sizeof(m), data + at))
			return -NOT_PERMITTED;
		if ((!i && m.type == BATCH) || m.length < sizeof(m) || m.length > length - at)
			return 0;
		if (m.type >= OWN && refused(m.type >> 8))
			return -NOT_PERMITTED;
		if (m.length > length - at - 3)
			return 0;
		at += (m.length + 3) & ~3U;
	}
	return -NOT_PERMITTED;
}

SEC("lsm/netlink_send") int sends(__u64 *ctx)
{
	return look(ctx);
}

/* Whatever it returns but zero, the kernel's function returns without doing anything. */
SEC("fmod_ret/security_netlink_send") int sends_before(__u64 *ctx)
{
	return look(ctx);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL"; /* the kernel takes only programs under the GPL at such hooks */
