// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A device under test whose faults are known: it forwards between two devices and, as told, limits, delays, loses,
// duplicates, corrupts, and sends some frames on a longer way, so that others overtake them. It counts what it did.
#include "../../../linux/bpf/kernel.h"

struct fault {
	/* set by user space; chances are out of 2^32 */
	__u64 interval; /* 2^-16 ns a frame; 0: no limit */
	__u64 burst;    /* 2^-16 ns: how much unused time may be saved up */
	__u32 loss;
	__u32 duplication;
	__u32 corruption;
	__u32 detour;
	__u32 delay;  /* ns spent with every frame */
	__u32 jitter; /* … and at most so much more, uniformly */
	__u32 corrupt_from; /* bytes from the frame's start on which bits are flipped */
	__u32 _pad;
	/* state and counts */
	__u64 rng;
	__u64 ready;
	__u64 frames;
	__u64 limited;
	__u64 lost;
	__u64 duplicated;
	__u64 corrupted;
	__u64 detoured;
};

MAP(ARRAY, faults, __u32, struct fault, 1);

/* 0: the way out; 1: the detour */
MAP(DEVMAP, ways, __u32, __u32, 2);

/* The way out, twice: broadcasting to it duplicates. */
MAP(DEVMAP, twice, __u32, __u32, 2);

INLINE __u32 draw(struct fault *f)
{
	__u64 x = f->rng;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	f->rng = x;
	return (x * 0x2545f4914f6cdd1dULL) >> 32;
}

static long until(__u32 i, __u64 *end)
{
	return bpf_ktime_get_ns() >= *end;
}

SEC("xdp.frags")
int impair(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 zero = 0;
	struct fault *f = bpf_map_lookup_elem(&faults, &zero);

	if (!f)
		return XDP_ABORTED;
	f->frames++;
	if (f->interval) {
		__u64 now = bpf_ktime_get_ns() << 16;

		if (f->ready + f->burst < now)
			f->ready = now - f->burst;
		if (f->ready > now) {
			f->limited++;
			return XDP_DROP;
		}
		f->ready += f->interval;
	}
	if (f->loss && draw(f) < f->loss) {
		f->lost++;
		return XDP_DROP;
	}
	if (f->delay || f->jitter) {
		__u64 to = bpf_ktime_get_ns() + f->delay;

		if (f->jitter)
			to += (__u64)draw(f) * f->jitter >> 32;
		bpf_loop(1 << 20, until, &to, 0);
	}
	if (f->corruption && draw(f) < f->corruption) {
		__u32 from = f->corrupt_from, size = end - data, at;

		if (from < size) {
			at = from + ((__u64)draw(f) * (size - from) >> 32);
			if (at < 2048) {
				__u8 *b = data + at;

				if ((void *)(b + 1) <= end) {
					*b ^= 1 << (draw(f) & 7);
					f->corrupted++;
				}
			}
		}
	}
	if (f->duplication && draw(f) < f->duplication) {
		f->duplicated++;
		return bpf_redirect_map(&twice, 0, REDIRECT_BROADCAST);
	}
	if (f->detour && draw(f) < f->detour) {
		f->detoured++;
		return bpf_redirect_map(&ways, 1, XDP_ABORTED);
	}
	return bpf_redirect_map(&ways, 0, XDP_ABORTED);
}

SEC("xdp.frags")
int forward(struct xdp_md *ctx)
{
	return bpf_redirect_map(&ways, 0, XDP_ABORTED);
}

char _license[] SEC("license") = "Dual BSD/GPL";
