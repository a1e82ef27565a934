/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The forwarding tables, which package fib writes, and their walkers. node/fib/doc.go describes the layout, and what
 * readers may rely on. For that, every word must be loaded once, by one aligned load.
 */
#ifndef FIB_H
#define FIB_H

#include "../../../../linux/bpf/kernel.h"

enum {
	MAX_ROUTERS = 4096,             /* number 0 is none; router n has tables 2n (IPv4) and 2n + 1 (IPv6) */
	FIB_TABLES = 2 * MAX_ROUTERS,
	FIB_HOPS = 65536,
	FIB_CHUNKS = 1024,              /* 256 MiB; a chunk is made when it is needed */
	FIB_CHUNK_BYTES = 1 << 18,
	FIB_UNIT_BITS = 6,              /* a unit has 64 bytes, */
	FIB_CHUNK_UNIT_BITS = 12,       /* a chunk 4,096 units */
	FIB_ATTEMPTS = 4,               /* to read a next hop */
};

#define FIB_CHILD 0x80000000u
#define FIB_UNIT 0x0fffffffu
#define FIB_ID 0x00ffffffu

enum {
	SHAPE_TRIE = 15,
	ADDRESS6_BITS = 128,
};

/* Kinds of next hops; up to HOP_PROHIBIT also the numbers of next hops that need no look at their words. */
enum {
	HOP_NONE = 0,
	HOP_LOCAL = 1,
	HOP_CONNECTED = 2,
	HOP_PUNT = 3,
	HOP_BLACKHOLE = 4,
	HOP_UNREACHABLE = 5,
	HOP_PROHIBIT = 6,
	HOP_UNRESOLVED = 7,
	HOP_FORWARD = 8,
	HOP_GROUP = 15,
};

struct fib_chunk {
	__u8 bytes[FIB_CHUNK_BYTES];
};

struct fib_hop {
	__u64 word[4];
};

/*
 * One chunk is a map of its own. So memory grows by as much as is needed, and user space maps a chunk like any array.
 */
struct fib_chunk_map {
	NUMBER(type, MAP_ARRAY);
	NUMBER(map_flags, MAP_MMAPABLE);
	NUMBER(max_entries, 1);
	NUMBER(key_size, sizeof(__u32)); /* by size: types within a map's type are not in BTF */
	NUMBER(value_size, FIB_CHUNK_BYTES);
};

struct {
	NUMBER(type, MAP_ARRAY_OF_MAPS);
	NUMBER(max_entries, FIB_CHUNKS);
	TYPE(key, __u32);
	INNER(values, struct fib_chunk_map);
} fib_chunks SEC(".maps");

FLAGGED_MAP(MMAPABLE, ARRAY, fib_tables, __u32, __u64, FIB_TABLES);

FLAGGED_MAP(MMAPABLE, ARRAY, fib_hops, __u32, struct fib_hop, FIB_HOPS);

INLINE struct fib_chunk *fib_chunk_of(__u32 unit)
{
	__u32 key = unit >> FIB_CHUNK_UNIT_BITS, only = 0;
	void *map = bpf_map_lookup_elem(&fib_chunks, &key);

	return map ? bpf_map_lookup_elem(map, &only) : 0;
}

/* The masks are only for the verifier: nothing that is reachable straddles chunks. */
INLINE __u32 fib_load(struct fib_chunk *c, __u64 byte)
{
	OPAQUE(byte);
	return *(volatile __u32 *)&c->bytes[byte & (FIB_CHUNK_BYTES - 4)];
}

INLINE __u64 fib_load64(struct fib_chunk *c, __u64 byte)
{
	OPAQUE(byte);
	return *(volatile __u64 *)&c->bytes[byte & (FIB_CHUNK_BYTES - 8)];
}

/* fib_word returns word i after the start of a unit; 0, which means no route, where there is no such word. */
INLINE __u32 fib_word(__u32 unit, __u32 i)
{
	struct fib_chunk *c = fib_chunk_of(unit);

	return c ? fib_load(c, ((__u64)unit << FIB_UNIT_BITS) + 4 * i) : 0;
}

INLINE __u32 fib_walk4(__u32 root, __u32 a)
{
	__u32 e = fib_word(root, a >> 16);

	if (e & FIB_CHILD)
		e = fib_word(e & FIB_UNIT, a >> 8 & 255);
	if (e & FIB_CHILD)
		e = fib_word(e & FIB_UNIT, a & 255);
	return e;
}

/* All ones if a < b + borrow, else 0, without a branch, which the verifier would follow both ways each time. */
INLINE __u64 fib_below(__u64 a, __u64 b, __u64 borrow)
{
	__u64 less = (~a & b) | ((~a | b) & (a - b - borrow));

	OPAQUE(less);
	return (long long)less >> 63;
}

INLINE __u32 fib_search4(__u32 unit, __u32 order, __u32 a)
{
	struct fib_chunk *c = fib_chunk_of(unit);
	__u64 at = (__u64)unit << FIB_UNIT_BITS, step = 4ULL << order >> 1;

	if (!c)
		return 0;
	for (int n = 0; n < 9 && step > 3; n++) {
		__u64 more = (__u64)a - fib_load(c, at + step); /* negative if the range begins behind a */

		OPAQUE(more);
		at += step & ~((long long)more >> 63);
		step >>= 1;
	}
	return fib_load(c, at + (4ULL << order));
}

/*
 * fib_look4 is the number of the next hop that the table has for an address, and 0 without a route. While a trie's
 * default route changes, a search that meets no other route is punted: a second search would cost the verifier as much
 * again.
 */
INLINE __u32 fib_look4(__u32 table, __u32 a)
{
	volatile __u64 *word = bpf_map_lookup_elem(&fib_tables, &table);
	__u32 shape, root, e = 0;
	__u64 w;

	if (!word)
		return HOP_NONE;
	w = *word;
	shape = w >> 24 & 15;
	root = w >> 28 & FIB_UNIT;
	if (shape == SHAPE_TRIE)
		e = fib_walk4(root, a);
	else if (shape)
		e = fib_search4(root, shape, a);
	if (e)
		return e & FIB_ID;
	return shape != SHAPE_TRIE || *word == w ? w & FIB_ID : HOP_PUNT;
}

INLINE __u32 fib_slot6(__u64 hi, __u64 lo, __u32 depth)
{
	return (depth < 64 ? hi >> (60 - depth) : lo >> (124 - depth)) & 15;
}

INLINE __u32 fib_walk6(__u32 root, __u64 hi, __u64 lo)
{
	__u32 e = fib_word(root, hi >> 48);

	if (e & FIB_CHILD)
		e = fib_word(e & FIB_UNIT, hi >> 40 & 255);
	if (e & FIB_CHILD)
		e = fib_word(e & FIB_UNIT, hi >> 32 & 255);
	for (__u32 depth = 32; depth < ADDRESS6_BITS && e & FIB_CHILD; depth += 4)
		e = fib_word(e & FIB_UNIT, fib_slot6(hi, lo, depth));
	return e;
}

INLINE __u32 fib_search6(__u32 unit, __u32 order, __u64 hi, __u64 lo)
{
	struct fib_chunk *c = fib_chunk_of(unit);
	__u64 first = (__u64)unit << FIB_UNIT_BITS, at = 0, step = 16ULL << order >> 1;

	if (!c)
		return 0;
	for (int n = 0; n < 9 && step > 15; n++) {
		__u64 h = fib_load64(c, first + at + step), l = fib_load64(c, first + at + step + 8);

		at += step & ~fib_below(hi, h, fib_below(lo, l, 0) & 1);
		step >>= 1;
	}
	return fib_load(c, first + at / 4 + (16ULL << order));
}

/* fib_look6 is fib_look4 for an IPv6 address, whose halves are numbers. */
INLINE __u32 fib_look6(__u32 table, __u64 hi, __u64 lo)
{
	volatile __u64 *word = bpf_map_lookup_elem(&fib_tables, &table);
	__u32 shape, root, e = 0;
	__u64 w;

	if (!word)
		return HOP_NONE;
	w = *word;
	shape = w >> 24 & 15;
	root = w >> 28 & FIB_UNIT;
	if (shape == SHAPE_TRIE)
		e = fib_walk6(root, hi, lo);
	else if (shape)
		e = fib_search6(root, shape, hi, lo);
	if (e)
		return e & FIB_ID;
	return shape != SHAPE_TRIE || *word == w ? w & FIB_ID : HOP_PUNT;
}

/*
 * The same as functions. The verifier looks at a function once, and not once a call, so that loops over routers are not
 * too much for it. A call costs some nanoseconds.
 */
__attribute__((noinline)) __u32 fib_find4(__u32 table, __u32 a)
{
	return fib_look4(table, a);
}

__attribute__((noinline)) __u32 fib_find6(__u32 table, __u64 hi, __u64 lo)
{
	return fib_look6(table, hi, lo);
}

/* A next hop's words, all of one moment. */
struct hop {
	__u32 kind;
	__u32 port;
	__u32 mtu;         /* 0: no limit */
	__u64 destination; /* MAC addresses, first byte in bits 40…47 */
	__u64 source;
};

/* fib_hop_at is where a next hop's words are, 0 if there is none. */
INLINE struct fib_hop *fib_hop_at(__u32 id)
{
	return bpf_map_lookup_elem(&fib_hops, &id);
}

INLINE __u64 fib_first(const struct fib_hop *h)
{
	return h ? *(volatile __u64 *)&h->word[0] : 0;
}

INLINE __u32 fib_kind(__u64 first)
{
	return first & 15;
}

/* fib_member is the number of the next hop that a flow with this hash has in a group. */
INLINE __u32 fib_member(__u64 group, __u32 hash)
{
	return fib_word(group >> 16 & FIB_UNIT, hash & ((1u << (group >> 4 & 15)) - 1));
}

/* fib_read reads a next hop that is no group. */
INLINE void fib_read(const struct fib_hop *h, struct hop *to)
{
	__u64 w0, w1, w2;

	to->kind = HOP_NONE;
	if (!h)
		return;
	to->kind = HOP_PUNT;
	for (int n = 0; n < FIB_ATTEMPTS; n++) {
		w0 = *(volatile __u64 *)&h->word[0];
		w1 = *(volatile __u64 *)&h->word[1];
		w2 = *(volatile __u64 *)&h->word[2];
		if (w0 >> 48 != w1 >> 48 || w0 >> 48 != w2 >> 48)
			continue;
		if (fib_kind(w0) != HOP_GROUP)
			to->kind = fib_kind(w0);
		to->port = w0 >> 8 & FIB_ID;
		to->mtu = w0 >> 32 & 0xffff;
		to->destination = w1 & 0xffffffffffff;
		to->source = w2 & 0xffffffffffff;
		return;
	}
}

/* fib_mix takes a word into a flow's hash (FlowHash of package fib). */
INLINE __u32 fib_mix(__u32 hash, __u32 word)
{
	hash = (hash ^ word) * 0x9e3779b1;
	return hash ^ hash >> 15;
}

#endif
