/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One stream without a pace, to destinations in a row: the same frames as source's, in a third of the instructions. Whatever
 * differs from stream to stream and not from frame to frame is a constant of the program, so that the verifier drops the code
 * of all other cases; the clock is read, and the end looked for, once in clock_every frames.
 */
#ifndef POLYPLANE_MEASURE_SPRINT_H
#define POLYPLANE_MEASURE_SPRINT_H

/* Set by the loader. */
volatile const __u32 sprint_kind;
volatile const __u32 sprint_sizes;  /* 1: all frames have the size of the pages as they come */
volatile const __u32 sprint_ports;  /* 1: no port is drawn */
volatile const __u32 sprint_random; /* destinations and ports are drawn, not taken in turn */

struct sprinter {
	/* set by user space */
	__u64 words[10]; /* the headers and the tag's run and stream, with all that differs left 0 */
	__u64 count;
	__u64 rng;
	__u32 first;     /* last word of the first destination, host order */
	__u32 dsts;
	__u32 sport;     /* host order */
	__u32 sports;
	__u32 ip_sum;    /* partial ones' complement sums; of frames of one size with their lengths */
	__u32 udp_sum;
	__u32 tag_sum;   /* of run and stream, and of the filler of frames of one size */
	/* state */
	__u32 timed_sum; /* the same with the time */
	__u64 time;      /* as it stands in the tag */
	__u32 seq;
	__u32 turn;      /* sequence number at which to look at the clock again */
	__u64 bytes;     /* of frames of several sizes */
};

struct sprinter sprint_state;

/* Looks at the clock, and whether that was all. */
__noinline int sprint_turn(void)
{
	struct control *c = &schedule;
	struct sprinter *s = &sprint_state;
	__u64 more, now, sum;

	if (done)
		return 0;
	now = bpf_ktime_get_ns();
	if (!c->start)
		c->start = now;
	if (stop || now - c->start >= c->until || s->seq >= s->count) {
		c->end = now;
		done = 1;
		return 0;
	}
	more = s->count - s->seq;
	s->turn = s->seq + (more < c->clock_every ? more : c->clock_every);
	s->time = bpf_cpu_to_be64(now);
	sum = (__u64)s->tag_sum + (s->time & 0xffffffff) + (s->time >> 32);
	s->timed_sum = fold(sum);
	return 1;
}

/* How the size of this frame adds to the sums, and the frame made that long. */
static __always_inline bool sprint_resize(struct xdp_md *ctx, struct stream *st, __u32 header, __u32 *size)
{
	*size = frame_size(st) - 4;
	if (*size < header + TAG_SIZE || *size > FRAME_MAX)
		return false;
	if (*size != schedule.room && bpf_xdp_adjust_tail(ctx, (int)*size - (int)schedule.room))
		return false;
	if (!kept && *size > header + TAG_SIZE) {
		__u32 body = *size - header - TAG_SIZE;

		if (body > FRAME_MAX || bpf_xdp_store_bytes(ctx, header + TAG_SIZE, filler, body))
			return false;
	}
	sprint_state.bytes += *size + 4;
	return true;
}

SEC("xdp.frags")
int sprint(struct xdp_md *ctx)
{
	const __u32 header = sprint_kind == KIND_IP4 ? ETH_SIZE + IP4_SIZE + UDP_SIZE : sprint_kind == KIND_IP6 ? ETH_SIZE + IP6_SIZE + UDP_SIZE : ETH_SIZE;
	struct sprinter *s = &sprint_state;
	__u32 seq, pick, port, last, ip_sum, udp_sum, tag_sum, half, size, be;
	__u64 *to, lengths = 0, x;
	void *end;

	seq = s->seq;
	if (seq == s->turn && !sprint_turn())
		return XDP_DROP;
	if (sprint_sizes != 1 || !kept) {
		__u32 zero = 0;
		struct stream *st = bpf_map_lookup_elem(&streams, &zero);

		if (!st)
			return XDP_ABORTED;
		if (!sprint_resize(ctx, st, header, &size))
			return fail(st);
	}
	s->seq = seq + 1;
	ip_sum = s->ip_sum;
	udp_sum = s->udp_sum;
	tag_sum = s->timed_sum;
	if (sprint_sizes != 1) {
		__u32 total = bpf_htons(size - ETH_SIZE), udp;

		udp = bpf_htons(size - (header - UDP_SIZE));
		ip_sum += total;
		udp_sum += 2 * udp;
		tag_sum += filler_sum[(size - header - TAG_SIZE) & 2047];
		lengths = (__u64)udp << 32 | total;
	}
	if (sprint_random) {
		x = s->rng * 6364136223846793005ull + 1442695040888963407ull; /* Knuth's; only the upper bits are used */
		s->rng = x;
		pick = (x >> 32) * s->dsts >> 32;
		port = s->sport;
		if (sprint_ports != 1)
			port += (x >> 16 & 0xffffffff) * s->sports >> 32;
	} else {
		pick = seq % s->dsts;
		port = s->sport + seq / s->dsts % s->sports;
	}
	last = bpf_htonl(s->first + pick);
	half = (last & 0xffff) + (last >> 16);
	port = bpf_htons(port);
	be = bpf_htonl(seq);
	tag_sum = (__u16)~fold32(tag_sum + (be & 0xffff) + (be >> 16));
	udp_sum = (__u16)~fold32(udp_sum + half + port);
	if (!udp_sum)
		udp_sum = 0xffff;
	to = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (sprint_kind == KIND_IP4) {
		if ((void *)to + ETH_SIZE + IP4_SIZE + UDP_SIZE + TAG_SIZE > end)
			return XDP_ABORTED;
		ip_sum = (__u16)~fold32(ip_sum + half);
		to[0] = s->words[0];
		to[1] = s->words[1];
		to[2] = s->words[2] | (lengths & 0xffff);
		to[3] = s->words[3] | ip_sum | (__u64)last << 48;
		to[4] = s->words[4] | last >> 16 | port << 16 | (lengths >> 32 << 48);
		to[5] = s->words[5] | udp_sum | (__u64)be << 48;
		to[6] = be >> 16 | s->time << 16;
		((__u32 *)to)[14] = s->time >> 48 | tag_sum << 16;
	} else if (sprint_kind == KIND_IP6) {
		if ((void *)to + ETH_SIZE + IP6_SIZE + UDP_SIZE + TAG_SIZE > end)
			return XDP_ABORTED;
		to[0] = s->words[0];
		to[1] = s->words[1];
		to[2] = s->words[2] | (lengths >> 32 << 16);
		to[3] = s->words[3];
		to[4] = s->words[4];
		to[5] = s->words[5];
		to[6] = s->words[6] | (__u64)last << 16 | (__u64)port << 48;
		to[7] = s->words[7] | (lengths >> 32 << 16) | (__u64)udp_sum << 32;
		to[8] = s->words[8] | (__u64)be << 16 | s->time << 48;
		to[9] = s->time >> 16 | (__u64)tag_sum << 48;
	} else {
		if ((void *)to + ETH_SIZE + TAG_SIZE > end)
			return XDP_ABORTED;
		to[0] = s->words[0];
		to[1] = s->words[1];
		to[2] = s->words[2] | (__u64)be << 16 | s->time << 48;
		to[3] = s->time >> 16 | (__u64)tag_sum << 48;
	}
	return bpf_redirect_map(&out, 0, XDP_ABORTED);
}

#endif
