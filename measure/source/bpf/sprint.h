/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One stream without a pace, to destinations in a row: the same frames as source's, in a quarter of the instructions.
 * Whatever differs from stream to stream, and not from frame to frame, is a constant of the program, so that the
 * verifier drops the code of all other cases. What stays the same for up to 256 frames (the time, the upper three bytes
 * of the sequence number, and their sums) is put together once a turn. Then the clock is read, too, and the end looked
 * for. Of a frame's sums only the addend that is its own is folded in.
 */
#ifndef POLYPLANE_MEASURE_SPRINT_H
#define POLYPLANE_MEASURE_SPRINT_H

/* Set by the loader. */
volatile const __u32 sprint_kind;
volatile const __u32 sprint_one;    /* all frames have the size of the pages as they come */
volatile const __u32 sprint_ports;  /* 1: no port is drawn */
volatile const __u32 sprint_random; /* destinations and ports are drawn, not taken in turn */
volatile const __u32 sprint_near;   /* destinations differ in their last 16 bits only */

/* What a size adds. */
struct shape {
	int cut;       /* from the size of the pages */
	__u16 size;    /* check sequence included */
	__u16 total;   /* IP's length, network order */
	__u16 udp;     /* UDP's, or IPv6's, network order */
	__u16 ip_sum;  /* of IP's header with this length, folded */
	__u16 udp_sum; /* of pseudo header and UDP header, folded */
	__u16 tag_sum; /* of the filler */
};

#define SHAPES 1536

/* The sizes to draw from; one of them when all frames have one size. */
struct shape shapes[SHAPES];

struct sprinter {
	/* set by user space */
	__u64 fixed[10]; /* the headers and the tag's run and stream, with all that differs left 0 */
	__u64 count;
	__u64 rng;
	__u32 first;     /* last word of the first destination, host order */
	__u32 dsts;
	__u32 sport;     /* host order */
	__u32 sports;
	__u32 shapes;
	__u32 body;      /* bytes of payload, when all frames have one size */
	/*
	 * Ones' complement sums of what all frames share, folded; with lengths, port, and the upper half of the destination
	 * where frames share those.
	 */
	__u32 ip_sum;
	__u32 udp_sum;
	__u32 tag_sum;   /* of run and stream, and of the filler of frames of one size */
	/* state */
	__u32 turn_sum;  /* the same with time and sequence number of this turn, folded */
	__u64 words[10]; /* fixed, with these */
	__u32 seq;
	__u32 turn;      /* sequence number at which to look at the clock again */
	__u64 bytes;     /* of frames of several sizes */
	__u64 failed;    /* frames that could not be written */
};

struct sprinter sprint_state;

/* Looks at the clock, and whether that was all. */
NOINLINE int sprint_turn(void)
{
	struct control *c = &schedule;
	struct sprinter *s = &sprint_state;
	__u64 now, sum, time, next;
	__u32 seq = s->seq, be;

	if (done)
		return 0;
	now = bpf_ktime_get_ns();
	if (!c->start)
		c->start = now;
	if (stop || now - c->start >= c->until || seq >= s->count) {
		c->end = now;
		done = 1;
		return 0;
	}
	next = (__u64)seq + c->clock_every;
	if (next > s->count)
		next = s->count;
	if (next > (seq | 255ull) + 1) /* so that one byte of the sequence number differs within a turn */
		next = (seq | 255ull) + 1;
	s->turn = next;
	time = be64(now);
	be = be32(seq & ~255u);
	sum = (__u64)s->tag_sum + (time & 0xffffffff) + (time >> 32) + be;
	s->turn_sum = fold(sum);
	if (sprint_kind == KIND_IP4) {
		s->words[5] = s->fixed[5] | (__u64)be << 48;
		s->words[6] = be >> 16 | time << 16;
		s->words[7] = time >> 48;
	} else if (sprint_kind == KIND_IP6) {
		s->words[8] = s->fixed[8] | (__u64)be << 16 | time << 48;
		s->words[9] = time >> 16;
	} else {
		s->words[2] = s->fixed[2] | (__u64)be << 16 | time << 48;
		s->words[3] = time >> 16;
	}
	return 1;
}

/* A ones' complement sum of two that are folded. */
INLINE __u32 fold_two(__u32 s)
{
	return (__u16)s + (s >> 16);
}

INLINE int sprint_failed(void)
{
	sprint_state.failed++;
	return XDP_ABORTED;
}

/* What is what, see the constants above. */
INLINE int sprint_frame(struct xdp_md *ctx, const __u32 kind, const bool one, const bool one_port,
			const bool random, const bool near, const bool keep)
{
	const __u32 header = kind == KIND_IP4 ? ETH_SIZE + IP4_SIZE + UDP_SIZE :
			     kind == KIND_IP6 ? ETH_SIZE + IP6_SIZE + UDP_SIZE : ETH_SIZE;
	struct sprinter *s = &sprint_state;
	__u32 seq = s->seq, pick, port = 0, last, half, ip_sum, udp_sum, tag_sum;
	__u64 *to, x = 0, own;
	struct shape *shape = &shapes[0];
	void *end;

	if (seq == s->turn && !sprint_turn())
		return XDP_DROP;
	if (!one || random) {
		/* Knuth's; only the upper bits of each part are used */
		x = s->rng * 6364136223846793005ull + 1442695040888963407ull;
		s->rng = x;
	}
	if (!one) {
		__u64 i = (x & 0xffffffff) * s->shapes >> 32;

		if (i >= SHAPES)
			return sprint_failed();
		shape = &shapes[i];
		if (shape->cut && bpf_xdp_adjust_tail(ctx, shape->cut))
			return sprint_failed();
		s->bytes += shape->size;
	}
	if (!keep) {
		__u32 body = one ? s->body : shape->size - 4 - header - TAG_SIZE;

		if (body && (body > FRAME_MAX || bpf_xdp_store_bytes(ctx, header + TAG_SIZE, filler, body)))
			return sprint_failed();
	}
	s->seq = seq + 1;
	own = seq & 255;
	tag_sum = s->turn_sum + (own << 8);
	if (one) {
		tag_sum = (__u16)~fold_two(tag_sum);
		ip_sum = s->ip_sum;
		udp_sum = s->udp_sum;
	} else {
		tag_sum = (__u16)~fold32(tag_sum + shape->tag_sum);
		ip_sum = shape->ip_sum;
		udp_sum = shape->udp_sum;
	}
	if (kind != KIND_RAW) {
		if (random) {
			pick = (x >> 32) * s->dsts >> 32;
			if (!one_port)
				port = (x >> 16 & 0xffffffff) * s->sports >> 32;
		} else {
			pick = seq % s->dsts;
			if (!one_port)
				port = seq / s->dsts % s->sports;
		}
		if (near) {
			half = be16(s->first + pick);
			last = half << 16;
		} else {
			last = be32(s->first + pick);
			half = (last & 0xffff) + (last >> 16);
		}
		ip_sum += half;
		udp_sum += half;
		if (!one_port) {
			port = be16(s->sport + port);
			udp_sum += port;
		}
		ip_sum = (__u16)~(near ? fold_two(ip_sum) : fold32(ip_sum));
		udp_sum = (__u16)~(near && one_port ? fold_two(udp_sum) : fold32(udp_sum));
		if (!udp_sum)
			udp_sum = 0xffff;
	}
	to = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (kind == KIND_IP4) {
		if ((void *)to + ETH_SIZE + IP4_SIZE + UDP_SIZE + TAG_SIZE > end)
			return sprint_failed();
		to[0] = s->fixed[0];
		to[1] = s->fixed[1];
		x = s->fixed[2];
		if (!one)
			x |= shape->total;
		to[2] = x;
		x = s->fixed[3] | ip_sum;
		if (!near)
			x |= (__u64)last << 48;
		to[3] = x;
		x = s->fixed[4] | last >> 16;
		if (!one_port)
			x |= port << 16;
		if (!one)
			x |= (__u64)shape->udp << 48;
		to[4] = x;
		to[5] = s->words[5] | udp_sum;
		to[6] = s->words[6] | own << 8;
		((__u32 *)to)[14] = (__u32)s->words[7] | tag_sum << 16;
	} else if (kind == KIND_IP6) {
		if ((void *)to + ETH_SIZE + IP6_SIZE + UDP_SIZE + TAG_SIZE > end)
			return sprint_failed();
		to[0] = s->fixed[0];
		to[1] = s->fixed[1];
		x = s->fixed[2];
		if (!one)
			x |= (__u64)shape->udp << 16;
		to[2] = x;
		to[3] = s->fixed[3];
		to[4] = s->fixed[4];
		to[5] = s->fixed[5];
		x = s->fixed[6] | (__u64)last << 16;
		if (!one_port)
			x |= (__u64)port << 48;
		to[6] = x;
		x = s->fixed[7] | (__u64)udp_sum << 32;
		if (!one)
			x |= (__u64)shape->udp << 16;
		to[7] = x;
		to[8] = s->words[8] | own << 40;
		to[9] = s->words[9] | (__u64)tag_sum << 48;
	} else {
		if ((void *)to + ETH_SIZE + TAG_SIZE > end)
			return sprint_failed();
		to[0] = s->fixed[0];
		to[1] = s->fixed[1];
		to[2] = s->words[2] | own << 40;
		to[3] = s->words[3] | (__u64)tag_sum << 48;
	}
	return bpf_redirect_map(&out, 0, XDP_ABORTED);
}

SEC("xdp.frags")
int sprint(struct xdp_md *ctx)
{
	return sprint_frame(ctx, sprint_kind, sprint_one, sprint_ports == 1, sprint_random, sprint_near, kept);
}

/*
 * What is sent most, with constants that the compiler knows: it takes away a quarter of the instructions, where the
 * verifier only skips them.
 */
#define SPRINT(name, kind, one)                                        \
	SEC("xdp.frags")                                               \
	int name(struct xdp_md *ctx)                                   \
	{                                                              \
		return sprint_frame(ctx, kind, one, true, true, true, true); \
	}

SPRINT(sprint_ip4, KIND_IP4, true)
SPRINT(sprint_ip4_sizes, KIND_IP4, false)
SPRINT(sprint_ip6, KIND_IP6, true)
SPRINT(sprint_ip6_sizes, KIND_IP6, false)

#endif
