/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The log-linear histogram of measure/hist, bucket for bucket. */
#ifndef POLYPLANE_MEASURE_HIST_H
#define POLYPLANE_MEASURE_HIST_H

#define SUB_BITS 7
#define MAX_BITS 36
#define BUCKETS ((MAX_BITS - SUB_BITS + 1) << SUB_BITS)

struct histogram {
	__u64 count;
	__u64 over;
	__u64 min; /* + 1, so that 0 means none yet */
	__u64 max;
	__u64 sum;
	__u64 square_low;
	__u64 square_high;
	__u64 bucket[BUCKETS];
};

/* The position of the highest bit of v, which is not 0. */
INLINE __u32 top_bit(__u64 v)
{
	__u32 r = 0;

	if (v >> 32) {
		v >>= 32;
		r = 32;
	}
	if (v >> 16) {
		v >>= 16;
		r += 16;
	}
	if (v >> 8) {
		v >>= 8;
		r += 8;
	}
	if (v >> 4) {
		v >>= 4;
		r += 4;
	}
	if (v >> 2) {
		v >>= 2;
		r += 2;
	}
	return r + (v >> 1);
}

INLINE __u32 bucket_of(__u64 v)
{
	__u32 shift;

	if (v < 1 << SUB_BITS)
		return v;
	if (v >= 1ull << MAX_BITS)
		return BUCKETS - 1;
	shift = top_bit(v) - SUB_BITS;
	return (shift << SUB_BITS) + (__u32)(v >> (shift & 63));
}

INLINE void record(struct histogram *h, __u64 v)
{
	__u64 high = v >> 32, low = v & 0xffffffff, square, cross;
	__u32 i = bucket_of(v);

	if (i < BUCKETS)
		h->bucket[i]++;
	h->count++;
	h->sum += v;
	if (!h->min || v + 1 < h->min)
		h->min = v + 1;
	if (v > h->max)
		h->max = v;
	square = low * low;
	if (high) { /* 128 bits by halves */
		cross = high * low;
		h->square_high += high * high + (cross >> 31);
		cross <<= 33;
		square += cross;
		if (square < cross)
			h->square_high++;
		if (v >= 1ull << MAX_BITS)
			h->over++;
	}
	h->square_low += square;
	if (h->square_low < square)
		h->square_high++;
}

#endif
