/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* For tests: looks addresses up in the forwarding tables as the pipeline does, many at a time. */

#include "fib.h"

struct query {
	__u64 hi, lo; /* of the address; IPv4: the upper half of hi */
	__u32 table, hash;
	__u32 found; /* the next hop's number that the table has */
	__u32 kind, port, mtu;
	__u64 destination, source;
};

FLAGGED_MAP(MMAPABLE, ARRAY, queries, __u32, struct query, 1 << 20);

__u32 count = 0; /* queries to answer */
__u32 mask = 0;  /* of a query's number, so that some can be answered again and again */
__u32 hops = 0;  /* whether next hops are read too */

static __attribute__((noinline)) void answer(struct query *q, __u32 found)
{
	struct fib_hop *at;
	struct hop h = {};
	__u64 first;

	q->found = found;
	if (!hops)
		return;
	at = fib_hop_at(found);
	first = fib_first(at);
	if (fib_kind(first) == HOP_GROUP)
		at = fib_hop_at(fib_member(first, q->hash));
	fib_read(at, &h);
	q->kind = h.kind;
	q->port = h.port;
	q->mtu = h.mtu;
	q->destination = h.destination;
	q->source = h.source;
}

static long none(__u32 i, void *context)
{
	__u32 key = i & mask;
	struct query *q = bpf_map_lookup_elem(&queries, &key);

	if (q)
		q->found = q->hi >> 32;
	return 0;
}

static long one4(__u32 i, void *context)
{
	__u32 key = i & mask;
	struct query *q = bpf_map_lookup_elem(&queries, &key);

	if (q)
		answer(q, fib_find4(q->table, q->hi >> 32));
	return 0;
}

static long one6(__u32 i, void *context)
{
	__u32 key = i & mask;
	struct query *q = bpf_map_lookup_elem(&queries, &key);

	if (q)
		answer(q, fib_find6(q->table, q->hi, q->lo));
	return 0;
}

SEC("syscall")
int look_none(void *context)
{
	bpf_loop(count, none, 0, 0);
	return 0;
}

SEC("syscall")
int look4(void *context)
{
	bpf_loop(count, one4, 0, 0);
	return 0;
}

SEC("syscall")
int look6(void *context)
{
	bpf_loop(count, one6, 0, 0);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
