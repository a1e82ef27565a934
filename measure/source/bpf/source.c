// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The traffic source: runs as live XDP frames, writes each frame anew (pages come back as whoever had them left them),
// and sends it out of one device. When no frame is due it drops, and is called again at once: that is how it waits.
#include "../../../linux/bpf/kernel.h"
#include "../../frame/tag.h"

#define MAX_STREAMS 64
#define FRACTION 16 /* times of the schedule are in 2^-16 ns since the start */
#define EXPONENTIAL 4096
/* What is late follows at up to 2^2 times the rate, so that a pause does not end in a burst at full speed */
#define CATCH_UP 2

struct stream {
	/* set by user space */
	__u64 interval; /* 0: whenever called */
	__u64 count;    /* frames to send */
	__u32 kind;
	__u32 sizes;    /* number of sizes; 0: uniform from size_min on, size_span of them */
	__u32 size_min;
	__u32 size_span;
	__u32 first_dst; /* in the destinations map */
	__u32 dsts;
	__u16 sport; /* host order */
	__u16 sports;
	__u8 poisson;
	__u8 random; /* destinations in random order */
	__u16 run;   /* network order */
	__u32 ip_sum;  /* partial ones' complement sums of what never changes */
	__u32 udp_sum;
	__u32 base;    /* last word of the first destination, host order: the others follow it one by one, when in_row */
	__u32 in_row;
	__u64 header[8];
	__u16 size[64];
	/* state */
	__u64 due;
	__u64 sent;
	__u64 bytes; /* check sequences included */
	__u64 late_max; /* ns */
	__u64 late;     /* frames sent more than late_limit after they were due */
	__u64 rng;
	__u64 failed; /* frames that could not be written */
	__u64 hold;   /* while behind: not before this time */
	__u64 behind; /* frames that left in a row while it was behind */
	__u64 burst;  /* the most of these */
};

MAP(ARRAY, streams, __u32, struct stream, MAX_STREAMS);

struct address {
	__u32 a[4]; /* network order; IPv4 in the last word */
	__u32 sum;  /* of its 16-bit words, folded */
};

MAP(ARRAY, destinations, __u32, struct address, 1);

MAP(DEVMAP, out, __u32, __u32, 1);

__u8 filler[2048];
__u16 filler_sum[2048]; /* of its first n bytes, as loaded by this machine */

/* Boundaries of the exponential distribution, -ln(i / EXPONENTIAL) in 2^-16; [0] is that of 1 / EXPONENTIAL again. */
__u32 exponential[EXPONENTIAL + 1];

struct control {
	__u64 until;      /* ns after the start; frames due then or later are not sent */
	__u64 give_up;    /* ns after the start; frames that were due are no longer caught up with */
	__u64 late_limit; /* 2^-16 ns */
	__u32 clock_every;
	__u32 streams;
	__u32 room; /* bytes of a frame as it comes from the kernel */
	__u32 _pad;
	__u64 start;
	__u64 end;
	__u64 now;
	__u64 idle; /* calls in which nothing was due */
	__u32 left;
	__u32 cursor;
};

/* Set by the loader: pages hold the payload already, as the kernel copied it there when it made them. */
volatile const __u32 kept;

struct control schedule;
volatile __u32 stop; /* set by user space at any time */
volatile __u32 done; /* set here */

INLINE __u64 next_random(__u64 *state)
{
	__u64 x = *state;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	*state = x;
	return x * 0x2545f4914f6cdd1dULL;
}

/*
 * One exponential variate with mean 1, in 2^-16. The lowest bin has no upper end: by memorylessness it is the bin's
 * lower end plus a fresh variate.
 */
NOINLINE __u64 exponential_variate(__u32 stream)
{
	struct stream *s = bpf_map_lookup_elem(&streams, &stream);
	__u64 sum = 0;

	if (!s)
		return 1 << FRACTION;
	for (int i = 0; i < 3; i++) {
		__u64 r = next_random(&s->rng);
		__u32 bin = r >> 52;
		__u64 high, low;

		if (bin == 0) {
			sum += exponential[0];
			continue;
		}
		high = exponential[bin & (EXPONENTIAL - 1)];
		low = exponential[(bin & (EXPONENTIAL - 1)) + 1];
		return sum + high - (((high - low) * ((r >> 20) & 0xffff)) >> 16);
	}
	return sum;
}

INLINE __u64 read_clock(struct control *c)
{
	c->now = bpf_ktime_get_ns();
	c->left = c->clock_every;
	return c->now;
}

/* Has this stream anything left to send before the end? An unpaced one is always due. */
INLINE bool pending(const struct stream *s, __u64 elapsed, __u64 until)
{
	return s->sent < s->count && (s->interval ? s->due : elapsed) < until;
}

INLINE int finish(struct control *c, __u64 now)
{
	c->end = now;
	done = 1;
	return XDP_DROP;
}

INLINE __u32 frame_size(struct stream *s)
{
	__u32 r;

	if (s->sizes == 1)
		return s->size[0];
	r = next_random(&s->rng) >> 32;
	if (s->sizes)
		return s->size[((__u64)r * s->sizes >> 32) & 63];
	return s->size_min + ((__u64)r * s->size_span >> 32);
}

/*
 * By words: packet data is not aligned for clang's memcpy, which would go byte by byte. The length is a constant, even.
 */
INLINE void copy_header(void *to, const __u64 *from, const __u32 len)
{
	const __u32 whole = len / 8;

	for (__u32 i = 0; i < 8; i++)
		if (i < whole)
			((__u64 *)to)[i] = from[i];
	if (len & 4)
		((__u32 *)to)[whole * 2] = (__u32)from[whole];
	if (len & 2)
		((__u16 *)to)[len / 2 - 1] = ((const __u16 *)from)[len / 2 - 1];
}

/* Writes the frame; false when it does not fit, which the loader has ruled out. */
INLINE bool write_frame(struct xdp_md *ctx, __u64 now, struct stream *s, __u32 id)
{
	__u32 size = frame_size(s), header, rest, pick, dst, body, last, to_sum;
	struct address *to = NULL;
	struct tag *tag;
	void *data, *end;
	__u16 sport, check;
	__u64 sum;

	header = s->kind == KIND_IP4 ? ETH_SIZE + IP4_SIZE + UDP_SIZE :
		 s->kind == KIND_IP6 ? ETH_SIZE + IP6_SIZE + UDP_SIZE : ETH_SIZE;
	size -= 4;
	if (size < header + TAG_SIZE || size > FRAME_MAX)
		return false;
	if (size != schedule.room && bpf_xdp_adjust_tail(ctx, (int)size - (int)schedule.room))
		return false;
	rest = size - header - TAG_SIZE;

	if (s->random) {
		__u64 r = next_random(&s->rng);

		pick = (r >> 32) * s->dsts >> 32;
		sport = s->sport + ((r & 0xffffffff) * s->sports >> 32);
	} else {
		pick = s->sent % s->dsts;
		sport = s->sport + (s->sent / s->dsts) % s->sports;
	}
	if (s->in_row) {
		last = be32(s->base + pick);
		to_sum = (last & 0xffff) + (last >> 16);
	} else {
		dst = s->first_dst + pick;
		to = bpf_map_lookup_elem(&destinations, &dst);
		if (!to)
			return false;
		last = to->a[3];
		to_sum = to->sum;
	}
	sport = be16(sport);
	if (rest && !kept) {
		body = rest;
		if (body > FRAME_MAX)
			return false;
		if (bpf_xdp_store_bytes(ctx, header + TAG_SIZE, filler, body))
			return false;
	}
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (s->kind == KIND_IP4) {
		__u16 total = be16(size - ETH_SIZE), udp = be16(size - ETH_SIZE - IP4_SIZE);
		__u32 *d32 = data + ETH_SIZE + 16;
		__u16 *d16 = data + ETH_SIZE;

		tag = data + ETH_SIZE + IP4_SIZE + UDP_SIZE;
		if ((void *)tag + TAG_SIZE > end)
			return false;
		copy_header(data, s->header, ETH_SIZE + IP4_SIZE + UDP_SIZE);
		d16[1] = total;
		*d32 = last;
		d16[5] = ~fold32(s->ip_sum + total + to_sum);
		d16[10] = sport;
		d16[12] = udp;
		check = ~fold32(s->udp_sum + sport + 2 * (__u32)udp + to_sum);
		d16[13] = check ?: 0xffff;
	} else if (s->kind == KIND_IP6) {
		__u16 udp = be16(size - ETH_SIZE - IP6_SIZE);
		__u16 *d16 = data + ETH_SIZE;
		__u32 *d32 = data + ETH_SIZE + 24;

		tag = data + ETH_SIZE + IP6_SIZE + UDP_SIZE;
		if ((void *)tag + TAG_SIZE > end)
			return false;
		copy_header(data, s->header, ETH_SIZE + IP6_SIZE + UDP_SIZE);
		d16[2] = udp;
		if (to) {
			d32[0] = to->a[0];
			d32[1] = to->a[1];
			d32[2] = to->a[2];
		}
		d32[3] = last;
		d16[20] = sport;
		d16[22] = udp;
		check = ~fold32(s->udp_sum + sport + 2 * (__u32)udp + to_sum);
		d16[23] = check ?: 0xffff;
	} else {
		tag = data + ETH_SIZE;
		if ((void *)tag + TAG_SIZE > end)
			return false;
		copy_header(data, s->header, ETH_SIZE);
	}
	tag->run = s->run;
	tag->stream = be16(id);
	tag->seq = be32((__u32)s->sent);
	tag->time = be64(now);
	sum = (__u64)tag->run + tag->stream + tag->seq + (tag->time & 0xffffffff) + (tag->time >> 32) +
	      filler_sum[rest & 2047];
	tag->sum = ~fold(sum);
	return true;
}

INLINE int fail(struct stream *s)
{
	s->failed++;
	return XDP_ABORTED;
}

enum { WAIT = -1, NOTHING = -2 };

struct turn {
	__u64 elapsed;
	__u64 until;
	__u32 next;
	__u32 streams;
	int result;
};

static long look(__u32 i, struct turn *t)
{
	__u32 k = t->next++;
	struct stream *s;

	if (t->next >= t->streams)
		t->next = 0;
	s = bpf_map_lookup_elem(&streams, &k);
	if (!s || !pending(s, t->elapsed, t->until))
		return 0;
	t->result = WAIT;
	if (s->due > t->elapsed || s->hold > t->elapsed)
		return 0;
	t->result = k;
	return 1;
}

/* The next stream, taking turns, that has a frame due; WAIT when one will have, NOTHING when none ever will. */
INLINE int choose(struct control *c, __u64 elapsed, __u64 until)
{
	struct turn t = { elapsed, until, c->cursor, c->streams, NOTHING };

	bpf_loop(c->streams, look, &t, 0);
	if (t.result >= 0)
		c->cursor = t.next;
	return t.result;
}

SEC("xdp.frags")
int source(struct xdp_md *ctx)
{
	__u64 now, elapsed, until;
	struct control *c = &schedule;
	struct stream *s;
	__u32 key;
	int id;

	if (done)
		return XDP_DROP;
	if (!c->start) {
		c->start = read_clock(c);
	} else if (!c->left) {
		read_clock(c);
	}
	now = c->now;
	if (stop)
		return finish(c, bpf_ktime_get_ns());
	elapsed = (now - c->start) << FRACTION;
	until = c->until << FRACTION;
	if (now - c->start >= c->give_up)
		return finish(c, now);
	if (c->streams == 1) {
		key = 0;
		s = bpf_map_lookup_elem(&streams, &key);
		if (!s)
			return XDP_ABORTED;
		id = !pending(s, elapsed, until) ? NOTHING : s->due <= elapsed && s->hold <= elapsed ? 0 : WAIT;
	} else {
		id = choose(c, elapsed, until);
		key = id;
		s = bpf_map_lookup_elem(&streams, &key);
	}
	if (id < 0 || !s) {
		if (id == NOTHING)
			return finish(c, now);
		read_clock(c);
		c->idle++;
		return XDP_DROP;
	}
	c->left--;
	if (s->interval) {
		__u64 late = elapsed - s->due;

		if (late > c->late_limit) {
			s->late++;
			if (late >> FRACTION > s->late_max)
				s->late_max = late >> FRACTION;
			s->hold = elapsed + (s->interval >> CATCH_UP);
			if (++s->behind > s->burst)
				s->burst = s->behind;
		} else {
			s->behind = 0;
		}
		s->due += s->poisson ? ((s->interval >> 8) * exponential_variate(key)) >> 8 : s->interval;
	}
	if (!write_frame(ctx, now, s, key))
		return fail(s);
	s->bytes += ctx->data_end - ctx->data + 4;
	s->sent++;
	return bpf_redirect_map(&out, 0, XDP_ABORTED);
}

#include "sprint.h"

char _license[] SEC("license") = "Dual BSD/GPL";
