// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The traffic sink: looks at every frame that reaches a device, takes the measured ones and counts them per stream.
// State is kept per receive queue, because a queue is polled by one CPU at a time (and per CPU in the generic hook):
// nothing in it needs to be atomic. Only the window of sequence numbers is shared between queues.
#include "../../../linux/bpf/kernel.h"
#include "../../frame/tag.h"
#include "hist.h"

#define MAX_STREAMS 64

/* Set by the loader. */
volatile const __u32 streams = 1;
volatile const __u32 queues = 1;
/* In the generic hook frames of one queue may come on any CPU: each has its own state */
volatile const __u32 by_cpu;
volatile const __u32 time_mask;    /* frames whose sequence number has none of these bits are timed */
volatile const __u32 window_shift; /* log2 of the words of one stream's window */
volatile const __u32 check_mask;   /* frames whose sequence number has none of these bits are summed up whole */
volatile const __u16 raw_type = 0xb588; /* network order */
/* One queue, and no frame timed or summed up whole whose sequence number has any of QUICK_MASK */
volatile const __u32 quick;

#define QUICK_MASK 63

struct flow {
	__u64 frames;     /* whole ones, duplicates included */
	__u64 bytes;      /* check sequences included */
	__u64 duplicated;
	__u64 reordered;
	__u64 corrupted;
	__u64 too_old;    /* further behind than the window: unknown whether seen before */
	__u64 strange;    /* of no flow that was sent: where in the order they belong is unknown */
	__u64 early;      /* timed before they were sent: clocks differ */
	__u64 next;       /* sequence number after the highest so far */
	__u64 extent;     /* how far behind the furthest reordered frame came */
	__u64 first;      /* time of the first and last timed frame */
	__u64 last;
	__u64 prev;       /* delay of the timed frame before; valid once timed > 0 */
	__u64 timed;
	__s64 ipdv_sum;
	__u64 longer;
	__u64 shorter;
	__u64 jitter;     /* RFC 3550, in 1/16 ns */
	__u64 max_jitter;
	__u32 page;       /* of one queue: which 32 sequence numbers came last, plus 1, */
	__u32 seen;       /* and which of them were seen */
	struct histogram delay;
	struct histogram ipdv;
};

MAP(ARRAY, flows, __u32, struct flow, 1); /* queue * streams + stream */

/* 32 sequence numbers: which of them were seen in the low half, and above it which 32, plus 1. */
MAP(ARRAY, windows, __u32, __u64, 1); /* stream << window_shift | word */

/*
 * The flows that a stream is sent in: destinations in a row, and source ports. Order counts within each: the network
 * may send different flows by different ways. Without destinations, all of the stream is one flow.
 */
struct order {
	__u32 dst;  /* the first one's last 32 bits */
	__u32 dsts;
	__u32 port; /* the first */
	__u32 ports;
	__u32 at;   /* where the stream's flows begin in heads */
	__u32 _pad[3];
};

volatile const struct order orders[MAX_STREAMS];

/* Of each flow the number after the highest that came, of all of its stream's. */
#define MAX_FLOWS (1 << 16)

__u32 heads[MAX_FLOWS];

#define NO_RUN 0x10000

struct totals {
	__u64 foreign;   /* not measured, or of another run */
	__u64 corrupted; /* measured, but too damaged to tell the stream */
	__u64 failed;    /* the program could not look: the counts are wrong */
	__u32 run;       /* network order; set by the loader, NO_RUN while it clears the rest */
};

#define MAX_QUEUES 64

struct totals totals_of[MAX_QUEUES];

__u16 filler_sum[2048]; /* of the filler's first n bytes, as loaded by this machine */

/*
 * A stream's latest frames, as long as they came one after the other: all that there is to do for such a one is to move
 * the end, and the rest is made up when another one comes. A number without any of QUICK_MASK's bits always ends a run.
 */
struct run {
	__u32 tag;   /* run and stream, as loaded by this machine */
	__u32 start; /* sequence number of the first */
	__u64 next;  /* after the last; 0 before the first, which is not counted this way */
	__u64 bytes; /* without check sequences */
	__u64 _pad;
};

struct run runs[MAX_STREAMS];

enum seen { FRESH, AGAIN, UNKNOWN };

/* The flow of a frame whose tag is here, if it was sent. Both headers end alike: the address, the ports, 4 bytes. */
INLINE __u32 *head_of(const volatile struct order *o, const void *tag)
{
	__u32 dst = be32(*(const __u32 *)(tag - 12)) - o->dst, port = be16(*(const __u16 *)(tag - 8)) - o->port;

	if (dst >= o->dsts || port >= o->ports)
		return NULL;
	return &heads[(o->at + dst * o->ports + port) & (MAX_FLOWS - 1)];
}

/* How often the window went round before a sequence number, plus 1. */
INLINE __u64 epoch_of(__u32 seq)
{
	return (__u64)(seq >> 5 >> (window_shift & 31)) + 1;
}

/*
 * What the window's word becomes when a sequence number is seen; 0 when the number is too old, the same when it was
 * seen.
 */
INLINE __u64 seen_word(__u64 old, __u32 seq)
{
	__u64 epoch = epoch_of(seq), bit = 1ull << (seq & 31);

	if (old >> 32 == epoch)
		return old | bit;
	if (old >> 32 < epoch)
		return epoch << 32 | bit;
	return 0;
}

INLINE __u64 *word_of(__u32 stream, __u32 seq)
{
	__u32 word = (seq >> 5) & ((1u << (window_shift & 31)) - 1), key = stream << (window_shift & 31) | word;

	return bpf_map_lookup_elem(&windows, &key);
}

/*
 * One queue, another 32 numbers than those of the frame before: keeps what was seen of those, and fetches what was of
 * these.
 */
NOINLINE int turn_page(__u32 stream, __u32 seq)
{
	struct flow *f = bpf_map_lookup_elem(&flows, &stream);
	__u64 *slot, epoch;

	if (!f)
		return UNKNOWN;
	if (f->page) {
		slot = word_of(stream, (f->page - 1) << 5);
		if (slot && *slot >> 32 <= (epoch = epoch_of((f->page - 1) << 5)))
			*slot = epoch << 32 | f->seen;
	}
	slot = word_of(stream, seq);
	if (!slot)
		return UNKNOWN;
	epoch = epoch_of(seq);
	if (*slot >> 32 > epoch) {
		f->page = 0;
		return UNKNOWN;
	}
	f->page = (seq >> 5) + 1;
	f->seen = *slot >> 32 == epoch ? (__u32)*slot : 0;
	return FRESH;
}

/* One queue: nobody else writes, so the 32 numbers at hand stay with the stream. */
INLINE int mark_alone(struct flow *f, __u32 stream, __u32 seq)
{
	__u32 bit = 1u << (seq & 31);

	if (f->page != (seq >> 5) + 1 && turn_page(stream, seq) != FRESH)
		return UNKNOWN;
	if (f->seen & bit)
		return AGAIN;
	f->seen |= bit;
	return FRESH;
}

INLINE void see_page(struct flow *f, __u32 stream, __u32 from, __u32 last)
{
	if (f->page != (from >> 5) + 1)
		turn_page(stream, from);
	f->seen |= ~0u << (from & 31) & ~0u >> (31 - (last & 31));
}

/* Makes up for what a run put off. */
NOINLINE int end_run(__u32 stream)
{
	struct flow *f = bpf_map_lookup_elem(&flows, &stream);
	struct run *r = &runs[stream & (MAX_STREAMS - 1)];
	__u32 from = r->start, last = r->next - 1, n = last + 1 - from;

	if (!f || !n)
		return 0;
	f->frames += n;
	f->bytes += r->bytes + 4 * n;
	f->next = r->next;
	r->start = r->next;
	r->bytes = 0;
	if (from >> 5 == last >> 5) {
		see_page(f, stream, from, last);
	} else {
		see_page(f, stream, from, from | 31);
		see_page(f, stream, last & ~31u, last);
	}
	return 0;
}

/*
 * Several queues. A function of its own, as sum_payload: the verifier looks at it once, and not for every way that
 * leads to it.
 */
NOINLINE int mark_shared(__u32 stream, __u32 seq)
{
	__u64 *slot = word_of(stream, seq);

	if (!slot)
		return UNKNOWN;
	for (int i = 0; i < 8; i++) {
		__u64 old = *(volatile __u64 *)slot, fresh = seen_word(old, seq);

		if (fresh == old)
			return AGAIN;
		if (!fresh)
			return UNKNOWN;
		if (__sync_val_compare_and_swap(slot, old, fresh) == old)
			return FRESH;
	}
	return UNKNOWN;
}

INLINE void time_frame(struct flow *f, __u64 sent)
{
	__u64 now = bpf_ktime_get_ns(), delay = now - sent, abs;
	__s64 d;

	if (!f->first)
		f->first = now;
	f->last = now;
	if (sent > now) {
		f->early++;
		return;
	}
	record(&f->delay, delay);
	if (f->timed++) {
		d = delay - f->prev;
		f->ipdv_sum += d;
		abs = d < 0 ? -d : d;
		if (d > 0)
			f->longer++;
		else if (d < 0)
			f->shorter++;
		record(&f->ipdv, abs);
		f->jitter += abs - ((f->jitter + 8) >> 4);
		if (f->jitter > f->max_jitter)
			f->max_jitter = f->jitter;
	}
	f->prev = delay;
}

/*
 * The ones' complement sum of len bytes behind an offset, folded; -1 when the frame does not have them. Pieces are of
 * constant length, as packet access must be; the helper takes at most 512 bytes on older kernels.
 */
NOINLINE int sum_payload(struct xdp_md *ctx, __u32 offset, __u32 len)
{
	void *p = (void *)(long)ctx->data + (offset & 127), *end = (void *)(long)ctx->data_end;
	__u64 sum = 0;

#define BIG_PIECE(n, condition)                                         \
	if (condition) {                                                \
		if (p + (n) > end)                                      \
			return -1;                                      \
		sum += (__u32)bpf_csum_diff(NULL, 0, p, (n), 0);        \
		p += (n);                                               \
	}
#define WORD_PIECE(type)                                                \
	if (len & sizeof(type)) {                                       \
		if (p + sizeof(type) > end)                             \
			return -1;                                      \
		sum += *(type *)p;                                      \
		p += sizeof(type);                                      \
	}
	BIG_PIECE(512, len & 1024)
	BIG_PIECE(512, len & 1024)
	BIG_PIECE(512, len & 512)
	BIG_PIECE(256, len & 256)
	BIG_PIECE(128, len & 128)
	BIG_PIECE(64, len & 64)
	BIG_PIECE(32, len & 32)
	BIG_PIECE(16, len & 16)
	BIG_PIECE(8, len & 8)
	WORD_PIECE(__u32)
	WORD_PIECE(__u16)
	WORD_PIECE(__u8)
	return fold(sum);
}

/* Looks at a frame whose tag stands at a constant offset, with len bytes from there on. */
INLINE int count(struct xdp_md *ctx, struct totals *t, __u32 queue, __u32 have, const __u32 at, __u32 len)
{
	void *tag = (void *)(long)ctx->data + at, *end = (void *)(long)ctx->data_end;
	__u64 sum, low, time, next;
	__u32 key, seq, id, *head;
	struct flow *f;
	bool whole;

	if (tag + TAG_SIZE > end) {
		t->failed++;
		return XDP_DROP;
	}
	low = *(__u64 *)tag; /* run, stream, sequence number */
	time = *(__u64 *)(tag + 8);
	sum = (low & 0xffffffff) + (low >> 32) + (time & 0xffffffff) + (time >> 32) + *(__u16 *)(tag + 16);
	seq = be32((__u32)(low >> 32));
	id = be16((__u16)(low >> 16));
	/* Not asked first whether there is a payload: where sizes are mixed, nobody could foretell that */
	if (seq & check_mask) {
		sum += filler_sum[(len - TAG_SIZE) & 2047];
	} else if (len != TAG_SIZE) {
		int rest = sum_payload(ctx, at + TAG_SIZE, len - TAG_SIZE);

		sum = rest < 0 ? 0 : sum + rest;
	}
	sum = (sum & 0xffff) + (sum >> 16);
	whole = fold32(sum) == 0xffff;
	if ((__u16)low != t->run) {
		if (whole) {
			t->foreign++;
			return XDP_PASS;
		}
		t->corrupted++;
		return XDP_DROP;
	}
	if (id >= streams) {
		if (whole)
			t->failed++;
		else
			t->corrupted++;
		return XDP_DROP;
	}
	key = id + queue * streams;
	f = bpf_map_lookup_elem(&flows, &key);
	if (!f) {
		t->failed++;
		return XDP_DROP;
	}
	if (!whole) {
		f->corrupted++;
		return XDP_DROP;
	}
	if (quick)
		end_run(id);
	f->frames++;
	f->bytes += have + 4;
	switch (queues == 1 ? mark_alone(f, id, seq) : mark_shared(id, seq)) {
	case FRESH:
		next = f->next;
		if (orders[id & (MAX_STREAMS - 1)].dsts) {
			/* As far as the verifier knows, what was called since may have moved it */
			tag = (void *)(long)ctx->data + at;
			end = (void *)(long)ctx->data_end;
			head = tag + TAG_SIZE > end ? NULL : head_of(&orders[id & (MAX_STREAMS - 1)], tag);
			if (!head) {
				f->strange++;
				next = 0;
			} else {
				next = *head;
				if (seq >= next)
					*head = seq + 1;
			}
		}
		if (seq < next) {
			f->reordered++;
			if (next - seq > f->extent)
				f->extent = next - seq;
		}
		if (seq >= f->next) {
			f->next = (__u64)seq + 1;
			if (quick) {
				struct run *r = &runs[id & (MAX_STREAMS - 1)];

				r->tag = (__u32)low;
				r->start = f->next;
				r->next = f->next;
			}
		}
		break;
	case AGAIN:
		f->duplicated++;
		return XDP_DROP;
	case UNKNOWN:
		f->too_old++;
		return XDP_DROP;
	}
	if (!(seq & time_mask))
		time_frame(f, be64(time));
	return XDP_DROP;
}

/* Any frame, whatever is the matter with it. */
static NOINLINE int look_closely(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 queue = 0, have = end - data, len, ports, type;
	struct totals *t = &totals_of[0];

	if (queues > 1) {
		queue = by_cpu ? bpf_get_smp_processor_id() : ctx->rx_queue_index;
		if (queue >= queues)
			queue = 0;
		t = &totals_of[queue & (MAX_QUEUES - 1)];
	}
	if (data + ETH_SIZE + TAG_SIZE > end)
		goto foreign;
	type = *(__u32 *)(data + 12); /* EtherType, version and header length, class */
	if ((type & 0xffffff) == 0x450008) {
		if (data + ETH_SIZE + IP4_SIZE + UDP_SIZE + TAG_SIZE > end)
			goto foreign;
		ports = *(__u32 *)(data + ETH_SIZE + IP4_SIZE + 2); /* destination port, length */
		if (*(__u8 *)(data + ETH_SIZE + 9) != 17 || (__u16)ports != be16(9))
			goto foreign;
		len = be16((__u16)(ports >> 16));
		if (len < UDP_SIZE + TAG_SIZE || len > have - ETH_SIZE - IP4_SIZE)
			goto cut;
		return count(ctx, t, queue, have, ETH_SIZE + IP4_SIZE + UDP_SIZE, len - UDP_SIZE);
	}
	if ((__u16)type == be16(0x86dd)) {
		if (data + ETH_SIZE + IP6_SIZE + UDP_SIZE + TAG_SIZE > end)
			goto foreign;
		ports = *(__u32 *)(data + ETH_SIZE + IP6_SIZE + 2);
		if (*(__u8 *)(data + ETH_SIZE + 6) != 17 || (__u16)ports != be16(9))
			goto foreign;
		len = be16((__u16)(ports >> 16));
		if (len < UDP_SIZE + TAG_SIZE || len > have - ETH_SIZE - IP6_SIZE)
			goto cut;
		return count(ctx, t, queue, have, ETH_SIZE + IP6_SIZE + UDP_SIZE, len - UDP_SIZE);
	}
	if ((__u16)type == raw_type)
		return count(ctx, t, queue, have, ETH_SIZE, have - ETH_SIZE);
foreign:
	t->foreign++;
	return XDP_PASS;
cut:
	t->corrupted++;
	return XDP_DROP;
}

/*
 * The tag's own sum is right, and it is the next frame of its stream: then this is all. rest is how many bytes follow
 * the tag.
 */
INLINE bool count_next(const void *tag, __u32 rest, __u32 have)
{
	__u32 id = *(__u32 *)tag, be = *(__u32 *)(tag + 4), seq = be32(be);
	__u32 stream = be16((__u16)(id >> 16)) & (MAX_STREAMS - 1), *head;
	struct run *r = &runs[stream];
	__u64 sum;

	if (!(seq & QUICK_MASK) || r->tag != id || r->next != seq)
		return false;
	sum = (__u64)id + be + *(__u32 *)(tag + 8) + *(__u32 *)(tag + 12) + *(__u16 *)(tag + 16) + filler_sum[rest & 2047];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	if (sum != 0xffff) /* it is not 0, and below 0x1fffe */
		return false;
	if (orders[stream].dsts) {
		head = head_of(&orders[stream], tag);
		if (!head)
			return false;
		*head = seq + 1;
	}
	r->next = (__u64)seq + 1;
	r->bytes += have;
	return true;
}

SEC("xdp.frags")
int sink(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 have = end - data, type, ports, rest;

	/* Nearly all frames are these; the others, and whatever is in doubt, are looked at closely. */
	if (data + ETH_SIZE + IP4_SIZE + UDP_SIZE + TAG_SIZE <= end) {
		type = *(__u32 *)(data + 12);
		if ((type & 0xffffff) == 0x450008) {
			ports = *(__u32 *)(data + ETH_SIZE + IP4_SIZE + 2);
			rest = be16((__u16)(ports >> 16)) - UDP_SIZE - TAG_SIZE;
			if (*(__u8 *)(data + ETH_SIZE + 9) == 17 && (__u16)ports == be16(9) &&
			    rest <= have - ETH_SIZE - IP4_SIZE - UDP_SIZE - TAG_SIZE &&
			    count_next(data + ETH_SIZE + IP4_SIZE + UDP_SIZE, rest, have))
				return XDP_DROP;
		} else if ((__u16)type == be16(0x86dd) && data + ETH_SIZE + IP6_SIZE + UDP_SIZE + TAG_SIZE <= end) {
			ports = *(__u32 *)(data + ETH_SIZE + IP6_SIZE + 2);
			rest = be16((__u16)(ports >> 16)) - UDP_SIZE - TAG_SIZE;
			if (*(__u8 *)(data + ETH_SIZE + 6) == 17 && (__u16)ports == be16(9) &&
			    rest <= have - ETH_SIZE - IP6_SIZE - UDP_SIZE - TAG_SIZE &&
			    count_next(data + ETH_SIZE + IP6_SIZE + UDP_SIZE, rest, have))
				return XDP_DROP;
		} else if ((__u16)type == raw_type && count_next(data + ETH_SIZE, have - ETH_SIZE - TAG_SIZE, have)) {
			return XDP_DROP;
		}
	}
	return look_closely(ctx);
}

char _license[] SEC("license") = "Dual BSD/GPL";
