/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What an element's sockets may take of memory that the kernel charges to nobody: the rings of packet sockets, and
 * compiled packet filters. The program runs at each setsockopt of the machine, and at once leaves alone everything that
 * does not concern it. An element is known by the cookie of its network namespace, in which its processes have to stay.
 */
#include "../../../../linux/bpf/kernel.h"

enum {
	LEVEL_SOCKET = 1,   /* SOL_SOCKET */
	LEVEL_PACKET = 263, /* SOL_PACKET */
	ATTACH_FILTER = 26, /* SO_ATTACH_FILTER */
	ATTACH_REUSEPORT = 51, /* SO_ATTACH_REUSEPORT_CBPF */
	ZERO_COPY = 60,     /* SO_ZEROCOPY */
	RX_RING = 5,        /* PACKET_RX_RING */
	TX_RING = 13,       /* PACKET_TX_RING */
	FANOUT_DATA = 22,   /* PACKET_FANOUT_DATA */
	LEVEL_IP = 0,       /* SOL_IP */
	LEVEL_IP6 = 41,     /* SOL_IPV6 */
	IPSEC_POLICY = 16,  /* IP_IPSEC_POLICY, and the next, IP_XFRM_POLICY */
	FLOW_LABEL = 32,    /* IPV6_FLOWLABEL_MGR */
	MULTICAST_TABLE = 209, /* MRT_TABLE, MRT6_TABLE */
	IPSEC_POLICY6 = 34, /* IPV6_IPSEC_POLICY, and the next, IPV6_XFRM_POLICY */
	NOT_PERMITTED = 1,  /* EPERM */
	NO_MEMORY = 12,     /* ENOMEM */
	INVALID = 22,       /* EINVAL */
	NO_OPTION = 92,     /* ENOPROTOOPT */
	FAMILY_PACKET = 17, /* AF_PACKET */
	LONGEST = 64,       /* more bytes than any of these values has */
	/*
	 * The filters that routing software, ping and DHCP clients put on each of their sockets have up to so many
	 * instructions. They are not counted.
	 */
	SMALL = 32,
};

/* struct bpf_sock */
struct sock {
	__u32 device;
	__u32 family;
};

/* struct bpf_sockopt */
struct sockopt {
	struct sock *sk;
	__u64 value;
	__u64 value_end;
	int level;
	int name;
	int length;
	int result;
};

static __u64 (*const bpf_get_netns_cookie)(void *ctx) = (void *)122;
static int (*const bpf_set_retval)(int result) = (void *)187;

/*
 * What an element may have, and what it has given back. Only the agent writes this. The agent may see more than was
 * given (see Settle). Then less than nothing was given back, and the differences are still right.
 */
struct allowance {
	__u64 rings;          /* bytes */
	__u64 filters;        /* of more than SMALL instructions */
	__u64 rings_back;
	__u64 filters_back;
};

/* What the element was ever given, and how often it was refused. Only the program writes this. */
struct account {
	__u64 rings;
	__u64 filters;
	__u64 rings_refused;
	__u64 filters_refused;
};

FLAGGED_MAP(NO_PREALLOC, HASH, limits, __u64, struct allowance, 1 << 17);

FLAGGED_MAP(NO_PREALLOC, HASH, taken, __u64, struct account, 1 << 17);

/* How often anything was asked for: while it does not change, nobody has more than before. */
MAP(ARRAY, asked, __u32, __u64, 1);

INLINE int refuse(__u64 *count)
{
	__sync_fetch_and_add(count, 1);
	bpf_set_retval(-NO_MEMORY);
	return 0;
}

/*
 * room is what a ring takes. The kernel has each of its blocks in pages that lie together, and takes a power of two of
 * them: a block of 5 pages keeps 8 from others (alloc_pg_vec).
 */
INLINE __u64 room(__u32 block, __u32 blocks)
{
	__u64 most = block ? block - 1 : 0;

	most |= most >> 1;
	most |= most >> 2;
	most |= most >> 4;
	most |= most >> 8;
	most |= most >> 16;
	return (most + 1) * blocks;
}

/* ask lets the kernel go on with the value that was looked at, which nobody can change meanwhile. */
INLINE int ask(struct sockopt *ctx, __u64 rings, __u64 filters)
{
	__u64 cookie = bpf_get_netns_cookie(ctx);
	struct allowance *l = bpf_map_lookup_elem(&limits, &cookie);
	struct account *t = bpf_map_lookup_elem(&taken, &cookie);
	__u32 zero = 0;
	__u64 *n = bpf_map_lookup_elem(&asked, &zero);
	if (!l || !t || !n)
		/*
		 * This is no element of ours, but it may be one of an instance whose program runs behind this one: the
		 * length stays
		 */
		return 1;
	/*
	 * Of more than a page the kernel would take what the caller has in memory by then, and not what was looked at.
	 */
	if (ctx->length > LONGEST || (ctx->length <= 0 && (rings || filters))) {
		bpf_set_retval(-INVALID);
		return 0;
	}
	if (!rings && !filters)
		/*
		 * This takes nothing, or little. The kernel gets this very value: else another thread could raise it
		 * before the kernel reads it
		 */
		return 1;
	__sync_fetch_and_add(n, 1);
	if (rings) {
		/* More than any machine has: it would make the sum wrap around. */
		if (rings > (1ULL << 48))
			return refuse(&t->rings_refused);
		__u64 had = __sync_fetch_and_add(&t->rings, rings);
		if (had - l->rings_back + rings > l->rings) {
			__sync_fetch_and_add(&t->rings, -rings);
			return refuse(&t->rings_refused);
		}
	}
	if (filters) {
		/*
		 * Packet sockets can be counted, so it is known when their filters are gone. Other sockets need no
		 * large filters.
		 */
		if (ctx->sk->family != FAMILY_PACKET)
			return refuse(&t->filters_refused);
		__u64 had = __sync_fetch_and_add(&t->filters, 1);
		if (had - l->filters_back + 1 > l->filters) {
			__sync_fetch_and_add(&t->filters, -1);
			return refuse(&t->filters_refused);
		}
	}
	return 1;
}

/* refuse_elements refuses an option to elements. From others the kernel may read the value where the caller has it. */
INLINE int refuse_elements(struct sockopt *ctx, int error)
{
	__u64 cookie = bpf_get_netns_cookie(ctx);

	if (bpf_map_lookup_elem(&limits, &cookie)) {
		bpf_set_retval(-error);
		return 0;
	}
	ctx->length = 0;
	return 1;
}

SEC("cgroup/setsockopt") int set_option(struct sockopt *ctx)
{
	const int level = ctx->level, name = ctx->name;
	const int ring = level == LEVEL_PACKET && (name == RX_RING || name == TX_RING);
	const int filter = (level == LEVEL_SOCKET && (name == ATTACH_FILTER || name == ATTACH_REUSEPORT)) ||
		(level == LEVEL_PACKET && name == FANOUT_DATA);
	void *value = (void *)ctx->value, *end = (void *)ctx->value_end;

	/*
	 * What is sent without a copy keeps its pages for as long as somebody does not take it. A page of a ring keeps
	 * all of its block, four megabytes, even when the ring is gone and counted no more. (vmsplice would do the
	 * same; a filter of system calls refuses that.)
	 */
	if (level == LEVEL_SOCKET && name == ZERO_COPY)
		return refuse_elements(ctx, NO_OPTION);
	/* The machine has room for 4,096 flow labels, of all namespaces together. */
	if (level == LEVEL_IP6 && name == FLOW_LABEL)
		return refuse_elements(ctx, NOT_PERMITTED);
	/*
	 * Each number makes a table of multicast routes. It is charged to nobody, and is there until the namespace
	 * goes.
	 */
	if ((level == LEVEL_IP || level == LEVEL_IP6) && name == MULTICAST_TABLE)
		return refuse_elements(ctx, NOT_PERMITTED);
	/*
	 * A policy of IPsec for one socket is memory that is charged to nobody. It also gives policies to those who may
	 * not speak to that part of the kernel. A filter of system calls cannot refuse it: the filter sees 64 bits of a
	 * number of which the kernel takes 32.
	 */
	if ((level == LEVEL_IP && (name == IPSEC_POLICY || name == IPSEC_POLICY + 1)) ||
	    (level == LEVEL_IP6 && (name == IPSEC_POLICY6 || name == IPSEC_POLICY6 + 1)))
		return refuse_elements(ctx, NOT_PERMITTED);
	if (ring && value + 8 <= end) {
		const __u32 *request = value; /* struct tpacket_req: the size of a block, how many */
		return ask(ctx, request[0] && request[1] ? room(request[0], request[1]) : 0, 0);
	}
	if (filter && value + 2 <= end) {
		const __u16 *program = value; /* struct sock_fprog: how many instructions */
		return ask(ctx, 0, *program > SMALL);
	}
	ctx->length = 0; /* as the caller has it in memory: the kernel need not copy what is large */
	return 1;
}
